"""What reaches a terminal: control characters as text, lines of libraries, and modes that are given back."""

from __future__ import annotations

import io
import logging
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ie.cli import console as console_module
from ie.cli import load, run
from ie.cli.console import Console
from ie.cli.visible import Visible
from tests.cli.fake import N_VOCAB, FakeEngine, FakeLoader

ROOT = Path(__file__).resolve().parents[2]
READY = b"\x1b[?2004h"  # bracketed paste on: each prompt begins with it
ESC = "\x1b[31m\x1b]52;c;UFdORUQ=\x07"


class Out:
    """sys.stdout as a terminal, or as a pipe."""

    def __init__(self, terminal: bool) -> None:
        self.buffer, self._terminal = io.BytesIO(), terminal

    def isatty(self) -> bool:
        return self._terminal

    def flush(self) -> None:
        pass


def shown(*pieces: bytes) -> bytes:
    visible = Visible()
    return b"".join(visible.push(piece) for piece in pieces) + visible.flush()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("é漢🙂 סלע\u200f \u200d\u200c\xa0", "é漢🙂 סלע\u200f \u200d\u200c\xa0"),
        (ESC, r"\x1b[31m\x1b]52;c;UFdORUQ=\x07"),
        ("\x00\x08\x0b\x0c\r\x1f\x7f", r"\x00\x08\x0b\x0c\r\x1f\x7f"),
        ("\x80\x85\x9b\x9f", r"\x80\x85\x9b\x9f"),
        ("\u2028\u2029\u202a\u202e\u2066\u2069", r"\u2028\u2029\u202a\u202e\u2066\u2069"),
    ],
)
def test_what_is_shown(text: str, expected: str) -> None:
    data = text.encode()
    assert shown(data) == expected.encode()
    assert shown(*(data[i : i + 1] for i in range(len(data)))) == expected.encode(), "byte by byte"


def test_bytes_that_are_no_text() -> None:
    assert shown(b"a\xff\x9bb", b"\xc3") == rb"a\xff\x9bb\xc3"
    assert shown(b"\xc2", b"\x9b31m", b"\xe2\x80", b"\xaex") == rb"\x9b31m\u202ex", "C1 and a mark over two pieces"


class Hostile(FakeEngine):
    """Says ESC ] 0 ; x BEL, then C1's CSI and a line separator, whose bytes are tokens of their own."""

    said = b"\x1b]0;x\x07\xc2\x9b\xe2\x80\xa8z"

    def forward(self, seq, tokens, want):  # type: ignore[no-untyped-def]
        seq.tokens.extend(tokens)
        row = np.zeros((1, N_VOCAB), np.float32)
        row[0, self.said[len(seq) - 1]] = 1
        return row


@pytest.mark.parametrize(
    ("terminal", "more", "expected"),
    [
        (True, [], rb"a\x1b]0;x\x07\x9b\u2028z" + b"\n"),
        (True, ["--raw"], b"a" + Hostile.said + b"\n"),
        (False, [], b"a" + Hostile.said),
        (False, ["--raw"], b"a" + Hostile.said),
    ],
)
def test_generated_text(monkeypatch: pytest.MonkeyPatch, terminal: bool, more: list[str], expected: bytes) -> None:
    out = Out(terminal)
    monkeypatch.setattr(sys, "stdout", out)
    words = ["fake.gguf", "-p", "a", "-n", str(len(Hostile.said)), *more]
    assert run.main(words, FakeLoader(Hostile())) == 0
    assert out.buffer.getvalue() == expected


def test_the_prompt_is_text_too(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Out(True)
    monkeypatch.setattr(sys, "stdout", out)
    assert run.main(["fake.gguf", "-p", ESC + "\udcc2", "-n", "0", "--raw"], FakeLoader()) == 0
    assert run.main(["fake.gguf", "-p", ESC + "\udcc2", "-n", "1"], FakeLoader()) == 0
    assert out.buffer.getvalue() == rb"\x1b[31m\x1b]52;c;UFdORUQ=\x07\xc2a" + b"\n"


def test_saved_conversations_keep_the_bytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd) -> None:
    from ie.cli.chat import Conversation
    from ie.cli.options import parse

    chosen = parse("ie-run", ["fake.gguf", "-n", "3"])
    chat = Conversation(FakeLoader(FakeEngine(n_ctx=200))(chosen), chosen, 7, Console("ie-run"))
    chat.say(ESC)
    chat.save(str(tmp_path / "c"))
    assert ESC.encode() in (tmp_path / "c").read_bytes()


