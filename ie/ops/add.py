"""add: element-wise sum; usually fused into the matrix product before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .table import Arg, CountFn, Op


def reference(env: Any, a: Mapping[str, Any]) -> None:
    env.put(a["y"], env.get(a["a"]) + env.get(a["b"]))


OP = Op(
    name="add",
    args=(Arg("a", "f32v", "N"), Arg("b", "f32v", "N"), Arg("y", "f32v", "N", "w")),
    tolerance="exact",
    geometry=CountFn("ie_geom_cols", ("rows", "y.cols")),
    traffic=CountFn("ie_bytes_rows", ("rows", "y.cols")),
    flops=None,
    reference=reference,
    doc="y = a + b",
)
