"""qwen35 and qwen35moe on the executors: llama.cpp's logits and draft chains, the independent reference, two files.

With F32 weights nothing but rounding separates the float64 executor from either; the CPU also stores F16 keys and
values and quantises activations where the weights are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ie.engine import Engine
from ie.errors import IeError, ModelError
from ie.settings import DraftOptions, EngineOptions
from tests.compare import assert_logits
from tests.drafters import chain, mtp
from tests.reference_qwen35 import Qwen35, draft_chain
from tests.rig import Array
from tests.variants import make, tokens

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
RECIPE = json.loads((GOLDEN / "qwen35_llamacpp.json").read_text())
CASES = RECIPE["cases"]
WHOLE = DraftOptions(depth=5, p_min=0.0, vocabulary=0, q4_head=False)
"""Drafts from the full head, however unlikely they are: what llama.cpp and the reference give."""
SMALL: dict[str, Any] = {"arch": "qwen35", "n_layer": 4, "n_mtp": 1, "n_embd": 64}

cases = pytest.mark.parametrize("name", list(CASES))


@cache
def _stored() -> dict[str, Any]:
    with np.load(GOLDEN / "qwen35_llamacpp.npz") as npz:
        return dict(npz)


def opened(path: str, executor: str = "cpu", draft: DraftOptions | None = WHOLE, **more: Any) -> Engine:
    return Engine.open(path, EngineOptions(n_ctx=640, threads=1, executor=executor, **more), draft=mtp(draft))


def run(path: str, ids: Sequence[int], executor: str, drafts: int, **more: Any) -> tuple[Array, list[int]]:
    """Logits of every position, and the tokens drafted after the last one (which then has not run yet)."""
    with opened(path, executor, WHOLE if drafts else None, **more) as engine:
        seq = engine.new_sequence()
        out = [engine.forward(seq, ids[:-1], "all")] if len(ids) > 1 else []
        ended = [t for t, _ in chain(engine, seq, ids[-1], drafts)] if drafts else []
        out.append(engine.forward(seq, ids[-1:], "all"))
        return np.concatenate(out), ended


@cases
def test_float64_equals_llama_cpp(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    ids = _stored()["tokens"][: case["n_tokens"]].tolist()
    got, chain = run(
        make(tmp_path / "m.gguf", **case["make_tiny"]), ids, "reference-float64", len(case.get("chain", ()))
    )
    fmt = case["make_tiny"]["formats"]
    limits = {"F32": {"max_kl": 1e-10, "max_abs": 3e-5}, "F16": {"max_kl": 2e-5, "max_abs": 0.03}}.get(
        fmt if isinstance(fmt, str) else "", {"max_kl": 1e-2, "max_abs": 0.6}
    )
    assert_logits(got[case["positions"]], _stored()[name], name, **limits)
    if fmt == "F32":
        assert chain == case.get("chain", [])


@cases
def test_cpu_equals_llama_cpp(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    ids = _stored()["tokens"][: case["n_tokens"]].tolist()
    path = make(tmp_path / "m.gguf", **case["make_tiny"])
    got, chain = run(path, ids, "cpu", len(case.get("chain", ())), chunk=64)
    fmt = case["make_tiny"]["formats"]
    limits = {"max_kl": 1e-4, "max_abs": 0.05} if fmt in ("F32", "F16") else {"max_kl": 1e-2, "max_abs": 0.6}
    assert_logits(got[case["positions"]], _stored()[name], name, **limits)
    if fmt == "F32":
        assert chain == case.get("chain", [])


LENGTHS = (1, 2, 3, 4, 5, 16, 17, 32, 33, 65, 128, 129, 257, 600)


@pytest.mark.parametrize("arch", ["qwen35", "qwen35moe"])
@pytest.mark.parametrize("n_mtp", [0, 1])
def test_prompts_of_every_length(arch: str, n_mtp: int, tmp_path: Path) -> None:
    """Last logits of prompts of 1 to 600 tokens; the drafts after them too."""
    path = make(tmp_path / "m.gguf", **{**SMALL, "arch": arch, "n_mtp": n_mtp, "n_layer": 3}, formats="F32")
    ids = tokens(600, seed=4)
    model = Qwen35(path)
    want = model.logits(ids)
    with opened(path, draft=WHOLE if n_mtp else None, chunk=128) as engine:
        for n in LENGTHS:
            seq = engine.new_sequence()
            got = engine.forward(seq, ids[:n])
            assert_logits(got, want[n - 1 : n].astype(np.float32), f"{arch} {n}", max_kl=1e-4, max_abs=0.05)
            if n_mtp and n in (1, 2, 33, 257):
                token = int(want[n - 1].argmax())
                drafts = chain(engine, seq, token, 3)
                expected = draft_chain(model, [*ids[:n], token], 3)
                assert [t for t, _ in drafts] == [d.token for d in expected]
                assert np.allclose([p for _, p in drafts], [d.probability for d in expected], rtol=0.03)
            seq.close()


# ---- files in parts ----


@pytest.mark.parametrize("arch", ["qwen35", "qwen35moe"])
@pytest.mark.parametrize("fmt", ["Q8_0", "F32"])
@pytest.mark.parametrize("own", [(), ("norm", "embed", "head")])
def test_trunk_and_block_are_the_whole(arch: str, fmt: str, own: tuple[str, ...], tmp_path: Path) -> None:
    options: dict[str, Any] = {**SMALL, "arch": arch, "formats": fmt, "mtp_own": own, "agreement": 8.0}
    whole = make(tmp_path / "whole.gguf", **options)
    trunk = make(tmp_path / "trunk.gguf", part="trunk", **options)
    block = make(tmp_path / "block.gguf", part="mtp", **options)
    ids = tokens(40, seed=6)
    results = []
    for path, draft in ((whole, WHOLE), (trunk, DraftOptions(5, 0.0, 0, False, block))):
        with opened(path, draft=draft) as engine:
            seq = engine.new_sequence()
            logits = engine.forward(seq, ids).copy()
            results.append((logits.tobytes(), chain(engine, seq, int(logits.argmax()), 5)))
    assert results[0] == results[1] and len(results[0][1]) == 5


def test_another_files_block_replaces_the_models_own(tmp_path: Path) -> None:
    """All of it: an embedding that only the replaced block had is not used."""
    first = make(tmp_path / "a.gguf", **SMALL, mtp_own=("norm", "embed", "head"), formats="F32")
    block = make(tmp_path / "b.gguf", **SMALL, mtp_own=("norm",), formats="F32", part="mtp", seed=9)
    trunk = make(tmp_path / "t.gguf", **SMALL, formats="F32", part="trunk")
    drafts = []
    for path in (first, trunk):
        with opened(path, draft=DraftOptions(5, 0.0, 0, False, block)) as engine:
            seq = engine.new_sequence()
            engine.forward(seq, tokens(9))
            drafts.append(chain(engine, seq, 7, 5))
            assert not any("embed_tokens" in name for name in engine.opened.tensors)
    assert drafts[0] == drafts[1]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("parts")
    out = {part: make(folder / f"{part}.gguf", **SMALL, part=part) for part in ("all", "trunk", "mtp")}
    for name, change in (
        ("wide", {"n_embd": 128}), ("deep", {"n_layer": 2}), ("words", {"n_vocab": 128}), ("heads", {"head_dim": 32}),
        ("moe", {"arch": "qwen35moe"}),
    ):  # fmt: skip
        out[name] = make(folder / f"{name}.gguf", **{**SMALL, **change}, part="mtp")
    out["llama"] = make(folder / "llama.gguf")
    return out


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("trunk", r"trunk.gguf: the file holds no MTP block"),
        ("llama", r"llama.gguf: the file holds no MTP block"),
        ("wide", r"wide.gguf: made for another model: width 128, .*all.gguf has 64"),
        ("deep", r"deep.gguf: made for another model: layers 2, .*has 4"),
        ("words", r"words.gguf: made for another model: vocabulary 128, .*has 96"),
        ("heads", r"heads.gguf: made for another model: head size 32, .*has 16"),
        ("moe", r"moe.gguf: made for another model: architecture qwen35moe, .*has qwen35"),
        ("absent", r"absent.gguf: no such file"),
    ],
)
def test_files_that_do_not_fit(block: str, message: str, parts: dict[str, str]) -> None:
    file = parts.get(block, "absent.gguf")
    with pytest.raises((IeError, OSError), match=message):
        opened(parts["all"], draft=DraftOptions(file=file))


def test_a_block_alone_is_no_model(parts: dict[str, str]) -> None:
    for draft in (None, WHOLE):
        with pytest.raises(ModelError, match=r"mtp.gguf: the file holds only an MTP block.*--mtp"):
            opened(parts["mtp"], draft=draft)


# ---- the draft head ----


def test_small_heads_draft_nearly_the_same(tmp_path: Path) -> None:
    """A Q4_0 copy changes probabilities a little; a limited vocabulary only those that leave it out."""
    options: dict[str, Any] = {**SMALL, "n_vocab": 1100, "formats": "F32", "agreement": 8.0}
    path = make(tmp_path / "m.gguf", **options)
    probabilities: dict[tuple[bool, int], list[tuple[int, float]]] = {}
    for q4, vocabulary in ((False, 0), (True, 0), (False, 200), (False, 9), (True, 200), (False, 10**6)):
        out = []
        with opened(path, draft=DraftOptions(1, 0.0, vocabulary, q4)) as engine:
            seq = engine.new_sequence()
            engine.forward(seq, tokens(20))
            for token in range(0, 1100, 7):
                out += chain(engine, seq, token, 1)
        probabilities[q4, vocabulary] = out
    full = probabilities[False, 0]
    assert probabilities[False, 10**6] == full
    assert len({t for t, _ in full}) > 100
    same = [a[0] == b[0] for a, b in zip(full, probabilities[True, 0], strict=True)]
    assert 0.8 < np.mean(same) and full != probabilities[True, 0]
    for vocabulary, kept in ((200, 224), (9, 32)):
        inside = [t for t, _ in probabilities[False, vocabulary]]
        assert all(t < kept or t >= 1100 - 512 for t in inside), (
            "the first ones in whole groups of 32, and the last 512"
        )
        assert {t for t in inside if t < kept} and {t for t in inside if t >= 588}
        for (t, p), (small_t, small_p) in zip(full, probabilities[False, vocabulary], strict=True):
            if t < kept or t >= 588:
                assert (small_t, small_p >= p) == (t, True), "the likeliest of all is the likeliest of some"
