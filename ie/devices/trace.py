"""A trace of a run: one line of CSV for each command of each step, with its work and its time.

Owns: the columns, and `TraceExecutor`, which runs each command as a stage of its own and reads the clock between them
(so a traced step takes longer than an ordinary one: commands of one stage no longer overlap). Tiles, bytes and flops
are those that the op table names, for every executor the same. Does not own the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import native
from ..formats import format_by_name, layout_for
from ..ops.table import COMMAND_BYTES
from ..program import Cache, Matrix, Partials, Program, Table, View
from ..program.pack import pack
from ..program.step import Phase, StepInputs
from ..program.touch import left_out, live
from .base import MODEL, Executor, Job, Progress
from .wrap import WrappedExecutor

COLUMNS = ("step", "phase", "rows", "command", "op", "layer", "groups", "bytes", "flops", "microseconds")
"""phase: prefill, decode (generated tokens, and drafts to verify) or draft; rows: of the command's domain; layer: -1
outside the layers; groups: independent tiles; bytes that must move.
When a chain of drafts ends early, the commands behind its end are listed with the rest, and take next to no time."""

PHASES = {Phase.PROMPT: "prefill", Phase.GENERATED: "decode"}

WriteRow = Callable[[Sequence[object]], object]


def _shapes_only(value: Any) -> tuple[Any, ...]:
    """What counting functions look at, in place of addresses."""
    match value:
        case View(_, _, cols):
            return 0, 0, cols
        case Matrix():
            layout = layout_for(format_by_name(value.format))
            fields = 0, layout.id, layout.size, value.k // layout.block, layout.rows
            return (*fields, layout.nbytes(value.rows[0], value.k), 0) if value.separate else fields
        case Table() | Partials() | Cache():
            return 0, 0, 0
    return (0,)


class Costs:
    """Tiles, bytes and flops of a program's commands."""

    def __init__(self, program: Program) -> None:
        ffi, self._lib = native.lib()
        self._packed = np.frombuffer(pack(program, _shapes_only), np.uint8)
        self._base = ffi.cast("char *", self._packed.ctypes.data)

    def of(self, index: int, step: StepInputs) -> tuple[int, int, int]:
        """(tiles, bytes, flops) of a command in a step; zeros where the step leaves it out."""
        at = self._base + COMMAND_BYTES * index
        functions = self._lib.ie_core_command_tiles, self._lib.ie_core_command_bytes, self._lib.ie_core_command_flops
        tiles, moved, flops = (int(f(at, step.address)) for f in functions)
        return tiles, moved, flops


class TraceExecutor(WrappedExecutor):
    """Writes COLUMNS, then a row for each command of each step. See the module docstring."""

    def __init__(self, inner: Executor, write: WriteRow) -> None:
        super().__init__(inner)
        self.write, self.steps = write, 0
        self._costs: list[Costs] = []

    def load(self, job: Job, progress: Progress) -> None:
        super().load(job, progress)
        made = {name: Costs(program) for name, program in job.programs.items()}
        self._costs = [made[b.program] for b in job.bindings]
        self.write(COLUMNS)

    def run(self, handle: int, step: StepInputs) -> None:
        commands = self.bound[handle].commands
        phase = PHASES[step.phase] if self.names[handle] == MODEL else "draft"
        rows_of = [0 if left_out(step, c) else live(step, c.domain) for c in commands]
        costs = [self._costs[handle].of(i, step) for i in range(len(commands))]  # before a chain of drafts ends early
        nanoseconds = self.inner.run_timed(handle, step)
        for i, (command, rows) in enumerate(zip(commands, rows_of, strict=True)):
            self.write(
                (
                    self.steps, phase, rows, i, command.op, command.layer,
                    *costs[i], f"{nanoseconds[i] / 1000:.3f}",
                )
            )  # fmt: skip
        self.steps += 1
