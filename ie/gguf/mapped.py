"""Model files, mapped into memory: opening them, and what is said of a name that leads to none.

Owns: which files are mapped (regular ones, that can be read and are not empty), the hints where the name is wrong, and
the watch over the mapped pages (see `native.on_lost_pages`). Does not own what the bytes mean (ie/gguf/).
"""

import difflib
import mmap
import os
import stat
import weakref
from collections.abc import Callable

import numpy as np

from .. import native
from ..errors import GgufError


def show(text: str, limit: int = 100) -> str:
    """Text from a file, fit for a one-line message."""
    clean = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return clean if len(clean) <= limit else clean[:limit] + "…"


def map_file(path: str) -> tuple[mmap.mmap, int, Callable[[], object]]:
    """The mapping of a regular, non-empty file, its size, and what is called when the mapping has been closed.

    GgufError, with a hint where the mistake is a usual one, for anything else. The name may be that of any file, in
    any encoding.
    """
    shown = show(path, limit=4096)
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise GgufError(f"{shown}: this is a directory: expected a .gguf file{_listing(path)}")
        if not stat.S_ISREG(mode):
            raise GgufError(f"{shown}: this is a pipe, socket or device: expected a regular file, which can be mapped")
        # should the path have become a pipe since, opening it must not wait for a writer
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        if os.path.islink(path):
            target = show(os.readlink(path), 4096)
            raise GgufError(f"{shown}: a link to {target}, which is not there") from None
        raise GgufError(f"{shown}: no such file{_near_name(path)}") from None
    except PermissionError:
        raise GgufError(f"{shown}: it may not be read by this user: see ls -l, and chmod or chown it") from None
    except (OSError, ValueError) as error:
        raise GgufError(f"{shown}: it cannot be opened: {getattr(error, 'strerror', None) or error}") from None
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            raise GgufError(f"{shown}: the file is empty: expected a GGUF model. Did its download begin?")
        mapping = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise GgufError(f"{shown}: it cannot be mapped: {getattr(error, 'strerror', None) or error}") from None
    finally:
        os.close(descriptor)
    return mapping, size, _watched(mapping, size, shown)


def _watched(mapping: mmap.mmap, size: int, shown: str) -> Callable[[], object]:
    """Says what is mapped where, for a program that wants to hear of lost pages, until the last view is gone."""
    address: int = np.frombuffer(mapping, np.uint8).__array_interface__["data"][0]
    unwatch = weakref.finalize(mapping, native.watch_pages(address, size, shown))
    unwatch.atexit = False
    return unwatch


def _model_names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".gguf"))
    except OSError:
        return []


def _listing(folder: str) -> str:
    names = _model_names(folder)
    if not names:
        return ". There is none in it"
    return ". In it: " + ", ".join(show(name) for name in names[:5]) + (" …" if len(names) > 5 else "")


def _near_name(path: str) -> str:
    folder, name = os.path.split(path)
    near = difflib.get_close_matches(name, [n for n in _model_names(folder or ".") if n != name], 1)
    return f". Did you mean {show(os.path.join(folder, near[0]), 4096)}?" if near else ""
