"""glu: gated activation of a feed-forward layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .table import Arg, CountFn, Op

ACTS = ("silu", "gelu", "sigmoid")
SILU, GELU, SIGMOID = range(len(ACTS))
_GELU_SCALE = 0.7978845608028654  # sqrt(2 / pi)
_GELU_CUBIC = 0.044715


def activate(x: np.ndarray, act: int) -> np.ndarray:
    """SiLU, sigmoid, or the tanh form of GELU as x * sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3)."""
    if act == SIGMOID:
        with np.errstate(over="ignore"):
            return np.asarray(1 / (1 + np.exp(-x)))
    u = x if act == SILU else 2 * _GELU_SCALE * (x + _GELU_CUBIC * x**3)
    with np.errstate(over="ignore"):
        return np.asarray(x / (1 + np.exp(-u)))


def reference(env: Any, a: Mapping[str, Any]) -> None:
    y = activate(env.get(a["gate"]), a["act"]) * env.get(a["up"])
    y = y.astype(env.dtype)
    for name in ("y", "yq"):
        if a.get(name) is not None:
            env.put(a[name], y)


def magnitude(env: Any, a: Mapping[str, Any], output: str) -> tuple[Any, float]:
    """|y|, as often as exp's argument is large: so often does its rounding count. Below 1e-36 a result may be 0."""
    gate = env.get(a["gate"])
    u = 2 * _GELU_SCALE * (gate + _GELU_CUBIC * gate**3) if a["act"] == GELU else gate
    return np.abs(activate(gate, a["act"]) * env.get(a["up"])) * (1 + np.minimum(np.abs(u), 90)) + 1e-30, 16.0


OP = Op(
    name="glu",
    args=(
        Arg("gate", "f32v", "N"),
        Arg("up", "f32v", "N"),
        Arg("y", "f32v", "N", "w", optional=True),
        Arg("yq", "q8v", "N", "w", optional=True),
        Arg("act", "i32", doc="0: SiLU, 1: tanh-GELU, 2: sigmoid", names=ACTS),
    ),
    tolerance="elementwise",
    geometry=CountFn("ie_geom_cols", ("rows", "gate.cols")),
    traffic=CountFn("ie_bytes_rows", ("rows", "gate.cols")),
    flops=None,
    reference=reference,
    doc="y = act(gate) * up",
    magnitude=magnitude,
)
