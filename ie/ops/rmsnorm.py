"""rmsnorm: root-mean-square normalisation of each row, or of each head of a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .table import Arg, CountFn, Op


def reference(env: Any, a: Mapping[str, Any]) -> None:
    x = env.get(a["x"])
    w = env.vector(a["w"])
    groups = x.reshape(x.shape[0], -1, w.shape[0])
    mean = np.mean(groups * groups, axis=-1, keepdims=True)
    y = (groups * (env.scalar(1.0) / np.sqrt(mean + env.scalar(a["eps"]))) * w).reshape(x.shape)
    for name in ("y", "yq"):
        if a.get(name) is not None:
            env.put(a[name], y)


def magnitude(env: Any, a: Mapping[str, Any], output: str) -> tuple[Any, float]:
    """Squares add up without cancellation, so the error is relative to the result; 16 partial sums run in parallel."""
    x, w = env.get(a["x"]), env.vector(a["w"])
    groups = x.reshape(x.shape[0], -1, w.shape[0])
    scale = 1.0 / np.sqrt(np.mean(groups * groups, axis=-1, keepdims=True) + a["eps"])
    return np.abs(groups * scale * w).reshape(x.shape), 16 + w.shape[0] / 16


OP = Op(
    name="rmsnorm",
    args=(
        Arg("x", "f32v", "N"),
        Arg("w", "vector", "W", doc="W divides N: N / W heads share the vector"),
        Arg("y", "f32v", "N", "w", optional=True),
        Arg("yq", "q8v", "N", "w", optional=True),
        Arg("width", "i32", doc="W"),
        Arg("eps", "f32"),
    ),
    tolerance="reduction",
    geometry=CountFn("ie_geom_rows", ("rows",)),
    traffic=CountFn("ie_bytes_rows", ("rows", "x.cols")),
    flops=None,
    reference=reference,
    doc="y = x / sqrt(mean(x^2) + eps) * w over each W consecutive values",
    magnitude=magnitude,
)
