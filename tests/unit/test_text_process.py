"""The process that renders and encodes: what it may not do, how it ends, and that nobody notices otherwise."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ie.errors import TokenizerError
from ie.tokenizer import codec, process, worker
from ie.tokenizer.process import IsolatedTokenizer
from tests import tiny_vocabs as tv

ROOT = Path(__file__).resolve().parents[2]
SPECIAL = {"<s>": tv.CONTROL, "<|im_end|>": tv.CONTROL, "<tool>": tv.USER}
TEXT = "The old cat <|im_end|> sat <tool> on é\n\nmats. "


@pytest.fixture
def tokenizer(tmp_path: Path) -> Iterator[IsolatedTokenizer]:
    made = tv.load(tmp_path / "v.gguf", tv.bpe_keys(SPECIAL), isolated=True)
    assert isinstance(made, IsolatedTokenizer)
    yield made
    made.close()


def child_of(tokenizer: IsolatedTokenizer) -> subprocess.Popen[bytes]:
    child = tokenizer._process._child
    assert child is not None
    return child


def here(tmp_path: Path) -> Any:
    return tv.load(tmp_path / "here.gguf", tv.bpe_keys(SPECIAL))


def test_ids_are_those_of_this_process(tokenizer: IsolatedTokenizer, tmp_path: Path) -> None:
    plain = here(tmp_path)
    for text in (TEXT, TEXT.encode(), "", "\ud800x\udcff", b"\xff\xfe", TEXT * 50_000):
        for special in (True, False):
            want = plain.encode(text, add_special=special, parse_special=special)
            assert tokenizer.encode(text, add_special=special, parse_special=special) == want
    assert tokenizer.decode(tokenizer.encode("a cat")) == "a cat"


def test_it_starts_with_python_alone() -> None:
    """Start-up would pay for anything else."""
    code = (
        "import sys; import ie.tokenizer.worker, ie.tokenizer.codec; "
        "print([m for m in ('numpy', 'cffi', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_one_that_died_is_replaced(tokenizer: IsolatedTokenizer) -> None:
    want = tokenizer.encode(TEXT)
    child_of(tokenizer).kill()
    child_of(tokenizer).wait()
    assert tokenizer.encode(TEXT) == want


def test_one_that_dies_at_work_is_one_line(tokenizer: IsolatedTokenizer) -> None:
    tokenizer.encode("a")
    child = child_of(tokenizer)
    os.kill(child.pid, signal.SIGSTOP)
    timer = threading.Timer(0.3, lambda: os.kill(child.pid, signal.SIGKILL))
    timer.start()
    with pytest.raises(TokenizerError, match=r"the text could not be tokenised: needs too much memory.*\(SIGKILL\)"):
        tokenizer.encode(TEXT)
    assert tokenizer.encode("a")


def test_ctrl_c_ends_the_waiting_and_the_process(tokenizer: IsolatedTokenizer) -> None:
    tokenizer.encode("a")
    child = child_of(tokenizer)
    os.kill(child.pid, signal.SIGSTOP)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        tokenizer.encode(TEXT)
    assert child.poll() is not None and tokenizer.encode("a")


def test_it_does_not_outlive_its_parent(tmp_path: Path) -> None:
    path = tv.write(tmp_path / "v.gguf", tv.bpe_keys(SPECIAL))
    code = (
        "import os, sys; from ie import tokenizer; from ie.gguf import GgufFile\n"
        f"t = tokenizer.load(GgufFile.open({str(path)!r})); t.encode('a'); print(t._process._child.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    pid = int(done.stdout)
    end = time.monotonic() + 10
    while Path(f"/proc/{pid}/stat").exists() and b") Z" not in Path(f"/proc/{pid}/stat").read_bytes():
        assert time.monotonic() < end, "it is still there"
        time.sleep(0.02)


def test_many_threads_may_ask(tokenizer: IsolatedTokenizer, tmp_path: Path) -> None:
    texts = [f"{i} " + TEXT * i for i in range(12)]
    want = [here(tmp_path).encode(t) for t in texts]
    got: dict[int, list[int]] = {}
    threads = [threading.Thread(target=lambda i=i: got.__setitem__(i, tokenizer.encode(texts[i]))) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [got[i] for i in range(12)] == want


def test_a_lack_of_memory_is_one_line(tokenizer: IsolatedTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "TEXT_MEMORY", 1 << 24)
    monkeypatch.setattr(process, "MEMORY_PER_BYTE", 1)
    with pytest.raises(TokenizerError, match="the text could not be tokenised: needs too much memory"):
        tokenizer.encode("a cat sat on mats " * 500_000)
    monkeypatch.undo()
    assert tokenizer.encode("a")


ANSWERS = {
    "a text instead of ids": b"a",
    "an id past the vocabulary": b"\xff\xff\xff\x7f",
    "a negative id": b"\xff\xff\xff\xff",
}


@pytest.mark.parametrize("body", ANSWERS.values(), ids=ANSWERS.keys())
def test_its_answers_are_not_believed(tokenizer: IsolatedTokenizer, body: bytes) -> None:
    tokenizer._process.ask = lambda *args, **options: body  # type: ignore[method-assign]
    with pytest.raises(TokenizerError, match="gave (a wrong answer|an id outside the vocabulary)"):
        tokenizer.encode("a")


def test_a_length_that_nobody_could_mean_is_refused(tokenizer: IsolatedTokenizer) -> None:
    ours, theirs = __import__("socket").socketpair()
    tokenizer.encode("a")
    tokenizer._process._socket = ours
    theirs.send(worker.LENGTH.pack(1 << 60))
    with pytest.raises(TokenizerError, match="gave a wrong answer"):
        tokenizer.encode("b")
    theirs.close()


def test_what_a_library_throws_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A panic in Rust is no Exception; neither may anything else get past the loop."""

    class Panic(BaseException):
        pass

    class Broken:
        def encode(self, *args: object, **options: object) -> list[int]:
            raise Panic("at src/lib.rs\nnote: run with")

    ours, theirs = __import__("socket").socketpair()
    monkeypatch.setattr(worker, "_limit", lambda seconds, memory: None)
    serving = threading.Thread(target=worker.serve, args=(theirs.fileno(), Broken()))
    serving.start()
    worker.write_all(ours.fileno(), _message(pickle.dumps((1.0, 0, "encode", ("a",), {}))))
    ready, answer = _read(ours.fileno()), _read(ours.fileno())
    ours.close()
    serving.join(10)
    theirs.close()
    assert ready == worker.READY and answer.startswith(worker.BROKEN + b"at src")


def _message(body: bytes) -> bytes:
    return worker.LENGTH.pack(len(body)) + body


def _read(fd: int) -> bytes:
    return worker.read_exactly(fd, worker.LENGTH.unpack(worker.read_exactly(fd, worker.LENGTH.size))[0])


def test_a_token_prints_no_more_than_its_size_allows(tmp_path: Path) -> None:
    """Each character that is no byte's would otherwise bring the whole token along."""
    odd = "€" * 20_000
    tok = tv.load(tmp_path / "v.gguf", tv.bpe_keys({odd: tv.NORMAL}))
    assert len(tok.piece(tok.n_vocab - 1)) < 10 * len(odd.encode())
    assert codec.SHORT >= 16  # short ones are spelled as ever
