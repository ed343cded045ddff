"""Tiny models: valid files that other readers accept, the same bytes for the same arguments, clear refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.reference_models import logits
from tiny_models import ARCHS, make_tiny
from tiny_models.__main__ import main
from tiny_models.shape import PARTS
from tiny_models.vocab import VOCABS, byte_alphabet
from tiny_models.weights import block_of, encode, format_names, normal


@pytest.mark.parametrize("arch", list(ARCHS))
def test_same_arguments_same_bytes(arch: str, tmp_path: Path) -> None:
    a = make_tiny(tmp_path / "a.gguf", arch=arch, seed=5).read_bytes()
    assert a == make_tiny(tmp_path / "b.gguf", arch=arch, seed=5).read_bytes()
    assert a != make_tiny(tmp_path / "c.gguf", arch=arch, seed=6).read_bytes()


def test_number_stream_is_frozen() -> None:
    """Goldens depend on it: another numpy must give these bits."""
    x = normal(0, "output.weight", 4)
    assert x.view(np.uint32).tolist() == [1056000101, 1043217350, 3219804036, 3219744177]
    many = normal(1, "x", 20000)
    assert abs(float(many.mean())) < 0.03 and abs(float(many.std()) - 1) < 0.03 and float(np.abs(many).max()) < 3.47


@pytest.mark.parametrize("arch", list(ARCHS))
@pytest.mark.parametrize("tied", [False, True])
def test_logits_have_winners_and_variety(arch: str, tied: bool, tmp_path: Path) -> None:
    path = make_tiny(tmp_path / "m.gguf", arch=arch, tied=tied)
    out = logits(path, [(37 * i) % 288 for i in range(48)])
    top = np.sort(out, axis=1)
    assert 1.5 < float(out.std()) < 4.0
    assert float(np.median(top[:, -1] - top[:, -2])) > 0.2
    assert len(set(out.argmax(axis=1).tolist())) > 12


@pytest.mark.parametrize("fmt", format_names())
def test_every_format_decodes_to_the_wanted_spread(fmt: str) -> None:
    _, block, size = block_of(fmt)
    data = encode(3, "blk.0.ffn_up.weight", 16, 1024, fmt, 0.0, 0.1)
    if fmt in ("F32", "F16"):
        values = data
    elif fmt in ("Q1_0", "Q2_0"):
        assert data.shape == (16, 1024 // block * size) and data.dtype == np.uint8
        return
    else:
        assert data.shape == (16, 1024 // block * size) and data.dtype == np.uint8
        values = gguf.dequantize(data, gguf.GGMLQuantizationType[fmt])
    assert np.isfinite(values).all()
    assert 0.07 < float(values.std()) < 0.14
    assert abs(float(values.mean())) < 0.02


def test_patterns_choose_formats(tmp_path: Path) -> None:
    formats = {"*": "Q8_0", "*ffn*": "Q5_1", "blk.1.ffn_down*": "F16"}
    reader = gguf.GGUFReader(make_tiny(tmp_path / "m.gguf", formats=formats))
    kinds = {t.name: t.tensor_type.name for t in reader.tensors}
    assert kinds["blk.0.ffn_up.weight"] == "Q5_1"
    assert kinds["blk.1.ffn_down.weight"] == "F16"
    assert kinds["blk.0.attn_q.weight"] == kinds["token_embd.weight"] == "Q8_0"
    assert kinds["blk.0.attn_norm.weight"] == "F32"


def test_options_add_and_remove_tensors(tmp_path: Path) -> None:
    def names(**options: Any) -> set[str]:
        return {t.name for t in gguf.GGUFReader(make_tiny(tmp_path / "m.gguf", **options)).tensors}

    plain = names()
    assert plain - names(tied=True) == {"output.weight"}
    assert names(rope="llama3") - plain == {"rope_freqs.weight"}
    assert "blk.1.attn_qkv.weight" in names(fused_qkv=True) and "blk.1.attn_q.weight" not in names(fused_qkv=True)
    assert len(names(biases=True) - plain) == 2 * 7
    assert {n for n in names(arch="qwen2") - plain if n.endswith(".bias")} == {
        f"blk.{i}.attn_{p}.bias" for i in (0, 1) for p in "qkv"
    }
    assert "blk.0.attn_q_norm.weight" in names(arch="qwen3")
    assert "blk.0.post_ffw_norm.weight" in names(arch="gemma3")


def _names(path: Path) -> dict[str, tuple[int, ...]]:
    return {t.name: tuple(int(n) for n in t.shape) for t in gguf.GGUFReader(path).tensors}


def _meta(path: Path) -> dict[str, Any]:
    return {k.split(".", 1)[1]: f.contents() for k, f in gguf.GGUFReader(path).fields.items() if k.startswith("qwen35")}


def test_qwen35_layers_and_shapes(tmp_path: Path) -> None:
    options = {"arch": "qwen35", "n_layer": 4, "full_attention_interval": 4, "n_mtp": 1, "d_state": 64, "head_dim": 32}
    path = make_tiny(tmp_path / "m.gguf", n_k_heads=2, n_v_heads=6, **options)
    names = _names(path)
    per_block = [len([n for n in names if n.startswith(f"blk.{i}.")]) for i in range(6)]
    assert per_block == [14, 14, 14, 11, 15, 0] and len(names) == sum(per_block) + 3
    assert names["blk.0.attn_qkv.weight"] == (64, 2 * 2 * 64 + 6 * 64)
    assert names["blk.0.ssm_conv1d.weight"] == (4, 640) and names["blk.0.ssm_out.weight"] == (384, 64)
    assert names["blk.0.ssm_a"] == names["blk.0.ssm_dt.bias"] == (6,)
    assert names["blk.3.attn_q.weight"] == (64, 2 * 4 * 32) and names["blk.4.nextn.eh_proj.weight"] == (128, 64)
    meta = _meta(path)
    assert (meta["block_count"], meta["nextn_predict_layers"], meta["full_attention_interval"]) == (5, 1, 4)
    assert (meta["rope.dimension_count"], meta["rope.dimension_sections"]) == (8, [2, 1, 1, 0])
    assert meta["ssm.inner_size"] == 6 * 64
    listed = make_tiny(tmp_path / "n.gguf", recurrent_layers=(0, 1, 1, 0), **{**options, "full_attention_interval": 0})
    assert "blk.0.attn_q.weight" in _names(listed) and "blk.2.ssm_a" in _names(listed)
    assert _meta(listed)["attention.recurrent_layers"] == [False, True, True, False, False]
    assert "full_attention_interval" not in _meta(listed)


def test_qwen35_optional_tensors(tmp_path: Path) -> None:
    def names(**options: Any) -> dict[str, tuple[int, ...]]:
        return _names(make_tiny(tmp_path / "m.gguf", n_mtp=1, **options))

    plain = names(arch="qwen35")
    assert {n.removeprefix("blk.2.") for n in plain if "shared_head" in n} == {"nextn.shared_head_norm.weight"}
    assert not [n for n in names(arch="qwen35", mtp_own=()) if "shared_head" in n]
    own = names(arch="qwen35", mtp_own=("embed", "head"))
    assert own["blk.2.nextn.embed_tokens.weight"] == own["blk.2.nextn.shared_head_head.weight"] == (64, 288)
    moe = names(arch="qwen35moe", n_expert=6)
    assert moe["blk.2.ffn_up_exps.weight"] == (64, 32, 6) and moe["blk.0.ffn_gate_inp_shexp.weight"] == (64,)
    fused = names(arch="qwen35moe", n_expert=6, fused_gate_up=True)
    assert fused["blk.0.ffn_gate_up_exps.weight"] == (64, 64, 6) and "blk.0.ffn_up_exps.weight" not in fused
    both = names(arch="qwen35", fused_qkv=True)
    assert both["blk.1.attn_qkv.weight"] == (64, 2 * 64 + 2 * 32) and both["blk.0.attn_qkv.weight"] == (64, 256)


@pytest.mark.parametrize("arch", ["qwen35", "qwen35moe"])
def test_qwen35_trunk_and_mtp_files(arch: str, tmp_path: Path) -> None:
    parts = {part: make_tiny(tmp_path / f"{part}.gguf", arch=arch, n_mtp=1, part=part) for part in PARTS}
    data = {part: {t.name: t.data.tobytes() for t in gguf.GGUFReader(path).tensors} for part, path in parts.items()}
    assert data["trunk"] | data["mtp"] == data["all"]
    assert set(data["trunk"]) & set(data["mtp"]) == {"token_embd.weight", "output_norm.weight", "output.weight"}
    assert "blk.0.attn_norm.weight" not in data["mtp"]
    assert _meta(parts["mtp"]) == _meta(parts["all"])
    trunk = _meta(parts["trunk"])
    assert trunk["block_count"] == 2 and "nextn_predict_layers" not in trunk


def test_qwen35_stored_formats(tmp_path: Path) -> None:
    formats = {"*": "Q4_K", "*ssm_alpha*": "BF16", "*attn_q.*": "Q6_K"}
    path = make_tiny(
        tmp_path / "m.gguf", "qwen35moe", formats=formats, n_embd=256, d_state=64, n_ff_exp=256, n_ff_shexp=256, n_mtp=1
    )
    kinds = {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}
    assert kinds["blk.0.ssm_alpha.weight"] == "BF16" and kinds["blk.1.attn_q.weight"] == "Q6_K"
    assert (
        kinds["blk.0.ssm_beta.weight"] == kinds["blk.0.ffn_down_exps.weight"] == kinds["blk.0.ssm_out.weight"] == "Q4_K"
    )
    assert kinds["blk.2.nextn.eh_proj.weight"] == "Q4_K"
    for name in ("blk.0.ssm_conv1d.weight", "blk.0.ffn_gate_inp.weight", "blk.0.ssm_a", "blk.0.ssm_dt.bias"):
        assert kinds[name] == "F32"


def test_qwen35_gates_are_alive(tmp_path: Path) -> None:
    """Half-lives of the state from a few tokens to hundreds, and no head that never forgets."""
    path = make_tiny(tmp_path / "m.gguf", "qwen35", n_layer=8, n_k_heads=4, n_v_heads=16, recurrent_layers=(1,) * 8)
    tensors = {t.name: t.data for t in gguf.GGUFReader(path).tensors}
    a = np.concatenate([tensors[f"blk.{i}.ssm_a"] for i in range(8)]).astype(np.float64)
    dt = np.concatenate([tensors[f"blk.{i}.ssm_dt.bias"] for i in range(8)]).astype(np.float64)
    assert (a < 0).all()
    half = np.log(0.5) / (a * np.log1p(np.exp(dt)))
    assert 1 < float(half.min()) < 8 and 200 < float(half.max()) < 5000 and 10 < float(np.median(half)) < 50


def test_diagonal(tmp_path: Path) -> None:
    plain = encode(0, "m", 8, 32, "F32", 0.0, 0.1)
    shifted = encode(0, "m", 8, 32, "F32", 0.0, 0.1, 3.0)
    assert np.allclose(shifted - plain, 3 * np.eye(8, 32), atol=1e-6)
    assert np.array_equal(encode(0, "m", 32, 8, "F32", 0.0, 0.1, 3.0)[8:], encode(0, "m", 32, 8, "F32", 0.0, 0.1)[8:])


def test_split_parts_hold_all_tensors(tmp_path: Path) -> None:
    first = make_tiny(tmp_path / "m.gguf", split=4)
    assert first.name == "m-00001-of-00004.gguf"
    readers = [gguf.GGUFReader(tmp_path / f"m-{i:05d}-of-00004.gguf") for i in range(1, 5)]
    names = [t.name for r in readers for t in r.tensors]
    assert len(set(names)) == len(names) == readers[0].get_field("split.tensors.count").contents()
    assert [r.get_field("split.no").contents() for r in readers] == [0, 1, 2, 3]
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize("kind", ["bpe", "spm"])
@pytest.mark.parametrize("n_vocab", [259, 288, 1000])
def test_vocabulary_has_distinct_tokens_of_the_wanted_number(kind: str, n_vocab: int) -> None:
    vocab = VOCABS[kind](n_vocab)
    tokens, types = vocab["tokens"], vocab["token_type"]
    assert isinstance(tokens, list) and isinstance(types, list)
    assert len(tokens) == len(set(tokens)) == len(types) == n_vocab
    if kind == "bpe":
        assert set(byte_alphabet()) <= set(tokens)
        for merge in vocab["merges"]:  # type: ignore[attr-defined]
            left, _, right = merge.partition(" ")
            assert {left, right, left + right} <= set(tokens)
    else:
        assert len(vocab["scores"]) == n_vocab  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arch": "gpt5"}, "arch='gpt5': expected one of llama"),
        ({"n_kv": 3}, "n_head=4 is not a multiple of n_kv=3"),
        ({"n_embd": 66}, "n_embd=66 is not a multiple of n_head=4"),
        ({"n_layer": 0}, "n_layer=0"),
        ({"head_dim": 7}, "head_dim=7 is odd"),
        ({"arch": "qwen2", "head_dim": 32}, "n_head \\* head_dim = n_embd"),
        ({"arch": "gemma3", "rope": "yarn"}, "rope='yarn'"),
        ({"arch": "qwen3", "biases": ("ffn",)}, "biases=\\['ffn'\\]"),
        ({"formats": "Q4_K"}, "token_embd.weight: rows of 64 elements cannot hold Q4_K blocks of 256"),
        ({"formats": "Q9"}, "format 'Q9'"),
        ({"tokenizer": "x"}, "tokenizer='x'"),
        ({"n_vocab": 100}, "n_vocab=100: tokenizer 'bpe' needs at least 259"),
        ({"split": 99}, "split=99"),
        ({"n_mtp": 1}, "n_mtp=1: expected 0, arch has no MTP block"),
        ({"arch": "qwen35", "n_mtp": 2}, "n_mtp=2: expected 0 or 1"),
        ({"part": "mtp"}, "part='mtp': expected one of all, trunk, mtp, and n_mtp=1"),
        ({"arch": "qwen35", "part": "tail", "n_mtp": 1}, "part='tail'"),
        ({"arch": "qwen35", "n_v_heads": 5}, "n_v_heads=5 is not a multiple of n_k_heads=2"),
        ({"arch": "qwen35", "d_state": 0}, "d_state=0: expected at least 1"),
        ({"arch": "qwen35", "recurrent_layers": (1,)}, "recurrent_layers has 1 entries, expected n_layer=2"),
        ({"arch": "qwen35", "rope_sections": (1, 2, 3)}, "rope_sections=\\[1, 2, 3\\]: expected 4 numbers"),
        ({"arch": "qwen35", "n_rot": 18}, "n_rot=18: expected an even number from 2 to head_dim=16"),
        ({"arch": "qwen3", "n_rot": 8}, "n_rot=8: arch qwen3 turns whole heads"),
        ({"arch": "qwen35", "full_attention_interval": -1}, "full_attention_interval=-1"),
        ({"arch": "qwen35", "mtp_own": ("x",)}, "mtp_own=\\['x'\\]: expected norm, embed, head"),
        ({"arch": "qwen35moe", "n_expert_used": 5}, "n_expert_used=5: expected 1 ... n_expert=4"),
        ({"arch": "qwen35", "agreement": 2.0, "tied": True}, "agreement=2.0: expected at least 0, and a head that"),
        (
            {"arch": "qwen35", "agreement": 2.0, "n_mtp": 1, "n_embd": 256, "formats": {"*eh_proj*": "Q4_K"}},
            "blk.2.nextn.eh_proj.weight: Q4_K blocks are random here",
        ),
        ({"n_heads": 4}, "unknown options \\['n_heads'\\]"),
    ],
)
def test_refuses_clearly(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        make_tiny(tmp_path / "m.gguf", **options)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "m.gguf")
    args = ["--arch", "llama", "--formats", "Q8_0,output*=F16", "--n-embd", "128", "--rope", "yarn", "--biases", "qkv"]
    assert main([out, *args]) == 0
    assert capsys.readouterr().out.strip() == out
    reader = gguf.GGUFReader(out)
    assert {t.name: t.tensor_type.name for t in reader.tensors}["output.weight"] == "F16"
    assert reader.get_field("llama.rope.scaling.type").contents() == "yarn"
    args = ["--arch", "qwen35", "--n-mtp", "1", "--part", "mtp", "--mtp-own", "none", "--rope-sections", "1,1,1,0"]
    assert main([out, *args, "--recurrent-layers", "0,1", "--agreement", "3"]) == 0
    meta = _meta(Path(out))
    assert meta["rope.dimension_sections"] == [1, 1, 1, 0]
    assert meta["attention.recurrent_layers"] == [False, True, False]
    assert "blk.2.nextn.shared_head_norm.weight" not in _names(Path(out))
    capsys.readouterr()
    assert main([out, "--formats", "Q4_K"]) == 1
    assert "cannot hold Q4_K" in capsys.readouterr().err
