"""The generation loop: prefill, then decode one token at a time.

Owns: the order of sampling and stepping, and when to end. Token i of the answer is drawn with the random number
of index i, whatever chunk, thread count or batch produced its logits. Does not own text or stop strings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

import numpy as np

from .engine import Engine
from .kv import Sequence as KvSequence


class Sampler(Protocol):
    """Draws a token from logits float32 [n_vocab]; `index` counts the tokens generated before it."""

    def sample(self, logits: np.ndarray, index: int) -> int: ...


def generate(
    engine: Engine,
    seq: KvSequence,
    prompt: Sequence[int],
    sampler: Sampler,
    *,
    max_tokens: int,
    eog_ids: Collection[int],
    on_logits: Callable[[np.ndarray], None] | None = None,
) -> Iterator[int]:
    """Feed `prompt` (at least one token) and yield generated tokens, the ending one included.

    Ends after `max_tokens`, after a token of `eog_ids`, or when the context holds no more. The last token yielded
    is not yet in `seq`. `on_logits` gets float32 [rows, n_vocab] of every position fed, in order.
    """
    want = "last" if on_logits is None else "all"
    fed: Sequence[int] = list(prompt)
    for index in range(max_tokens):
        if len(seq) + len(fed) > engine.n_ctx and index > 0:
            return
        logits = engine.forward(seq, fed, want)
        if on_logits is not None:
            on_logits(logits)
        token = sampler.sample(logits[-1], index)
        yield token
        if token in eog_ids:
            return
        fed = [token]
