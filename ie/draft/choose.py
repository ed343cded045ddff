"""choose: the drafters themselves, and the one that picks among them by measured speed.

Owns: which drafts are proposed, and when none are. Does not own the search in the text (lookup.py), the arithmetic of
costs (costs.py), or what the MTP block computes (mtp.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..engine import Engine
from ..engine.drafter import PLAIN, Drafter
from ..engine.kv import KvSequence
from ..errors import OptionError
from .costs import Average, StepCosts, best_length
from .lookup import MAX_DRAFT, MAX_MATCH, SuffixIndex
from .mtp import MtpChain, chain_of

AGREE = 2  # drafts of the chain that must equal the looked-up text
PROBE_EVERY = 16  # steps between trials of a drafter that is not in use
LOOKUP_PROBE = 64  # the same for lookup alone, whose drafts cost time on plain text
MARGIN = 1.1  # a drafter must be this much faster to replace another
TRIALS = 3  # steps of each drafter before the first choice; the first of them warms up and does not count


class MtpDrafter:
    """A chain of the model's MTP block; with `lookup`, longer drafts from the text where the chain agrees."""

    def __init__(self, chain: MtpChain, depth: int, lookup: bool) -> None:
        self.chain, self.depth = chain, depth
        self.index = SuffixIndex() if lookup else None
        self.limit = MAX_DRAFT if lookup else depth
        self.source, self.off = "mtp", "no guess reached --draft-pmin"

    def begin(self) -> None:
        if self.index is not None:
            self.index = SuffixIndex()

    def propose(self, seq: KvSequence, token: int, budget: int) -> list[int]:
        budget = min(budget, self.limit)
        match, found = 0, list[int]()
        if self.index is not None:
            self.index.update(seq.tokens, token)
            match, found = self.index.propose(budget)
        self.source = "mtp"
        if match >= MAX_MATCH and len(found) > AGREE:
            chain = self._chain(seq, token, min(AGREE, budget))
            if chain == found[: len(chain)] and len(chain) == AGREE:
                self.source = "lookup"
                return found
            return self._chain(seq, token, budget)
        chain = self._chain(seq, token, budget)
        if len(chain) >= AGREE and len(found) > len(chain) and chain == found[: len(chain)]:
            self.source = "lookup"
            return found
        return chain

    def _chain(self, seq: KvSequence, token: int, budget: int) -> list[int]:
        drafts = self.chain.draft(seq, token, min(budget, self.depth))
        return [t for t, prob in drafts if prob >= self.chain.p_min]

    def observe(self, drafts: Sequence[int], accepted: int, seconds: float) -> None:
        """Nothing to learn: the chain stops itself by its probabilities."""
        self.off = "" if drafts else self.off


class LookupDrafter:
    """Lookup alone, for models without an MTP block. Acceptance is learned by match length, cost by rows."""

    def __init__(self, depth: int = MAX_DRAFT) -> None:
        self.index, self.costs = SuffixIndex(), StepCosts()
        self.limit = min(depth, MAX_DRAFT)
        self.source, self.off = PLAIN, "the text does not repeat itself"
        self._rates: dict[int, Average] = {}
        self._bucket = 0
        self._idle = 0

    def begin(self) -> None:
        self.index = SuffixIndex()

    def propose(self, seq: KvSequence, token: int, budget: int) -> list[int]:
        self.index.update(seq.tokens, token)
        drafts = self._worth_while(*self.index.propose(min(budget, self.limit)))
        self.source = "lookup" if drafts else PLAIN
        return drafts

    def _worth_while(self, match: int, found: list[int]) -> list[int]:
        if not found or not self.costs.known(1):
            return []
        self._bucket = min(match, 8)
        rate = self._rates.setdefault(self._bucket, self._prior(self._bucket))
        n = best_length(rate.value, len(found), self.costs)
        if n == 0:
            self.off = "what followed the same words earlier held too seldom"
            self._idle += 1
            if self._idle < LOOKUP_PROBE:
                return []
            n = 1  # one draft now and then, so that a change of the text is noticed
        self._idle = 0
        return found[:n]

    @staticmethod
    def _prior(bucket: int) -> Average:
        """Longer matches hold more often; the first trials decide quickly."""
        average = Average()
        average.add(min(0.9, 0.3 + 0.08 * bucket), 2.0)
        return average

    def observe(self, drafts: Sequence[int], accepted: int, seconds: float) -> None:
        self.costs.add(len(drafts) + 1, seconds)
        if drafts:
            trials = accepted + (accepted < len(drafts))
            rate = self._rates[self._bucket]
            for i in range(trials):
                rate.add(float(i < accepted))
            self.off = ""


