"""Which tiny models the engine is tested with: every architecture it knows, with every option and weight format.

Owns: the lists, made from the tables of `ie` and `tiny_models`, so that a new row of either is swept; and opening an
engine on one. Does not own what is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ie import formats
from ie.engine import Engine
from ie.model.config import ARCHITECTURES
from ie.settings import EngineOptions
from tests.op_cases import weight_formats
from tests.rig import Array
from tiny_models import ARCHS, Shape, make_tiny
from tiny_models.weights import block_of

N_VOCAB = 96
NAMES = [a for a in ARCHITECTURES if a in ARCHS]
"""Architectures that the engine runs and that can be made."""

_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "tied": {"tied": True},
    "linear": {"rope": "linear"},
    "yarn": {"rope": "yarn", "n_ctx": 512},
    "yarn in between": {"rope": "yarn", "rope_base": 100.0, "rope_orig_ctx": 4096, "n_head": 1, "n_kv": 1},
    "llama3": {"rope": "llama3", "rope_factor": 8.0},
    "biases": {"biases": True},
    "fused": {"fused_qkv": True},
    "wide heads": {"head_dim": 32, "n_kv": 4},
    "one kv head": {"n_kv": 1},
    "ragged": {"n_ff": 101, "n_vocab": 97, "n_kv": 4},
    "one layer": {"n_layer": 1},
    "short window": {"sliding_window": 3, "n_layer": 3},
    "long window": {"sliding_window": 40, "swa_pattern": 0, "n_layer": 7},
    "cap": {"softcap": 5.0},
}
_ONLY = {"short window": ("gemma3",), "long window": ("gemma3",), "cap": ("gemma3",)}
"""Options that other architectures' files do not say."""

_WIDE = {"n_embd", "n_ff", "n_ff_exp", "n_ff_shexp"}


def _valid(arch: str, options: Mapping[str, Any]) -> bool:
    try:
        Shape(arch=arch, **options).check()
    except ValueError:
        return False
    return True


def options_of(arch: str) -> dict[str, dict[str, Any]]:
    """Name to options of `make_tiny`, for every option that the architecture has."""
    out = {}
    for name, options in _OPTIONS.items():
        known = arch in _ONLY.get(name, (arch,)) and (name != "biases" or ARCHS[arch].all_biases)
        if known and _valid(arch, options):
            out[name] = {"arch": arch, **options}
    return out


def shape_for(fmt: str) -> dict[str, Any]:
    """Widths that whole blocks of a format fill."""
    _, block, _ = block_of(fmt)
    if block <= 32:
        return {}
    known = {f.name for f in fields(Shape)}
    return {name: max(64, block) for name in _WIDE & known} | ({"d_state": 64} if "d_state" in known else {})


def reads_q8(fmt: str) -> bool:
    """Whether a matrix of this format is multiplied with quantised activations."""
    return formats.layout_for(formats.format_by_name(fmt)).activation == "q8"


def _formats() -> Iterator[tuple[str, str]]:
    """Interleaved formats with every architecture; those decoded row by row with one each, in turn."""
    fast = {layout.format_name for layout in formats.LAYOUTS}
    for i, fmt in enumerate(weight_formats()):
        yield from ((arch, fmt) for arch in (NAMES if fmt in fast else [NAMES[i % len(NAMES)]]))


OPTIONS: Sequence[tuple[str, str, dict[str, Any]]] = [
    (arch, name, options) for arch in NAMES for name, options in options_of(arch).items()
]
FORMATS: Sequence[tuple[str, str]] = list(_formats())


def make(path: Path, **options: Any) -> str:
    """The file's path. Vocabulary and tokenizer are as small as can be unless said otherwise."""
    return str(make_tiny(path, **{"tokenizer": "none", "n_vocab": N_VOCAB, **options}))


def tokens(n: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, N_VOCAB, n).tolist()


def run(path: str, ids: Sequence[int], **options: Any) -> Array:
    """Logits of every position, float32 [len(ids), V], by a fresh engine."""
    with Engine.open(path, EngineOptions(**{"threads": 1, **options})) as engine:
        return engine.forward(engine.new_sequence(), ids, "all")
