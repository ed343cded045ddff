"""deltanet: the gated delta rule, token by token (Yang et al., "Gated Delta Networks", 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .table import Arg, CountFn, Op


def _unit(x: np.ndarray, eps: Any) -> np.ndarray:
    """Each row divided by its length; eps is added to the sum of squares."""
    return np.asarray(x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + eps))


def reference(env: Any, a: Mapping[str, Any]) -> None:
    dim, hk, hv, slots = a["dim"], a["key_heads"], a["value_heads"], a["slots"]
    qkv, decay, eps = env.get(a["qkv"]), env.vector(a["decay"]), env.scalar(a["eps"])
    beta = 1 / (1 + np.exp(-env.get(a["beta"])))
    gamma = np.exp(decay * np.logaddexp(0, env.get(a["alpha"]) + env.vector(a["dt"])))
    rows = qkv.shape[0]
    q = _unit(qkv[:, : hk * dim].reshape(rows, hk, dim), eps)
    k = _unit(qkv[:, hk * dim : 2 * hk * dim].reshape(rows, hk, dim), eps)
    v = qkv[:, 2 * hk * dim :].reshape(rows, hv, dim)
    pair = np.arange(hv) % hk
    out = np.empty((rows, hv, dim), env.dtype)
    pool = env.state(a["state"])
    for seg in env.segments():
        s = (
            pool[seg.seq, seg.slot].copy() if seg.slot >= 0 else np.zeros((hv, dim, dim), env.dtype)
        )  # [head, key, value]
        for t in range(seg.n_rows):
            r = seg.first + t
            s *= gamma[r].astype(env.dtype)[:, None, None]
            kr, qr = k[r][pair], q[r][pair]
            delta = beta[r].astype(env.dtype)[:, None] * (v[r] - np.einsum("hkv,hk->hv", s, kr))
            s += kr[:, :, None] * delta[:, None, :]
            out[r] = np.einsum("hkv,hk->hv", s, qr) * env.scalar(a["scale"])
            if t >= seg.n_rows - seg.keep:
                pool[seg.seq, (seg.slot + 1 + t - (seg.n_rows - seg.keep)) % slots] = s
    env.put(a["y"], out.reshape(rows, -1))


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
    traffic=CountFn("ie_bytes_rows", ("rows", "qkv.cols")),
    flops=None,
    reference=reference,
    doc="S = gamma S; d = beta (v - S^T k); S += k d^T; y = scale S^T q, for each token of a segment in turn",
)
