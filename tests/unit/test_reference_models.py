"""The float64 reference models against committed logits of llama.cpp, for every architecture and option.

With F32 weights only rounding separates them (llama.cpp evaluates GELU through a half-precision table, so gemma3 gets
more room); with quantised weights llama.cpp also quantises activations, worth about 0.001 of KL divergence. Made by
scripts/make_golden.py.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_logits
from tests.golden_format import DRAWS, TOP, estimate_kl, log_softmax, pack_top
from tests.reference_models import logits
from tiny_models import make_tiny

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
RECIPE = json.loads((GOLDEN / "tiny_llamacpp.json").read_text())


@cache
def _stored() -> dict[str, Any]:
    with np.load(GOLDEN / "tiny_llamacpp.npz") as npz:
        return dict(npz)


def _limits(name: str, formats: str | dict[str, str]) -> dict[str, float]:
    if formats == "F32":
        return {"max_kl": 1e-6, "max_abs": 5e-3} if name.startswith("gemma3") else {"max_kl": 1e-10, "max_abs": 2e-5}
    if formats == "F16":
        return {"max_kl": 5e-6, "max_abs": 0.02}
    if formats == "BF16":
        return {"max_kl": 2e-4, "max_abs": 0.1}
    return {"max_kl": 5e-3, "max_abs": 0.5}


def test_recipe_and_results_belong_together() -> None:
    assert set(RECIPE["cases"]) == set(_stored())
    assert {c["make_tiny"]["arch"] for c in RECIPE["cases"].values()} == {"llama", "qwen2", "qwen3", "gemma3"}


@pytest.mark.parametrize("name", list(RECIPE["cases"]))
def test_equals_llama_cpp(name: str, tmp_path: Path) -> None:
    case = RECIPE["cases"][name]
    path = make_tiny(tmp_path / "m.gguf", **case["make_tiny"])
    got = logits(path, case["tokens"])[RECIPE["positions"]]
    assert_logits(got, _stored()[name], name, **_limits(name, case["make_tiny"]["formats"]))


def test_options_change_the_result(tmp_path: Path) -> None:
    """Otherwise the cases above would all test the same model."""
    results = []
    for i, name in enumerate(n for n in RECIPE["cases"] if n.startswith("llama_f32")):
        case = RECIPE["cases"][name]
        results.append(logits(make_tiny(tmp_path / f"{i}.gguf", **case["make_tiny"]), case["tokens"])[-1])
    for i, a in enumerate(results):
        for b in results[i + 1 :]:
            assert np.abs(a - b).max() > 0.1


def test_split_file_equals_single_file(tmp_path: Path) -> None:
    whole = make_tiny(tmp_path / "a.gguf", arch="qwen3")
    parts = make_tiny(tmp_path / "b.gguf", arch="qwen3", split=3)
    assert np.array_equal(logits(whole, range(12)), logits(parts, range(12)))


def test_causal(tmp_path: Path) -> None:
    path = make_tiny(tmp_path / "m.gguf", arch="gemma3", sliding_window=4)
    assert np.abs(logits(path, [5, 6, 7, 8])[:3] - logits(path, [5, 6, 7, 9])[:3]).max() < 1e-9


# ---- the compact form for large vocabularies ----


@pytest.mark.parametrize("noise", [0.05, 0.15, 0.5])
def test_estimated_kl_is_close_to_the_full_one(noise: float) -> None:
    rng = np.random.default_rng(3)
    want = 3 * rng.standard_normal((40, 5000))
    got = want + noise * rng.standard_normal(want.shape)
    p, q = log_softmax(want), log_softmax(got)
    full = float((np.exp(p) * (p - q)).sum(axis=1).mean())
    estimate = float(estimate_kl(pack_top(want, np.arange(40)), got).mean())
    assert abs(estimate / full - 1) <= 0.1
    assert abs(float(estimate_kl(pack_top(want, np.arange(40)), want).mean())) <= 1e-5


def test_estimated_kl_sees_errors_outside_the_kept_top() -> None:
    want = np.random.default_rng(4).standard_normal((20, 4000))
    got = want.copy()
    order = np.argsort(-want, axis=1)[:, TOP:]
    np.put_along_axis(got, order[:, ::2], -5.0, axis=1)
    packed = pack_top(want, np.arange(20))
    assert packed["draw_ids"].shape == (20, DRAWS)
    assert (estimate_kl(packed, got) > 0.5).all()
    got[3, 7] = np.nan
    assert np.isnan(estimate_kl(packed, got)[3])
