"""attention: causal softmax attention of each row over its sequence's KV cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .table import Arg, CountFn, Op


def reference(env: Any, a: Mapping[str, Any]) -> None:
    dim, kv_heads, window = a["head_dim"], a["kv_heads"], a.get("window", 0)
    q = env.get(a["q"])
    out = np.empty_like(q)
    for r, (pos, seq) in enumerate(env.positions()):
        start = max(0, pos + 1 - window) if window else 0
        keys, values = env.cache_read(a["k_cache"], a["v_cache"], seq, start, pos + 1)  # [n, heads, dim]
        heads = q[r].reshape(kv_heads, -1, dim)
        scores = np.einsum("ghd,ngd->ghn", heads, keys) * env.scalar(a["scale"])
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = weights / weights.sum(axis=-1, keepdims=True)
        out[r] = np.einsum("ghn,ngd->ghd", weights, values).reshape(-1)
    for name in ("y", "yq"):
        if a.get(name) is not None:
            env.put(a[name], out)


OP = Op(
    name="attention",
    args=(
        Arg("q", "f32v", "HD"),
        Arg("k_cache", "cache"),
        Arg("v_cache", "cache"),
        Arg("y", "f32v", "HD", "w", optional=True),
        Arg("yq", "q8v", "HD", "w", optional=True, doc="only when query heads of one KV head fill whole Q8 blocks"),
        Arg("head_dim", "i32"),
        Arg("heads", "i32"),
        Arg("kv_heads", "i32"),
        Arg("window", "i32", doc="keys visible to a query, itself included; 0: all"),
        Arg("scale", "f32"),
    ),
    tolerance="reduction",
    geometry=CountFn("ie_geom_heads", ("rows", "kv_heads")),
    traffic=CountFn("ie_bytes_rows", ("rows", "q.cols")),
    flops=None,
    reference=reference,
    doc="y = softmax(scale q K^T) V; segments of 256 keys, online softmax within, merged in ascending order",
)
