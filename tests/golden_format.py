"""The compact form in which a reference's logits over a large vocabulary are committed, and what can be told from it.

Owns: `pack_top` (logits -> top and sampled log-probabilities) and `estimate_kl` (that form + our logits -> KL
divergence). Of each position it keeps the TOP most likely tokens and DRAWS tokens drawn from the rest in proportion
to their probability p, all with ln p.

How the divergence follows: with q the candidate's probabilities,
    KL(p || q) = sum of g(t) over all tokens t,   g = p ln(p/q) - p + q >= 0   (the added terms sum to 0).
The sum over the kept top is exact. The sum over the rest is P_rest times the mean of g/p = ln(p/q) - 1 + q/p over the
drawn tokens: an unbiased estimate whose terms cannot cancel, because each is >= 0. Half-precision storage of ln p
(errors below 0.004, random) adds less than 1e-5.
"""

from __future__ import annotations

from typing import Any

import numpy as np

TOP, DRAWS = 48, 32

Array = np.ndarray[Any, Any]


def log_softmax(logits: Array) -> Array:
    """Row-wise log-probabilities in float64."""
    x = logits.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def pack_top(logits: Array, positions: Array, seed: int = 0) -> dict[str, Array]:
    """logits [P, V] of the given positions -> arrays for an .npz file; V must fit 16 bits."""
    if logits.shape[1] > 65536 or len(logits) != len(positions):
        raise ValueError(f"cannot pack logits of shape {logits.shape} for {len(positions)} positions")
    rng = np.random.default_rng(seed)
    logp = log_softmax(logits)
    top = np.argsort(-logp, axis=1, kind="stable")[:, :TOP]
    draws = np.empty((len(logp), DRAWS), np.int64)
    for i, row in enumerate(logp):
        p = np.exp(row)
        p[top[i]] = 0.0
        draws[i] = rng.choice(len(p), DRAWS, p=p / p.sum())
    out = {"positions": np.asarray(positions, np.uint16)}
    for name, ids in (("top", top), ("draw", draws)):
        out[name + "_ids"] = ids.astype(np.uint16)
        out[name + "_logp"] = np.take_along_axis(logp, ids, axis=1).astype(np.float16)
    return out


def estimate_kl(packed: dict[str, Array], logits: Array) -> Array:
    """KL(reference || candidate) in nats for each packed position; `logits` [P, V] are the candidate's rows there."""
    if logits.shape[0] != len(packed["positions"]):
        raise ValueError(f"{logits.shape[0]} rows of logits for {len(packed['positions'])} packed positions")
    logq = log_softmax(logits)
    ids, logp = packed["top_ids"].astype(np.int64), packed["top_logp"].astype(np.float64)
    q = np.take_along_axis(logq, ids, axis=1)
    p = np.exp(logp)
    head = (p * (logp - q) - p + np.exp(q)).sum(axis=1)
    rest = np.clip(1.0 - p.sum(axis=1), 0.0, 1.0)
    drawn = np.take_along_axis(logq, packed["draw_ids"].astype(np.int64), axis=1)
    ratio = packed["draw_logp"].astype(np.float64) - drawn
    kl: Array = head + rest * (ratio - 1.0 + np.exp(-ratio)).mean(axis=1)
    return kl
