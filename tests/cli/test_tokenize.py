"""ie-tokenize on vocabularies without a model."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ie.cli import tokenize
from tests import tiny_vocabs
from tiny_models import make_tiny

TEXT = "The old clock\nsaid  a漢<|im_start|>"
SPECIAL = {"<|bos|>": tiny_vocabs.CONTROL, "<|im_start|>": tiny_vocabs.CONTROL}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vocabs")


@pytest.fixture(scope="module")
def keys() -> dict[str, Any]:
    found = tiny_vocabs.bpe_keys(SPECIAL)
    tokens = list(found["tokens"])
    return {
        **found,
        "bos_token_id": tokens.index("<|bos|>"),
        "add_bos_token": True,
    }


@pytest.fixture(scope="module")
def vocab(folder: Path, keys: dict[str, Any]) -> str:
    return str(tiny_vocabs.write(folder / "vocab.gguf", keys))


@pytest.fixture
def ie_tokenize(capfdbinary: pytest.CaptureFixture[bytes]):  # type: ignore[no-untyped-def]
    def call(*argv: Any) -> tuple[int, str, str]:
        status = tokenize.main([str(word) for word in argv])
        out, err = capfdbinary.readouterr()
        return status, out.decode(), err.decode()

    return call


def ids_of(out: str) -> list[int]:
    return [int(word) for word in out.strip().strip("[]").split(",")]


def test_ids_are_those_of_the_tokenizer(ie_tokenize, vocab: str, folder: Path, keys: dict[str, Any]) -> None:
    words = tiny_vocabs.load(folder / "again.gguf", keys)
    every = ["--no-bos", "--no-parse-special"]
    for flags in ([], every[:1], every[1:], every):
        status, out, err = ie_tokenize(vocab, "-p", TEXT, "--ids", *flags)
        expected = words.encode(
            TEXT, add_special="--no-bos" not in flags, parse_special="--no-parse-special" not in flags
        )
        assert (status, err) == (0, "") and ids_of(out) == expected
    assert words.encode(TEXT)[0] == words.bos_id != words.encode(TEXT, add_special=False)[0]


def test_pieces_are_lines_and_make_up_the_text(ie_tokenize, vocab: str) -> None:
    _, out, _ = ie_tokenize(vocab, "-p", TEXT, "--no-bos")
    _, ids, _ = ie_tokenize(vocab, "-p", TEXT, "--no-bos", "--ids")
    lines = [line.partition(" -> ") for line in out.splitlines()]
    assert [int(number) for number, _, _ in lines] == ids_of(ids)
    pieces = "".join(piece[1:-1] for _, _, piece in lines)
    assert pieces.replace(r"\n", "\n").replace(r"\xe6\xbc\xa2", "漢") == TEXT
    assert lines[-1][2] == "'<|im_start|>'"


def test_count(ie_tokenize, vocab: str) -> None:
    _, out, _ = ie_tokenize(vocab, "-p", TEXT, "--show-count")
    *lines, last = out.splitlines()
    assert last == f"{len(lines)} tokens"
    assert ie_tokenize(vocab, "-p", "", "--no-bos", "--ids", "--show-count")[1] == "[]\n0 tokens\n"


def test_files(ie_tokenize, vocab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte of them, also a newline at the end and what is not UTF-8, which becomes a replacement character."""
    path = tmp_path / "t"
    path.write_bytes(b"The \xff\xfe\n")
    status, from_file, _ = ie_tokenize(vocab, "-f", path, "--ids")
    assert status == 0
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"The \xff\xfe\n")))
    assert ie_tokenize(vocab, "-f", "-", "--ids")[1] == from_file
    assert len(ids_of(from_file)) > len(ids_of(ie_tokenize(vocab, "-p", "The ", "--ids")[1]))
    shown = ie_tokenize(vocab, "-f", path)[1]
    assert r"\xef" in shown and r"\n" in shown


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "no vocabulary: name a GGUF file"),
        (["VOCAB"], "either with -p or with -f"),
        (["VOCAB", "-p", "a", "-f", "b"], "either with -p or with -f"),
        (["VOCAB", "-f", "/nowhere"], "/nowhere: No such file"),
        (["NONE", "-p", "a"], "the file has no vocabulary"),
        (["/nowhere", "-p", "a"], "/nowhere"),
        (["VOCAB", "--idz", "-p", "a"], "unknown option --idz. Did you mean --ids?"),
    ],
)
def test_refused(ie_tokenize, vocab: str, folder: Path, argv: list[str], message: str) -> None:
    none = make_tiny(folder / "none.gguf", arch="llama", tokenizer="none", n_vocab=96)
    status, out, err = ie_tokenize(*[{"VOCAB": vocab, "NONE": none}.get(word, word) for word in argv])
    assert (status, out) == (1, "") and err.startswith("ie-tokenize: ") and message in err and err.count("\n") == 1
