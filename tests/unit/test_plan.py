"""The arena planner: no overlap, aligned, never larger than the sum, the same for the same input; and checked in C."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ie import native
from ie.program import Buffer, Command, Program, View, finish
from ie.program.plan import Span, check, live_spans, plan, plan_program
from ie.program.step import Run
from tests.graphs import N_TOKENS, Graph
from tests.rig import Case, row_bytes, run_cpu, run_in_arena

ALIGN = native.constant("align")

SPANS = st.lists(
    st.builds(
        lambda size, first, length: Span(size, first, first + length),
        st.integers(1, 9000) | st.integers(1, 40).map(lambda n: n * ALIGN),
        st.integers(0, 12),
        st.integers(0, 6),
    ),
    max_size=24,
)


def _padded(span: Span) -> int:
    return -(-span.size // ALIGN) * ALIGN


@given(SPANS)
def test_planned_buffers_are_apart_aligned_and_inside(spans: list[Span]) -> None:
    offsets, arena = plan(spans, ALIGN)
    for (a, x), (b, y) in itertools.combinations(zip(spans, offsets, strict=True), 2):
        if a.first <= b.last and b.first <= a.last:
            assert x + a.size <= y or y + b.size <= x
    for s, o in zip(spans, offsets, strict=True):
        assert o % ALIGN == 0 and 0 <= o and o + s.size <= arena
    assert arena % ALIGN == 0
    assert check(spans, offsets, arena) == -1


@given(SPANS)
def test_an_arena_is_between_what_lives_at_once_and_the_sum(spans: list[Span]) -> None:
    _, arena = plan(spans, ALIGN)
    stages = range(max((s.last for s in spans), default=0) + 1)
    at_once = max((sum(s.size for s in spans if s.first <= t <= s.last) for t in stages), default=0)
    assert at_once <= arena <= sum(map(_padded, spans))


@given(SPANS.filter(bool), st.data())
def test_plans_are_deterministic_and_do_not_depend_on_names_or_padding(spans: list[Span], data: st.DataObject) -> None:
    first = plan(spans, ALIGN)
    assert plan(list(spans), ALIGN) == first
    padded = [Span(_padded(s), s.first, s.last) for s in spans]
    assert plan(padded, ALIGN)[1] <= sum(s.size for s in padded)
    shift = data.draw(st.integers(1, 5))
    assert plan([Span(s.size, s.first + shift, s.last + shift) for s in spans], ALIGN) == first


def test_no_plan_beats_the_best_of_all_orders_and_few_are_far_from_it() -> None:
    """The best arena is reached by placing buffers, each as low as it can lie, in some order."""
    rng = np.random.default_rng(4)
    ratios = []
    for _ in range(80):
        first = rng.integers(0, 6, 5)
        columns = (rng.integers(1, 12, 5) * ALIGN, first, first + rng.integers(0, 4, 5))
        spans = [Span(int(n), int(a), int(b)) for n, a, b in zip(*columns, strict=True)]
        best = min(_lowest_first(order) for order in itertools.permutations(spans))
        ratios.append(plan(spans, ALIGN)[1] / best)
    assert min(ratios) == 1.0 and float(np.mean(ratios)) < 1.05


def _lowest_first(spans: Sequence[Span]) -> int:
    placed: list[tuple[Span, int]] = []
    for s in spans:
        rivals = [(o, o + _padded(p)) for p, o in placed if p.first <= s.last and s.first <= p.last]
        spots = [0, *(end for _, end in rivals)]
        at = min(x for x in spots if all(x + _padded(s) <= lo or hi <= x for lo, hi in rivals))
        placed.append((s, at))
    return max(o + _padded(s) for s, o in placed)


@given(SPANS.filter(bool), st.data())
def test_the_check_refuses_every_spoiled_plan(spans: list[Span], data: st.DataObject) -> None:
    offsets, arena = plan(spans, ALIGN)
    i = data.draw(st.integers(0, len(spans) - 1))

    def moved(to: int) -> list[int]:
        return [*offsets[:i], to, *offsets[i + 1 :]]

    assert check(spans, moved(offsets[i] + data.draw(st.integers(1, ALIGN - 1))), arena) == i
    assert check(spans, moved(-ALIGN), arena) == i
    assert check(spans, moved((arena - spans[i].size) // ALIGN * ALIGN + ALIGN), arena) == i
    top = max(range(len(spans)), key=lambda j: offsets[j] + spans[j].size)
    assert check(spans, offsets, offsets[top] + spans[top].size - 1) >= 0
    for j, other in enumerate(spans):  # on top of a neighbour of the same time
        if j != i and other.first <= spans[i].last and spans[i].first <= other.last:
            assert 0 <= check(spans, moved(offsets[j]), 1 << 40) <= max(i, j)
    longer = [Span(s.size, 0, 99) for s in spans]  # everything alive all the time
    if sum(s.size for s in spans) > arena:
        assert check(longer, offsets, arena) >= 0


def test_nothing_to_plan() -> None:
    assert plan([], ALIGN) == ([], 0) and check([], [], 0) == -1


# ---- whole programs ----


def _program(seed: int) -> tuple[Graph, Program]:
    graph = Graph(seed)
    return graph, finish(graph.commands, graph.outputs())


@pytest.mark.parametrize("seed", range(30))
def test_live_spans_cover_every_use(seed: int) -> None:
    _, program = _program(seed)
    spans = live_spans(program, row_bytes)
    assert set(spans) == set(program.buffers)
    for i, command in enumerate(program.commands):
        for _, view in command.views():
            assert spans[view.buffer].first <= program.stage[i] <= spans[view.buffer].last
    for buffer, span in spans.items():
        uses = [program.stage[i] for i, c in enumerate(program.commands) for _, v in c.views() if v.buffer == buffer]
        end = max(uses) if buffer not in {v.buffer for v in program.outputs.values()} else program.stage[-1]
        assert span == Span(row_bytes(buffer), min(uses), end)


@pytest.mark.parametrize("seed", range(30))
def test_programs_in_a_planned_arena_give_the_bits_they_give_apart(seed: int) -> None:
    """Planner, stages, barriers: a buffer overwritten too early, or a barrier missing, changes an output."""
    graph, program = _program(seed)
    tokens = np.random.default_rng(seed).integers(0, N_TOKENS, 7).tolist()
    case = Case(program, {}, [Run(0, 0, tokens)], file=graph.file)
    apart = run_cpu(case)
    want = {name: apart.floats(view).tobytes() for name, view in program.outputs.items()}
    for threads in (1, 2, 3, 3):
        assert run_in_arena(case, threads) == want, threads


@pytest.mark.parametrize("seed", range(10))
def test_program_plans_reuse_memory(seed: int) -> None:
    _, program = _program(seed)
    offsets, arena = plan_program(program, row_bytes)
    assert set(offsets) == set(program.buffers)
    assert arena < sum(-(-row_bytes(b) // ALIGN) * ALIGN for b in program.buffers)


def test_outputs_live_to_the_end() -> None:
    a, b, c, d = (View.of(Buffer(n, "f32", 64)) for n in "abcd")
    chain = [Command("add", {"a": x, "b": x, "y": y}) for x, y in ((a, b), (b, c), (c, d))]
    program = finish(chain, {"first": b})
    spans = live_spans(program, lambda buffer: 256)
    assert spans[b.buffer].last == program.stage[-1] == 2 and spans[a.buffer].last == 0
