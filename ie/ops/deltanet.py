"""deltanet: the gated delta rule, token by token (Yang et al., "Gated Delta Networks", 2024)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from .table import Arg, CountFn, Op


def _unit(x: np.ndarray, eps: Any) -> np.ndarray:
    """Each row divided by its length; eps is added to the sum of squares."""
    return np.asarray(x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + eps))


class Token(NamedTuple):
    """One row of a segment. Per value head: gamma, beta [heads]; k, q, v [heads, dim]; states [heads, key, value] with
    gamma applied but before the update, and after it. kept: the slot that keeps the state, -1 for none."""

    seg: Any
    row: int
    gamma: np.ndarray
    beta: np.ndarray
    k: np.ndarray
    q: np.ndarray
    v: np.ndarray
    decayed: np.ndarray
    after: np.ndarray
    kept: int


def _tokens(env: Any, a: Mapping[str, Any]) -> Iterator[Token]:
    """The recurrence, which changes no state slot by itself."""
    dim, hk, hv, slots = a["dim"], a["key_heads"], a["value_heads"], a["slots"]
    qkv, decay, eps = env.get(a["qkv"]), env.vector(a["decay"]), env.scalar(a["eps"])
    beta = (1 / (1 + np.exp(-env.get(a["beta"])))).astype(env.dtype)
    gamma = np.exp(decay * np.logaddexp(0, env.get(a["alpha"]) + env.vector(a["dt"]))).astype(env.dtype)
    rows = qkv.shape[0]
    q = _unit(qkv[:, : hk * dim].reshape(rows, hk, dim), eps)
    k = _unit(qkv[:, hk * dim : 2 * hk * dim].reshape(rows, hk, dim), eps)
    v = qkv[:, 2 * hk * dim :].reshape(rows, hv, dim)
    pair = np.arange(hv) % hk
    pool = env.state(a["state"])
    for seg in env.segments():
        s = pool[seg.seq, seg.slot].copy() if seg.slot >= 0 else np.zeros((hv, dim, dim), env.dtype)
        for t in range(seg.n_rows):
            r, late = seg.first + t, t - (seg.n_rows - seg.keep)
            decayed = s * gamma[r][:, None, None]
            delta = beta[r][:, None] * (v[r] - np.einsum("hkv,hk->hv", decayed, k[r][pair]))
            s = decayed + k[r][pair][:, :, None] * delta[:, None, :]
            kept = (seg.slot + 1 + late) % slots if late >= 0 else -1
            yield Token(seg, r, gamma[r], beta[r], k[r][pair], q[r][pair], v[r], decayed, s, kept)


def reference(env: Any, a: Mapping[str, Any]) -> None:
    rows = env.get(a["qkv"]).shape[0]
    out = np.empty((rows, a["value_heads"], a["dim"]), env.dtype)
    pool = env.state(a["state"])
    for t in _tokens(env, a):
        out[t.row] = np.einsum("hkv,hk->hv", t.after, t.q) * env.scalar(a["scale"])
        if t.kept >= 0:
            pool[t.seg.seq, t.kept] = t.after
    env.put(a["y"], out.reshape(rows, -1))


def magnitude(env: Any, a: Mapping[str, Any], output: str) -> tuple[Any, float]:
    """Rounding of each token's terms, added up along the segment: the update is a contraction (k has length 1, beta is
    at most 1), so an error of the state does not grow, in the norm over keys, and decays by gamma."""
    hv, dim = a["value_heads"], a["dim"]
    pool = env.state(a["state"])
    y, states = np.empty((env.get(a["qkv"]).shape[0], hv, dim)), np.abs(pool)
    error = np.zeros((hv, dim))
    for t in _tokens(env, a):
        if t.row == t.seg.first:
            error[:] = 0
        k, decayed = np.abs(t.k), np.abs(t.decayed)
        delta = t.beta[:, None] * (np.abs(t.v) + np.einsum("hkv,hk->hv", decayed, k))
        gain = 2 - np.log(np.maximum(t.gamma, 1e-30))  # gamma is an exp: its error grows with the argument
        local = decayed * gain[:, None, None] + k[:, :, None] * delta[:, None, :]
        error = error * t.gamma[:, None] + np.sqrt((local * local).sum(axis=1))
        y[t.row] = a["scale"] * (error + np.einsum("hkv,hk->hv", np.abs(t.after), np.abs(t.q)))
        if t.kept >= 0:
            states[t.seg.seq, t.kept] = error[:, None, :]
    c = 16 + 4 * math.sqrt(dim)
    return (y.reshape(len(y), -1), c) if output == "y" else (states[sorted({s.seq for s in env.segments()})], c)


OP = Op(
    name="deltanet",
    args=(
        Arg(
            "qkv", "f32v", "C", doc="key_heads query heads, key_heads key heads, value_heads value heads of dim values"
        ),
        Arg("beta", "f32v", "H", doc="before the sigmoid"),
        Arg("alpha", "f32v", "H", doc="before bias and softplus"),
        Arg("decay", "vector", "H", doc="negative; multiplies the softplus"),
        Arg("dt", "vector", "H", doc="bias of alpha"),
        Arg("y", "f32v", "HD", "w"),
        Arg("state", "state", access="rw", doc="F32 [sequence][slot][head][key][value]"),
        Arg("key_heads", "i32"),
        Arg("value_heads", "i32", doc="value head h reads key head h mod key_heads"),
        Arg("dim", "i32"),
        Arg("slots", "i32"),
        Arg("eps", "f32", doc="added to the sum of squares of a query or key"),
        Arg("scale", "f32"),
    ),
    tolerance="reduction",
    geometry=CountFn("ie_geom_heads", ("rows", "value_heads")),
    traffic=CountFn("ie_bytes_deltanet", ("rows", "seg", "qkv.cols", "value_heads", "dim")),
    flops=CountFn("ie_flops_deltanet", ("rows", "seg", "value_heads", "dim")),
    reference=reference,
    doc="S = gamma S; d = beta (v - S^T k); S += k d^T; y = scale S^T q, for each token of a segment in turn",
    magnitude=magnitude,
)
