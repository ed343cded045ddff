"""lookup: drafts from the text itself. What followed the last occurrence of the newest tokens is proposed again.

Owns: an index of the known tokens that grows by one entry a token (no scan a step), and a drafter that judges itself:
it proposes only as much as its measured acceptance and the measured cost of longer steps make worth while.
"""

from __future__ import annotations

from collections.abc import Sequence

MIN_MATCH = 2
MAX_MATCH = 16
MAX_CANDIDATES = 24  # most recent occurrences looked at
MAX_DRAFT = 15


class SuffixIndex:
    """Finds where the newest tokens stood before. Positions of each pair of tokens form a chain, newest first."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._last: dict[tuple[int, int], int] = {}  # pair -> position of its second token
        self._before: list[int] = []  # position -> the previous one with the same pair, or -1

    def update(self, tokens: Sequence[int], newest: int) -> None:
        """Make the index that of `tokens` and `newest` after them, which must extend what is known already."""
        for token in tokens[len(self.tokens) :]:
            self._append(token)
        if len(self.tokens) == len(tokens):
            self._append(newest)

    def _append(self, token: int) -> None:
        pair = (self.tokens[-1] if self.tokens else -1, token)
        self._before.append(self._last.get(pair, -1))
        self._last[pair] = len(self.tokens)
        self.tokens.append(token)

    def find(self) -> tuple[int, int]:
        """(length of the longest match, at most 16; position after it), the most recent of equally long ones.

        (0, 0) when fewer than two tokens match.
        """
        text = self.tokens
        n = len(text)
        best, where = 0, 0
        end = self._before[n - 1] if n >= MIN_MATCH else -1
        for _ in range(MAX_CANDIDATES):
            if end < 0 or best >= MAX_MATCH:
                break
            m = 0
            while m < MAX_MATCH and m <= end and text[end - m] == text[n - 1 - m]:
                m += 1
            if m > best:
                best, where = m, end + 1
            end = self._before[end]
        return (best, where) if best >= MIN_MATCH else (0, 0)

    def propose(self, limit: int) -> tuple[int, list[int]]:
        """(match length, `limit` tokens, at most 15, that followed it).

        Where fewer tokens followed, they are taken again from the first: a text of period p goes on with period p.
        """
        match, where = self.find()
        if not match:
            return 0, []
        found = self.tokens[where : where + min(limit, MAX_DRAFT)]
        period = len(self.tokens) - where
        while len(found) < min(limit, MAX_DRAFT):
            found.append(found[len(found) - period])
        return match, found
