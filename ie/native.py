"""The compiled library, opened once.

Owns: finding and opening lib/libie_cpu.so through cffi in ABI mode, and small wrappers that turn its
refusals into exceptions. The declaration is lib/host.cdef, which the build copies out of the headers in
kernels_c/host. Does not own: what is computed with it (see `devices.cpu`).
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
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


# ---- mapped files that lose their pages ----

_lost: tuple[Any, str] | None = None  # the functions of lost.c and how their line begins; None: nobody asked for them


def on_lost_pages(beginning: str) -> None:
    """From now on a mapped file that is shortened while it is read ends the process with one line and status 1.

    The line is `beginning`, then the file and what happened. This takes SIGBUS for the whole process, so a program asks
    for it and a library does not. Where the kernels are not built nothing is changed."""
    global _lost
    # Not through cffi, whose parser takes longer than a command that needs no kernels. PyDLL keeps other threads out.
    try:
        library = ctypes.PyDLL(str(LIB_DIR / "libie_cpu.so"))
        for name in ("ie_watch_pages", "ie_watch_unfinished"):
            getattr(library, name).restype = ctypes.c_void_p
    except (OSError, AttributeError):
        return
    library.ie_on_lost_pages()
    _lost = library, beginning


def watch_pages(address: int, nbytes: int, shown: str) -> Callable[[], None]:
    """To be called for each file that is mapped; `shown` is its name, as a message may show it. Call what is returned
    before the pages are unmapped. Does nothing before on_lost_pages()."""
    if _lost is None:
        return lambda: None
    library, beginning = _lost
    line = f"{beginning}{shown}: the file became shorter while it was in use, or its disk failed\n"
    return _entry(library.ie_watch_pages(
        ctypes.c_uint64(address), ctypes.c_int64(nbytes), line.encode("utf-8", "backslashreplace")))  # fmt: skip


def watch_unfinished(path: str | os.PathLike[str]) -> Callable[[], None]:
    """The same for a file that is to be removed when the process ends in that way."""
    return (lambda: None) if _lost is None else _entry(_lost[0].ie_watch_unfinished(os.fsencode(path)))


def _entry(entry: int | None) -> Callable[[], None]:
    assert _lost is not None
    library = _lost[0]
    return lambda: library.ie_unwatch(ctypes.c_void_p(entry))


def pointer(array: np.ndarray, ctype: str) -> Any:
    """The address of an array's first element as `ctype`; the caller keeps the array alive."""
    return lib()[0].cast(ctype, array.ctypes.data)


def int64s(values: Any) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.int64)


def constant(name: str) -> int:
    """A constant of ie_core.h by its name in kernels_c/host/core_export.c. KeyError where it has none of that name."""
    value = int(lib()[1].ie_core_constant(name.encode()))
    if value < 0:
        raise KeyError(name)
    return value


LESS_CONTEXT = "a smaller context (-c) needs less"


class Memory:
    """Zeroed pages from the library, freed when neither this object nor a view of its array is left.

    `what` it is for and, as a `hint`, what would need less: the ResourceError says so where there is not so much.
    `huge`: ask for huge pages, for memory that is read from end to end. Not for memory of which little may be used:
    the first byte of a huge page costs its whole."""

    def __init__(self, nbytes: int, what: str, hint: str = LESS_CONTEXT, huge: bool = False) -> None:
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
