"""Texts that the commands read, from a file or the standard input, bounded; and which files may be written.

Owns: where bytes come from and the refusal of too many; the refusal of a file to be written before anything is
computed for it. Does not own what the bytes mean, nor how files are written (see `dump`).
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from .. import paths
from ..errors import OptionError, ResourceError
from ..gguf import part_paths
from .options import Options

MAX_TEXT_BYTES = 1 << 30
_PIECE = 1 << 20  # read at a time: asked for all at once, Python sets aside what the largest text would need


def read_bytes(name: str, limit: int = MAX_TEXT_BYTES) -> bytes:
    """The bytes of a file; `-` is the standard input. OptionError when there are more than `limit`, OSError."""
    data = read_at_most(name, limit, "name a file with -f")
    if len(data) > limit:
        raise OptionError(f"{'the standard input' if name == '-' else name}: longer than {limit:,} bytes")
    return data


def read_at_most(name: str, limit: int, advice: str) -> bytes:
    """All that is there, but little more than `limit` bytes. OptionError with `advice` where the standard input is
    closed, OSError with a name."""
    if name == "-" and sys.stdin is None:
        raise OptionError(f"the standard input is closed: {advice}")
    try:
        if name == "-":
            return _read(sys.stdin.buffer, limit)
        with Path(name).open("rb") as file:
            return _read(file, limit)
    except OSError as error:
        raise OSError(error.errno, error.strerror, "the standard input" if name == "-" else name) from error


def _read(file: BinaryIO, limit: int) -> bytes:
    data = bytearray()
    while len(data) <= limit and (piece := file.read(_PIECE)):
        data += piece
    return bytes(data)


def check_outputs(outputs: Mapping[str, str | None], chosen: Options) -> None:
    """OptionError where a file to be written, by its option, cannot be or must not be: one that the options have read,
    by whatever name or link, the log or the history; one that is written for another option too; a folder, a pipe or a
    device; a place in a folder that is not there."""
    named = [(flag, name) for flag, name in outputs.items() if name]
    kept = _kept(chosen) if named else []
    for i, (flag, name) in enumerate(named):
        for other, path, use in kept:
            if _same(name, path):
                raise OptionError(f"{flag} {name}: is {other}, which is {use}: name another file")
        for other, earlier in named[:i]:
            if _same(name, earlier):
                raise OptionError(f"{flag} {name}: the same file as {other}: name another")
        _check_place(flag, name)


def _kept(chosen: Options) -> list[tuple[str, str, str]]:
    """(what it is, path, read or written) of each file that must stay as it is."""
    found = [("the model", path, "read") for path in part_paths(chosen.model or "")]
    found += [("--mtp", path, "read") for path in part_paths(chosen.mtp or "")]
    texts = {"--file": chosen.file or chosen.text_file, "--tokens-file": chosen.tokens_file}
    found += [(flag, "/dev/stdin" if name == "-" else name, "read") for flag, name in texts.items() if name]
    with contextlib.suppress(OSError, ValueError):
        if stat.S_ISREG(os.fstat(0).st_mode):  # it is read where no other text is given
            found.append(("the standard input", "/dev/stdin", "read"))
    for what, path in (("the log", paths.log_file), ("the history", paths.history_file)):
        with contextlib.suppress(ResourceError):
            place = path()
            found += [(what, str(place), "written")] if place is not None else []
    return found


def _check_place(flag: str, name: str) -> None:
    if "\0" in name:
        raise OptionError(f"{flag}: the name contains a NUL character")
    try:
        mode = os.stat(name).st_mode
    except FileNotFoundError:
        folder = os.path.dirname(name) or "."
        # A link to a place that is not there is followed: what it points to will be made.
        if not os.path.islink(name) and not os.path.isdir(folder):
            raise OptionError(f"{flag} {name}: there is no folder {folder}: make it, or name another file") from None
    except OSError as error:
        raise OptionError(f"{flag} {name}: {error.strerror}") from error
    else:
        if stat.S_ISDIR(mode):
            raise OptionError(f"{flag} {name}: this is a folder: name a file in it")
        if not stat.S_ISREG(mode):
            raise OptionError(f"{flag} {name}: this is a pipe, socket or device: name a file that may be replaced")


def _same(a: str, b: str) -> bool:
    try:
        return os.path.samefile(a, b)
    except (OSError, ValueError):  # not there, or no name: compared as names
        pass
    try:
        return os.path.realpath(a) == os.path.realpath(b)
    except (OSError, ValueError):
        return a == b
