"""embed: rows of the embedding table, decoded from the file's own format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .table import Arg, CountFn, Op


def reference(env: Any, a: Mapping[str, Any]) -> None:
    y = env.table_rows(a["table"], env.tokens())
    if a.get("scale", 1.0) != 1.0:
        y = y * env.scalar(a["scale"])
    env.put(a["y"], y)


def magnitude(env: Any, a: Mapping[str, Any], output: str) -> tuple[Any, float]:
    """The decoder's products, then one more by the scale."""
    return np.abs(env.table_rows(a["table"], env.tokens())) * a.get("scale", 1.0), 4.0


OP = Op(
    name="embed",
    args=(
        Arg("y", "f32v", "N", "w"),
        Arg("table", "table", "N", doc="one row a token"),
        Arg("scale", "f32", default=1.0, doc="multiplies every value (1: none)"),
        Arg("tokens", "state", optional=True, doc="stands for the step inputs' tokens where another op writes them"),
    ),
    tolerance="elementwise",
    geometry=CountFn("ie_geom_rows", ("rows",)),
    traffic=CountFn("ie_bytes_rows", ("rows", "y.cols")),
    flops=None,
    reference=reference,
    doc="y[r] = table[token[r]] * scale",
    magnitude=magnitude,
)
