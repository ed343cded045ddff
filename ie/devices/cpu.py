"""cpu: the processor as a device. Its memory is the process's own; a thread pool walks the commands.

Owns: the pool with its threads and instruction set, and the C structs of loaded programs. Does not own what is in
memory (`compiled`) nor how a step is run (kernels_c/host/walker.c).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import machine, native
from ..errors import DeviceError, ResourceError
from ..formats import Layout, format_by_name, layout_for
from ..ops.table import COMMAND_BYTES
from ..program.step import Limits, StepInputs
from .device import Facts, Region
from .repack import repack

CACHED = 64 << 20  # bytes that caches may hold
SAMPLE = 256 << 20  # bytes whose reading tells the bandwidth
NO_THREADS = "cannot start {} threads; ask for fewer with -t, or raise what limits them (ulimit -u, ulimit -v)"


@dataclass(frozen=True)
class Mapped:
    """Memory that somebody else owns, as a region; kept alive by it."""

    array: np.ndarray

    @property
    def address(self) -> int:
        return int(self.array.ctypes.data)

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)


class CpuDevice:
    """`threads`: workers, the caller included; `isa`: a name of native.ISAS, or auto. A `Device`."""

    maps_files = views = True

    def __init__(self, threads: int, isa: str = "auto") -> None:
        self.ffi, self.lib = native.lib()
        which = self.lib.ie_isa_best() if isa == "auto" else native.ISAS.index(isa)
        if not self.lib.ie_isa_available(which):
            raise DeviceError(
                f"this processor or build has no {native.ISAS[which]}; available: {', '.join(available_isas())}"
            )
        stack, wanted = machine.stack_limit(), self.lib.ie_stack_bytes()
        if stack < wanted:
            raise ResourceError(
                f"the stack is limited to {stack >> 10} KB, the kernels are to have {wanted >> 10}: raise the limit,"
                " `ulimit -s 8192`, in a new shell if this one refuses"
            )
        self.facts = Facts("cpu", native.ISAS[which], threads, "cpu")
        self.pool = self.lib.ie_pool_create(threads, which)
        if self.pool == self.ffi.NULL:
            raise ResourceError(NO_THREADS.format(threads))
        self._memory: list[native.Memory] = []
        self._programs: list[Any] = []  # ie_program, and what these point to
        self._kept: list[Any] = []

    def layout(self, format_name: str) -> Layout:
        return layout_for(format_by_name(format_name))

    def alloc(self, nbytes: int, what: str, hint: str = "", huge: bool = False) -> Region:
        memory = native.Memory(nbytes, what, hint or native.LESS_CONTEXT, huge)
        self._memory.append(memory)
        return memory

    def resident(self, data: np.ndarray, what: str) -> Mapped:
        return Mapped(data)

    def write(self, region: Region, at: int, data: np.ndarray) -> None:
        self.fetch(region, at, data.size)[:] = data

    def fetch(self, region: Region, at: int, nbytes: int) -> np.ndarray:
        return region.array[at : at + nbytes]  # type: ignore[attr-defined, no-any-return]

    def repack(self, layout: Layout, data: np.ndarray, region: Region, at: int, rows: int, k: int) -> bool:
        return repack(self.pool, layout, data, self.fetch(region, at, layout.nbytes(rows, k)), rows, k)

    def load(self, commands: np.ndarray, stage_starts: np.ndarray, limits: Limits) -> int:
        bounds = self.ffi.new("ie_limits *", limits._asdict())
        struct = self.ffi.new("ie_program *", {"n_cmds": int(stage_starts[-1]), "n_stages": len(stage_starts) - 1})
        struct.cmds, struct.stage_start = commands.ctypes.data, stage_starts.ctypes.data
        struct.limits = int(self.ffi.cast("uintptr_t", bounds))
        self._kept += [commands, stage_starts, bounds]
        self._programs.append(struct)
        return len(self._programs) - 1

    def run(self, handle: int, step: StepInputs) -> bool:
        return bool(self.lib.ie_run(self.pool, self._programs[handle], step.address) == 0)

    def run_each(self, handle: int, step: StepInputs, commands: range) -> np.ndarray | None:
        whole, n = self._programs[handle], len(commands)
        starts, clock = np.arange(n + 1, dtype=np.int32), np.empty(n + 1, np.int64)
        serial = self.ffi.new("ie_program *", (whole.cmds + COMMAND_BYTES * commands.start, 0, n, n, whole.limits))
        serial.stage_start = starts.ctypes.data
        ran = self.lib.ie_run_timed(self.pool, serial, step.address, native.pointer(clock, "int64_t *")) == 0
        return np.diff(clock) if ran else None

    def free_memory(self) -> int:
        return machine.free_memory()

    def read_bandwidth(self, region: Region) -> float:
        """Bytes per second with which the threads read the region, SAMPLE bytes of it at most, doing nothing else:
        better of two readings.

        0 for one that caches might hold. A machine that others use too gives more or less from second to second, so a
        share of the bandwidth means something only beside a reading of the same moment."""
        if region.nbytes < CACHED:
            return 0.0
        at, n = self.ffi.cast("void *", region.address), min(region.nbytes, SAMPLE)
        return n / min(float(self.lib.ie_read_seconds(self.pool, at, n)) for _ in range(2))

    def close(self) -> None:
        if self.pool is not None:
            self.lib.ie_pool_destroy(self.pool)
            self.pool = None
        for memory in self._memory:
            memory.close()
        self._memory, self._programs, self._kept = [], [], []


def available_isas() -> list[str]:
    """Instruction sets that this processor and build can run, best first."""
    _, library = native.lib()
    return [name for i, name in reversed(list(enumerate(native.ISAS))) if library.ie_isa_available(i)]


def read_bandwidth(threads: int, nbytes: int = SAMPLE, rounds: int = 5) -> float:
    """Bytes per second that `threads` threads read from memory together: best of `rounds` over `nbytes`."""
    ffi, library = native.lib()
    pool = library.ie_pool_create(threads, library.ie_isa_best())
    if pool == ffi.NULL:
        raise ResourceError(NO_THREADS.format(threads))
    try:
        rate = float(library.ie_read_bandwidth(pool, nbytes, rounds))
    finally:
        library.ie_pool_destroy(pool)
    if rate <= 0:
        raise ResourceError(f"cannot allocate {nbytes >> 20} MB to measure the read bandwidth")
    return rate
