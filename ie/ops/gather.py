"""gather: copies the rows that need logits, in the order of the step's output list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .table import Arg, CountFn, Op


def reference(env: Any, a: Mapping[str, Any]) -> None:
    env.put(a["y"], env.get(a["x"])[env.out_rows()])


OP = Op(
    name="gather",
    args=(Arg("y", "f32v", "N", "w"), Arg("x", "f32v", "N")),
    tolerance="exact",
    geometry=CountFn("ie_geom_rows", ("rows",)),
    traffic=CountFn("ie_bytes_rows", ("rows", "y.cols")),
    flops=None,
    reference=reference,
    doc="y[o] = x[out_row[o]] for each output row o",
)
