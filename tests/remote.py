"""A device whose memory the host cannot address: the processor, in another process.

Owns: `RemoteDevice`, which speaks with that process through a pipe: bytes go there and come back, commands hold its
addresses, and a step is one copy. Whatever relies on the host's own memory (an address of a mapped file, a pointer in
step inputs, a view instead of a copy) ends that process or gives other bits. It stands for a graphics card.
"""

from __future__ import annotations

import functools
import multiprocessing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ie import native
from ie.devices.cpu import CpuDevice
from ie.devices.device import Facts, Region
from ie.devices.repack import repack
from ie.errors import DeviceError, ResourceError
from ie.formats import Layout, format_by_name, layout_for
from ie.program.step import Limits, StepInputs


@dataclass(frozen=True)
class RemoteRegion:
    """Memory of the other process."""

    number: int
    address: int
    nbytes: int


class _There:
    """What the other process does: one method a verb."""

    def __init__(self, threads: int, isa: str) -> None:
        self.device, self.regions = CpuDevice(threads, isa), list[Region]()
        self.steps: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def facts(self) -> Facts:
        return self.device.facts

    def alloc(self, nbytes: int, what: str) -> tuple[int, int, int]:
        self.regions.append(self.device.alloc(nbytes, what))
        return len(self.regions) - 1, self.regions[-1].address, self.regions[-1].nbytes

    def write(self, region: int, at: int, data: bytes) -> None:
        self.device.write(self.regions[region], at, np.frombuffer(data, np.uint8))

    def fetch(self, region: int, at: int, nbytes: int) -> bytes:
        return self.device.fetch(self.regions[region], at, nbytes).tobytes()

    def load(self, commands: bytes, stage_starts: bytes, limits: Limits) -> int:
        return self.device.load(np.frombuffer(commands, np.uint8), np.frombuffer(stage_starts, np.int32), limits)

    def _step(self, data: bytes) -> Any:
        """Step inputs at an address of this process."""
        raw, inner = self.steps.setdefault(len(data), self._room(len(data)))
        inner[:] = np.frombuffer(data, np.uint8)

        class Here:
            address, memory = int(inner.ctypes.data), inner

        return Here

    @staticmethod
    def _room(size: int) -> tuple[np.ndarray, np.ndarray]:
        raw = np.zeros(size + 64, np.uint8)
        shift = -raw.ctypes.data % 64
        return raw, raw[shift : shift + size]

    def run(self, handle: int, data: bytes) -> tuple[bool, int]:
        step = self._step(data)
        return self.device.run(handle, step), int(step.memory[12:16].view("<i4")[0])

    def run_each(self, handle: int, data: bytes, first: int, end: int) -> tuple[np.ndarray | None, int]:
        step = self._step(data)
        return self.device.run_each(handle, step, range(first, end)), int(step.memory[12:16].view("<i4")[0])


def _serve(pipe: Connection, threads: int, isa: str) -> None:
    there = _There(threads, isa)
    while True:
        verb, args = pipe.recv()
        if verb == "reset":
            there.device.close()
            there = _There(threads, isa)
            pipe.send(None)
            continue
        try:
            pipe.send(getattr(there, verb)(*args))
        except ResourceError as error:
            pipe.send(error)


class RemoteDevice:
    """See the module docstring. A `Device`."""

    maps_files = views = False

    def __init__(self, threads: int = 1, isa: str = "auto") -> None:
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_serve, args=(theirs, threads, isa), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe = ours
        self.facts: Facts = self._ask("facts")
        ffi, library = native.lib()
        self._pool = library.ie_pool_create(1, library.ie_isa_best())
        assert self._pool != ffi.NULL

    def _ask(self, verb: str, *args: object) -> Any:
        try:
            self._pipe.send((verb, args))
            answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            self._process.join(5)
            raise DeviceError(f"the other process ended ({self._process.exitcode}) in {verb}") from error
        if isinstance(answer, Exception):
            raise answer
        return answer

    def layout(self, format_name: str) -> Layout:
        return layout_for(format_by_name(format_name))

    def alloc(self, nbytes: int, what: str, hint: str = "", huge: bool = False) -> RemoteRegion:
        return RemoteRegion(*self._ask("alloc", nbytes, what))

    def resident(self, data: np.ndarray, what: str) -> RemoteRegion:
        region = self.alloc(data.nbytes, what)
        self.write(region, 0, data)
        return region

    def write(self, region: Region, at: int, data: np.ndarray) -> None:
        assert isinstance(region, RemoteRegion)
        self._ask("write", region.number, at, data.tobytes())

    def fetch(self, region: Region, at: int, nbytes: int) -> np.ndarray:
        assert isinstance(region, RemoteRegion)
        return np.frombuffer(self._ask("fetch", region.number, at, nbytes), np.uint8).copy()

    def repack(self, layout: Layout, data: np.ndarray, region: Region, at: int, rows: int, k: int) -> bool:
        staged = np.zeros(layout.nbytes(rows, k), np.uint8)
        good = repack(self._pool, layout, data, staged, rows, k)
        self.write(region, at, staged)
        return good

    def load(self, commands: np.ndarray, stage_starts: np.ndarray, limits: Limits) -> int:
        return int(self._ask("load", commands.tobytes(), stage_starts.astype(np.int32).tobytes(), limits))

    def run(self, handle: int, step: StepInputs) -> bool:
        ran, step.skip = self._ask("run", handle, step.memory.tobytes())
        return bool(ran)

    def run_each(self, handle: int, step: StepInputs, commands: range) -> np.ndarray | None:
        times, step.skip = self._ask("run_each", handle, step.memory.tobytes(), commands.start, commands.stop)
        return None if times is None else np.asarray(times)

    def free_memory(self) -> int:
        return 1 << 40

    def read_bandwidth(self, region: Region) -> float:
        return 0.0

    def reset(self) -> None:
        """Forget all memory and programs."""
        self._ask("reset")

    def close(self) -> None:
        self._pipe.close()
        self._process.join(5)
        if self._pool is not None:
            native.lib()[1].ie_pool_destroy(self._pool)
            self._pool = None


@functools.cache
def remote(threads: int = 1, isa: str = "auto") -> RemoteDevice:
    """A device that is kept for the whole test process; one case at a time."""
    return RemoteDevice(threads, isa)
