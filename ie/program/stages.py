"""Stages: runs of consecutive commands without read/write conflicts.

Owns: which columns of which space a command touches, the partition, and the check in C that accepts it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import native
from ..ops import OPS
from .symbols import Cache, Command, Partials, State, View

# ---- accesses and stages ----


@dataclass(frozen=True)
class Access:
    """A command touches columns [lo, hi) of a space (a buffer, or a layer's cache)."""

    command: int
    space: Any
    lo: int
    hi: int
    write: bool


def accesses(commands: tuple[Command, ...]) -> list[Access]:
    """All accesses that hazards are computed from, in command order."""
    out = []
    for i, c in enumerate(commands):
        for arg in OPS[c.op].args:
            value = c.args.get(arg.name)
            if isinstance(value, View):
                lo, hi = value.offset, value.offset + value.cols
            elif isinstance(value, Cache | State | Partials):
                lo, hi = 0, 1
            else:
                continue
            space: Any = value
            if not isinstance(value, Partials):
                space = value.buffer if isinstance(value, View) else (value.layer, value.which)
            out += [Access(i, space, lo, hi, mode == "w") for mode in arg.access]
    return out


def stages(commands: tuple[Command, ...]) -> tuple[int, ...]:
    """Greedy partition into runs of commands without conflicts, accepted by the check in C."""
    acc = accesses(commands)
    by_command: dict[int, list[Access]] = {}
    for a in acc:
        by_command.setdefault(a.command, []).append(a)
    stage, current, open_accesses = [], 0, list[Access]()
    for i in range(len(commands)):
        mine = by_command.get(i, [])
        if any(_conflict(a, b) for a in mine for b in open_accesses):
            current, open_accesses = current + 1, []
        open_accesses += mine
        stage.append(current)
    check_stages(tuple(stage), acc)
    return tuple(stage)


def _conflict(a: Access, b: Access) -> bool:
    return a.space == b.space and a.lo < b.hi and b.lo < a.hi and (a.write or b.write)


def check_stages(stage: tuple[int, ...], acc: list[Access]) -> None:
    """Ask the schedule check of ie_core.h; AssertionError names the offending command."""
    ffi, library = native.lib()
    ids: dict[Any, int] = {}
    columns = [
        native.int64s(x)
        for x in (
            [a.command for a in acc],
            [ids.setdefault(a.space, len(ids)) for a in acc],
            [a.lo for a in acc],
            [a.hi for a in acc],
            [a.write for a in acc],
        )
    ]
    st = native.int64s(stage)
    ptrs = [native.pointer(c, "int64_t *") for c in columns]
    bad = library.ie_core_stage_check(len(stage), native.pointer(st, "int64_t *"), len(acc), *ptrs)
    assert bad != len(acc), "stage check refused: stages decrease"
    assert bad < 0, f"stage check refused access {bad}: command {acc[bad].command}"
