"""matmul: rows times a weight matrix, with optional bias and residual."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .table import Arg, CountFn, Op


def reference(env: Any, a: Mapping[str, Any]) -> None:
    y = env.get(a["x"]) @ env.matrix(a["w"]).T
    if a.get("bias") is not None:
        y = y + env.vector(a["bias"])
    if a.get("res") is not None:
        y = y + env.get(a["res"])
    env.put(a["y"], y)


def sums_of_32(x: np.ndarray) -> np.ndarray:
    """[rows, runs]: sum of each 32 columns, the last run as long as it is."""
    padded = np.pad(x, ((0, 0), (0, -x.shape[1] % 32)))
    return np.asarray(padded.reshape(len(x), -1, 32).sum(axis=-1))


def chain(w: Any) -> float:
    """Roundings of one output, as far as they add up: up to three for a run of 32 codes, one for a float."""
    return float(8 + (3 * w.k / 32 if w.activation == "q8" else 4 * math.sqrt(w.k)))


def magnitude(env: Any, a: Mapping[str, Any], output: str) -> tuple[Any, float]:
    """sum |x| |w| (+ |bias| + |res|), with the largest |w| of each 32 in place of each: formats with a minimum add up
    terms larger than the weights that they make."""
    peaks = env.matrix_peaks(a["w"])  # [m, runs of 32]
    y = sums_of_32(np.abs(env.get(a["x"]))) @ peaks.T
    for name in ("bias", "res"):
        if a.get(name) is not None:
            y = y + np.abs(env.vector(a[name]) if name == "bias" else env.get(a[name]))
    return y, chain(a["w"])


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
    magnitude=magnitude,
)
