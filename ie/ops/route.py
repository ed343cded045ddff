"""route: which experts a row goes to, and with what weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .table import Arg, CountFn, Op

LEAST = -86.5
"""Below, ie_exp (kernels_c/include/formula.h) is 0: experts less likely are all alike, and the first comes first."""


def reference(env: Any, a: Mapping[str, Any]) -> None:
    x, used = env.get(a["x"]), a["y"].cols // 2
    below = x - x.max(axis=-1, keepdims=True)
    p = np.where(below < LEAST, env.scalar(0), np.exp(below))
    p = p / p.sum(axis=-1, keepdims=True)
    ids = np.argsort(-p, axis=-1, kind="stable")[:, :used]
    w = np.take_along_axis(p, ids, axis=-1)
    w = w / np.maximum(w.sum(axis=-1, keepdims=True), 2.0**-14)
    env.put(a["y"], np.concatenate([ids, w], axis=-1))


def magnitude(env: Any, a: Mapping[str, Any], output: str) -> tuple[Any, float]:
    """Weights are at most 1; ids are exact unless two experts are all but equally likely."""
    x, used = env.get(a["x"]), a["y"].cols // 2
    return np.broadcast_to(np.r_[np.zeros(used), np.ones(used)], (x.shape[0], 2 * used)), 64.0


OP = Op(
    name="route",
    args=(
        Arg("x", "f32v", "E", doc="router logits"),
        Arg("y", "f32v", "R", "w", doc="expert ids, then their weights: 2 * used values"),
    ),
    tolerance="elementwise",
    geometry=CountFn("ie_geom_rows", ("rows",)),
    traffic=CountFn("ie_bytes_rows", ("rows", "x.cols")),
    flops=None,
    reference=reference,
    doc="the likeliest experts of softmax(x) and their probabilities, normalised",
    magnitude=magnitude,
)
