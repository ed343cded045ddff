"""matmul: rows times a weight matrix, with optional bias and residual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .table import Arg, CountFn, Op


def reference(env: Any, a: Mapping[str, Any]) -> None:
    y = env.get(a["x"]) @ env.matrix(a["w"]).T
    if a.get("bias") is not None:
        y = y + env.vector(a["bias"])
    if a.get("res") is not None:
        y = y + env.get(a["res"])
    env.put(a["y"], y)


OP = Op(
    name="matmul",
    args=(
        Arg("x", "act", "K", doc="Q8 for quantised weights, F32 for float weights"),
        Arg("w", "matrix", "M,K"),
        Arg("y", "f32v", "M", "w"),
        Arg("res", "f32v", "M", optional=True, doc="added last; may be y itself"),
        Arg("bias", "vector", "M", optional=True, doc="added after the sum"),
    ),
    tolerance="reduction",
    geometry=CountFn("ie_geom_matmul", ("rows", "y.cols")),
    traffic=CountFn("ie_bytes_matmul", ("rows", "y.cols", "w.blocks", "w.tile", "w.lanes")),
    flops=CountFn("ie_flops_matmul", ("rows", "y.cols", "x.cols")),
    reference=reference,
    doc="y = x W^T (+ bias) (+ res); one F32 accumulator an output, blocks in ascending K",
)
