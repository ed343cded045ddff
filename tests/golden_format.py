"""The compact form in which a reference's logits over a large vocabulary are committed, and what can be told from it.

Owns: `pack_top` (logits -> top and sampled log-probabilities), `estimate_kl` (that form + our logits -> KL divergence)
and REAL, the models for which such files are committed. Of each position it keeps the TOP most likely tokens and DRAWS
tokens drawn from the rest in proportion to their probability p, all with ln p.

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
#: Model file without .gguf, as in greedy.json and perplexity.json -> what its own golden files are called.
REAL = {
    "SmolLM2-135M-Instruct.Q4_1": "smollm2",
    "qwen2.5-coder-0.5b-instruct-q4_k_m": "qwen2",
    "gemma-3-270m-q4_k_m": "gemma3",
}

Array = np.ndarray[Any, Any]


def log_softmax(logits: Array) -> Array:
    """Row-wise log-probabilities in float64."""
    x = logits.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def pack_top(logits: Array, positions: Array, seed: int = 0) -> dict[str, Array]:
    """logits [P, V] of the given positions -> arrays for an .npz file."""
    if len(logits) != len(positions):
        raise ValueError(f"{len(logits)} rows of logits for {len(positions)} positions")
    rng = np.random.default_rng(seed)
    id_type = np.uint16 if logits.shape[1] <= 65536 else np.uint32
    n = len(positions)
    ids = {"top": np.empty((n, TOP), id_type), "draw": np.empty((n, DRAWS), id_type)}
    values = {name: np.empty(array.shape, np.float16) for name, array in ids.items()}
    for i in range(n):  # a row at a time: a whole vocabulary of 262,144 in float64 is 2 MB
        row = log_softmax(logits[i : i + 1])[0]
        top = np.argsort(-row, kind="stable")[:TOP]
        p = np.exp(row)
        p[top] = 0.0
        for name, chosen in (("top", top), ("draw", rng.choice(len(p), DRAWS, p=p / p.sum()))):
            ids[name][i], values[name][i] = chosen, row[chosen]
    out: dict[str, Array] = {"positions": np.asarray(positions, np.uint16)}
    for name in ids:
        out[name + "_ids"], out[name + "_logp"] = ids[name], values[name]
    return out


def estimate_kl(packed: dict[str, Array], logits: Array) -> Array:
    """KL(reference || candidate) in nats for each packed position; `logits` [P, V] are the candidate's rows there."""
    if logits.shape[0] != len(packed["positions"]):
        raise ValueError(f"{logits.shape[0]} rows of logits for {len(packed['positions'])} packed positions")
    kl = np.empty(len(logits))
    for i in range(len(logits)):
        logq = log_softmax(logits[i : i + 1])[0]
        logp = packed["top_logp"][i].astype(np.float64)
        p, q = np.exp(logp), logq[packed["top_ids"][i].astype(np.int64)]
        head = (p * (logp - q) - p + np.exp(q)).sum()
        rest = min(max(1.0 - p.sum(), 0.0), 1.0)
        ratio = packed["draw_logp"][i].astype(np.float64) - logq[packed["draw_ids"][i].astype(np.int64)]
        kl[i] = head + rest * (ratio - 1.0 + np.exp(-ratio)).mean()
    return kl
