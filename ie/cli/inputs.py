"""Texts that the measuring commands read: from a file or the standard input, bounded.

Owns: where bytes come from and the refusal of too many. Does not own what they mean.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ..errors import OptionError

MAX_TEXT_BYTES = 1 << 30


def read_bytes(name: str, limit: int = MAX_TEXT_BYTES) -> bytes:
    """The bytes of a file; `-` is the standard input. OptionError when there are more than `limit`, OSError."""
    if name != "-":
        with Path(name).open("rb") as file:
            data = file.read(limit + 1)
    elif sys.stdin is None:
        raise OptionError("the standard input is closed: name a file with -f")
    else:
        data = sys.stdin.buffer.read(limit + 1)
    if len(data) > limit:
        raise OptionError(f"{'the standard input' if name == '-' else name}: longer than {limit:,} bytes")
    return data
