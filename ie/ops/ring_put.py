"""ring_put: keeps a row by its position, for the steps to come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .table import Arg, CountFn, Op


def reference(env: Any, a: Mapping[str, Any]) -> None:
    ring, x = env.state(a["ring"]), env.get(a["x"])
    for r, (pos, seq) in enumerate(env.positions()):
        ring[seq, pos % a["size"]] = x[r]


OP = Op(
    name="ring_put",
    args=(
        Arg("x", "f32v", "N"),
        Arg("ring", "state", access="w", doc="F32 [sequence][size][N]"),
        Arg("size", "i32", doc="more than the rows of a step"),
    ),
    tolerance="exact",
    geometry=CountFn("ie_geom_rows", ("rows",)),
    traffic=CountFn("ie_bytes_rows", ("rows", "x.cols")),
    flops=None,
    reference=reference,
    doc="ring[pos mod size] = x",
)
