"""combine: weighted sum of the experts' outputs, and the shared expert."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .table import Arg, CountFn, Op


def reference(env: Any, a: Mapping[str, Any]) -> None:
    x, route, used = env.get(a["x"]), env.get(a["route"]), a["route"].cols // 2
    y = np.einsum("rs,rsn->rn", route[:, used:], x.reshape(x.shape[0], used, -1))
    if a.get("shared") is not None:
        with np.errstate(over="ignore"):
            y = y + env.get(a["shared"]) / (1 + np.exp(-env.get(a["gate"])))
    env.put(a["y"], y)


def magnitude(env: Any, a: Mapping[str, Any], output: str) -> tuple[Any, float]:
    """Sum of weight * |x| over the slots and the shared expert."""
    x, route, used = np.abs(env.get(a["x"])), env.get(a["route"]), a["route"].cols // 2
    y = np.einsum("rs,rsn->rn", route[:, used:], x.reshape(x.shape[0], used, -1))
    return (y if a.get("shared") is None else y + np.abs(env.get(a["shared"]))), used + 8.0


OP = Op(
    name="combine",
    args=(
        Arg("x", "f32v", "", doc="used * N columns"),
        Arg("route", "f32v", "R", doc="expert ids, then weights"),
        Arg("y", "f32v", "N", "w"),
        Arg("shared", "f32v", "N", optional=True, doc="output of the shared expert"),
        Arg("gate", "f32v", "", optional=True, doc="one value, before the sigmoid; with shared"),
    ),
    tolerance="reduction",
    geometry=CountFn("ie_geom_cols", ("rows", "y.cols")),
    traffic=CountFn("ie_bytes_rows", ("rows", "x.cols")),
    flops=None,
    reference=reference,
    doc="y = sum over slot of weight[slot] x[slot] (+ sigmoid(gate) shared)",
    magnitude=magnitude,
)
