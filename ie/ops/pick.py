"""pick: the likeliest token of a draft step, which becomes the next step's token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .table import Arg, CountFn, Op


def reference(env: Any, a: Mapping[str, Any]) -> None:
    x = env.get(a["x"])[0]
    best = int(x.argmax())
    prob = float(1 / np.exp(x - x[best]).sum())
    token = best if best < a["split"] else best + a["shift"]
    env.put(a["y"], np.array([[token, prob]], np.float64))
    env.chain(token, prob >= a["p_min"])


def magnitude(env: Any, a: Mapping[str, Any], output: str) -> tuple[Any, float]:
    """The id exactly; the probability by the sum of exponentials."""
    return np.abs(env.get(a["x"])[:, :2]) * 0 + 1.0, 256.0


OP = Op(
    name="pick",
    args=(
        Arg("x", "f32v", "N", doc="logits of the draft head"),
        Arg("y", "f32v", "P", "w", doc="token id (exact below 2^24) and its probability"),
        Arg("tokens", "state", access="w", doc="stands for the step inputs' tokens, which this op writes"),
        Arg("split", "i32", doc="head rows from here on are tokens row + shift"),
        Arg("shift", "i32"),
        Arg("p_min", "f32", doc="a token less likely than this ends the chain"),
    ),
    tolerance="elementwise",
    geometry=CountFn("ie_geom_rows", ("rows",)),
    traffic=CountFn("ie_bytes_rows", ("rows", "x.cols")),
    flops=None,
    reference=reference,
    doc="y = (argmax x, softmax(x) there); sets the next row's token, or the skip flag",
    magnitude=magnitude,
)
