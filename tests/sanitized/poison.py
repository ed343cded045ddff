"""Redzones between the items of one block of memory, for a library that AddressSanitizer watches.

Owns: marking bytes that no kernel may touch (`forbid`, `allow`), and `SanitizedExecutor`, the CPU executor with every
item in a place of its own: gaps behind weights, layers' caches, states and arena buffers, the padding of rows, rows
beyond the step's, and what the file holds beside the embedding. Without the sanitizer marking does nothing, the rest
is the same.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ie import native
from ie.devices import cpu, weights
from ie.devices.cpu import CpuExecutor
from ie.program import Buffer, Program, Table
from ie.program.plan import check as check_plan
from ie.program.plan import live_spans
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


def gap_behind(what: Sequence[weights.Weight]) -> weights.Placement:
    """`weights.place` with a gap behind each weight."""
    offsets: dict[weights.Weight, int] = {}
    pos = 0
    for w in what:
        if not isinstance(w, Table):
            offsets[w] = pos
            pos += -(-weights.nbytes(w) // weights.ALIGN) * weights.ALIGN + GAP
    return weights.Placement(offsets, pos)


def plan_apart(program: Program, size_of: Callable[[Buffer], int]) -> tuple[dict[Buffer, int], int]:
    """`plan.plan_program` without any sharing: every buffer has a gap behind it."""
    spans = live_spans(program, size_of)
    offsets, pos = {}, GAP
    for buffer, span in spans.items():
        offsets[buffer] = pos
        pos += -(-span.size // 256) * 256 + GAP
    assert check_plan(list(spans.values()), list(offsets.values()), pos) < 0
    return offsets, pos


class SanitizedExecutor(CpuExecutor):
    """See the module docstring. `with patched():` while it is made and bound."""

    def __init__(self, threads: int, isa: str = "auto") -> None:
        super().__init__(threads, isa)
        self._file: list[np.ndarray] = []
        self._steps: dict[int, np.ndarray] = {}

    def load(self, gguf: Any, *args: Any, **more: Any) -> None:
        super().load(gguf, *args, **more)
        base = self._memory["weights"].address
        for w, at in gap_behind(self._all.weights()).offsets.items():
            size = weights.nbytes(w)
            forbid(base + at + size, -(-size // weights.ALIGN) * weights.ALIGN - size + GAP)
        # Of the file only tables are read from now on.
        tables = {w.name for w in self._all.weights() if isinstance(w, Table)}
        self._file = [info.data() for name, info in gguf.tensors.items() if name not in tables]
        for data in self._file:
            forbid(data.ctypes.data, data.nbytes)

    def _make_cache(self, n_blocks: int) -> None:
        caches, per_chunk = self._all.caches(), native.constant("kv_chunk")
        sizes = [2 * self.lib.ie_core_kv_chunk_elems(c.heads, c.dim) for c in caches]
        placed = [sum(sizes[:i]) + GAP * i for i in range(len(sizes))]
        chunk, self.n_chunks = sum(sizes) + GAP * len(sizes), -(-n_blocks // per_chunk)
        self.kv_chunk = chunk // 1024
        memory = self._memory["KV cache"] = GuardedMemory(self.n_chunks * chunk, "the KV cache")
        self.cache_address = {(c.layer, c.which): memory.address + at for c, at in zip(caches, placed, strict=True)}
        past = native.constant("read_past")
        for n in range(self.n_chunks):
            for p, size, cache in zip(placed, sizes, caches, strict=True):
                read = past if cache.which == "v" else 0
                forbid(memory.address + n * chunk + p + size + read, GAP - read)

    def _make_states(self, n_seqs: int) -> None:
        states = self._all.states()
        self.state_address = {}
        if not states:
            return
        sizes = [4 * n_seqs * s.size for s in states]
        memory = GuardedMemory(sum(-(-n // 256) * 256 + GAP for n in sizes), "the recurrent state")
        self._memory["state"] = memory
        pos = memory.address
        for state, size in zip(states, sizes, strict=True):
            self.state_address[state] = pos
            step = -(-size // 256) * 256 + GAP
            forbid(pos + size, step - size)
            pos += step

    def _only_live_rows(self, handle: int, step: StepInputs) -> None:
        """Of the arena the step may touch the live rows of the program's buffers, and in these no padding."""
        assert self.arena is not None
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
        self._only_live_rows(handle, step)
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


@contextmanager
def patched() -> Iterator[None]:
    """Memory, placement and plan of executors made meanwhile have redzones; file rows are repacked from a copy."""

    def from_copy(pool: Any, layout: Any, data: np.ndarray, dst: np.ndarray, rows: int, k: int) -> Any:
        return repack(pool, layout, data.copy(), dst, rows, k)

    repack, memory = weights.repack, native.Memory
    was = weights.place, cpu.plan_program
    weights.repack, weights.place, cpu.plan_program = from_copy, gap_behind, plan_apart
    native.Memory = GuardedMemory  # type: ignore[misc]
    try:
        yield
    finally:
        weights.repack, (weights.place, cpu.plan_program) = repack, was
        native.Memory = memory  # type: ignore[misc]
