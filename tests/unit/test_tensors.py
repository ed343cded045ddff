"""Tensors over more than one file: which come from where, and that nothing changes in files that are open."""

from __future__ import annotations

from pathlib import Path

import pytest

from ie.draft.mtp import Mtp
from ie.engine import Engine
from ie.errors import ModelError
from ie.gguf import GgufFile, TensorSet
from ie.settings import DraftOptions, EngineOptions
from tests import patch_gguf
from tiny_models import make_tiny

SHAPE = {"arch": "qwen35", "n_layer": 2, "n_mtp": 1, "tokenizer": "none", "n_vocab": 96}


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    return tuple(str(make_tiny(tmp_path / f"{part}.gguf", part=part, **SHAPE)) for part in ("all", "mtp"))  # type: ignore[return-value,arg-type]


def test_a_block_from_another_file(files: tuple[str, str]) -> None:
    whole, block = files
    with GgufFile.open(whole) as ours, GgufFile.open(block) as theirs:
        tensors = TensorSet.of(ours)
        assert dict(tensors) == dict(ours.tensors) and len(tensors) == len(ours.tensors)
        taken = tensors.with_block("blk.2.", theirs)
        names = [name for name in theirs.tensors if name.startswith("blk.2.")]
        assert names and all(taken[name] is theirs.tensors[name] and taken.file_of(name) == block for name in names)
        assert all(taken[n] is ours.tensors[n] and taken.file_of(n) == whole for n in taken if n not in names)
        assert dict(tensors) == dict(ours.tensors), "the set that it was made of is as it was"
        again = taken.with_block("blk.2.", ours)
        assert dict(again) == dict(ours.tensors) and again.file_of("blk.2.attn_norm.weight") == whole
        assert taken.file_of("no.such.tensor") == taken.path == whole


def test_an_open_file_cannot_be_changed(files: tuple[str, str]) -> None:
    with GgufFile.open(files[0]) as gguf:
        with pytest.raises(TypeError):
            gguf.tensors["a"] = gguf.tensors["token_embd.weight"]  # type: ignore[index]
        with pytest.raises(TypeError):
            del gguf.tensors["token_embd.weight"]  # type: ignore[attr-defined]


def test_a_damaged_block_is_named_by_its_own_file(files: tuple[str, str]) -> None:
    whole, block = files
    patch_gguf.set_data(Path(block), "blk.2.nextn.enorm.weight", float("nan"))
    draft = Mtp(DraftOptions(file=block))
    with pytest.raises(ModelError) as caught:
        Engine.open(whole, EngineOptions(n_ctx=64, threads=1), draft=draft)
    assert str(caught.value).startswith(f"{block}: tensor blk.2.nextn.enorm.weight holds NaN")
