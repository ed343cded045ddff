"""attention: causal softmax attention of each row over its sequence's KV cache."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .table import Arg, CountFn, Op


def _rows(env: Any, a: Mapping[str, Any]) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """For each row: its index, q [kv heads, group, dim], keys and values [n, kv heads, dim] and softmax weights
    [kv heads, group, n]."""
    dim, kv_heads, window = a["head_dim"], a["kv_heads"], a.get("window", 0)
    q = env.get(a["q"])
    for r, (pos, seq) in enumerate(env.positions()):
        start = max(0, pos + 1 - window) if window else 0
        keys, values = env.cache_read(a["k_cache"], a["v_cache"], seq, start, pos + 1)
        heads = q[r].reshape(kv_heads, -1, dim)
        scores = np.einsum("ghd,ngd->ghn", heads, keys) * env.scalar(a["scale"])
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        yield r, heads, keys, values, weights / weights.sum(axis=-1, keepdims=True)


def reference(env: Any, a: Mapping[str, Any]) -> None:
    out = np.empty_like(env.get(a["q"]))
    for r, _, _, values, weights in _rows(env, a):
        out[r] = np.einsum("ghn,ngd->ghd", weights, values).reshape(-1)
    for name in ("y", "yq"):
        if a.get(name) is not None:
            env.put(a[name], out)


def magnitude(env: Any, a: Mapping[str, Any], output: str) -> tuple[Any, float]:
    """sum of weight * |value|, enlarged by what errors of the scores, relative to sum |q| |k|, do to the weights."""
    out, longest = np.empty_like(env.get(a["q"])), a["head_dim"]
    for r, heads, keys, values, weights in _rows(env, a):
        size = a["scale"] * np.einsum("ghd,gd->gh", np.abs(heads), np.abs(keys).max(axis=0))
        terms = np.einsum("ghn,ngd->ghd", weights, np.abs(values))
        out[r] = (terms * (1 + 2 * size[..., None])).reshape(-1)
        longest = max(longest, len(keys))
    return out, 4 * math.sqrt(longest) + 16


OP = Op(
    name="attention",
    args=(
        Arg("q", "f32v", "HD"),
        Arg("k_cache", "cache"),
        Arg("v_cache", "cache"),
        Arg("y", "f32v", "HD", "w", optional=True),
        Arg("yq", "q8v", "HD", "w", optional=True, doc="only when query heads of one KV head fill whole Q8 blocks"),
        Arg(
            "parts",
            "partials",
            access="rw",
            optional=True,
            doc="room for results of single segments, where threads share keys",
        ),
        Arg("head_dim", "i32"),
        Arg("heads", "i32"),
        Arg("kv_heads", "i32"),
        Arg("window", "i32", doc="keys visible to a query, itself included; 0: all"),
        Arg("scale", "f32"),
    ),
    tolerance="reduction",
    geometry=CountFn("ie_geom_attention", ("rows", "heads", "kv_heads")),
    traffic=CountFn("ie_bytes_attention", ("rows", "pos", "seq", "window", "q.cols", "kv_heads", "head_dim")),
    flops=CountFn("ie_flops_attention", ("rows", "pos", "window", "q.cols")),
    reference=reference,
    doc="y = softmax(scale q K^T) V; segments of 256 keys, online softmax within, merged in ascending order",
    magnitude=magnitude,
)
