"""What an executor offers: the one interface that the engine knows.

Owns: the `Executor` protocol and the `Job` that it is given once: programs, the capacities that each is bound to, and
the sizes of everything. It then runs steps; between steps anybody may read or write its buffers (tests and --diff do).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from ..gguf import TensorSet
from ..program import Cache, Program, State, Table, View, union
from ..program.step import ROW, Limits, StepInputs

NO_LIMIT = (1 << 31) - 1

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in total while weights are loaded."""


@dataclass(frozen=True)
class Q8Rows:
    """Q8 activations as executors exchange them: codes int8 [rows, cols], scales float32 [rows, cols / 32]."""

    codes: np.ndarray
    scales: np.ndarray


@dataclass(frozen=True)
class Place:
    """The part of an item that a command touches: rows [0, rows) of a view; entries (blocks[i], slots[i]) of a cache;
    the states of sequences seqs[i]."""

    rows: int
    blocks: np.ndarray
    slots: np.ndarray
    seqs: np.ndarray


DTYPES = {"f32": np.float32, "i32": np.int32}
"""Types of the buffers that are read as they stand."""

Item = View | Cache | State
"""What commands read and write."""

Data = np.ndarray | Q8Rows
"""Content of an item at a place: float32 or int32 [rows, cols] or Q8Rows of a view, float16 [entries, heads, dim] of a
cache, float32 [sequences, *shape] of a state."""


MODEL = "model"
"""Name of the program that every job has; others draft for it."""


class Binding(NamedTuple):
    """A program of the job, for steps of up to `rows` rows of which `outs` are output rows."""

    program: str
    rows: int
    outs: int


@dataclass(frozen=True)
class Shape:
    """Sizes that do not depend on the model: positions of a sequence, KV blocks, sequences."""

    n_ctx: int
    n_blocks: int
    n_seqs: int = 1


@dataclass(frozen=True)
class Job:
    """All that an executor is asked for, once.

    tensors: the files' weights. ropes: cos/sin tables, float32 [n_ctx, pairs, 2] each. A binding's index among
    `bindings` is its handle.
    """

    tensors: TensorSet
    ropes: Sequence[np.ndarray]
    programs: Mapping[str, Program]
    bindings: Sequence[Binding]
    shape: Shape

    def whole(self) -> Program:
        """All programs' commands, for asking what they use."""
        return union(list(self.programs.values()))

    def limits(self) -> list[Limits]:
        """What the numbers in a step must stay below, for each binding; a program whose commands name their rows takes
        any number of them."""
        whole, shape = self.whole(), self.shape
        tables = [self.tensors[w.name].shape[1] for w in whole.weights() if isinstance(w, Table)]
        slots = max((s.shape[0] for s in whole.states() if s.which == "delta"), default=0)
        base = Limits(0, 0, shape.n_seqs, min(tables, default=NO_LIMIT), shape.n_ctx, shape.n_blocks, slots)
        out = []
        for name, rows, outs in self.bindings:
            named = all(c.domain == ROW for c in self.programs[name].commands)
            out.append(base._replace(rows=NO_LIMIT if named else rows, outs=NO_LIMIT if named else outs))
        return out


@dataclass(frozen=True)
class Sizes:
    """Bytes that programs need on a device whatever the context: weights, and activations of the widest binding."""

    weights: int
    activations: int


class Executor(Protocol):
    """Runs programs. All memory is taken in `load`, none in `run`.

    name: cpu, reference, …; isa, threads: what it runs on. arithmetic: executors of one arithmetic give the same bits.
    compiled: scalar formulas are those of formula.h.
    """

    @property
    def name(self) -> str: ...
    @property
    def arithmetic(self) -> str: ...
    @property
    def isa(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def compiled(self) -> bool: ...

    def plan(self, programs: Mapping[str, Program], bindings: Sequence[Binding]) -> Sizes:
        """What these would take, before anything is taken."""

    def free_memory(self) -> int:
        """Bytes that can be had where the executor keeps its memory."""

    def load(self, job: Job, progress: Progress) -> None:
        """Bring weights, rotary tables, KV pool and states, and prepare every binding."""

    def run(self, handle: int, step: StepInputs) -> None:
        """One step of a binding. Results stand in the program's output buffers until the next step. IeError, with
        nothing run, for step inputs that break a limit."""

    def read(self, handle: int, view: View, rows: int) -> np.ndarray:
        """float32 or int32 [rows, view.cols] of an F32 or I32 view: a view of device memory where possible, else a
        copy."""

    def run_command(self, handle: int, step: StepInputs, index: int) -> None:
        """Command `index` of the program alone: for debugging."""

    def run_timed(self, handle: int, step: StepInputs) -> np.ndarray:
        """One step, each command a stage of its own: int64 nanoseconds [commands]."""

    def peek(self, handle: int, item: Item, place: Place) -> Data:
        """A copy of an item's content."""

    def poke(self, handle: int, item: Item, place: Place, data: Data) -> None:
        """Write an item's content; what is derived from it follows."""

    def command_bytes(self, handle: int, rows: int, outs: int) -> int:
        """Weight bytes that one step reads."""

    def read_bandwidth(self) -> float:
        """Bytes per second with which weights can be read now; 0 where that is not known."""

    def memory(self) -> dict[str, int]:
        """Bytes taken, by purpose."""

    def close(self) -> None:
        """Free everything."""
