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
from ..ops.table import COMMAND_BYTES
from ..program import Matrix, Partials, Program, Table, View
from ..program.pack import pack
from ..program.step import StepInputs
from ..program.touch import left_out, live
from . import Executor
from .wrap import WrappedExecutor

COLUMNS = ("step", "phase", "rows", "command", "op", "layer", "groups", "bytes", "flops", "microseconds")
"""rows: of the command's domain; layer: -1 outside the layers; groups: independent tiles; bytes that must move.
When a chain of drafts ends early, the commands behind its end are listed with the rest, and take next to no time."""

WriteRow = Callable[[Sequence[object]], object]


def _shapes_only(value: Any) -> tuple[Any, ...]:
    """What counting functions look at, in place of addresses."""
    match value:
        case View(_, _, cols):
            return 0, 0, cols
        case Matrix(k=k, layout=layout):
            return 0, layout.id, layout.size, k // layout.block, layout.rows
        case Table() | Partials():
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
        self._more_prompt = False
        self._costs: dict[int, Costs] = {}

    def load(self, gguf: Any, config: Any, program: Program, *args: Any, **more: Any) -> None:
        super().load(gguf, config, program, *args, **more)
        self.write(COLUMNS)

    def bind(self, rows: int, outs: int, program: Program | None = None) -> int:
        handle = super().bind(rows, outs, program)
        self._costs[handle] = Costs(self.bound[handle])
        return handle

    def run(self, handle: int, step: StepInputs) -> None:
        commands, phase = self.bound[handle].commands, self._phase(handle, step)
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

    def _phase(self, handle: int, step: StepInputs) -> str:
        """draft: another program than the model's. decode: a generated token, with drafts to verify behind it or not;
        it wants the logits of all its rows, and neither begins a text nor ends a prompt that was cut into chunks."""
        if self.bound[handle] is not self.program:
            return "draft"
        begins, ends = int(step.pos[0]) == 0, self._more_prompt
        self._more_prompt = step.n_outs == 0
        few = step.n_rows == step.n_outs <= native.constant("decode_rows")
        return "decode" if few and not (begins or ends) else "prefill"
