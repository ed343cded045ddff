"""The float64 reference of qwen35 and qwen35moe against committed results of llama.cpp, trunk, MTP block and chains.

With F32 weights only rounding separates them, over 600 tokens too; with quantised ones llama.cpp also quantises
activations. Made by scripts/golden_qwen35.py.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compare import assert_logits
from tests.reference_models import logits
from tests.reference_qwen35 import Qwen35, draft_chain, greedy_steps, hidden_states, mtp, shifted
from tiny_models import make_tiny

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
RECIPE = json.loads((GOLDEN / "qwen35_llamacpp.json").read_text())
CASES = RECIPE["cases"]
WITH_MTP = [name for name, case in CASES.items() if "chain" in case]
DRAFTED = {"arch": "qwen35", "n_layer": 4, "n_mtp": 1, "n_vocab": 96, "tokenizer": "none", "formats": "F32"}


@cache
def _stored() -> dict[str, Any]:
    with np.load(GOLDEN / "qwen35_llamacpp.npz") as npz:
        return dict(npz)


def _tokens(name: str) -> list[int]:
    return [int(t) for t in _stored()["tokens"][: CASES[name]["n_tokens"]]]


def _limits(name: str) -> dict[str, float]:
    formats = CASES[name]["make_tiny"]["formats"]
    if formats == "F32":
        return {"max_kl": 1e-10, "max_abs": 3e-5}
    if formats == "F16":
        return {"max_kl": 2e-5, "max_abs": 0.03}
    return {"max_kl": 1e-2, "max_abs": 0.6}


def test_recipe_and_results_belong_together() -> None:
    assert {n for n in _stored() if "." not in n} == {"tokens", *CASES}
    assert {n.partition(".")[0] for n in _stored() if "." in n} == set(WITH_MTP)
    assert {c["make_tiny"]["arch"] for c in CASES.values()} == {"qwen35", "qwen35moe"}
    assert max(c["n_tokens"] for c in CASES.values()) == 600 and min(c["n_tokens"] for c in CASES.values()) == 1


@pytest.mark.parametrize("name", list(CASES))
def test_equals_llama_cpp(name: str, tmp_path: Path) -> None:
    case, stored, limits = CASES[name], _stored(), _limits(name)
    tokens, at = _tokens(name), case["positions"]
    model = Qwen35(make_tiny(tmp_path / "m.gguf", **case["make_tiny"]))
    hidden = model.hidden(tokens)
    assert_logits((hidden @ model.head().T)[at], stored[name], name, **limits)
    if "chain" not in case:
        return
    paired = shifted(hidden)[:-1]
    got, states = model.mtp(tokens, paired)
    assert_logits(got[at], stored[name + ".mtp"], name + " mtp", **limits)
    assert float(np.abs(states[at] - stored[name + ".state"]).max()) <= limits["max_abs"]
    for token in case["chain"]:
        if "f32" in name:
            assert int(got[-1].argmax()) == token
        tokens.append(token)
        paired = np.concatenate([paired, states[-1:]])
        got, states = model.mtp(tokens, paired)
    one_row = {**limits, "max_kl": 3 * limits["max_kl"]}
    assert_logits(got[-1:], stored[name + ".after"], name + " after the chain", **one_row)


class _GroupPairing(Qwen35):
    """The order of the original checkpoint, not that of files."""

    def key_heads(self) -> np.ndarray[Any, Any]:
        return np.arange(self.n_v_heads) * self.n_k_heads // self.n_v_heads


@pytest.mark.parametrize("name", ["f32", "f32_ratio3", "moe_f32"])
def test_wrong_head_pairing_is_not_a_small_error(name: str, tmp_path: Path) -> None:
    model = _GroupPairing(make_tiny(tmp_path / "m.gguf", **CASES[name]["make_tiny"]))
    wrong = model.logits(_tokens(name)[:65])[64]
    assert float(np.abs(wrong - _stored()[name][CASES[name]["positions"].index(64)]).max()) > 1.0


def test_early_tokens_are_felt_500_tokens_later(tmp_path: Path) -> None:
    tokens = [int(t) for t in _stored()["tokens"]]
    path = make_tiny(tmp_path / "m.gguf", **{**DRAFTED, "recurrent_layers": (1, 1, 1, 1)})
    before = logits(path, tokens)
    tokens[50] += 1
    change = np.abs(logits(path, tokens) - before).max(axis=1)
    assert float(change[:50].max()) == 0.0
    assert float(change[51]) > 0.5 and float(change[560:].max()) > 1e-3
    assert 2.0 < float(before[560:].std()) < 3.0


# ---- files in parts ----


@pytest.mark.parametrize("arch", ["qwen35", "qwen35moe"])
@pytest.mark.parametrize("tied", [False, True])
def test_parts_are_the_same_model(arch: str, tied: bool, tmp_path: Path) -> None:
    options: dict[str, Any] = {**DRAFTED, "arch": arch, "tied": tied, "formats": "Q4_1"}
    whole = make_tiny(tmp_path / "whole.gguf", **options)
    trunk = make_tiny(tmp_path / "trunk.gguf", part="trunk", **options)
    block = make_tiny(tmp_path / "block.gguf", part="mtp", **options)
    tokens = list(range(3, 20))
    hidden = hidden_states(whole, tokens)
    assert np.array_equal(hidden, hidden_states(trunk, tokens))
    for a, b in zip(mtp(whole, tokens, hidden), mtp(block, tokens, hidden), strict=True):
        assert np.array_equal(a, b)
    with pytest.raises(ValueError, match="no MTP block"):
        mtp(trunk, tokens, hidden)
    assert draft_chain(whole, tokens, 3)[2].token == draft_chain(trunk, tokens, 3, drafter=block)[2].token


def test_block_pairs_tokens_with_the_hidden_state_before_them(tmp_path: Path) -> None:
    path = make_tiny(tmp_path / "m.gguf", **DRAFTED)
    tokens = list(range(9))
    hidden = hidden_states(path, tokens)
    rows = shifted(hidden)
    assert rows.shape == (10, 64) and not rows[0].any() and np.array_equal(rows[1:], hidden)
    right, wrong = mtp(path, tokens, rows[:-1])[0], mtp(path, tokens, hidden)[0]
    assert float(np.abs(right - wrong).max()) > 1.0
    changed = rows[:-1].copy()
    changed[4] += 1
    difference = np.abs(mtp(path, tokens, changed)[0] - right).max(axis=1)
    assert not difference[:4].any() and (difference[4:] > 0).all()


# ---- drafting ----


def test_chain_continues_from_its_own_states(tmp_path: Path) -> None:
    model = Qwen35(make_tiny(tmp_path / "m.gguf", **DRAFTED))
    tokens = [4, 8, 15, 16, 23, 42]
    chain = draft_chain(model, tokens, 5)
    paired = shifted(model.hidden(tokens[:-1]))
    first, states = model.mtp(tokens, paired)
    second, _ = model.mtp([*tokens, chain[0].token], np.concatenate([paired, states[-1:]]))
    assert np.array_equal(chain[0].logits, first[-1]) and np.array_equal(chain[1].logits, second[-1])
    assert [d.token for d in chain] == [int(d.logits.argmax()) for d in chain]
    bound = chain[2].probability
    limit = min(d.probability for d in chain[:2])
    assert 0 < bound < 1 and len(draft_chain(model, [7], 2)) == 2
    kept = draft_chain(model, tokens, 5, p_min=limit)
    assert len(kept) >= 2 and all(d.probability >= limit for d in kept)
    assert draft_chain(model, tokens, 5, p_min=1.0) == []


@pytest.mark.parametrize("n_draft", [0, 1, 4])
def test_steps_put_out_what_plain_greedy_does(n_draft: int, tmp_path: Path) -> None:
    model = Qwen35(make_tiny(tmp_path / "m.gguf", **DRAFTED, agreement=12.0))
    prompt, n_new = [5, 9, 60, 33], 24
    plain = list(prompt)
    for _ in range(n_new):
        plain.append(int(model.logits(plain)[-1].argmax()))
    steps = greedy_steps(model, prompt, n_new, n_draft)
    assert [t for s in steps for t in s.output] == plain[4:]
    for s in steps:
        assert len(s.output) == s.accepted + 1 and s.output[: s.accepted] == s.drafts[: s.accepted]
    accepted = sum(s.accepted for s in steps)
    assert accepted > 2 if n_draft else accepted == 0
    if n_draft == 4:
        assert {0, 1, 2} <= {s.accepted for s in steps}
