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
    assert main([out, "--formats", "Q4_K"]) == 1
    assert "cannot hold Q4_K" in capsys.readouterr().err
