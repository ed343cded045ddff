"""ring_get: what was kept for the position before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .table import Arg, CountFn, Op


def reference(env: Any, a: Mapping[str, Any]) -> None:
    ring = env.state(a["ring"])
    places = env.positions()
    y = np.zeros((len(places), a["y"].cols), env.dtype)
    for r, (pos, seq) in enumerate(places):
        if pos > 0:
            y[r] = ring[seq, (pos - 1) % a["size"]]
    env.put(a["y"], y)


OP = Op(
    name="ring_get",
    args=(
        Arg("y", "f32v", "N", "w"),
        Arg("ring", "state", doc="F32 [sequence][size][N]"),
        Arg("size", "i32"),
    ),
    tolerance="exact",
    geometry=CountFn("ie_geom_rows", ("rows",)),
    traffic=CountFn("ie_bytes_rows", ("rows", "y.cols")),
    flops=None,
    reference=reference,
    doc="y = ring[(pos - 1) mod size]; 0 at position 0",
)
