"""One kernel, run through the stand-in for HIP as a host program would.

Owns: the calls in their order, the clock, and turning HIP's error numbers into the simulator's report.
"""

from __future__ import annotations

import ctypes
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .arguments import Argument, Array
from .cache import stand_in
from .elf import Kernel
from .errors import SimError
from .settings import report_file

TO_DEVICE, TO_HOST = 1, 2
LDS_PER_GROUP = 65536


class Fault(SimError):
    """A call that did not succeed. report: what the simulator wrote about it, empty if nothing."""

    def __init__(self, message: str, report: str) -> None:
        super().__init__(message)
        self.report = report


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
        if self.lds + kernel.lds_bytes > LDS_PER_GROUP:
            raise SimError(
                f"kernel {kernel.name}: {kernel.lds_bytes} bytes of LDS and {self.lds} more; there are {LDS_PER_GROUP}"
            )


class Host:
    """The opened stand-in, with its reports in a file of ours unless the user named one."""

    def __init__(self, folder: Path) -> None:
        self.report = folder / "report.txt"
        self.named = report_file(self.report)
        self.lib = ctypes.CDLL(str(stand_in()))
        self.lib.hipGetErrorName.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        code = int(getattr(self.lib, name)(*arguments))
        if code:
            what = self.lib.hipGetErrorName(code).decode()
            report = self.report.read_text(errors="replace") if self.report.exists() else ""
            where = f"; the report is in {self.named}" if self.named else ""
            raise Fault(f"{name} returned {what} ({code}){where}", report)

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

    def launch(self, function: ctypes.c_void_p, shape: Shape, values: Sequence[Array]) -> None:
        """Returns when the kernel has ended."""
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(v.ctypes.data for v in values))
        numbers = [ctypes.c_uint(n) for n in (*shape.grid, *shape.block, shape.lds)]
        if shape.cooperative:
            self.call("hipModuleLaunchCooperativeKernel", function, *numbers, None, pointers)
        else:
            self.call("hipModuleLaunchKernel", function, *numbers, None, pointers, None)
        self.call("hipDeviceSynchronize")


def run(
    image: bytes, kernel: Kernel, shape: Shape, given: Sequence[Argument], repeat: int
) -> tuple[list[Array | None], list[float]]:
    """The contents of each buffer after `repeat` launches (None for a value), and the seconds of each launch.

    Raises Fault, and SimError where the stand-in cannot be built or opened.
    """
    with tempfile.TemporaryDirectory(prefix="rdna4sim-run-") as folder:
        host = Host(Path(folder))
        host.call("hipInit", ctypes.c_uint(0))
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        host.call("hipModuleLoadData", ctypes.byref(module), image)
        host.call("hipModuleGetFunction", ctypes.byref(function), module, kernel.name.encode())
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
