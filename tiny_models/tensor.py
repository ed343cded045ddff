"""One tensor to make, and the usual kinds: matrices, norm weights, biases.

Owns: `TensorSpec` and the spreads that keep a random network lively. It does not own which tensors a model has
(shape.py, qwen35.py) nor the numbers themselves (weights.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Standard deviation of logits that the output head aims at: the best token then leads by about 0.7, far more than
#: activation quantisation moves it.
LOGIT_STD = 2.5
#: Gain of every other matrix: std = GAIN / sqrt(fan-in) keeps attention scores at a standard deviation near 1.7.
GAIN = 1.3
BIAS_STD = 0.3
NORM_STD = 0.15


@dataclass(frozen=True)
class TensorSpec:
    """One tensor to make: GGUF name and shape (fastest first), mean and standard deviation of its elements.

    `values`, when given, are the exact F32 elements (RoPE factors); the tensor is then not random. `f32` marks a
    matrix that files always store as F32, as they do vectors. `diag` is added where row and column are equal.
    """

    name: str
    shape: tuple[int, ...]
    std: float
    mean: float = 0.0
    values: tuple[float, ...] | None = None
    f32: bool = False
    diag: float = 0.0


def matrix(name: str, n_in: int, n_out: int, gain: float = GAIN) -> TensorSpec:
    return TensorSpec(f"{name}.weight", (n_in, n_out), gain / math.sqrt(n_in))


def norm(name: str, n: int, mean: float = 1.0) -> TensorSpec:
    return TensorSpec(f"{name}.weight", (n,), NORM_STD * mean, mean)


def bias(name: str, n: int) -> TensorSpec:
    return TensorSpec(f"{name}.bias", (n,), BIAS_STD)
