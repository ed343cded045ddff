"""Telling a template's own markers from text that only looks like them.

Owns: breaking the spelling of control tokens inside messages before a template is rendered, and joining it again
afterwards. Does not own rendering (chat.py) or encoding (codec.py).

A template writes `<|im_start|>` and means the token; a message that holds these characters means the characters. In the
rendered text both look alike, so messages get a mark inside each such spelling, and at an end that text of the template
could complete to one. The mark is a letter that occurs nowhere in messages or template: templates that cut, trim, join
or quote do with it what they do with the letters beside it. Where control tokens are then looked for, marked ones are
none; what is left is text, and loses its marks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_LETTERS = range(0x10600, 0x10737)  # Linear A: letters, and printable, so that nothing escapes them


class Marks:
    """Letters that occur in none of the texts: one breaks spellings, others stand for single characters."""

    def __init__(self, spellings: Iterable[bytes], texts: Iterable[str]) -> None:
        whole = "\0".join(texts)
        lower = whole.lower()  # as JSON writes the letter, it may not occur either
        free = [chr(c) for c in _LETTERS if chr(c) not in whole and json.dumps(chr(c))[1:-1] not in lower]
        self._spellings = [s.decode("utf-8", "surrogateescape") for s in spellings]
        singles = sorted({s for s in self._spellings if len(s) == 1})
        if len(free) <= len(singles):
            raise ValueError("the messages use up the letters that could mark control tokens")
        self.mark = free[0]
        longer = [s for s in self._spellings if len(s) > 2]
        self._beginnings = {s[:n] for s in longer for n in range(2, len(s))}
        self._endings = {s[-n:] for s in longer for n in range(2, len(s))}
        self._longest = max(map(len, longer), default=2)
        self._stand_ins = dict(zip(singles, free[1:], strict=False))
        back = [(self.mark, ""), *((letter, single) for single, letter in self._stand_ins.items())]
        self._bytes = [(k.encode(), v.encode("utf-8", "surrogateescape")) for k, v in back]
        # As JSON writes letters outside ASCII.
        self._bytes += [(json.dumps(k)[1:-1].encode(), v.encode("utf-8", "surrogateescape")) for k, v in back]

    def broken(self, value: Any) -> Any:
        """A message, or anything made of texts, with every spelling of a control token in it broken.

        Keys and roles are what templates ask for: they keep their ends."""
        if isinstance(value, str):
            return self._break(value)
        if isinstance(value, Mapping):
            return {
                self._inside(k) if isinstance(k, str) else k: (
                    self._inside(v) if k == "role" and isinstance(v, str) else self.broken(v)
                )
                for k, v in value.items()
            }
        if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
            return [self.broken(v) for v in value]
        return value

    def _inside(self, text: str) -> str:
        for spelling in self._spellings:
            if spelling in text:
                stand_in = self._stand_ins.get(spelling)
                text = text.replace(spelling, stand_in or spelling[0] + self.mark + spelling[1:])
        return text

    def _break(self, text: str) -> str:
        core = text.strip()
        start = text.find(core)
        before, after = text[:start], text[start + len(core) :]
        most = min(self._longest, len(core))
        opens = any(core[:n] in self._endings for n in range(2, most + 1))
        closes = any(core[-n:] in self._beginnings for n in range(2, most + 1))
        return before + self.mark * opens + self._inside(core) + self.mark * closes + after

    def within(self, text: bytes) -> bool:
        return any(mark in text for mark, _ in self._bytes)

    def removed(self, text: bytes) -> bytes:
        """The text as it was meant."""
        for mark, meant in self._bytes:
            text = text.replace(mark, meant)
        return text


def harmless(value: Any) -> Any:
    """The same with full stops in its texts for all but letters, digits and spaces; roles and keys stay."""
    if isinstance(value, str):
        return "".join(c if c.isalnum() or c.isspace() else "." for c in value)
    if isinstance(value, Mapping):
        return {k: v if k in ("role", "type") else harmless(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [harmless(v) for v in value]
    return value


def texts_of(value: Any) -> Iterable[str]:
    """Every text in a value made of mappings and sequences."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for k, v in value.items():
            yield from texts_of(k)
            yield from texts_of(v)
    elif isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        for v in value:
            yield from texts_of(v)
