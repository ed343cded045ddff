"""One kernel, run through the stand-in for HIP as a host program would.

Owns: the calls in their order, the clock, and turning HIP's error numbers into the simulator's report.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from .arguments import Argument, Array
from .cache import stand_in
from .elf import Kernel, encoded
from .errors import SimError
from .settings import report_file

TO_DEVICE, TO_HOST = 1, 2
LDS_PER_GROUP = 65536
MOST_GRID = (2**31 - 1, 65536, 65536)
MOST_GROUPS, MOST_ALONG = 1 << 30, 2**32 - 1
"""Workgroups of a launch; its threads along one axis."""
MULTIPROCESSORS = 63
Result = TypeVar("Result")


class Fault(SimError):
    """A call that did not succeed. report: what the simulator wrote about it, empty if nothing."""

    def __init__(self, message: str, report: str) -> None:
        super().__init__(message)
        self.report = report


class Running(Exception):
    """Ctrl-C came while another thread is in the simulator: only os._exit ends the process."""


@dataclass(frozen=True)
class Shape:
    """grid: workgroups, block: threads of one, both x, y, z; lds: bytes besides the kernel's own."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    lds: int = 0
    cooperative: bool = False

    @property
    def groups(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def waves(self) -> int:
        return self.groups * (self.threads + 31 >> 5)

    def check(self, kernel: Kernel) -> None:
        """Raises SimError for what the kernel cannot be started with."""
        if self.threads > kernel.max_threads:
            raise SimError(
                f"kernel {kernel.name}: {self.threads} threads a workgroup, it is built for {kernel.max_threads}"
            )
        if self.groups > MOST_GROUPS:
            raise SimError(f"--grid: {self.groups} workgroups, a launch has at most {MOST_GROUPS}")
        if any(grid * block > MOST_ALONG for grid, block in zip(self.grid, self.block, strict=True)):
            raise SimError(f"--grid times --block: at most {MOST_ALONG} threads along each axis")
        if self.lds + kernel.lds_bytes > LDS_PER_GROUP:
            raise SimError(
                f"kernel {kernel.name}: {kernel.lds_bytes} bytes of LDS and {self.lds} more; there are {LDS_PER_GROUP}"
            )


class Host:
    """The opened stand-in, with its reports in a file of ours, which has no name, unless the user named one."""

    def __init__(self, library: Path) -> None:
        self.report = os.memfd_create("rdna4sim-report")
        self.lib = ctypes.CDLL(str(library))
        with report_file(f"/proc/self/fd/{self.report}") as self.named:
            self.lib.hipDeviceReset()  # reads the options
        self.before = self.named_bytes()
        self.lib.hipGetErrorName.restype = ctypes.c_char_p

    def named_bytes(self) -> int:
        """Size of the user's file of reports, 0 if there is none."""
        return os.path.getsize(self.named) if os.path.isfile(self.named) else 0

    def report_place(self) -> str:
        """Where the report is, as far as one can know: a device does not tell what became of it."""
        if not self.named or os.path.exists(self.named) and not os.path.isfile(self.named):
            return ""
        return f"; {'the' if self.named_bytes() > self.before else 'no'} report is in {self.named}"

    def call(self, name: str, *arguments: Any) -> None:
        code = int(getattr(self.lib, name)(*arguments))
        if code:
            what = self.lib.hipGetErrorName(code).decode()
            report = os.pread(self.report, os.fstat(self.report).st_size, 0).decode(errors="replace")
            raise Fault(f"{name} returned {what} ({code}){self.report_place()}", report)

    def buffer(self, data: Array) -> int:
        """The address of device memory with this contents."""
        pointer = ctypes.c_void_p()
        self.call("hipMalloc", ctypes.byref(pointer), ctypes.c_size_t(data.nbytes))
        source, size = ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes)
        self.call("hipMemcpy", pointer, source, size, TO_DEVICE)
        return int(pointer.value or 0)

    def read(self, address: int, like: Array) -> Array:
        out = np.empty_like(like)
        target, size = ctypes.c_void_p(out.ctypes.data), ctypes.c_size_t(out.nbytes)
        self.call("hipMemcpy", target, ctypes.c_void_p(address), size, TO_HOST)
        return out

    def check_cooperative(self, function: ctypes.c_void_p, shape: Shape) -> None:
        """Raises SimError for more workgroups than run at once."""
        each, processors = ctypes.c_int(), ctypes.c_int()
        query = "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"
        self.call(query, ctypes.byref(each), function, ctypes.c_int(shape.threads), ctypes.c_size_t(shape.lds))
        self.call("hipDeviceGetAttribute", ctypes.byref(processors), MULTIPROCESSORS, 0)
        most = each.value * processors.value
        if shape.groups > most:
            needs = f"{shape.threads} threads, with this kernel's registers and LDS"
            raise SimError(f"--cooperative: {shape.groups} workgroups, the card runs at most {most} at once of {needs}")

    def launch(self, function: ctypes.c_void_p, shape: Shape, values: Sequence[Array]) -> None:
        """Returns when the kernel has ended."""
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(v.ctypes.data for v in values))
        numbers = [ctypes.c_uint(n) for n in (*shape.grid, *shape.block, shape.lds)]
        if shape.cooperative:
            self.check_cooperative(function, shape)
            self.call("hipModuleLaunchCooperativeKernel", function, *numbers, None, pointers)
        else:
            self.call("hipModuleLaunchKernel", function, *numbers, None, pointers, None)
        self.call("hipDeviceSynchronize")


def interruptible(work: Callable[[], Result]) -> Result:
    """What work() returns or raises. Ctrl-C is Running: Python would see it when a call of the library ends, which an
    endless kernel's never does, so that the call is another thread's."""
    results: list[Result] = []
    errors: list[BaseException] = []
    ended = threading.Event()

    def body() -> None:
        try:
            results.append(work())
        except BaseException as e:
            errors.append(e)
        ended.set()

    threading.Thread(target=body, daemon=True).start()
    try:
        ended.wait()
    except KeyboardInterrupt:
        raise Running from None
    if errors:
        raise errors[0]
    return results[0]


def run(
    image: bytes, kernel: Kernel, shape: Shape, given: Sequence[Argument], repeat: int
) -> tuple[list[Array | None], list[float]]:
    """The contents of each buffer after `repeat` launches (None for a value), and the seconds of each launch.

    Raises Fault, Running, and SimError where the stand-in cannot be built or opened.
    """
    library = stand_in()
    return interruptible(lambda: run_on(Host(library), image, kernel, shape, given, repeat))


def run_on(
    host: Host, image: bytes, kernel: Kernel, shape: Shape, given: Sequence[Argument], repeat: int
) -> tuple[list[Array | None], list[float]]:
    host.call("hipInit", ctypes.c_uint(0))
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    host.call("hipModuleLoadData", ctypes.byref(module), image)
    host.call("hipModuleGetFunction", ctypes.byref(function), module, encoded(kernel.name))
    addresses = [host.buffer(a.data) if a.buffer else 0 for a in given]
    values = [
        np.array([at], np.uint64) if a.buffer else np.ascontiguousarray(a.data)
        for a, at in zip(given, addresses, strict=True)
    ]
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        host.launch(function, shape, values)
        seconds.append(time.perf_counter() - start)
    after = [host.read(at, a.data) if a.buffer else None for a, at in zip(given, addresses, strict=True)]
    return after, seconds
