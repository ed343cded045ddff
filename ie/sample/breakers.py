"""What breaks a repetition for DRY, as tokens of a vocabulary.

Owns: finding the tokens and token sequences that hold a breaker's text. Does not own their use (edits.c).

A breaker is a text. A token whose text contains it breaks by itself. A token whose text ends in a beginning of the
breaker breaks together with the tokens of the rest behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer

DEFAULT_BREAKERS = ("\n", ":", '"', "*")
MAX_BYTES = 40  # of a breaker's text that count
MAX_TAIL = 20  # tokens

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Breakers:
    """Pairs of a first token and a tail, by ascending first token, then falling length of the tail.

    heads int32 [n]; tail i is tails[starts[i] : starts[i + 1]], empty where the token breaks by itself.
    """

    heads: Ints
    starts: Ints
    tails: Ints

    @staticmethod
    def from_pairs(pairs: Iterable[tuple[int, tuple[int, ...]]]) -> Breakers:
        """From (first token, tail) in any order; repeated ones count once."""
        ordered = sorted(set(pairs), key=lambda pair: (pair[0], -len(pair[1]), pair[1]))
        starts = np.cumsum([0, *(len(tail) for _, tail in ordered)])
        flat = [token for _, tail in ordered for token in tail]
        heads = [head for head, _ in ordered]
        return Breakers(np.array(heads, np.int32), starts.astype(np.int32), np.array(flat, np.int32))

    @staticmethod
    def from_texts(texts: Iterable[str], tokenizer: Tokenizer) -> Breakers:
        """The breakers of some texts in a vocabulary. Looks at every token: some 0.8 s for 150,000."""
        pairs: list[tuple[int, tuple[int, ...]]] = []
        pieces = [tokenizer.piece(token, special=True) for token in range(tokenizer.n_vocab)]
        for text in texts:
            breaker = text.encode("utf-8", "surrogateescape")[:MAX_BYTES]
            if not breaker:
                continue
            # A beginning of the breaker → the tokens of what is left of it.
            rests: dict[bytes, tuple[int, ...]] = {}
            for length in range(1, len(breaker)):
                if any(piece.endswith(breaker[:length]) for piece in pieces):
                    rest = tokenizer.encode(breaker[length:], add_special=False, parse_special=False)
                    rests[breaker[:length]] = tuple(rest[:MAX_TAIL])
            for token, piece in enumerate(pieces):
                if breaker in piece:
                    pairs.append((token, ()))
                else:
                    pairs += [(token, rest) for start, rest in rests.items() if piece.endswith(start)]
        return Breakers.from_pairs(pairs)


NO_BREAKERS = Breakers.from_pairs(())
