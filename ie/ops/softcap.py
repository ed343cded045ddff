"""softcap: bounds logits smoothly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .table import Arg, CountFn, Op


def reference(env: Any, a: Mapping[str, Any]) -> None:
    cap = env.scalar(a["cap"])
    env.put(a["x"], cap * np.tanh(env.get(a["x"]) / cap))


def magnitude(env: Any, a: Mapping[str, Any], output: str) -> tuple[Any, float]:
    """tanh is made of differences with 1: its error is relative to the cap."""
    return np.full(env.get(a["x"]).shape, float(a["cap"])), 4.0


OP = Op(
    name="softcap",
    args=(Arg("x", "f32v", "N", "rw"), Arg("cap", "f32", doc="c > 0")),
    tolerance="elementwise",
    geometry=CountFn("ie_geom_cols", ("rows", "x.cols")),
    traffic=CountFn("ie_bytes_rows", ("rows", "x.cols")),
    flops=None,
    reference=reference,
    doc="x = c tanh(x / c)",
    magnitude=magnitude,
)
