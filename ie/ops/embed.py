"""embed: rows of the embedding table, decoded from the file's own format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .table import Arg, CountFn, Op


def _ids(env: Any, a: Mapping[str, Any]) -> np.ndarray:
    """Token ids, int [rows]."""
    return np.asarray(env.tokens() if a.get("ids") is None else env.get(a["ids"])[:, 0])


def reference(env: Any, a: Mapping[str, Any]) -> None:
    y = env.table_rows(a["table"], _ids(env, a))
    if a.get("scale", 1.0) != 1.0:
        y = y * env.scalar(a["scale"])
    env.put(a["y"], y)


def magnitude(env: Any, a: Mapping[str, Any], output: str) -> tuple[Any, float]:
    """The decoder's products, then one more by the scale."""
    return np.abs(env.table_rows(a["table"], _ids(env, a))) * a.get("scale", 1.0), 4.0


OP = Op(
    name="embed",
    args=(
        Arg("y", "f32v", "N", "w"),
        Arg("table", "table", "N", doc="one row a token"),
        Arg("scale", "f32", default=1.0, doc="multiplies every value (1: none)"),
        Arg("ids", "i32v", "P", optional=True, doc="token ids; absent: the step inputs' tokens"),
    ),
    tolerance="elementwise",
    geometry=CountFn("ie_geom_rows", ("rows",)),
    traffic=CountFn("ie_bytes_rows", ("rows", "y.cols")),
    flops=None,
    reference=reference,
    doc="y[r] = table[id[r]] * scale",
    magnitude=magnitude,
)
