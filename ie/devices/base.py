"""What an executor offers: the one interface that the engine knows.

Owns: the `Executor` protocol. An executor is given a program once (`load`), is told which capacities it will run
(`bind`), and then runs steps; between steps anybody may read or write its buffers (tests and --diff do).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from ..config import ModelConfig
from ..gguf import GgufFile
from ..program import Program, View
from ..step import StepInputs

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in total while weights are loaded."""


class Executor(Protocol):
    """Runs a program. All memory is taken in `load` and `bind`, none in `run`."""

    name: str

    def load(
        self, gguf: GgufFile, config: ModelConfig, program: Program, n_ctx: int, n_blocks: int, progress: Progress
    ) -> None:
        """Bring weights, rotary tables (n_ctx positions) and the KV pool (n_blocks blocks a layer) to the device."""

    def bind(self, rows: int, outs: int) -> int:
        """Prepare the program for up to `rows` rows and `outs` output rows; returns a handle."""

    def run(self, handle: int, step: StepInputs) -> None:
        """One step. Results stand in the program's output buffers until the next step."""

    def read(self, handle: int, view: View, rows: int) -> np.ndarray:
        """float32 [rows, view.cols] of an F32 view: a view of device memory where possible, else a copy."""

    def command_bytes(self, handle: int, rows: int, outs: int) -> int:
        """Weight bytes that one step reads."""

    def memory(self) -> dict[str, int]:
        """Bytes taken, by purpose."""

    def close(self) -> None:
        """Free everything."""
