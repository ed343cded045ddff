"""conv: causal depth-wise convolution over a sequence, then SiLU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .glu import SILU, activate
from .table import Arg, CountFn, Op

RING = 32  # IE_CONV_RING in core_laws/ie_core.h


def _sums(env: Any, a: Mapping[str, Any], x: np.ndarray, w: np.ndarray, ring: np.ndarray) -> np.ndarray:
    """[rows, channels]: sum over tap of w x. w [channels, taps], the last tap is the current row's."""
    taps, out = a["taps"], np.zeros_like(x)
    for seg in env.segments():
        history = ring[seg.seq]
        for r in range(seg.first, seg.first + seg.n_rows):
            pos = env.position(r)
            for tap in range(taps):
                back = taps - 1 - tap
                if pos - back >= 0:
                    past = x[r - back] if r - back >= seg.first else history[(pos - back) % RING]
                    out[r] += w[:, tap] * past
    return out


def reference(env: Any, a: Mapping[str, Any]) -> None:
    x, ring = env.get(a["x"]), env.state(a["ring"])
    out = _sums(env, a, x, env.vector(a["w"]).reshape(-1, a["taps"]), ring)
    for seg in env.segments():
        for r in range(max(seg.first, seg.first + seg.n_rows - RING), seg.first + seg.n_rows):
            ring[seg.seq][env.position(r) % RING] = x[r]
    env.put(a["y"], activate(out, SILU))


def magnitude(env: Any, a: Mapping[str, Any], output: str) -> tuple[Any, float] | None:
    """sum |w| |x|, which SiLU passes on at a slope below 1.1; and |y| as often as exp's argument is large."""
    if output == "ring":
        return None
    x, w, ring = env.get(a["x"]), env.vector(a["w"]).reshape(-1, a["taps"]), env.state(a["ring"])
    u = _sums(env, a, x, w, ring)
    terms = 1.1 * _sums(env, a, np.abs(x), np.abs(w), np.abs(ring))
    return terms + np.abs(activate(u, SILU)) * (1 + np.minimum(np.abs(u), 90)) + 1e-30, 16.0


OP = Op(
    name="conv",
    args=(
        Arg("x", "f32v", "C"),
        Arg("w", "vector", doc="taps of each channel, oldest first: C * taps values"),
        Arg("y", "f32v", "C", "w"),
        Arg(
            "ring", "state", access="rw", doc="F32 [sequence][32][C]: inputs of the last positions, by position mod 32"
        ),
        Arg("taps", "i32"),
    ),
    tolerance="reduction",
    geometry=CountFn("ie_geom_cols", ("rows", "x.cols")),
    traffic=CountFn("ie_bytes_conv", ("rows", "seg", "pos", "x.cols", "taps")),
    flops=CountFn("ie_flops_conv", ("rows", "seg", "x.cols", "taps")),
    reference=reference,
    doc="y[t] = silu(sum over tap of w[tap] x[t - taps + 1 + tap]); nothing before position 0",
    magnitude=magnitude,
)
