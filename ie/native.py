"""The compiled library, opened once.

Owns: finding and opening lib/libie_cpu.so through cffi in ABI mode, and small wrappers that turn its
refusals into exceptions. The declaration is lib/host.cdef, which the build copies out of the headers in
kernels_c/host. Does not own: what is computed with it (see `devices.cpu`).
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

from .errors import DeviceError, ResourceError

LIB_DIR = Path(__file__).resolve().parent / "lib"
ISAS = ("portable", "avx2", "avxvnni", "avx512", "neon", "i8mm")
"""Instruction sets by their id in kernels_c/host/host.h, worst to best within an architecture."""


@functools.cache
def lib() -> tuple[Any, Any]:
    """(ffi, library). DeviceError when the kernels are not built or do not load here."""
    import cffi

    ffi = cffi.FFI()
    path = LIB_DIR / "libie_cpu.so"
    try:
        ffi.cdef((LIB_DIR / "host.cdef").read_text(encoding="utf8"))
        return ffi, ffi.dlopen(str(path))
    except OSError as error:
        raise DeviceError(
            f"{path}: the compiled kernels cannot be opened ({error}); build them with `make setup`"
        ) from error


def on_lost_pages(message: str) -> None:
    """Should a mapped file be shortened by somebody while it is read: print this line and end with status 1."""
    lib()[1].ie_on_lost_pages(message.encode() + b"\n")


def pointer(array: np.ndarray, ctype: str) -> Any:
    """The address of an array's first element as `ctype`; the caller keeps the array alive."""
    return lib()[0].cast(ctype, array.ctypes.data)


def int64s(values: Any) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.int64)


def constant(name: str) -> int:
    """A constant of ie_core.h: lanes, q8_block, kv_block, attn_segment, align, decode_rows, kv_chunk, read_past."""
    names = ("lanes", "q8_block", "kv_block", "attn_segment", "align", "decode_rows", "kv_chunk", "read_past")
    return int(lib()[1].ie_core_constant(names.index(name)))


class Memory:
    """Zeroed pages from the library, freed when neither this object nor a view of its array is left.

    `what` it is for and, as a `hint`, what would need less: the ResourceError says so where there is not so much.
    `huge`: ask for huge pages, for memory that is read from end to end. Not for memory of which little may be used:
    the first byte of a huge page costs its whole."""

    def __init__(
        self, nbytes: int, what: str, hint: str = "a smaller context (-c) needs less", huge: bool = False
    ) -> None:
        ffi, library = lib()
        size = self.nbytes = max(nbytes, 64)
        free = library.ie_free
        pages = library.ie_alloc(size)
        if pages == ffi.NULL:
            raise ResourceError(f"cannot allocate {nbytes:,} bytes for {what}; {hint}")
        if huge:
            library.ie_huge_pages(pages, size)
        # The array keeps this object, and whoever holds a view of it keeps the array: no view outlives its memory.
        owner = ffi.gc(pages, lambda p: free(p, size))
        self.address = int(ffi.cast("uintptr_t", owner))
        self.array = np.frombuffer(ffi.buffer(owner, size), np.uint8)

    def close(self) -> None:
        """Give the memory back as soon as nobody holds a view of it."""
        self.array = np.empty(0, np.uint8)
