"""The simulator behind the HIP C ABI, as a host program sees it.

Owns: opening the library that `python -m rdna4sim libpath` names, device buffers, modules, launches, and the options of
the simulator for a stretch of a test. Errors become `HipError` with HIP's number and the simulator's report.
Does not own: kernels (see `build`) or expected values (see the `cases_*` modules).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
ILLEGAL_ADDRESS, LAUNCH_FAILURE, TIME_OUT, NO_BINARY, INVALID_IMAGE = 700, 719, 702, 209, 200
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3


def bundle(*entries: tuple[str, bytes]) -> bytes:
    """Code objects in the container that hipcc writes."""
    at = 32 + sum(24 + len(name) for name, _ in entries)
    head, body = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries)), b""
    for name, data in entries:
        head += struct.pack("<3Q", at + len(body), len(data), len(name)) + name.encode()
        body += data
    return head + body


class HipError(Exception):
    """A call that did not return hipSuccess. code: HIP's number. report: what the simulator wrote about it."""

    def __init__(self, call: str, code: int, report: str) -> None:
        super().__init__(f"{call} returned {code}\n{report}")
        self.code, self.report = code, report


class Buffer:
    """Device memory of exactly `nbytes`."""

    def __init__(self, hip: Hip, nbytes: int) -> None:
        self.hip, self.nbytes, pointer = hip, nbytes, ctypes.c_void_p()
        hip.call("hipMalloc", ctypes.byref(pointer), ctypes.c_size_t(nbytes))
        self.address = int(pointer.value or 0)

    def write(self, data: Array | bytes) -> Buffer:
        raw = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else np.ascontiguousarray(data)
        source, size = ctypes.c_void_p(raw.ctypes.data), ctypes.c_size_t(raw.nbytes)
        self.hip.call("hipMemcpy", ctypes.c_void_p(self.address), source, size, HOST_TO_DEVICE)
        return self

    def read(self, dtype: Any, shape: Any = -1) -> Array:
        out = np.empty(self.nbytes, np.uint8)
        source, target = ctypes.c_void_p(self.address), ctypes.c_void_p(out.ctypes.data)
        self.hip.call("hipMemcpy", target, source, ctypes.c_size_t(self.nbytes), DEVICE_TO_HOST)
        return out.view(dtype).reshape(shape)

    def free(self) -> None:
        self.hip.call("hipFree", ctypes.c_void_p(self.address))


class Hip:
    """One opened library. report: the file that RDNA4SIM_REPORT names."""

    def __init__(self, path: str, report: Path) -> None:
        self.lib, self.report = ctypes.CDLL(path), report
        self.modules: dict[bytes, ctypes.c_void_p] = {}

    def raw(self, name: str, *arguments: Any) -> int:
        return int(getattr(self.lib, name)(*arguments))

    def call(self, name: str, *arguments: Any) -> None:
        code = self.raw(name, *arguments)
        if code:
            raise HipError(name, code, self.report.read_text() if self.report.exists() else "")

    def buffer(self, data: Array | bytes) -> Buffer:
        """A buffer that holds a copy of `data` and ends where it ends."""
        nbytes = len(data) if isinstance(data, bytes) else data.nbytes
        return Buffer(self, nbytes).write(data)

    def load(self, image: bytes) -> ctypes.c_void_p:
        module = ctypes.c_void_p()
        self.call("hipModuleLoadData", ctypes.byref(module), image)
        return module

    def kernel(self, image: bytes, name: str) -> ctypes.c_void_p:
        if image not in self.modules:
            self.modules[image] = self.load(image)
        function = ctypes.c_void_p()
        self.call("hipModuleGetFunction", ctypes.byref(function), self.modules[image], name.encode())
        return function

    def launch(
        self,
        function: ctypes.c_void_p,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        coop: bool = False,
    ) -> None:
        """args: buffers, and numpy scalars or arrays passed by value. Returns when the kernel has ended."""
        values = [np.uint64(a.address) if isinstance(a, Buffer) else np.asarray(a) for a in args]
        held = [np.ascontiguousarray(v) for v in values]
        pointers = (ctypes.c_void_p * max(1, len(held)))(*(v.ctypes.data for v in held))
        sizes = [ctypes.c_uint(n) for n in (*grid, *(1,) * (3 - len(grid)), *block, *(1,) * (3 - len(block)))]
        if coop:
            self.call("hipModuleLaunchCooperativeKernel", function, *sizes, ctypes.c_uint(0), None, pointers)
        else:
            self.call("hipModuleLaunchKernel", function, *sizes, ctypes.c_uint(0), None, pointers, None)
        self.call("hipDeviceSynchronize")

    def reset(self) -> None:
        """Frees everything, forgets errors, and takes the options anew."""
        self.modules.clear()
        self.report.unlink(missing_ok=True)
        self.call("hipDeviceReset")
        self.call("hipInit", ctypes.c_uint(0))


@cache
def library_path() -> str:
    command = [sys.executable, "-m", "rdna4sim", "libpath"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@cache
def _opened(process: int) -> Hip:
    folder = Path(tempfile.mkdtemp(prefix="rdna4sim-report-"))
    atexit.register(lambda: os.getpid() == process and shutil.rmtree(folder, ignore_errors=True))
    return Hip(library_path(), folder / "report.txt")


@contextmanager
def simulator(**options: Any) -> Iterator[Hip]:
    """The library with RDNA4SIM_<NAME> set to each option, everything else at its default."""
    hip = _opened(os.getpid())
    settings = {"REPORT": str(hip.report), **{name.upper(): str(value) for name, value in options.items()}}
    before = {
        name: value for name, value in os.environ.items() if name.startswith("RDNA4SIM_") and name != "RDNA4SIM_CACHE"
    }
    for name in before:
        del os.environ[name]
    os.environ.update({f"RDNA4SIM_{name}": value for name, value in settings.items()})
    try:
        hip.reset()
        yield hip
    finally:
        for name in settings:
            os.environ.pop(f"RDNA4SIM_{name}", None)
        os.environ.update(before)
