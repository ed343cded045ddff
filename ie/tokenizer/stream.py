"""Text that grows: complete UTF-8 from token pieces, and stop strings.

Owns: what may be shown now and what must wait. Does not own: which tokens arrive, or when generation ends.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence


class TextStream:
    """Joins token pieces and hands out complete characters only.

    `piece` maps a token id to its bytes. Bytes that can never become a character show as U+FFFD at once; an
    unfinished character waits for the next token, or for `flush`.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(self._piece(token))

    def flush(self) -> str:
        """What still waits, an unfinished character as U+FFFD. The stream may be used again afterwards."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest


class StopMatcher:
    """Withholds text that may be the beginning of a stop string, and ends at the first complete one.

    Of several stop strings, the one that begins earliest in the text wins, the longest at that place; the text before
    it is given out, the stop string and what follows are not. Empty stop strings are ignored.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = sorted({s for s in stops if s}, key=lambda s: (-len(s), s))
        self._longest = len(self._stops[0]) if self._stops else 0
        self._held = ""
        self.stopped = False
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """Take more text; returns what is now safe to show."""
        if self.stopped:
            return ""
        self._held += text
        found = [(at, -len(s), s) for s in self._stops if (at := self._held.find(s)) >= 0]
        if found:
            at, _, self.matched = min(found)
            # An earlier beginning that is still incomplete cannot win any more: the complete one ends the text now.
            safe, self._held, self.stopped = self._held[:at], "", True
            return safe
        keep = self._waiting()
        safe, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return safe

    def flush(self) -> str:
        """The withheld text, when generation ended for another reason."""
        safe, self._held = self._held, ""
        return safe

    def _waiting(self) -> int:
        """Length of the longest tail of the held text that begins some stop string."""
        tail = self._held[-(self._longest - 1) :] if self._longest > 1 else ""
        for start in range(len(tail)):
            if any(s.startswith(tail[start:]) for s in self._stops):
                return len(tail) - start
        return 0
