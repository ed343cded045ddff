"""Texts that the measuring commands read: from a file or the standard input, bounded.

Owns: where bytes come from and the refusal of too many. Does not own what they mean.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from ..errors import OptionError

MAX_TEXT_BYTES = 1 << 30
_PIECE = 1 << 20  # read at a time: asked for all at once, Python sets aside what the largest text would need


def read_bytes(name: str, limit: int = MAX_TEXT_BYTES) -> bytes:
    """The bytes of a file; `-` is the standard input. OptionError when there are more than `limit`, OSError."""
    if name != "-":
        with Path(name).open("rb") as file:
            data = _read(file, limit)
    elif sys.stdin is None:
        raise OptionError("the standard input is closed: name a file with -f")
    else:
        data = _read(sys.stdin.buffer, limit)
    if len(data) > limit:
        raise OptionError(f"{'the standard input' if name == '-' else name}: longer than {limit:,} bytes")
    return data


def _read(file: BinaryIO, limit: int) -> bytes:
    """All that is there, but little more than `limit` bytes."""
    data = bytearray()
    while len(data) <= limit and (piece := file.read(_PIECE)):
        data += piece
    return bytes(data)


def check_outputs(outputs: Mapping[str, str | None], inputs: Mapping[str, str | None]) -> None:
    """OptionError where a file to be written, by its option, is one that is read, or written for another option too."""
    for flag, name in outputs.items():
        for other, read in inputs.items():
            if name and read and _same(name, read):
                raise OptionError(f"{flag} {name}: is {other}, which is read: name another file")
    written = [(flag, name) for flag, name in outputs.items() if name]
    for i, (flag, name) in enumerate(written):
        for other, earlier in written[:i]:
            if _same(name, earlier):
                raise OptionError(f"{flag} {name}: the same file as {other}: name another")


def _same(a: str, b: str) -> bool:
    try:
        return os.path.samefile(a, b)
    except (OSError, ValueError):  # not there, or no name: compared as names
        return os.path.realpath(a) == os.path.realpath(b) if "\0" not in a + b else a == b