def test_libraries_speak_through_the_console(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("IE_LOG", str(tmp_path / "log"))

    class Doomed:
        def __del__(self) -> None:
            raise ValueError(ESC)

    def body(console: Console, chosen: object) -> int:
        logging.getLogger("some.library").warning("%s: odd", ESC)
        wrong = logging.LogRecord("some.library", logging.WARNING, "x.py", 1, "%d %d", (1,), None)
        logging.getLogger().handlers[-1].handle(wrong)  # arguments that do not fit
        logging.getLogger("some.library").info("not said")
        warnings.warn(ESC + "\nsecond line", RuntimeWarning, stacklevel=1)
        Doomed()
        return 0

    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    before = logging.getLogger().handlers[:], warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert console_module.run("ie-doctor", [], body) == 0
    assert (logging.getLogger().handlers, warnings.showwarning) == before
    escaped = ESC.encode("unicode_escape").decode()
    expected = [
        f"ie-doctor: {escaped}: odd",
        "ie-doctor: %d %d",
        f"ie-doctor: RuntimeWarning: {escaped}\\nsecond line",
        f"ie-doctor: ignored: ValueError: {escaped}",
    ]
    assert capfd.readouterr().err.splitlines() == expected
    logged = (tmp_path / "log").read_text().splitlines()
    assert [line.partition("] ")[2] for line in logged] == [line.removeprefix("ie-doctor: ") for line in expected]


def test_a_bug_is_shown_escaped(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("IE_LOG", str(tmp_path / "log"))

    def body(console: Console, chosen: object) -> int:
        raise ZeroDivisionError(ESC)

    assert console_module.run("ie-doctor", ["-v"], body) == 1
    said = capfd.readouterr().err
    assert "Traceback" in said and "\x1b" not in said
    for line in (tmp_path / "log").read_text().splitlines():
        assert f" ie-doctor[{os.getpid()}] " in line and "\x1b" not in line


def test_a_pipe_that_does_not_wait_gets_everything() -> None:
    code = (
        "import os, sys; os.set_blocking(1, False)\n"
        "from ie.cli.console import Console\n"
        "Console('x').text(b'a' * 1_000_000)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT) as child:
        assert child.stdout
        time.sleep(0.5)
        assert len(child.stdout.read()) == 1_000_000 and child.wait() == 0


def test_the_progress_leaves_the_cursor_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(load, "PATIENCE", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    progress = load.Progress()
    progress(1, 2)
    progress.close()
    assert "loading" in stream.getvalue() and "\x1b[?25l" not in stream.getvalue()


# -- signals -----------------------------------------------------------------------------------------------------------


class Session:
    """A conversation with the model that spells the alphabet, on a terminal of its own. `before`: run first."""

    def __init__(self, *words: str, delay: float = 0.0, before: str = "pass", **env: str) -> None:
        self.seen, self._ahead = b"", b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.environ.update({"TERM": "xterm", "FAKE_DELAY": str(delay), "PYTHONDONTWRITEBYTECODE": "1", **env})
            code = f"import runpy; {before}; runpy.run_module('tests.cli.fake', run_name='__main__')"
            os.execv(sys.executable, [sys.executable, "-c", code, "fake.gguf", "-s", "7", *words])
        self.modes = termios.tcgetattr(self.fd)

    def until(self, wanted: bytes, seconds: float = 30.0) -> bytes:
        """What comes next, up to `wanted`."""
        end = time.monotonic() + seconds
        while wanted not in self._ahead and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    self._ahead += os.read(self.fd, 65536)
                except OSError:
                    break
        assert wanted in self._ahead, self.seen + self._ahead
        size = self._ahead.index(wanted) + len(wanted)
        new, self._ahead = self._ahead[:size], self._ahead[size:]
        self.seen += new
        return new

    def type(self, line: bytes) -> None:
        os.write(self.fd, line)

    def ended(self) -> int:
        """The status of the process as a shell knows it."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            time.sleep(0.02)
        raise AssertionError("it goes on")

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def talk() -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def begin(*words: str, **more: Any) -> Session:
        sessions.append(Session(*words, **more))
        return sessions[-1]

    yield begin
    for session in sessions:
        session.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_at_the_prompt_gives_the_terminal_back(number: signal.Signals, talk: Callable[..., Session]) -> None:
    chat = talk("-n", "2")
    chat.until(READY)
    assert not termios.tcgetattr(chat.fd)[3] & termios.ECHO, "the prompt has modes of its own"
    os.kill(chat.pid, number)
    chat.until(b"\x1b[?2004l\x1b[?25h")
    assert chat.ended() == 128 + number
    assert termios.tcgetattr(chat.fd) == chat.modes


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_during_an_answer(number: signal.Signals, talk: Callable[..., Session]) -> None:
    chat = talk("-n", "100000", "--ignore-eos", delay=0.01)
    chat.until(READY)
    chat.type(b"hi\r")
    chat.until(b"abc")
    os.kill(chat.pid, number)
    assert chat.ended() == 128 + number
    assert termios.tcgetattr(chat.fd) == chat.modes


def test_a_terminal_that_is_stopped_goes_on(talk: Callable[..., Session]) -> None:
    chat = talk("-n", "100000", "--ignore-eos", delay=0.01)
    chat.until(READY)
    chat.type(b"hi\r")
    chat.until(b"abc")
    os.kill(chat.pid, signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(chat.pid, os.WUNTRACED)[1])
    os.kill(chat.pid, signal.SIGCONT)
    chat.until(b"xyzabc")
    chat.type(b"\x03")
    chat.until(READY)
    chat.type(b"\x04")
    chat.until(b"tok generated")
    assert chat.ended() == 0
    assert termios.tcgetattr(chat.fd) == chat.modes


def test_control_characters_that_are_typed_or_pasted(talk: Callable[..., Session], tmp_path: Path) -> None:
    """They are shown, sent as they are, and what is not UTF-8 spoils neither the history nor the conversation."""
    chat = talk("-n", "2", IE_CACHE=str(tmp_path))
    chat.until(READY)
    chat.type(b"\x1b[200~a\x1b]0;t\x07\xff\xc2\x9bb\x1b[201~\r")
    assert b"\x1b]0;t" not in chat.until(READY)
    chat.type(b"/save " + os.fsencode(tmp_path) + b"/c\x1b[200~\x07\x1b[201~\r")
    chat.until(rb"saved to ")
    chat.until(READY)
    chat.type(b"\x04")
    chat.until(b"tok generated")
    assert chat.ended() == 0
    assert "a\x1b]0;t\x07\ufffd\x9bb".encode() in (tmp_path / "c\x07").read_bytes()
    assert b"\x07" not in chat.seen and b"Traceback" not in chat.seen


# -- a disk that is full -----------------------------------------------------------------------------------------------


def test_a_full_disk_in_a_conversation(talk: Callable[..., Session], tmp_path: Path) -> None:
    """Files of this process may have 4096 bytes: neither the history nor /save can be written. It is said once, in a
    line, and the conversation goes on; the file that was there stays."""
    (tmp_path / "history").write_bytes(b"\n" * 4096)
    (tmp_path / "old").write_text("old")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
    chat = talk("-n", "3", before=limit, IE_CACHE=str(tmp_path))
    for _ in range(2):
        chat.until(READY)
        chat.type(b"x" * 2100 + b"\r")
        chat.until(b"abc")
    chat.until(READY)
    chat.type(b"/save " + os.fsencode(tmp_path / "old") + b"\r")
    chat.until(b"old: File too large")
    chat.until(READY)
    chat.type(b"\x04")
    chat.until(b"tok generated")
    assert chat.ended() == 0
    assert b"history: File too large: the history is not kept" in chat.seen
    assert chat.seen.count(b"is not kept") == 1 and b"Traceback" not in chat.seen and b"ENTER" not in chat.seen
    assert (tmp_path / "old").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["history", "old"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is not there")
def test_a_full_stdout_in_a_conversation(talk: Callable[..., Session], tmp_path: Path) -> None:
    full = "import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    chat = talk("-n", "3", before=full, IE_CACHE=str(tmp_path))
    for _ in range(2):
        chat.until(READY)
        chat.type(b"hi\r")
        chat.until(b"ie-run: cannot write to stdout: No space left on device")
    chat.until(READY)
    chat.type(b"\x04")
    chat.until(b"0 tok generated")
    assert chat.ended() == 0


def test_a_history_that_is_a_pipe(talk: Callable[..., Session], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "history")
    chat = talk("-n", "3", "-v", IE_CACHE=str(tmp_path))
    chat.until(b"history: not a regular file: the history is not kept")
    chat.until(READY)
    chat.type(b"\x04")
    chat.until(b"tok generated")
    assert chat.ended() == 0
