"""rope: rotary position embedding of queries and keys; keys and values go to the KV cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .table import Arg, CountFn, Op


def rotate(x: np.ndarray, table: np.ndarray, n_rot: int, neox: bool) -> np.ndarray:
    """Rotate the first n_rot values of each head. x [rows, heads, dim]; table [rows, n_rot / 2, 2] of cos, sin."""
    y = x.copy()
    if neox:
        first, second = slice(0, n_rot // 2), slice(n_rot // 2, n_rot)
    else:
        first, second = slice(0, n_rot, 2), slice(1, n_rot, 2)
    cos, sin = table[:, None, :, 0], table[:, None, :, 1]
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., first] * sin + x[..., second] * cos
    return y


def reference(env: Any, a: Mapping[str, Any]) -> None:
    dim = a["head_dim"]
    rows = env.get(a["k"]).shape[0]

    def turned(name: str) -> np.ndarray:
        x = env.get(a[name]).reshape(rows, -1, dim)
        return rotate(x, env.rope_rows(a["rope"]), a["n_rot"], bool(a["neox"])) if a["n_rot"] else x

    if a.get("q") is not None:
        finite = np.isfinite(env.get(a["k"])).all(axis=-1) & np.isfinite(env.get(a["v"])).all(axis=-1)
        env.put(a["q"], np.where(finite[:, None], turned("q").reshape(rows, -1), env.scalar(np.nan)))
    env.cache_write(a["k_cache"], a["v_cache"], turned("k"), env.get(a["v"]).reshape(rows, -1, dim))


def magnitude(env: Any, a: Mapping[str, Any], output: str) -> tuple[Any, float] | None:
    """|a cos| + |b sin|; what F16 then loses, the comparison of a cache accounts for."""
    if output == "v_cache":
        return None
    view = a["q" if output == "q" else "k"]
    x = np.abs(env.get(view))
    x = x.reshape(x.shape[0], -1, a["head_dim"])
    if a["n_rot"]:
        table = np.abs(env.rope_rows(a["rope"]))
        x = np.maximum(*(rotate(x, t, a["n_rot"], bool(a["neox"])) for t in (table, table * [1, -1])))
    return (x.reshape(x.shape[0], -1) if output == "q" else x), 4.0


OP = Op(
    name="rope",
    args=(
        Arg("q", "f32v", "HD", "rw", optional=True, doc="rotated in place"),
        Arg("k", "f32v", "GD"),
        Arg("v", "f32v", "GD"),
        Arg("rope", "rope", optional=True),
        Arg("k_cache", "cache", access="w"),
        Arg("v_cache", "cache", access="w"),
        Arg("head_dim", "i32"),
        Arg("n_rot", "i32", doc="values of each head that turn; 0: none"),
        Arg("neox", "i32", doc="1: pairs (i, i + n_rot / 2); 0: pairs (2i, 2i + 1)"),
    ),
    tolerance="elementwise",
    geometry=CountFn("ie_geom_rows", ("rows",)),
    traffic=CountFn("ie_bytes_rows", ("rows", "k.cols")),
    flops=None,
    reference=reference,
    doc="(a, b) -> (a cos - b sin, a sin + b cos) for q and k; k and v stored as F16, q NaN where they are not finite",
    magnitude=magnitude,
)
