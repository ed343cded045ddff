"""experts: rows times the matrices of their chosen experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .matmul import chain, sums_of_32
from .table import Arg, CountFn, Op


def _product(env: Any, a: Mapping[str, Any], x: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """Each row's (or slot's) x times its experts of `matrices` [experts * m, columns of x]."""
    route = env.get(a["route"])
    used = a["route"].cols // 2
    m = a["y"].cols // used
    w = matrices.reshape(-1, m, matrices.shape[1])
    out = np.empty((x.shape[0], used, m), x.dtype)
    for r in range(x.shape[0]):
        for s in range(used):
            one = x[r].reshape(used, -1)[s] if a["per_slot"] else x[r]
            out[r, s] = w[int(route[r, s])] @ one
    return out.reshape(x.shape[0], -1)


def reference(env: Any, a: Mapping[str, Any]) -> None:
    env.put(a["y"], _product(env, a, env.get(a["x"]), env.matrix(a["w"])))


def magnitude(env: Any, a: Mapping[str, Any], output: str) -> tuple[Any, float]:
    """As that of matmul."""
    x = np.abs(env.get(a["x"]))
    slots = x.reshape(-1, a["w"].k)  # with an input for each slot: one after the other
    return _product(env, a, sums_of_32(slots).reshape(len(x), -1), env.matrix_peaks(a["w"])), chain(a["w"])


OP = Op(
    name="experts",
    args=(
        Arg("x", "act", "", doc="K columns, or used * K when per_slot"),
        Arg("w", "matrices", doc="the experts' matrices, one after the other"),
        Arg("route", "f32v", "R", doc="expert ids, then weights"),
        Arg("y", "f32v", "", "w", doc="used * M columns"),
        Arg("per_slot", "i32", doc="1: each slot has an input of its own"),
        Arg("k", "i32", doc="K"),
    ),
    tolerance="reduction",
    geometry=CountFn("ie_geom_experts", ("rows", "y.cols", "route.cols")),
    traffic=CountFn("ie_bytes_experts", ("rows", "route.cols", "w.stride")),
    flops=CountFn("ie_flops_matmul", ("rows", "y.cols", "k")),
    reference=reference,
    doc="y[slot] = W[expert of slot] x",
    magnitude=magnitude,
)
