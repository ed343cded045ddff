"""An executor that stands before another one and passes everything on.

Owns: the delegation. What looks at a run from outside (statistics, a trace) overrides `run` and nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..program import Program, View
from ..program.step import StepInputs
from .base import Data, Executor, Item, Place


class WrappedExecutor:
    """Passes every call on to `inner`, which it owns. bound[handle]: the program that a handle runs."""

    def __init__(self, inner: Executor) -> None:
        self.inner = inner
        self.name, self.arithmetic, self.compiled = inner.name, inner.arithmetic, inner.compiled
        self.isa, self.threads = getattr(inner, "isa", ""), getattr(inner, "threads", 1)

    def load(self, gguf: Any, config: Any, program: Program, *args: Any, **more: Any) -> None:
        self.program, self.bound = program, list[Program]()
        self.inner.load(gguf, config, program, *args, **more)

    def bind(self, rows: int, outs: int, program: Program | None = None) -> int:
        handle = self.inner.bind(rows, outs, program)
        self.bound += [self.program] * (handle + 1 - len(self.bound))
        self.bound[handle] = program or self.program
        return handle

    def run(self, handle: int, step: StepInputs) -> None:
        self.inner.run(handle, step)

    def run_command(self, handle: int, step: StepInputs, index: int) -> None:
        self.inner.run_command(handle, step, index)

    def run_timed(self, handle: int, step: StepInputs) -> np.ndarray:
        return self.inner.run_timed(handle, step)

    def read(self, handle: int, view: View, rows: int) -> np.ndarray:
        return self.inner.read(handle, view, rows)

    def peek(self, handle: int, item: Item, place: Place) -> Data:
        return self.inner.peek(handle, item, place)

    def poke(self, handle: int, item: Item, place: Place, data: Data) -> None:
        self.inner.poke(handle, item, place, data)

    def command_bytes(self, handle: int, rows: int, outs: int) -> int:
        return self.inner.command_bytes(handle, rows, outs)

    def read_bandwidth(self) -> float:
        return self.inner.read_bandwidth()

    def memory(self) -> dict[str, int]:
        return self.inner.memory()

    def close(self) -> None:
        self.inner.close()
