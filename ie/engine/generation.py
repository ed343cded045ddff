"""The generation loop: prefill, then draft, verify, rewind.

Owns: the order of drafting, stepping and sampling, and when to end. Token i of the answer is drawn from the model's own
logits with the random numbers of index i, whatever chunk, thread count, batch or draft produced them: with and without
drafts the same tokens come out. Does not own text or stop strings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Protocol

import numpy as np

from .drafter import PLAIN, Drafter, DraftStats
from .engine import Engine
from .kv import Sequence as KvSequence

MAX_ROWS = 16


class Sampler(Protocol):
    """Draws a token from logits float32 [n_vocab]; `index` counts the tokens generated before it, and the first
    `length` of `history` (None: all) are the tokens of the text before it."""

    def sample(self, logits: np.ndarray, index: int, history: Sequence[int], length: int | None = None) -> int: ...


Trace = Callable[[int, list[int], list[int], int], None]
"""Called after each step with its first position, the drafts, the model's own tokens, and how many drafts held."""


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
    """Feed `prompt` (at least one token) and yield generated tokens, the ending one included.

    Ends after `max_tokens`, after a token of `eog_ids`, or when the context holds no more. The last token yielded
    is not yet in `seq`, also when the caller stops early. `on_logits` gets float32 [rows, n_vocab] of every position
    fed, in order; it excludes a drafter.
    """
    assert on_logits is None or drafter is None
    if max_tokens < 1:
        return
    if drafter is not None:
        drafter.begin()
    logits = engine.forward(seq, list(prompt), "last" if on_logits is None else "all")
    if on_logits is not None:
        on_logits(logits)
    token = sampler.sample(logits[-1], 0, seq.tokens)
    yield token
    index = 1
    while index < max_tokens and token not in eog_ids and len(seq) < engine.n_ctx:
        begin = time.perf_counter()
        budget = _budget(engine, seq, drafter, max_tokens - index)
        drafts = drafter.propose(seq, token, budget)[:budget] if drafter is not None and budget > 0 else []
        first = len(seq)
        logits = engine.verify(seq, [token, *drafts])
        if on_logits is not None:
            on_logits(logits)
        out = _accept(logits, drafts, sampler, index, seq.tokens, eog_ids)
        accepted = len(out) - 1
        seq.truncate(first + 1 + accepted)
        if drafter is not None:
            took = time.perf_counter() - begin
            if budget > 0:
                drafter.observe(drafts, accepted, took)
            if stats is not None:
                stats.add(drafter.source if budget > 0 else PLAIN, len(drafts), accepted, took)
                stats.off = drafter.off
        if trace is not None:
            trace(first, drafts, out, accepted)
        given = 0
        try:
            for token in out:
                given += 1
                yield token
        finally:
            if given < len(out):  # the caller wants no more: keep what it has seen, but for the last token
                seq.truncate(first + given)
        index += len(out)


def _budget(engine: Engine, seq: KvSequence, drafter: Drafter | None, wanted: int) -> int:
    """How many drafts fit into the context, the step, the copies of recurrent state, and what is still wanted."""
    if drafter is None:
        return 0
    rows = min(MAX_ROWS, engine.state_slots or MAX_ROWS)
    return min(drafter.limit, rows - 1, engine.n_ctx - len(seq) - 1, wanted - 1)


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
