"""quantize: F32 rows to Q8 (blocks of 32 with an F32 scale, see ie_core.h for the row layout)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .table import Arg, CountFn, Op


def reference(env: Any, a: Mapping[str, Any]) -> None:
    env.put(a["yq"], env.get(a["x"]))


OP = Op(
    name="quantize",
    args=(Arg("x", "f32v", "N"), Arg("yq", "q8v", "N", "w")),
    tolerance="q8",
    geometry=CountFn("ie_geom_rows", ("rows",)),
    traffic=CountFn("ie_bytes_rows", ("rows", "x.cols")),
    flops=None,
    reference=reference,
    doc="d = amax / 127, q = round_half_even(x * (127 / amax)) over each 32 values",
)
