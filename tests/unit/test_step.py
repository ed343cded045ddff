"""Step inputs: the block of memory that kernels read, field by field."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ie.program.step import STEP_DTYPE, STEP_FIELDS, Phase, Run, StepInputs


def _ints(address: int, n: int) -> list[int]:
    """What a kernel sees at an address."""
    return list((ctypes.c_int32 * n).from_address(address))


def _struct(step: StepInputs) -> dict[str, int]:
    kinds = {"int32_t": ctypes.c_int32, "uint64_t": ctypes.c_uint64}
    made = type("Step", (ctypes.Structure,), {"_fields_": [(n, kinds[c]) for n, c, _ in STEP_FIELDS]})
    assert ctypes.sizeof(made) == STEP_DTYPE.itemsize
    seen = made.from_address(step.address)
    return {n: getattr(seen, n) for n, _, _ in STEP_FIELDS}


@settings(max_examples=60)
@given(st.integers(1, 70), st.integers(1, 5), st.integers(1, 40))
def test_arrays_lie_inside_the_block_apart_and_on_cache_lines(rows: int, seqs: int, blocks: int) -> None:
    step = StepInputs(rows, seqs, blocks)
    begin, end = step.address, step.address + step.memory.size
    spans = [(begin, begin + STEP_DTYPE.itemsize)]
    for name, array in step.arrays.items():
        at = array.ctypes.data
        assert at % 64 == 0 and at == begin + _struct(step)[name]
        spans.append((at, at + array.nbytes))
    spans.sort()
    assert begin % 64 == 0 and spans[-1][1] <= end
    assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False))
    assert [step.arrays[n].size for n in ("token", "pos", "seq", "out_row", "seg", "tables")] == [
        *(rows,) * 4, 4 * seqs, seqs * blocks,
    ]  # fmt: skip


RUNS = st.lists(
    st.tuples(st.integers(0, 50), st.lists(st.integers(0, 99), min_size=1, max_size=12)), min_size=1, max_size=4
)


@settings(max_examples=100)
@given(RUNS, st.data())
def test_kernels_read_what_was_filled(runs: list[tuple[int, list[int]]], data: st.DataObject) -> None:
    slots = data.draw(st.permutations(range(4)))
    described = []
    for i, (first, tokens) in enumerate(runs):
        state, keep = data.draw(st.integers(-1, 7)), data.draw(st.integers(1, len(tokens)))
        described.append(Run(slots[i], first, tokens, state, keep))
    n = sum(len(t) for _, t in runs)
    outs = sorted(data.draw(st.sets(st.integers(0, n - 1))))
    step = StepInputs(48, 4, 2)
    step.tables[:] = np.arange(8).reshape(4, 2)
    step.fill([Run(3, 0, [1] * 40, 6, 9)], [5])  # leftovers of an earlier step
    step.fill(described, outs, skip=bool(runs[0][0] % 2))
    step.check()
    head = _struct(step)
    assert head | {"n_rows": n, "n_outs": len(outs), "n_segs": len(runs), "max_blocks": 2, "phase": 0} == head
    assert head["skip"] == runs[0][0] % 2
    rows = [(t, first + i, slot) for slot, first, tokens, _, _ in described for i, t in enumerate(tokens)]
    got = zip(*(_ints(step.address + head[name], n) for name in ("token", "pos", "seq")), strict=True)
    assert list(got) == rows
    assert _ints(step.address + head["out_row"], len(outs)) == outs
    segments, row = [], 0
    for run in described:
        segments += [row, len(run.tokens), run.state, run.keep]
        row += len(run.tokens)
    assert _ints(step.address + head["seg"], 4 * len(runs)) == segments
    assert _ints(step.address + head["tables"], 8) == list(range(8))


def test_filling_moves_nothing() -> None:
    """Kernels keep addresses: a step must not allocate."""
    step = StepInputs(20, 2, 3)
    before = {n: _struct(step)[n] for n, c, _ in STEP_FIELDS if c == "uint64_t"}
    for n in (1, 7, 8, 20):
        step.fill([Run(1, 5, list(range(n)))], [n - 1])
        assert {k: _struct(step)[k] for k in before} == before


def test_a_copy_elsewhere_is_the_same_step() -> None:
    """No word of the block says where it stands."""
    made = []
    for _ in range(2):
        step = StepInputs(20, 2, 3)
        step.set_blocks(1, [2, 0])
        step.fill([Run(1, 5, [7, 8, 9])], [2], Phase.GENERATED)
        made.append((step.address, step.memory.tobytes()))
    assert made[0][0] != made[1][0] and made[0][1] == made[1][1]


def test_phase_and_skip_flag() -> None:
    step = StepInputs(4, 1, 1)
    for phase in Phase:
        step.fill([Run(0, 0, [1])], [], phase, skip=phase is Phase.GENERATED)
        assert (step.phase, step.skip, _struct(step)["phase"]) == (phase, int(phase), int(phase))
    step.skip = 1
    assert _struct(step)["skip"] == 1


def test_block_tables_are_written_by_difference() -> None:
    step = StepInputs(4, 2, 4)
    step.set_blocks(1, [5, 6, 7])
    step.set_blocks(1, [9, 6, 8], 2)  # the caller says that the first two are as they were
    assert step.tables.tolist() == [[-1] * 4, [5, 6, 8, -1]]
    step.set_blocks(1, [5], 1)
    assert step.tables[1].tolist() == [5, -1, -1, -1]


def test_tables_start_without_blocks() -> None:
    assert (StepInputs(4, 2, 3).tables == -1).all()


def _filled() -> StepInputs:
    step = StepInputs(40, 2, 2)
    step.tables[:] = [[3, 1], [-1, -1]]
    step.fill([Run(0, 20, [1, 2, 3])], [0, 2])
    return step


def test_too_many_rows_or_runs_do_not_fit() -> None:
    step = StepInputs(4, 1, 2)
    with pytest.raises(ValueError):
        step.fill([Run(0, 0, [1] * 5)], [])
    with pytest.raises(ValueError):
        step.fill([Run(0, 0, [1]), Run(0, 1, [1])], [])


def _spoil(name: str, row: int, value: int) -> StepInputs:
    step = _filled()
    getattr(step, name)[row] = value
    return step


def _counted(**counts: int) -> StepInputs:
    step = _filled()
    for name, value in counts.items():
        setattr(step, name, value)
    return step


@pytest.mark.parametrize(
    "step",
    [
        _spoil("seq", 1, 2), _spoil("seq", 1, -1), _spoil("pos", 2, -1), _spoil("seq", 0, 1),
        _spoil("out_row", 1, 3), _spoil("out_row", 0, -1), _spoil("out_row", 1, 0), _spoil("out_row", 0, 2),
        _counted(n_rows=41), _counted(n_rows=-1), _counted(n_outs=4), _counted(n_segs=3),
    ],
)  # fmt: skip
def test_check_refuses(step: StepInputs) -> None:
    _filled().check()
    with pytest.raises(AssertionError):
        step.check()


def test_check_wants_a_block_for_every_position() -> None:
    step = _filled()
    step.fill([Run(0, 62, [1, 2])], [])
    step.check()
    step.tables[0, 1] = -1
    with pytest.raises(AssertionError, match="without a KV block"):
        step.check()
