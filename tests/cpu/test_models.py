"""Whole models: float64 reference against an independent one, q8 against float64, CPU against q8 and llama.cpp.

Each link has the bound of what separates its ends: nothing but the order of float64 sums; quantised activations and F16
keys and values; float32 rounding. Models come from tests/variants.py.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ie.devices.weights import vector_values
from ie.engine import Engine
from ie.model.config import ARCHITECTURES, rope_table
from ie.program import Vector
from ie.settings import EngineOptions
from tests import reference_models, variants
from tests.compare import assert_logits
from tests.rig import Array
from tests.variants import FORMATS, OPTIONS, make, run, tokens

PROMPT = tokens(45)
GOLDEN = Path(__file__).resolve().parent.parent / "golden"
RECIPE = json.loads((GOLDEN / "tiny_llamacpp.json").read_text())
CASES = [n for n, c in RECIPE["cases"].items() if c["make_tiny"]["arch"] in ARCHITECTURES]

QUANTISED = {False: {"max_kl": 2e-6, "max_abs": 0.02}, True: {"max_kl": 3e-3, "max_abs": 0.6}}
"""q8 against float64, by whether activations are quantised; F16 keys and values always are."""
ROUTED = {"max_kl": 0.05, "max_abs": 4.0}
"""The same where a quantised activation may send a row to another expert."""
ROUNDING = {False: {"max_kl": 2e-8, "max_abs": 4e-3}, True: {"max_kl": 6e-4, "max_abs": 0.3}}
"""CPU against q8. A rounding that falls on the other side of a half changes a Q8 code or an F16 key by a whole step,
and all later rows see it: rare, and smaller than quantisation itself, but not as small as rounding."""

by_option = pytest.mark.parametrize(("arch", "name", "options"), OPTIONS, ids=lambda v: v if isinstance(v, str) else "")
by_format = pytest.mark.parametrize(("arch", "fmt"), FORMATS)


def _model(path: str) -> Any:
    opener = getattr(reference_models, "open_model", reference_models.Model)
    return opener(path)


def _float64_logits(path: str, ids: list[int]) -> Array:
    """All logits of the float64 executor, before they become float32; its rotary tables replaced by the other
    reference's, which are not rounded to float32 (`test_rotary_tables` compares the tables)."""
    model = _model(path)
    with Engine.open(path, EngineOptions(executor="reference-float64", n_ctx=64)) as engine:
        for i, layer in enumerate(engine.config.layers):
            theta, m = model.angles(i, 64)
            engine.executor.ropes[layer.rope] = m * np.stack([np.cos(theta), np.sin(theta)], axis=-1)  # type: ignore[attr-defined]
        engine.forward(engine.new_sequence(), ids, "all")
        view = engine.program.outputs["logits"]
        return engine.executor.buffers[view.buffer][: len(ids)].copy()  # type: ignore[attr-defined]


@by_option
def test_float64_equals_the_independent_model(arch: str, name: str, options: dict[str, Any], tmp_path: Path) -> None:
    path = make(tmp_path / "m.gguf", formats="F32", **options)
    got, want = _float64_logits(path, PROMPT), _model(path).logits(PROMPT)
    assert got.dtype == np.float64
    assert np.abs(got - want).max() <= 1e-9 * np.abs(want).max()


@by_option
def test_rotary_tables(arch: str, name: str, options: dict[str, Any], tmp_path: Path) -> None:
    """Float32 [positions, pairs, 2], each value rounded once."""
    path = make(tmp_path / "m.gguf", formats="F32", **options)
    model = _model(path)
    with Engine.open(path, EngineOptions(executor="reference", n_ctx=64)) as engine:
        for i, layer in enumerate(engine.config.layers):
            rope = engine.config.ropes[layer.rope]
            tensor = Vector((rope.factors,), rope.n_rot // 2) if rope.factors else None
            table = rope_table(rope, 300, vector_values(engine.opened.tensors, tensor) if tensor else None)
            theta, m = model.angles(i, 300)
            want = m * np.stack([np.cos(theta), np.sin(theta)], axis=-1)
            assert table.dtype == np.float32 and table.shape == want.shape
            assert np.abs(table - want).max() <= 6.1e-8 * m


@by_option
def test_cpu_equals_the_q8_reference(arch: str, name: str, options: dict[str, Any], tmp_path: Path) -> None:
    """With float weights nothing is quantised but keys and values, so that little but rounding separates the two."""
    for fmt in ("F32", "Q8_0") if "n_ff" not in options else ("F32",):
        path = make(tmp_path / f"{fmt}.gguf", formats=fmt, **options)
        want = run(path, PROMPT, executor="reference", n_ctx=64)
        got = run(path, PROMPT, n_ctx=64, chunk=20, threads=2)
        assert_logits(got, want, f"{arch} {name} {fmt}", **ROUNDING[variants.reads_q8(fmt)])


@by_format
def test_formats(arch: str, fmt: str, tmp_path: Path) -> None:
    """q8 is float64 but for quantised activations and F16 keys; the CPU is q8 but for rounding."""
    path = make(tmp_path / "m.gguf", arch=arch, formats=fmt, **variants.shape_for(fmt))
    exact = run(path, PROMPT, executor="reference-float64", n_ctx=64)
    q8 = run(path, PROMPT, executor="reference", n_ctx=64)
    cpu = run(path, PROMPT, n_ctx=64)
    assert float(exact.std()) > 0.5, "logits say something"
    quantised = variants.reads_q8(fmt)
    routed = quantised and arch.endswith("moe")
    assert_logits(q8, exact, f"{arch} {fmt} q8", **(ROUTED if routed else QUANTISED[quantised]))
    assert_logits(cpu, q8, f"{arch} {fmt} cpu", **ROUNDING[variants.reads_q8(fmt)])


@cache
def _stored() -> dict[str, Any]:
    with np.load(GOLDEN / "tiny_llamacpp.npz") as npz:
        return dict(npz)


@pytest.mark.parametrize("name", CASES)
def test_equals_llama_cpp(name: str, tmp_path: Path) -> None:
    """llama.cpp's logits of the same files: quantised alike, but its sums and its F16 paths differ."""
    case = RECIPE["cases"][name]
    formats = case["make_tiny"]["formats"]
    path = make(tmp_path / "m.gguf", **case["make_tiny"])
    got = run(path, case["tokens"], n_ctx=64)[RECIPE["positions"]]
    limits = {"max_kl": 1e-4, "max_abs": 0.05} if formats in ("F32", "F16") else {"max_kl": 5e-3, "max_abs": 0.5}
    assert_logits(got, _stored()[name], name, **limits)


def test_every_golden_architecture_is_run() -> None:
    assert set(variants.NAMES) <= set(ARCHITECTURES) and {"llama", "qwen2", "qwen3", "gemma3"} <= set(variants.NAMES)
    assert len(CASES) >= 20 and len(OPTIONS) >= 4 * 7 and len({f for _, f in FORMATS}) >= 24


@pytest.mark.parametrize("arch", variants.NAMES)
def test_options_make_different_models(arch: str, tmp_path: Path) -> None:
    """Otherwise the sweep would test one model many times."""
    results = {}
    for i, (name, options) in enumerate(variants.options_of(arch).items()):
        results[name] = run(make(tmp_path / f"{i}.gguf", formats="F32", **options), PROMPT[:40], n_ctx=64)[-1, :96]
    for a, b in ((a, b) for a in results for b in results if a < b):
        assert np.abs(results[a] - results[b]).max() > 0.02, (a, b)
