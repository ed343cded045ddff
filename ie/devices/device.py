"""What a device offers: memory at addresses, and running commands that were written with these.

Owns: the `Device` protocol, the whole of what a new kind of device has to be able to do. A device knows bytes; which
of them are weights, caches or activations of a model only the executor over it knows (`compiled`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..formats import Layout
from ..program.step import Limits, StepInputs


@dataclass(frozen=True)
class Facts:
    """What a device is: its name (cpu, …), instruction set, threads that run commands, and whose order of operations it
    has (devices of one arithmetic give the same bits)."""

    name: str
    isa: str
    threads: int
    arithmetic: str


class Region(Protocol):
    """Memory of a device: `nbytes` bytes from the device's `address` on."""

    @property
    def address(self) -> int: ...

    @property
    def nbytes(self) -> int: ...


class Device(Protocol):
    """Memory and commands. All memory is asked for before the first run.

    maps_files: `resident` takes no memory, since the device reads the host's own. views: what `fetch` returns is the
    device's memory itself, not a copy.
    """

    facts: Facts
    maps_files: bool
    views: bool

    def layout(self, format_name: str) -> Layout:
        """How this device keeps matrices of a tensor format."""

    def alloc(self, nbytes: int, what: str, hint: str = "", huge: bool = False) -> Region:
        """Zeroed memory. ResourceError saying what it was for and, by the hint, what would need less. `huge`: it will
        be read from end to end."""

    def resident(self, data: np.ndarray, what: str) -> Region:
        """Bytes of a file where commands can read them: uint8 [n], which stay as they are."""

    def write(self, region: Region, at: int, data: np.ndarray) -> None:
        """Copy uint8 [n] to byte `at` of a region."""

    def fetch(self, region: Region, at: int, nbytes: int) -> np.ndarray:
        """uint8 [nbytes] from byte `at` of a region."""

    def repack(self, layout: Layout, data: np.ndarray, region: Region, at: int, rows: int, k: int) -> bool:
        """Bring `rows` rows of k values, uint8 in the file's format, into the layout at byte `at` of a zeroed region.
        False when a number is NaN or infinite."""

    def load(self, commands: np.ndarray, stage_starts: np.ndarray, limits: Limits) -> int:
        """Take a packed program (uint8 [commands * 256], int32 [stages + 1]) and what steps of it must keep to; returns
        a handle."""

    def run(self, handle: int, step: StepInputs) -> bool:
        """One step; its skip flag is then what the commands left. False, with nothing run, for a step that breaks the
        program's limits."""

    def run_each(self, handle: int, step: StepInputs, commands: range) -> np.ndarray | None:
        """The same for some of the commands, each a stage of its own: int64 nanoseconds of each, or None."""

    def free_memory(self) -> int:
        """Bytes that can be had."""

    def read_bandwidth(self, region: Region) -> float:
        """Bytes per second with which the region can be read now; 0 where that is not known."""

    def close(self) -> None:
        """Give all memory back."""
