"""ie-ppl: what it prints, what it refuses, and files that appear whole or not at all."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ie.cli import ppl
from ie.measure.ppl_file import Reader
from tests.cli.fake import BOS, N_VOCAB, FakeEngine, FakeLoader, FakeTokenizer, logits_after
from tiny_models import make_tiny


@pytest.fixture
def loader() -> FakeLoader:
    return FakeLoader()


@pytest.fixture
def ie_ppl(capfdbinary: pytest.CaptureFixture[bytes], loader: FakeLoader):  # type: ignore[no-untyped-def]
    def call(*argv: Any, real: bool = False) -> tuple[int, str, str]:
        status = ppl.main([str(word) for word in argv], None if real else loader)
        out, err = capfdbinary.readouterr()
        return status, out.decode(), err.decode()

    return call


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("abcdefghijklmnop" * 4 + "\n")
    return path


def expected(windows: list[bytes], first: int) -> list[float]:
    losses = []
    for window in windows:
        for i in range(first, len(window) - 1):
            row = logits_after(window[i]).astype(np.float64)
            losses.append(math.log(np.exp(row).sum()) - row[window[i + 1]])
    return losses


def test_perplexity(ie_ppl, loader: FakeLoader, text: Path) -> None:
    status, out, err = ie_ppl("fake.gguf", "-f", text, "-c", "16")
    losses = expected([b"abcdefghijklmnop"] * 4, 8)
    value, bar = math.exp(np.mean(losses)), math.exp(np.mean(losses)) * np.std(losses) / math.sqrt(27)
    assert (status, err) == (0, "")
    assert out == "".join(f"[{i}]{value:.4f}," for i in (1, 2, 3, 4)) + (
        f"\nFinal estimate: PPL = {value:.4f} +/- {bar:.5f}\n"
    )
    assert loader.engine.closed and loader.engine.open_sequences == 0


def test_one_newline_is_dropped_and_special_tokens_are_text(ie_ppl, tmp_path: Path, loader: FakeLoader) -> None:
    calls = []

    class Recording(FakeTokenizer):
        def encode(self, text: Any, **how: Any) -> list[int]:
            calls.append((text, how))
            return super().encode(text, **how)

    loader.tokenizer = Recording()
    path = tmp_path / "t"
    path.write_bytes(b"abcdefghij\n\n")
    assert ie_ppl("fake.gguf", "-f", path, "-c", "5")[0] == 0
    assert calls == [(b"abcdefghij\n", {"add_special": True, "parse_special": False})]


def test_bos_replaces_the_first_token_of_each_window(ie_ppl, loader: FakeLoader, text: Path) -> None:
    loader.tokenizer = FakeTokenizer(add_bos=True)
    assert ie_ppl("fake.gguf", "-f", text, "-c", "16", "--chunks", "2")[0] == 0
    begins = [fed[0] for fed in loader.engine.fed if len(fed) == 8 and fed[0] == BOS]
    assert begins == [BOS, BOS]
    assert sum(len(fed) for fed in loader.engine.fed) == 2 * 15


def test_first_and_stride(ie_ppl, text: Path) -> None:
    _, out, _ = ie_ppl("fake.gguf", "-f", text, "-c", "16", "--first", "0", "--chunks", "1")
    assert f"PPL = {math.exp(np.mean(expected([b'abcdefghijklmnop'], 0))):.4f} " in out
    _, out, _ = ie_ppl("fake.gguf", "-f", text, "-c", "16", "--stride", "4")
    assert len(re.findall(r"\[\d+\]", out)) == (64 - 18 + 3) // 4


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "no model: name a GGUF file"),
        (["fake.gguf"], "no text: name a file with -f"),
        (["fake.gguf", "-f", "TEXT"], "the text is too short: 64 tokens, and two windows of 512 need 1,024"),
        (["fake.gguf", "-f", "TEXT", "-c", "16", "--chunks", "0"], "--chunks 0 measures nothing"),
        (["fake.gguf", "-f", "TEXT", "-c", "16", "--first", "15"], "counts, 15 does not lie inside a window of 16"),
        (
            ["fake.gguf", "-f", "TEXT", "-c", "16", "--first", "1", "--stride", "2"],
            "--first cannot be given with --str",
        ),
        (["fake.gguf", "-f", "TEXT", "--stride", "2", "--kl-divergence-base", "x"], "has no place for --stride"),
        (["fake.gguf", "-f", "TEXT", "-c", "4", "--stride", "9"], "a stride of 9 does not lie inside a window of 8"),
        (["fake.gguf", "-f", "TEXT", "--kl-divergence-base", "TEXT"], "is --file, which is read: name another file"),
        (["fake.gguf", "-f", "TEXT", "--kl-divergence-base", "./fake.gguf"], "is the model, which is read"),
        (["fake.gguf", "--kl-divergence"], "--kl-divergence needs the file to compare with"),
        (["fake.gguf", "--kl-divergence", "--kl-divergence-base", "x", "-c", "9"], "-c cannot be given with --kl-div"),
        (["fake.gguf", "-f", "/nowhere"], "/nowhere: No such file or directory"),
        (["fake.gguf", "--kl-divergence", "--kl-divergence-base", "TEXT"], "not a file of log-probabilities"),
        (["a.gguf", "b"], "unexpected argument 'b': the model is already 'a.gguf'"),
    ],
)
def test_refused(ie_ppl, text: Path, argv: list[str], message: str) -> None:
    status, out, err = ie_ppl(*[text if word == "TEXT" else word for word in argv])
    *notes, line = err.splitlines()
    assert (status, out) == (1, "") and all(note.startswith("note: the model was made") for note in notes)
    assert line.startswith("ie-ppl: ") and message in line


def test_a_vocabulary_that_ends_texts_is_refused(ie_ppl, loader: FakeLoader, text: Path) -> None:
    loader.tokenizer.add_eos = True  # type: ignore[misc]
    status, _, err = ie_ppl("fake.gguf", "-f", text, "-c", "16")
    assert status == 1 and "end token" in err and loader.engine.closed


def test_base_file_and_comparison(ie_ppl, loader: FakeLoader, text: Path, tmp_path: Path) -> None:
    text.write_text("abcdefghijklmnop" * 20)
    base = tmp_path / "base.kld"
    assert ie_ppl("fake.gguf", "-f", text, "-c", "16", "--kl-divergence-base", base)[0] == 0
    with Reader(base) as file:
        assert (file.shape.n, file.shape.n_vocab, file.shape.chunks) == (16, N_VOCAB, 20)
    loader.engine = FakeEngine()
    again = ["fake.gguf", "--kl-divergence", "--kl-divergence-base", base]
    status, out, err = ie_ppl(*again)
    assert (status, err) == (0, "")
    facts = dict(re.findall(r"^  (\S.*?)  +(\S.*)$", out, re.M))
    assert facts["same top token"] == "100.000 ± 0.000 %" and facts["mean KLD"].startswith(("0.0000", "-0.0000"))
    assert facts["mean PPL(Q)"].split()[0][:6] == facts["mean PPL(base)"].split()[0][:6]
    assert {"largest KLD", "99.9 % KLD", "median KLD", "0.1 % KLD", "smallest KLD", "75.0 % Δp", "RMS Δp"} <= set(facts)
    assert len(re.findall(r"^ +\d+ ", out, re.M)) == 20
    loader.engine = FakeEngine()
    assert ie_ppl(*again, "-f", text)[0] == 0
    text.write_text("abcdefghijklmnoq" * 20)
    loader.engine = FakeEngine()
    status, _, err = ie_ppl(*again, "-f", text)
    assert status == 1 and "was not made from the text of" in err


def test_a_failed_run_leaves_no_file(ie_ppl, loader: FakeLoader, text: Path, tmp_path: Path) -> None:
    loader.engine = FakeEngine(n_ctx=10)
    status, _, err = ie_ppl("fake.gguf", "-f", text, "-c", "16", "--kl-divergence-base", tmp_path / "base.kld")
    assert status == 1 and "context is full" in err
    assert list(tmp_path.iterdir()) == [text]


def test_nothing_is_printed_before_there_is_a_result(ie_ppl, loader: FakeLoader, text: Path, tmp_path: Path) -> None:
    base = tmp_path / "base.kld"
    assert ie_ppl("fake.gguf", "-f", text, "-c", "16", "--kl-divergence-base", base)[0] == 0
    other = make_tiny(tmp_path / "other.gguf", n_vocab=300)
    status, out, err = ie_ppl(other, "--kl-divergence", "--kl-divergence-base", base, real=True)
    assert (status, out, err.count("\n")) == (1, "", 1)


def test_the_engine_itself(ie_ppl, tmp_path: Path) -> None:
    """A random model on random text: near the size of its vocabulary, whatever the threads; and like itself."""
    model = make_tiny(tmp_path / "tiny.gguf", arch="llama", n_ctx=96)
    path, base = tmp_path / "t.txt", tmp_path / "base.kld"
    path.write_text("the quick brown fox jumps over the lazy dog and " * 20)
    runs = [
        ie_ppl(model, "-f", path, "-c", "48", "--chunks", "5", *more, real=True)
        for more in ([], ["-t", "1", "--chunk", "7"], ["-t", "999", "--kl-divergence-base", base])
    ]
    assert [run[0] for run in runs] == [0, 0, 0], runs
    assert ["note: -t 999: no more threads run than" in run[2] for run in runs] == [False, False, True]
    assert runs[0][1] == runs[1][1] == runs[2][1]
    assert 20 < float(re.findall(r"PPL = ([\d.]+)", runs[0][1])[0]) < 2000
    status, out, _ = ie_ppl(model, "--kl-divergence", "--kl-divergence-base", base, real=True)
    assert status == 0 and "100.000 ± 0.000 %" in out
