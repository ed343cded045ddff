"""An executor that stands before another one and passes everything on.

Owns: the delegation. What looks at a run from outside (statistics, a trace) overrides `run` and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..program import Program, View
from ..program.step import StepInputs
from .base import Binding, Data, Executor, Item, Job, Place, Progress, Sizes


class WrappedExecutor:
    """Passes every call on to `inner`, which it owns. bound[handle], names[handle]: the program that a handle runs, and
    its name."""

    def __init__(self, inner: Executor) -> None:
        self.inner = inner
        self.name, self.arithmetic, self.compiled = inner.name, inner.arithmetic, inner.compiled
        self.isa, self.threads = inner.isa, inner.threads
        self.bound: list[Program] = []
        self.names: list[str] = []

    def plan(self, programs: Mapping[str, Program], bindings: Sequence[Binding]) -> Sizes:
        return self.inner.plan(programs, bindings)

    def free_memory(self) -> int:
        return self.inner.free_memory()

    def load(self, job: Job, progress: Progress) -> None:
        self.names = [b.program for b in job.bindings]
        self.bound = [job.programs[name] for name in self.names]
        self.inner.load(job, progress)

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
