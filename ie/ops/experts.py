"""experts: rows times the matrices of their chosen experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .table import Arg, CountFn, Op


def _product(env: Any, a: Mapping[str, Any], magnitude: bool) -> np.ndarray:
    x, route = env.get(a["x"]), env.get(a["route"])
    used = a["route"].cols // 2
    m = a["y"].cols // used
    w = env.matrix(a["w"]).reshape(-1, m, a["w"].k)
    out = np.empty((x.shape[0], used, m), x.dtype)
    for r in range(x.shape[0]):
        for s in range(used):
            one = x[r].reshape(used, -1)[s] if a["per_slot"] else x[r]
            matrix = w[int(route[r, s])]
            out[r, s] = np.abs(matrix) @ np.abs(one) if magnitude else matrix @ one
    return out.reshape(x.shape[0], -1)


def reference(env: Any, a: Mapping[str, Any]) -> None:
    env.put(a["y"], _product(env, a, False))


def magnitude(env: Any, a: Mapping[str, Any], output: str) -> tuple[Any, float]:
    """Sum of |w| |x|, over a chain of K roundings."""
    return _product(env, a, True), float(a["w"].k)


OP = Op(
    name="experts",
    args=(
        Arg("x", "act", "", doc="K columns, or used * K when per_slot"),
        Arg("w", "matrix", doc="the experts' matrices, one after the other"),
        Arg("route", "f32v", "R", doc="expert ids, then weights"),
        Arg("y", "f32v", "", "w", doc="used * M columns"),
        Arg("per_slot", "i32", doc="1: each slot has an input of its own"),
        Arg("k", "i32", doc="K"),
        Arg("expert_bytes", "i32", doc="bytes of one expert's matrix"),
    ),
    tolerance="reduction",
    geometry=CountFn("ie_geom_experts", ("rows", "y.cols", "route.cols")),
    traffic=CountFn("ie_bytes_experts", ("rows", "route.cols", "expert_bytes")),
    flops=CountFn("ie_flops_matmul", ("rows", "y.cols", "k")),
    reference=reference,
    doc="y[slot] = W[expert of slot] x",
    magnitude=magnitude,
)
