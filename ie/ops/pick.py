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
    env.put(a["id"], np.array([[best if best < a["split"] else best + a["shift"]]], np.int32))
    env.put(a["prob"], np.array([[prob]], np.float64))
    env.end_chain_unless(prob >= a["p_min"])


def magnitude(env: Any, a: Mapping[str, Any], output: str) -> tuple[Any, float] | None:
    """The id exactly; the probability by the sum of exponentials."""
    return None if output == "id" else (np.abs(env.get(a["x"])[:, :1]) * 0 + 1.0, 256.0)


OP = Op(
    name="pick",
    args=(
        Arg("x", "f32v", "N", doc="logits of the draft head"),
        Arg("id", "i32v", "P", "w", doc="token id"),
        Arg("prob", "f32v", "P", "w", doc="its probability"),
        Arg("split", "i32", doc="head rows from here on are tokens row + shift"),
        Arg("shift", "i32"),
        Arg("p_min", "f32", doc="a token less likely than this ends the chain"),
    ),
    tolerance="elementwise",
    geometry=CountFn("ie_geom_rows", ("rows",)),
    traffic=CountFn("ie_bytes_rows", ("rows", "x.cols")),
    flops=None,
    reference=reference,
    doc="id = argmax x, prob = softmax(x) there; sets the skip flag when the chain is to end",
    magnitude=magnitude,
    skips=True,
)
