"""Conversations: what is fed to the engine, and the commands at the prompt. Lines come from a list, not a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ie.cli import run
from ie.cli.chat import HELP, Conversation, read_message, talk
from ie.cli.console import Console
from ie.cli.options import Options, parse
from ie.errors import OptionError
from tests.cli.fake import FakeEngine, FakeLoader

ROOT = Path(__file__).resolve().parents[2]
READY = b"\x1b[?2004h"  # bracketed paste on: each prompt begins with it


class Script:
    """Lines for read_line; an exception in the list is raised."""

    def __init__(self, *lines: str | type[BaseException]) -> None:
        self.lines = list(lines)

    def __call__(self, prompt: str) -> str:
        if not self.lines:
            raise EOFError
        line = self.lines.pop(0)
        if isinstance(line, str):
            return line
        raise line


def conversation(*argv: str, n_ctx: int = 200, loader: FakeLoader | None = None) -> tuple[Conversation, FakeLoader]:
    loader = loader or FakeLoader(FakeEngine(n_ctx=n_ctx))
    chosen: Options = parse("ie-run", ["fake.gguf", "-s", "7", "-n", "3", *argv])
    return Conversation(loader(chosen), chosen, 7, Console("ie-run")), loader


def fed(loader: FakeLoader) -> list[bytes]:
    """The prompts of all answers: every call that fed more than one token."""
    return [bytes(tokens) for tokens in loader.engine.fed if len(tokens) > 1]


def talked(capfd: pytest.CaptureFixture[str], chat: Conversation, *lines: str | type[BaseException]) -> Sequence[str]:
    talk(chat, Console("ie-run"), Script(*lines))
    return capfd.readouterr()


def test_only_what_is_new_is_computed(capfd) -> None:
    chat, loader = conversation("-sys", "be")
    out, _ = talked(capfd, chat, "hi", "and?")
    assert out == "abcabc"
    # The third token of the answer was generated but never fed, so it comes with the next message.
    assert fed(loader) == [b"<system>be\n<user>hi\n<assistant>", b"c\n<user>and?\n<assistant>"]
    assert [m["role"] for m in chat.messages] == ["system", "user", "assistant", "user", "assistant"]


def test_answers_have_random_numbers_of_their_own(capfd) -> None:
    chat, loader = conversation()
    talked(capfd, chat, "hi", "/regen", "and?")
    assert loader.seeds == [7, 8, 9]


def test_regen_replaces_the_answer(capfd) -> None:
    chat, loader = conversation()
    talked(capfd, chat, "hi", "/regen")
    assert [m["role"] for m in chat.messages] == ["user", "assistant"]
    assert fed(loader) == [b"<user>hi\n<assistant>"] and loader.engine.fed[-3] == [ord(">")]


def test_regen_without_an_answer(capfd) -> None:
    chat, _ = conversation()
    assert "there is no answer to give again" in talked(capfd, chat, "/regen")[1]
    with pytest.raises(OptionError):
        chat.regenerate()


def test_reset_keeps_the_system_message(capfd) -> None:
    chat, loader = conversation("-sys", "be")
    talked(capfd, chat, "hi", "/reset")
    assert chat.messages == [{"role": "system", "content": "be"}]
    talked(capfd, chat, "ho")
    assert fed(loader)[-1] == b"o\n<assistant>"  # up to there the old conversation reads the same
    assert chat.messages[1:] == [{"role": "user", "content": "ho"}, {"role": "assistant", "content": "abc"}]


def test_save(capfd, tmp_path: Path) -> None:
    chat, _ = conversation()
    out, err = talked(capfd, chat, "hi", f"/save {tmp_path / 'c.md'}", "/save", "/save /nonexistent/c.md")
    assert (tmp_path / "c.md").read_text() == "## user\n\nhi\n\n## assistant\n\nabc\n\n"
    assert "/save needs the name of a file" in err
    assert "/nonexistent/c.md" in err


def test_stats_help_and_unknown_commands(capfd) -> None:
    chat, _ = conversation()
    _, err = talked(capfd, chat, "/stats", "hi", "/stats", "/help", "/what", "/exit now", "/exit", "never read")
    lines = err.splitlines()
    assert lines[0] == "no answer yet"
    assert lines[1].startswith("load 0.31 s · prompt 20 tok")
    assert "\n".join(lines[2 : 2 + len(HELP.splitlines())]) == HELP
    assert lines[-2].startswith("unknown command /what.")
    assert lines[-1] == "/exit takes no argument"
    assert len(chat.messages) == 2


def test_lines_joined_by_a_backslash() -> None:
    assert read_message(Script("a\\", "b\\", "c")) == "a\nb\nc"
    assert read_message(Script("a")) == "a"


def test_ctrl_c_at_the_prompt_does_not_leave(capfd) -> None:
    chat, _ = conversation()
    out, err = talked(capfd, chat, KeyboardInterrupt, "hi")
    assert out == "abc" and "/exit or Ctrl-D leaves" in err


def test_empty_lines_and_a_slash_after_a_space(capfd) -> None:
    chat, _ = conversation()
    talked(capfd, chat, "", "   ", " /exit", "/exit")
    assert [m["content"] for m in chat.messages] == [" /exit", "abc"]


def test_ctrl_c_ends_the_answer_and_keeps_what_there_is(capfd) -> None:
    class Interrupted(FakeEngine):
        def forward(self, seq, tokens, want):  # type: ignore[no-untyped-def]
            if len(self.fed) == 2:
                self.fed.append([])
                seq.tokens.append(-1)  # half a step
                raise KeyboardInterrupt
            return super().forward(seq, tokens, want)

    chat, loader = conversation(loader=FakeLoader(Interrupted(n_ctx=200)))
    out, _ = talked(capfd, chat, "hi", "and?")
    assert out == "ab" + "abc"
    assert chat.messages[1]["content"] == "ab"
    # The interrupted sequence is not trusted: everything is computed anew.
    assert fed(loader)[-1] == b"<user>hi\n<assistant>ab\n<user>and?\n<assistant>"


def test_a_message_that_does_not_fit_is_refused_and_forgotten(capfd) -> None:
    chat, _ = conversation(n_ctx=30)
    out, err = talked(capfd, chat, "x" * 40, "hi")
    assert out == "abc"
    assert err.startswith("ie-run: the prompt has 58 tokens and the context holds 30.")
    assert [m["content"] for m in chat.messages] == ["hi", "abc"]


def _read_until(fd: int, wanted: bytes, seconds: float = 30.0) -> bytes:
    seen = b""
    end = time.monotonic() + seconds
    while wanted not in seen and time.monotonic() < end:
        if select.select([fd], [], [], 0.2)[0]:
            try:
                seen += os.read(fd, 65536)
            except OSError:
                break
    assert wanted in seen, seen
    return seen


def test_a_conversation_on_a_real_terminal(tmp_path: Path) -> None:
    """Prompt, answer, Ctrl-C during an answer, a following answer, Ctrl-D; the answers alone go to stdout."""
    main, terminal = pty.openpty()
    env = {**os.environ, "IE_CACHE": str(tmp_path), "TERM": "xterm", "FAKE_DELAY": "0.01"}
    command = [sys.executable, "-m", "tests.cli.fake", "fake.gguf", "--ignore-eos", "-s", "7"]
    # setsid --ctty makes the terminal the one whose Ctrl-C reaches the process.
    child = subprocess.Popen(["setsid", "--ctty", *command], cwd=ROOT, env=env, stdin=terminal,
                             stdout=subprocess.PIPE, stderr=terminal)  # fmt: skip
    os.close(terminal)
    try:
        assert child.stdout
        _read_until(main, READY)
        os.write(main, b"first\r")
        assert child.stdout.read(3) == b"abc"
        os.write(main, b"\x03")
        _read_until(main, READY)
        os.write(main, b"second\r")
        rest = os.read(child.stdout.fileno(), 4096)
        while not rest.endswith(b"\nabc"):  # each answer ends with a new line, also where stdout is no terminal
            rest += child.stdout.read(1)
        os.write(main, b"\x03")
        _read_until(main, READY)
        os.write(main, b"\x04")
        _read_until(main, b"tok generated")
        assert child.wait(30) == 0
    finally:
        child.kill()
        child.wait()
        os.close(main)
    history = (tmp_path / "history").read_text()
    assert "+first" in history and "+second" in history
    assert (tmp_path / "history").stat().st_mode & 0o077 == 0


def test_a_terminal_that_only_knows_letters(tmp_path: Path) -> None:
    """TERM=dumb: no escape sequence reaches it, and lines, Ctrl-D and the end are what they are elsewhere."""
    main, terminal = pty.openpty()
    env = {**os.environ, "IE_CACHE": str(tmp_path), "TERM": "dumb"}
    command = [sys.executable, "-m", "tests.cli.fake", "fake.gguf", "-n", "3", "-s", "7"]
    child = subprocess.Popen(["setsid", "--ctty", *command], cwd=ROOT, env=env, stdin=terminal,
                             stdout=subprocess.PIPE, stderr=terminal)  # fmt: skip
    os.close(terminal)
    try:
        assert child.stdout
        seen = _read_until(main, b"> ")
        os.write(main, b"first\n")
        assert child.stdout.read(4) == b"abc\n"
        seen += _read_until(main, b"> ")
        os.write(main, b"\x04")
        seen += _read_until(main, b"tok generated")
        assert child.wait(30) == 0
    finally:
        child.kill()
        child.wait()
        os.close(main)
    assert b"\x1b" not in seen


class Terminal:
    """sys.stdin as a terminal that is never read directly."""

    def isatty(self) -> bool:
        return True


def test_first_message_from_the_command_line(capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(run, "terminal_reader", lambda console: Script("and?", "/exit"))
    loader = FakeLoader(FakeEngine(n_ctx=200))
    assert run.main(["fake.gguf", "-cnv", "-p", "hi", "-n", "3"], loader) == 0
    out, err = capfd.readouterr()
    assert out == "abc\nabc\n" and "/help" in err
    assert fed(loader) == [b"<user>hi\n<assistant>", b"c\n<user>and?\n<assistant>"]
    assert "prompt 44 tok" in err and "6 tok generated" in err


def test_a_single_turn_reads_one_message(capfd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(run, "terminal_reader", lambda console: Script("one", "two"))
    loader = FakeLoader(FakeEngine(n_ctx=200))
    assert run.main(["fake.gguf", "-st", "-n", "3", "--dump-logits", str(tmp_path / "l.npy")], loader) == 0
    assert capfd.readouterr().out == "abc"
    assert fed(loader) == [b"<user>one\n<assistant>"] and (tmp_path / "l.npy").exists()


def test_no_message(capfd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(run, "terminal_reader", lambda console: Script())
    assert run.main(["fake.gguf", "-st"], FakeLoader()) == 1
    assert capfd.readouterr().err == "ie-run: no message was given\n"
    assert run.main(["fake.gguf"], FakeLoader()) == 0
    assert capfd.readouterr().err.splitlines()[1:] == ["load 0.31 s · prompt 0 tok · 0 tok generated"]
