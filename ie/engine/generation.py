"""Generation: a prompt, then draft, verify, rewind, until an end.

Owns: `Generation`, which says what it wants run next and takes the logits, so that whoever drives it may run it beside
others; and `generate`, the loop for one. Token i of the answer is drawn from the model's own logits with the random
numbers of index i, whatever chunk, thread count, batch or draft produced them: with and without drafts, alone and among
others, the same tokens come out. Does not own text or stop strings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Protocol

import numpy as np

from ..program.step import Phase
from .drafter import PLAIN, Drafter, DraftStats
from .engine import Engine
from .kv import KvSequence
from .opening import DECODE_ROWS
from .steps import Part


class Sampler(Protocol):
    """Draws a token from logits float32 [n_vocab]; `index` counts the tokens generated before it, and the first
    `length` of `history` (None: all) are the tokens of the text before it."""

    def sample(self, logits: np.ndarray, index: int, history: Sequence[int], length: int | None = None) -> int: ...


Trace = Callable[[int, list[int], list[int], int], None]
"""Called after each step with its first position, the drafts, the model's own tokens, and how many drafts held."""


class Generation:
    """One answer: while not `done`, run what `wants()` says in a step of `phase`, and give the logits to `take`, which
    returns the tokens that they made, the ending one included. The last token is not in the sequence.

    Ends after `max_tokens`, after a token of `eog_ids`, or when the context holds no more. `on_logits` gets float32
    [rows, n_vocab] of every position fed, in order; it excludes a drafter. ResourceError for a prompt (at least one
    token) that does not fit.
    """

    def __init__(
        self,
        engine: Engine,
        seq: KvSequence,
        prompt: Sequence[int],
        sampler: Sampler,
        *,
        max_tokens: int,
        eog_ids: Collection[int],
        on_logits: Callable[[np.ndarray], None] | None = None,
        drafter: Drafter | None = None,
        stats: DraftStats | None = None,
        trace: Trace | None = None,
    ) -> None:
        assert on_logits is None or drafter is None
        self.seq, self.sampler, self.max_tokens, self.eog_ids = seq, sampler, max_tokens, eog_ids
        self.on_logits, self.drafter, self.stats, self.trace = on_logits, drafter, stats, trace
        self.phase, self.done = Phase.PROMPT, max_tokens < 1
        self.index = 0  # tokens generated so far
        self._opened, self._rest = engine.opened, list(prompt)
        self._drafts, self._begin, self._budget, self._first = list[int](), 0.0, 0, 0
        self._token = -1
        if not self.done:
            if not prompt:
                raise ValueError("a prompt needs at least one token")
            seq.require(len(prompt))
            if drafter is not None:
                drafter.begin()

    def wants(self) -> Part:
        """What to run next."""
        every = self.on_logits is not None
        if self._rest:
            piece = self._rest[: self._opened.most_rows(Phase.PROMPT, every)]
            last = [len(piece) - 1] if len(piece) == len(self._rest) else []
            return Part(self.seq, piece, range(len(piece)) if every else last)
        seq, drafter = self.seq, self.drafter
        self._begin, self._first = time.perf_counter(), len(seq)
        self._budget = _budget(self._opened.n_ctx, self._opened.state_slots, seq, drafter, self.max_tokens - self.index)
        drafting = drafter is not None and self._budget > 0
        self._drafts = drafter.propose(seq, self._token, self._budget)[: self._budget] if drafter and drafting else []
        return Part(seq, [self._token, *self._drafts], range(1 + len(self._drafts)))

    def take(self, logits: np.ndarray) -> list[int]:
        """Tokens that follow from the logits of what was wanted; none while a prompt has further chunks."""
        if self.on_logits is not None:
            self.on_logits(logits)
        if self._rest:
            del self._rest[: self._opened.most_rows(Phase.PROMPT, self.on_logits is not None)]
            if self._rest:
                return []
            out = [self.sampler.sample(logits[-1], 0, self.seq.tokens)]
            self.phase = Phase.GENERATED
        else:
            out = self._verified(logits)
        self.index += len(out)
        self._token = out[-1]
        full = len(self.seq) >= self._opened.n_ctx
        self.done = self.index >= self.max_tokens or self._token in self.eog_ids or full
        return out

    def _verified(self, logits: np.ndarray) -> list[int]:
        """The model's own tokens for the last one and its drafts; the sequence keeps what held."""
        seq, drafts, drafter = self.seq, self._drafts, self.drafter
        out = _accept(logits, drafts, self.sampler, self.index, seq.tokens, self.eog_ids)
        accepted = len(out) - 1
        seq.truncate(self._first + 1 + accepted)
        if drafter is not None:
            took = time.perf_counter() - self._begin
            if self._budget > 0:
                drafter.observe(drafts, accepted, took)
            if self.stats is not None:
                self.stats.add(drafter.source if self._budget > 0 else PLAIN, len(drafts), accepted, took)
                self.stats.off = drafter.off
        if self.trace is not None:
            self.trace(self._first, drafts, out, accepted)
        return out

    def keep(self, n: int) -> None:
        """Whoever reads the tokens wants no more than the first n (at least 1) of what `take` gave last: the sequence
        keeps these, but for the last one."""
        self.done = True
        if self.phase is Phase.GENERATED and len(self.seq) > self._first + n:
            self.seq.truncate(self._first + n)


def generate(
    engine: Engine,
    seq: KvSequence,
    prompt: Sequence[int],
    sampler: Sampler,
    *,
    max_tokens: int,
    eog_ids: Collection[int],
    on_logits: Callable[[np.ndarray], None] | None = None,
    drafter: Drafter | None = None,
    stats: DraftStats | None = None,
    trace: Trace | None = None,
) -> Generator[int, None, None]:
    """Feed `prompt` and yield the tokens of one `Generation`; see there. The last token yielded is not yet in `seq`,
    also when the caller stops early."""
    asked = Generation(
        engine, seq, prompt, sampler, max_tokens=max_tokens, eog_ids=eog_ids, on_logits=on_logits, drafter=drafter,
        stats=stats, trace=trace,
    )  # fmt: skip
    while not asked.done:
        (logits,) = engine.step([asked.wants()], asked.phase)
        out, given = asked.take(logits), 0
        try:
            for token in out:
                given += 1
                yield token
        finally:
            if given < len(out):
                asked.keep(given)


def _budget(n_ctx: int, state_slots: int, seq: KvSequence, drafter: Drafter | None, wanted: int) -> int:
    """How many drafts fit into the context, the step, the copies of recurrent state, and what is still wanted."""
    if drafter is None:
        return 0
    rows = min(DECODE_ROWS, state_slots or DECODE_ROWS)
    return min(drafter.limit, rows - 1, n_ctx - len(seq) - 1, wanted - 1)


def _accept(
    logits: np.ndarray,
    drafts: Sequence[int],
    sampler: Sampler,
    index: int,
    tokens: Sequence[int],
    eog_ids: Collection[int],
) -> list[int]:
    """The model's own tokens, row by row, until one differs from its draft or ends the text.

    `tokens` is the text with the drafts at its end; row i follows all but the last len(drafts) - i of them."""
    out: list[int] = []
    known = len(tokens) - len(drafts)
    for i, row in enumerate(logits):
        token = sampler.sample(row, index + i, tokens, known + i)
        out.append(token)
        if token in eog_ids or i == len(drafts) or token != drafts[i]:
            break
    return out