class Plain:
    """Proposes nothing: what the others are measured against."""

    source, limit, off = PLAIN, 0, ""

    def begin(self) -> None:
        """Nothing is known."""

    def propose(self, seq: KvSequence, token: int, budget: int) -> list[int]:
        return []

    def observe(self, drafts: Sequence[int], accepted: int, seconds: float) -> None:
        """Nothing to learn."""


class AutoDrafter:
    """Uses the drafter that gives the most tokens per second, trying the others now and then."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self.drafters = list(drafters)
        self.rates = [Average() for _ in drafters]
        self.current = 0
        self.limit = max(d.limit for d in drafters)
        self.off = ""
        self._step = 0
        self._used = 0
        self._trials = [0] * len(self.drafters)

    @property
    def source(self) -> str:
        return self.drafters[self._used].source

    def begin(self) -> None:
        for drafter in self.drafters:
            drafter.begin()

    def propose(self, seq: KvSequence, token: int, budget: int) -> list[int]:
        self._step += 1
        untried = [i for i, n in enumerate(self._trials) if n < TRIALS]
        self._used = self.current
        if untried:
            self._used = untried[0]
        elif self._step % PROBE_EVERY == 0:
            others = [i for i in range(len(self.drafters)) if i != self.current]
            self._used = others[self._step // PROBE_EVERY % len(others)] if others else self.current
        return self.drafters[self._used].propose(seq, token, budget)

    def observe(self, drafts: Sequence[int], accepted: int, seconds: float) -> None:
        self.drafters[self._used].observe(drafts, accepted, seconds)
        self._trials[self._used] += 1
        if self._trials[self._used] > 1 and seconds > 0:
            # Rates are ratios of sums: a long step weighs by its time.
            self.rates[self._used].add((accepted + 1) / seconds, seconds)
        if min(self._trials) < TRIALS:
            return
        best = max(range(len(self.rates)), key=lambda i: self.rates[i].value)
        if self.rates[best].value > MARGIN * self.rates[self.current].value:
            self.current = best
        chosen = self.drafters[self.current]
        self.off = "plain steps were faster" if isinstance(chosen, Plain) else chosen.off


def make(kind: str, engine: Engine, depth: int, measured: bool = False) -> Drafter | None:
    """The drafter called `kind`: mtp, lookup, mtp+lookup, or auto for what the model has. None when depth is 0.

    depth: most drafts of the MTP block, or of lookup alone. `measured`: drafting stops while plain steps are faster.
    OptionError when the model cannot draft in that way.
    """
    if depth == 0:
        return None
    mtp = chain_of(engine)
    if kind in ("mtp", "mtp+lookup") and mtp is None:
        raise OptionError(
            f"{engine.gguf.path} holds no MTP block: draft with --drafter lookup, or name a file that has one (--mtp)"
        )
    if kind == "lookup" or (kind == "auto" and mtp is None):
        return LookupDrafter(MAX_DRAFT if measured else depth)
    if kind not in ("auto", "mtp", "mtp+lookup"):
        raise OptionError(f"unknown drafter {kind!r}; known: auto, mtp, mtp+lookup, lookup")
    assert mtp is not None
    drafter = MtpDrafter(mtp, depth, kind != "mtp")
    return AutoDrafter([drafter, Plain()]) if measured else drafter
