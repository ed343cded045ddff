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
        self._stops = [_Stop(s) for s in sorted({s for s in stops if s})]
        self._held = ""
        self.stopped = False
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """Take more text; returns what is now safe to show. Linear in the text, for each stop string."""
        if self.stopped:
            return ""
        before = len(self._held)
        self._held += text
        found = []
        for stop in self._stops:
            end = stop.push(text)
            if end >= 0:
                found.append((before + end - len(stop.text), -len(stop.text), stop.text))
        if found:
            at, _, self.matched = min(found)
            # An earlier beginning that is still incomplete cannot win any more: the complete one ends the text now.
            safe, self._held, self.stopped = self._held[:at], "", True
            return safe
        keep = max((stop.known for stop in self._stops), default=0)
        safe, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return safe

    def flush(self) -> str:
        """The withheld text, when generation ended for another reason."""
        safe, self._held = self._held, ""
        return safe


class _Stop:
    """One stop string, looked for as Knuth, Morris and Pratt do: `known` of its characters end the text so far."""

    def __init__(self, text: str) -> None:
        self.text, self.known = text, 0
        self._shorter = [0, 0]  # by characters known: how many are known still when the next one does not fit
        for c in text[1:]:
            n = self._shorter[-1]
            while n and text[n] != c:
                n = self._shorter[n]
            self._shorter.append(n + (text[n] == c))

    def push(self, more: str) -> int:
        """Where in `more` the string is complete for the first time (the place after it), or -1."""
        n, text, shorter = self.known, self.text, self._shorter
        for i, c in enumerate(more, 1):
            while n and text[n] != c:
                n = shorter[n]
            n += text[n] == c
            if n == len(text):
                return i
        self.known = n
        return -1
