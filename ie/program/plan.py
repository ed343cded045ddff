"""Arena planner: where each activation buffer lies in one block of memory.

Owns: a pure function from buffers with sizes and live ranges to offsets, and the verified check that accepts
or refuses its result. Live ranges count stages, not commands: commands of one stage run at the same time, so
a buffer's memory may be reused only by a later stage. Does not own: the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import native
from .symbols import Buffer, Program


@dataclass(frozen=True)
class Span:
    """A buffer's size in bytes and the stages [first, last] in which it is used."""

    size: int
    first: int
    last: int


def live_spans(program: Program, size_of: Callable[[Buffer], int]) -> dict[Buffer, Span]:
    """Span of every buffer. Outputs live to the end: they are read after the step."""
    spans: dict[Buffer, Span] = {}
    for i, command in enumerate(program.commands):
        stage = program.stage[i]
        for _, view in command.views():
            old = spans.get(view.buffer)
            spans[view.buffer] = Span(size_of(view.buffer), old.first if old else stage, stage)
    end = program.stage[-1] if program.stage else 0
    for view in program.outputs.values():
        span = spans[view.buffer]
        spans[view.buffer] = Span(span.size, span.first, end)
    return spans


def plan(spans: Sequence[Span], align: int) -> tuple[list[int], int]:
    """Offsets and the arena's size. Largest first, each at the lowest aligned gap that is free while it lives."""
    order = sorted(range(len(spans)), key=lambda i: (-spans[i].size, spans[i].first, i))
    offsets = [0] * len(spans)
    placed: list[int] = []
    for i in order:
        span = spans[i]
        taken = sorted(
            (offsets[j], offsets[j] + spans[j].size)
            for j in placed
            if spans[j].first <= span.last and span.first <= spans[j].last
        )
        pos = 0
        for lo, hi in taken:
            if pos + span.size <= lo:
                break
            pos = max(pos, -(-hi // align) * align)
        offsets[i] = pos
        placed.append(i)
    total = max((offsets[i] + spans[i].size for i in placed), default=0)
    return offsets, -(-total // align) * align


def check(spans: Sequence[Span], offsets: Sequence[int], arena: int) -> int:
    """The arena check of ie_core.h: -1 when accepted, else the index of the first buffer at fault."""
    _, library = native.lib()
    columns = [
        native.int64s(x) for x in (offsets, [s.size for s in spans], [s.first for s in spans], [s.last for s in spans])
    ]
    return int(library.ie_core_plan_check(len(spans), *(native.pointer(c, "int64_t *") for c in columns), arena))


def plan_program(program: Program, size_of: Callable[[Buffer], int], apart: int = 0) -> tuple[dict[Buffer, int], int]:
    """Offsets of all buffers of a program and the arena's size; the check has accepted them.

    apart > 0: no two buffers share memory, and so many bytes lie between them (for tests)."""
    spans, align = live_spans(program, size_of), native.constant("align")
    listed = list(spans.values())
    offsets, arena = plan(listed, align) if not apart else ([], 0)
    for span in listed if apart else ():
        offsets.append(arena)
        arena += -(-span.size // align) * align + apart
    bad = check(listed, offsets, arena)
    assert bad < 0, f"arena check refused buffer {list(spans)[bad].name}"
    return dict(zip(spans, offsets, strict=True)), arena
