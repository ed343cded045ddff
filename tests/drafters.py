"""A drafter that knows how the text goes on, for tests of the loop that verifies.

Owns: `Scripted`, right up to a given row of each proposal and wrong from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ie.draft.mtp import Mtp, chain_of
from ie.engine import Engine
from ie.engine.kv import KvSequence
from ie.settings import DraftOptions


class Scripted:
    """Knows the true continuation `truth` of `prompt`; of up to `depth` drafts the first `right` are right. Wrong ones
    are the true token plus one, below `n_vocab`. `accepted`: what became of each proposal."""

    off, source = "", "scripted"

    def __init__(self, prompt: Sequence[int], truth: Sequence[int], right: int, depth: int, n_vocab: int = 96) -> None:
        self.start, self.truth, self.right, self.limit, self.n_vocab = len(prompt), truth, right, depth, n_vocab
        self.accepted: list[int] = []

    def begin(self) -> None:
        """Nothing to forget."""

    def propose(self, seq: Any, token: int, budget: int) -> list[int]:
        at = len(seq) + 1 - self.start
        assert token == self.truth[at - 1]
        drafts = list(self.truth[at : at + budget])
        drafts += [0] * (budget - len(drafts))
        for i in range(self.right, budget):
            true = self.truth[at + i] if at + i < len(self.truth) else 0
            drafts[i] = (true + 1) % self.n_vocab
        return drafts

    def observe(self, drafts: Sequence[int], accepted: int, seconds: float) -> None:
        assert accepted <= len(drafts) <= self.limit and seconds > 0
        self.accepted.append(accepted)


def chain(engine: Engine, seq: KvSequence, token: int, n: int) -> list[tuple[int, float]]:
    """Drafts of the engine's MTP block after `token`: (token, probability) each."""
    found = chain_of(engine)
    assert found is not None, "the engine has no MTP block"
    return found.draft(seq, token, n)


def mtp(options: DraftOptions | None) -> Mtp | None:
    """What `Engine.open` is given to draft with these options; None: not at all."""
    return None if options is None else Mtp(options)
