r"""Text that comes from a file, a path or a model, made safe to look at: control characters are shown as `\x1b`.

Owns: which characters are not written as they are, for one line of a message (`one_line`) and for running text at a
terminal (`Visible`). Does not own where text goes.

Running text keeps its lines and tabs. Everything else that a terminal obeys or that moves a line is shown: the other
control characters (C0, DEL, C1), the line and paragraph separators, and the marks that turn the direction of what
follows them (U+202A to U+202E, U+2066 to U+2069). Marks that concern their neighbours alone stay, since Arabic, Hebrew,
Persian, Indic scripts and emoji need them (U+200C to U+200F, U+061C). Bytes that are not UTF-8 are shown as `\xff`: a
terminal that is not set to UTF-8 may take them for control characters.
"""

from __future__ import annotations

import codecs
import re

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def _escaped(c: str) -> str:
    return c.encode("unicode_escape", "backslashreplace").decode()


LONGEST = 10_000  # characters of a message: more than two paths


def one_line(text: str) -> str:
    """One line of a message: whatever is not printable is escaped, line breaks too, and what is too long is cut."""
    cut = text if len(text) <= LONGEST else text[:LONGEST] + "…"
    return "".join(c if c.isprintable() else _escaped(c) for c in cut)


class Visible:
    """Running text in pieces, as bytes. A character may be spread over several of them."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def push(self, piece: bytes) -> bytes:
        """What can be written now."""
        return self._shown(self._decoder.decode(piece))

    def flush(self) -> bytes:
        """The rest: bytes of a character that did not come to its end."""
        return self._shown(self._decoder.decode(b"", final=True))

    def _shown(self, text: str) -> bytes:
        return _OBEYED.sub(lambda found: _escaped(found[0]), text).encode()
