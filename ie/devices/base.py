"""What an executor offers: the one interface that the engine knows.

Owns: the `Executor` protocol. An executor is given a program once (`load`), is told which capacities it will run
(`bind`), and then runs steps; between steps anybody may read or write its buffers (tests and --diff do).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..gguf import GgufFile
from ..model.config import ModelConfig
from ..program import Cache, Program, State, Table, View
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


def base_limits(gguf: GgufFile, program: Program, n_ctx: int, n_blocks: int, n_seqs: int) -> Limits:
    """What the numbers in a step must stay below for everything that a program indexes with them."""
    tables = [gguf.tensors[w.name].shape[1] for w in program.weights() if isinstance(w, Table)]
    slots = max((s.shape[0] for s in program.states() if s.which == "delta"), default=0)
    return Limits(0, 0, n_seqs, min(tables, default=NO_LIMIT), n_ctx, n_blocks, slots)


def bound_limits(base: Limits, program: Program, rows: int, outs: int) -> Limits:
    """The same for a program bound to a capacity; one whose commands name their rows takes any number of them."""
    named = all(c.domain == ROW for c in program.commands)
    return base._replace(rows=NO_LIMIT if named else rows, outs=NO_LIMIT if named else outs)


class Executor(Protocol):
    """Runs a program. All memory is taken in `load` and `bind`, none in `run`.

    arithmetic: executors of one arithmetic give the same bits. compiled: scalar formulas are those of formula.h.
    """

    name: str
    arithmetic: str
    compiled: bool

    def load(
        self,
        gguf: GgufFile,
        config: ModelConfig,
        program: Program,
        n_ctx: int,
        n_blocks: int,
        progress: Progress,
        n_seqs: int = 1,
        more: Sequence[Program] = (),
    ) -> None:
        """Bring weights, rotary tables (n_ctx positions), KV pool (n_blocks blocks a layer), states of n_seqs."""

    def bind(self, rows: int, outs: int, program: Program | None = None) -> int:
        """Prepare the program for up to `rows` rows and `outs` output rows; returns a handle."""

    def run(self, handle: int, step: StepInputs) -> None:
        """One step. Results stand in the program's output buffers until the next step."""

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
