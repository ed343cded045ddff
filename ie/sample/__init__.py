"""From logits to a token id.

Owns: the interface. A file per task behind it: params.py has the samplers' names, parameters and limits, breakers.py
finds what breaks a repetition in a vocabulary, sampler.py calls C. Does not own: the arithmetic
(kernels_c/sample/sample.c), the loop around it (generate.py), or which ids end generation.
"""

from __future__ import annotations

from .breakers import DEFAULT_BREAKERS, NO_BREAKERS, Breakers
from .params import SAMPLERS, SamplerParams, chain_from_letters, chain_from_names
from .sampler import Sampler, uniform

__all__ = [
    "DEFAULT_BREAKERS",
    "NO_BREAKERS",
    "SAMPLERS",
    "Breakers",
    "Sampler",
    "SamplerParams",
    "chain_from_letters",
    "chain_from_names",
    "uniform",
]
