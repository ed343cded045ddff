"""Redzones between the items of one block of memory, for a library that AddressSanitizer watches.

Owns: marking bytes that no kernel may touch (`forbid`, `allow`), and `SanitizedExecutor`, the CPU executor with every
item in a place of its own: gaps behind weights, layers' caches, states and arena buffers, the padding of rows, rows
beyond the step's, and what the file holds beside the embedding. Without the sanitizer marking does nothing, the rest
is the same.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ie import native
from ie.devices import CompiledExecutor, CpuDevice, weights
from ie.devices.base import Job, Progress
from ie.devices.device import Region
from ie.formats import Layout
from ie.program import Cache, Matrix, State, Table, Vector
from ie.program.step import OUTS, ROW, StepInputs

GAP = 1024
"""Bytes between two items: more than a kernel reaches by mistake, and whole KiB, as the chunks of the cache are."""


def _function(name: str) -> Callable[[int, int], None]:
    try:
        fn = getattr(ctypes.CDLL(None), name)
    except AttributeError:
        return lambda address, nbytes: None
    fn.argtypes, fn.restype = (ctypes.c_void_p, ctypes.c_size_t), None
    return fn  # type: ignore[no-any-return]


forbid = _function("__asan_poison_memory_region")
"""(address, bytes): from now on the library may not touch these."""
allow = _function("__asan_unpoison_memory_region")


_folders: list[tempfile.TemporaryDirectory[str]] = []


def folder() -> Path:
    """A folder that is removed when the process ends in order."""
    _folders.append(tempfile.TemporaryDirectory(prefix="sanitized-"))
    return Path(_folders[-1].name)


def watched() -> bool:
    """Whether the sanitizer's runtime is in this process."""
    return hasattr(ctypes.CDLL(None), "__asan_poison_memory_region")


class GuardedMemory(native.Memory):
    """Memory of an executor with a redzone before and behind it."""

    def __init__(self, nbytes: int, what: str, hint: str = "", huge: bool = False) -> None:
        ffi, library = native.lib()
        size = nbytes + 2 * GAP + -nbytes % 8
        pages = library.ie_alloc(size)
        assert pages != ffi.NULL, f"no memory for {what}"
        start = int(ffi.cast("uintptr_t", pages))

        def give_back(pages: Any) -> None:
            allow(start, size)  # whatever the system puts there next is not ours to forbid
            library.ie_free(pages, size)

        owner = ffi.gc(pages, give_back)
        self.nbytes, self.address = nbytes, start + GAP
        self.array = np.frombuffer(ffi.buffer(owner, size), np.uint8)[GAP : GAP + nbytes]
        forbid(start, GAP)
        forbid(self.address + nbytes, start + size - self.address - nbytes)


class PoisonedDevice(CpuDevice):
    """The processor; all memory has redzones, and file rows are repacked from a copy that ends where they do."""

    def alloc(self, nbytes: int, what: str, hint: str = "", huge: bool = False) -> GuardedMemory:
        memory = GuardedMemory(max(nbytes, 1), what)
        self._memory.append(memory)
        return memory

    def repack(self, layout: Layout, data: np.ndarray, region: Region, at: int, rows: int, k: int) -> bool:
        return super().repack(layout, data.copy(), region, at, rows, k)


class SanitizedExecutor(CompiledExecutor):
    """See the module docstring."""

    def __init__(self, threads: int, isa: str = "auto") -> None:
        super().__init__(PoisonedDevice(threads, isa), GAP)
        self._file: list[np.ndarray] = []
        self._steps: dict[int, np.ndarray] = {}

    def load(self, job: Job, progress: Progress) -> None:
        super().load(job, progress)
        whole, past = job.whole(), native.constant("read_past")
        for item, (region, at) in self.at.items():
            start = region.address + at
            if isinstance(item, Matrix | Vector):
                size = weights.nbytes(item, self.device.layout)
                forbid(start + size, -size % weights.ALIGN + GAP)
            elif isinstance(item, State):
                size = 4 * job.shape.n_seqs * item.size
                forbid(start + size, -size % 256 + GAP)
            elif isinstance(item, Cache):
                size = 2 * self.lib.ie_core_kv_chunk_elems(item.heads, item.dim)
                read = past if item.which == "v" else 0
                for n in range(self.n_chunks):
                    forbid(start + n * self.cache_stride + size + read, GAP - read)
        # Of the file only tables are read from now on.
        tables = {w.name for w in whole.weights() if isinstance(w, Table)}
        self._file = [info.data() for name, info in job.tensors.items() if name not in tables]
        for data in self._file:
            forbid(data.ctypes.data, data.nbytes)

    def only_live_rows(self, handle: int, step: StepInputs) -> None:
        """Of the arena the step may touch the live rows of the program's buffers, and in these no padding."""
        bound = self.bound[handle]
        forbid(self.arena.address, self.arena.nbytes)
        for buffer, at in bound.offsets.items():
            rows = {OUTS: int(step.header["n_outs"][0]), ROW: 1}.get(buffer.domain, int(step.header["n_rows"][0]))
            stride = self.row_bytes(buffer)
            used = buffer.cols + 16 * -(-buffer.cols // 32) if buffer.dtype == "q8" else 4 * buffer.cols
            start = self.arena.address + at
            if used == stride:
                allow(start, rows * stride)
            else:
                for r in range(rows):
                    allow(start + r * stride, used)

    def _only_step(self, step: StepInputs) -> None:
        """Of the step inputs the arrays alone, not what lies between them."""
        begin = step.address
        self._steps[begin] = step.memory
        forbid(begin, step.memory.nbytes)
        allow(begin, step.header.nbytes)
        for array in step.arrays.values():
            allow(array.ctypes.data, array.nbytes)

    def _watch(self, handle: int, step: StepInputs) -> None:
        self.only_live_rows(handle, step)
        self._only_step(step)

    def run(self, handle: int, step: StepInputs) -> None:
        self._watch(handle, step)
        super().run(handle, step)

    def run_command(self, handle: int, step: StepInputs, index: int) -> None:
        self._watch(handle, step)
        super().run_command(handle, step, index)

    def run_timed(self, handle: int, step: StepInputs) -> np.ndarray:
        self._watch(handle, step)
        return super().run_timed(handle, step)

    def close(self) -> None:
        for data in (*self._file, *self._steps.values()):  # others may get this memory next
            allow(data.ctypes.data, data.nbytes)
        self._file, self._steps = [], {}
        super().close()
