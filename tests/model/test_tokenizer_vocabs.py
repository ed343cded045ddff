"""Real vocabularies against the ids that their models' own tokenizers give.

Needs the files of scripts/fetch_vocabs.py in the cache. Each has some fifty texts (spaces, newlines, scripts, emoji,
contractions, digits) with expected ids, made without BOS and without parsing special tokens.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ie.gguf import GgufFile
from ie.tokenizer import Tokenizer, load
from scripts.fetch_vocabs import NAMES, vocab_dir

pytestmark = pytest.mark.model

SEPARATOR = "\n__ggml_vocab_test__\n"


def files(name: str) -> tuple[Path, Path, Path]:
    path = vocab_dir() / f"ggml-vocab-{name}.gguf"
    found = path, path.with_name(path.name + ".inp"), path.with_name(path.name + ".out")
    if not all(p.is_file() for p in found):
        pytest.skip(f"{path}: not there; scripts/fetch_vocabs.py fetches it")
    return found


def tokenizer(name: str) -> Tokenizer:
    with GgufFile.open(files(name)[0]) as file:
        return load(file)


def cases(name: str) -> list[tuple[str, list[int]]]:
    _, inputs, outputs = files(name)
    texts = inputs.read_bytes().decode().split(SEPARATOR)
    ids = [[int(i) for i in line.split()] for line in outputs.read_text(encoding="utf8").splitlines()]
    # The separator also ends the last text.
    texts = texts[: len(ids)]
    assert len(texts) == len(ids) > 40
    return list(zip(texts, ids, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_all_cases_are_equal(name: str) -> None:
    tok = tokenizer(name)
    wrong = [text for text, ids in cases(name) if tok.encode(text, add_special=False, parse_special=False) != ids]
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_pieces_give_the_text_back(name: str) -> None:
    tok = tokenizer(name)
    for text, ids in cases(name):
        stream = tok.stream()
        out = "".join(map(stream.push, ids)) + stream.flush()
        # A prefix space is part of the stream.
        assert out == text or out == " " + text


ENDS = {
    "llama-bpe": {"<|end_of_text|>", "<|eot_id|>"},
    "qwen2": {"<|endoftext|>", "<|im_end|>"},
    "llama-spm": {"</s>"},
    "phi-3": {"</s>", "<|endoftext|>", "<|end|>"},
    "gemma-4": {"<eos>", "<turn|>", "<|tool_response>"},
}


@pytest.mark.parametrize("name", ENDS)
def test_end_tokens(name: str) -> None:
    tok = tokenizer(name)
    assert {tok.text(i).decode() for i in tok.eog_ids} >= ENDS[name]
