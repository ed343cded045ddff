"""ie-run with the engine itself, on tiny random models: the options reach it, and those that must not matter do not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ie.cli import run
from ie.cli.selftest import model_bytes
from tiny_models import make_tiny

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-c", "import sys; from ie.cli.run import main; sys.exit(main())"]
PROMPT = "the quick brown fox jumps over the lazy dog and then"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf", arch="llama", n_ctx=96))


@pytest.fixture
def ie_run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})  # for three threads, whatever there is

    def call(*argv: str) -> tuple[int, bytes, str]:
        status = run.main(list(argv))
        out, err = capfdbinary.readouterr()
        return status, out, err.decode()

    return call


def test_text(ie_run, model: str) -> None:
    status, out, err = ie_run(model, "-p", "hello", "-n", "5", "--temp", "0")
    assert status == 0 and out.startswith(b"hello") and len(out) > 5
    assert "5 tok generated" in err


@pytest.mark.parametrize(
    "other", [["-t", "1"], ["-t", "3"], ["--chunk", "1"], ["--chunk", "7"], ["--cpu-isa", "portable"], ["-c", "64"]]
)
def test_what_must_not_matter_does_not(ie_run, model: str, tmp_path: Path, other: list[str]) -> None:
    base = [model, "-p", PROMPT, "-n", "8", "-s", "11", "--ignore-eos", "--print-ids", "--dump-logits"]
    _, plain, _ = ie_run(*base, str(tmp_path / "a.npy"))
    status, varied, _ = ie_run(*base, str(tmp_path / "b.npy"), *other)
    assert status == 0 and plain == varied
    a, b = np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy")
    assert a.dtype == np.float32 and len(a) == len(plain.splitlines()) - 1
    assert np.array_equal(a, b)


def test_more_threads_than_processors_do_not_run_and_that_is_said(ie_run, model: str) -> None:
    base = [model, "-p", PROMPT, "-n", "4", "--temp", "0", "-v"]
    _, plain, err = ie_run(*base, "-t", "3")
    assert "threads 3" in err.splitlines() and "note" not in err
    status, varied, err = ie_run(*base, "-t", "1000")
    assert (status, varied) == (0, plain)
    note = "note: -t 1000: no more threads run than there are processors for this process: 3"
    assert "threads 3" in err.splitlines() and err.splitlines().count(note) == 1
    assert "note" not in ie_run(*base[:-1], "-t", "1000", "--executor", "reference")[2]


def test_the_seed_decides(ie_run, model: str) -> None:
    texts = [ie_run(model, "-p", "a", "-n", "20", "--ignore-eos", "-s", s, "--temp", "2")[1] for s in ("1", "2", "1")]
    assert texts[0] == texts[2] != texts[1]


def test_reference_agrees_with_cpu(ie_run, model: str, tmp_path: Path) -> None:
    for executor in ("cpu", "reference"):
        dump = ["-n", "0", "--dump-logits", str(tmp_path / f"{executor}.npy")]
        assert ie_run(model, "-p", PROMPT, "--executor", executor, *dump)[0] == 0
    cpu, reference = np.load(tmp_path / "cpu.npy"), np.load(tmp_path / "reference.npy")
    assert cpu.shape == reference.shape and np.abs(cpu - reference).max() < 0.02 * np.abs(reference).max()


def test_conversation(ie_run, model: str) -> None:
    status, out, err = ie_run(model, "-cnv", "-p", "hi", "-n", "5", "--temp", "0", "-sys", "be brief")
    assert status == 0 and out and not out.startswith(b"hi")
    assert "prompt" in err


def test_context_too_short_for_the_prompt(ie_run, model: str) -> None:
    status, out, err = ie_run(model, "-p", PROMPT, "-c", "8")
    assert (status, out) == (1, b"") and "and the context holds 8. Give it -c 96" in err


def test_context_longer_than_the_model_was_made_for_is_said(ie_run, model: str) -> None:
    _, _, err = ie_run(model, "-p", "a", "-n", "1", "-c", "128")
    assert err.startswith("note: the model was made for a context of 96 tokens, not more\n")


def test_info(ie_run, model: str) -> None:
    status, out, err = ie_run(model, "--info")
    text = out.decode()
    assert (status, err) == (0, "")
    assert text.startswith(f"file      {model}\n")
    assert "Q4_1" in text and "general.architecture" in text and "2 × (n_head 4, n_kv 2" in text
    assert max(len(line) for line in text.splitlines()) < 200
    assert not {"None", "False", "True"} & set(text.replace(",", " ").split())


def test_info_of_a_model_that_cannot_be_run(ie_run, tmp_path: Path) -> None:
    data = model_bytes().replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0ll\x1bma", 1)
    (tmp_path / "odd.gguf").write_bytes(data)
    status, out, _ = ie_run(str(tmp_path / "odd.gguf"), "--info")
    assert status == 0
    assert b"cannot be run" in out and b"\\x1b" in out and b"\x1b" not in out


def test_a_file_without_vocabulary(ie_run, tmp_path: Path) -> None:
    path = tmp_path / "bare.gguf"
    path.write_bytes(model_bytes())
    status, out, _ = ie_run(str(path), "--tokens", "5,6", "-n", "3", "--temp", "0", "--print-ids")
    assert status == 0 and len(out.split()) == 5
    status, out, err = ie_run(str(path), "--tokens", "5,6")
    assert (status, out) == (1, b"") and err.endswith("there is no text: add --print-ids\n")
    status, out, err = ie_run(str(path), "-p", "a")
    assert status == 1 and "no tokenizer" in err


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("page.gguf", b"<!DOCTYPE html><html>", "web page"),
        ("empty.gguf", b"", "empty.gguf"),
        ("cut.gguf", model_bytes()[:-100], "Is the download complete?"),
    ],
)
def test_bad_files_are_one_line(ie_run, tmp_path: Path, name: str, data: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(data)
    for more in (["-p", "a"], ["--info"], ["-n", "0", "-p", "a"]):
        status, out, err = ie_run(str(tmp_path / name), *more)
        assert (status, out) == (1, b"") and said in err
        assert err.startswith("ie-run: ") and err.count("\n") == 1


def test_the_process_as_users_start_it(model: str) -> None:
    done = subprocess.run([*COMMAND, model, "-n", "3", "--temp", "0"], cwd=ROOT, input=b"hello\n", capture_output=True)
    assert done.returncode == 0 and done.stdout.startswith(b"hello") and done.stderr.startswith(b"load ")


def test_sampling_options_reach_the_samplers(ie_run, model: str) -> None:
    """Each changes the text as it says; the same seed gives the same text for every chunk and thread count."""
    base = [model, "-p", PROMPT, "-n", "24", "-s", "3", "--ignore-eos", "--print-ids", "--no-display-prompt"]
    strong = ["--repeat-penalty", "1.5", "--repeat-last-n", "-1", "--dry-multiplier", "2", "--xtc-probability", "0.5"]
    _, plain, _ = ie_run(*base)
    status, varied, _ = ie_run(*base, *strong)
    assert status == 0 and varied != plain
    assert ie_run(*base, *strong, "--chunk", "3", "-t", "1")[1] == varied
    first = plain.split()[0].decode()
    assert ie_run(*base, "-l", f"{first}-inf")[1].split()[0] != plain.split()[0]
    forced = next(str(t) for t in range(100, 300) if str(t).encode() not in plain.split())
    assert set(ie_run(*base, "-l", f"{forced}+1e6")[1].split()) == {forced.encode()}
    # The prompt counts as said: its tokens are never drawn again, nor what was drawn before.
    prompt = ie_run(model, "-p", PROMPT, "-n", "1", "--print-ids")[1].split()[:-1]
    unique = ie_run(*base, "--presence-penalty", "1e9", "--repeat-last-n", "-1")[1].split()
    assert len(set(unique)) == 24 and prompt and not set(unique) & set(prompt)
    assert ie_run(*base, "--samplers", "temperature", "--temp", "0")[1] == ie_run(*base, "--temp", "0")[1]
    status, out, err = ie_run(*base, "-l", "100000+1")
    assert (status, out) == (1, b"") and "--logit-bias: token id 100000 is outside the vocabulary" in err
