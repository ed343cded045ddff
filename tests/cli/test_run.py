"""ie-run with a model that needs no file: prompts, output, limits, errors. In this process, stdin replaced."""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from ie.cli import run
from ie.cli.dump import AtomicFile
from ie.cli.summary import ENOUGH_STEPS, Timing, summary
from ie.errors import ResourceError
from tests.cli.fake import END, FakeEngine, FakeLoader, FakeTokenizer, logits_after


class Stdin:
    """sys.stdin as a pipe with some bytes, or as a terminal."""

    def __init__(self, data: bytes = b"", terminal: bool = False) -> None:
        self.buffer, self._terminal = io.BytesIO(data), terminal

    def isatty(self) -> bool:
        return self._terminal


class Outcome:
    def __init__(self, status: int, out: bytes, err: str, loader: FakeLoader) -> None:
        self.status, self.out, self.err, self.loader = status, out, err, loader


@pytest.fixture
def ie_run(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]):  # type: ignore[no-untyped-def]
    def call(*argv: str, stdin: Stdin | None = None, loader: FakeLoader | None = None) -> Outcome:
        monkeypatch.setattr(sys, "stdin", stdin or Stdin(terminal=True))
        loader = loader or FakeLoader()
        status = run.main(list(argv), loader)
        sys.stderr.flush()
        out, err = capfdbinary.readouterr()
        return Outcome(status, out, err.decode(), loader)

    return call


def failed(outcome: Outcome) -> str:
    """The one line that a failure says."""
    assert outcome.status == 1
    assert outcome.out == b""
    lines = outcome.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("ie-run: "), outcome.err
    return lines[0].removeprefix("ie-run: ")


# -- prompts -----------------------------------------------------------------------------------------------------------


def test_prompt_and_continuation(ie_run) -> None:
    got = ie_run("fake.gguf", "-p", "w")
    assert (got.status, got.out) == (0, b"wxyz")
    assert got.loader.engine.closed


def test_prompt_is_not_shown_when_not_wanted(ie_run) -> None:
    assert ie_run("fake.gguf", "-p", "w", "--no-display-prompt").out == b"xyz"


def test_model_by_flag(ie_run) -> None:
    assert ie_run("-m", "fake.gguf", "-p", "y").out == b"yz"


@pytest.mark.parametrize(("data", "shown"), [(b"w\n", b"w"), (b"w\n\n", b"w\n"), (b"w", b"w"), (b"\n", b"")])
def test_one_newline_at_the_end_of_a_file_is_dropped(ie_run, tmp_path: Path, data: bytes, shown: bytes) -> None:
    (tmp_path / "p").write_bytes(data)
    bos = FakeLoader(tokenizer=FakeTokenizer(add_bos=True))
    assert ie_run("fake.gguf", "-f", str(tmp_path / "p"), "-n", "1", loader=bos).out[: len(shown)] == shown
    assert bos.engine.fed[0] == [256, *shown]


def test_piped_stdin_is_the_prompt(ie_run) -> None:
    assert ie_run("fake.gguf", stdin=Stdin(b"x\n")).out == b"xyz"
    assert ie_run("fake.gguf", "-f", "-", stdin=Stdin(b"x\n")).out == b"xyz"


def test_stdin_is_left_alone_when_there_is_a_prompt(ie_run) -> None:
    stdin = Stdin(b"unread")
    assert ie_run("fake.gguf", "-p", "y", stdin=stdin).out == b"yz"
    assert stdin.buffer.read() == b"unread"


def test_prompt_bytes_that_are_not_utf8_are_kept(ie_run, tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"\xff\xfew")
    got = ie_run("fake.gguf", "-f", str(tmp_path / "p"))
    assert got.out == b"\xff\xfewxyz"
    assert got.loader.engine.fed[0] == [0xFF, 0xFE, ord("w")]


def test_token_ids(ie_run, tmp_path: Path) -> None:
    assert ie_run("fake.gguf", "--tokens", "119, 120,121").out == b"wxyz"
    (tmp_path / "ids").write_text("119\n120\n")
    assert ie_run("fake.gguf", "--tokens-file", str(tmp_path / "ids")).out == b"wxyz"


def test_bos_alone_makes_a_prompt(ie_run) -> None:
    got = ie_run("fake.gguf", "-p", "", "-n", "2", loader=FakeLoader(tokenizer=FakeTokenizer(add_bos=True)))
    assert (got.status, got.out) == (0, b"ab")


# -- ends --------------------------------------------------------------------------------------------------------------


def test_n_limits(ie_run) -> None:
    assert ie_run("fake.gguf", "-p", "a", "-n", "3").out == b"abcd"


def test_n_zero_prints_nothing(ie_run) -> None:
    got = ie_run("fake.gguf", "-p", "a", "-n", "0")
    assert (got.status, got.out, got.err, got.loader.engine.fed) == (0, b"", "", [])


def test_stop_text_is_not_shown(ie_run) -> None:
    assert ie_run("fake.gguf", "-p", "a", "--stop", "ef", "--stop", "zz").out == b"abcd"
    assert ie_run("fake.gguf", "-p", "w", "--stop", "z!").out == b"wxyz"


def test_ignore_eos_never_draws_an_end_token(ie_run) -> None:
    assert ie_run("fake.gguf", "-p", "y", "-n", "4", "--ignore-eos").out == b"yzabc"


def test_suppressed_tokens_are_never_drawn(ie_run) -> None:
    tokenizer = FakeTokenizer()
    tokenizer.suppress_ids = (ord("x"),)
    assert ie_run("fake.gguf", "-p", "w", "-n", "2", loader=FakeLoader(tokenizer=tokenizer)).out == b"wab"


def test_full_context_ends_and_is_said(ie_run) -> None:
    got = ie_run("fake.gguf", "-p", "a", "--ignore-eos", loader=FakeLoader(FakeEngine(n_ctx=5)))
    assert (got.status, got.out) == (0, b"abcdef")
    assert "ended: the context is full (-c)" in got.err
    assert "ended" not in ie_run("fake.gguf", "-p", "w").err


def test_a_character_of_two_tokens_comes_whole(ie_run) -> None:
    assert ie_run("fake.gguf", "-p", "Z", "-n", "4").out == "Z[é!".encode()
    assert ie_run("fake.gguf", "-p", "Z", "-n", "2").out == "Z[\ufffd".encode()


# -- output ------------------------------------------------------------------------------------------------------------


def test_ids_instead_of_text(ie_run) -> None:
    assert ie_run("fake.gguf", "-p", "y", "--print-ids").out == b"121\n122\n257\n"
    assert ie_run("fake.gguf", "-p", "y", "--print-ids", "--no-display-prompt").out == b"122\n257\n"


def test_summary(ie_run) -> None:
    err = ie_run("fake.gguf", "-p", "w").err
    assert err.startswith("load 0.31 s · prompt 1 tok, ")
    assert "· 4 tok generated, " in err and err.endswith(" GB/s of weights\n")
    err = ie_run("fake.gguf", "-p", "a", "--ignore-eos", "-n", str(ENOUGH_STEPS + 1)).err
    assert " GB/s of weights = " in err and err.endswith("% of this machine's 33.1 GB/s\n")


def test_a_share_of_the_bandwidth_needs_evidence_and_is_no_more_than_all_of_it() -> None:
    def line(steps: int, bandwidth: float) -> str:
        return summary(1.0, Timing(1, 1.0, steps + 1, steps, steps / 10, steps), 1 << 30, bandwidth)

    read = 10 * (1 << 30)
    assert line(ENOUGH_STEPS, 2.0 * read).endswith(" · 10.7 GB/s of weights = 50 % of this machine's 21.5 GB/s")
    assert line(ENOUGH_STEPS, read).endswith(" = 100 % of this machine's 10.7 GB/s")
    assert line(ENOUGH_STEPS - 1, 2.0 * read).endswith(" · 10.7 GB/s of weights")
    assert line(1000, 0.99 * read).endswith(" · 10.7 GB/s of weights")
    assert line(1000, 0.0).endswith(" · 10.7 GB/s of weights")


def test_summary_of_one_token_has_no_rate(ie_run) -> None:
    assert ie_run("fake.gguf", "-p", "w", "-n", "1").err.endswith("· 1 tok generated\n")


def test_summary_of_an_interrupted_prompt_counts_what_was_computed(ie_run) -> None:
    class Interrupted(FakeEngine):
        def forward(self, seq, tokens, want):  # type: ignore[no-untyped-def]
            super().forward(seq, tokens[:3], want)
            raise KeyboardInterrupt

    got = ie_run("fake.gguf", "-p", "abcdefgh", loader=FakeLoader(Interrupted()))
    assert (got.status, got.out) == (130, b"abcdefgh")
    assert "· prompt 3 tok, " in got.err and got.err.endswith("· 0 tok generated · interrupted\n")


def test_verbose_says_what_was_chosen(ie_run) -> None:
    got = ie_run("fake.gguf", "-p", "y", "-v")
    assert got.err.startswith(f"threads 2\nseed {got.loader.seeds[0]} (random)\n")
    assert "seed 7\n" in ie_run("fake.gguf", "-p", "y", "-v", "-s", "7").err
    assert "seed" not in ie_run("fake.gguf", "-p", "y", "-s", "7").err


def test_seeds_differ_unless_given(ie_run) -> None:
    seeds = {ie_run("fake.gguf", "-p", "y").loader.seeds[0] for _ in range(4)}
    assert len(seeds) == 4
    assert ie_run("fake.gguf", "-p", "y", "-s", "5").loader.seeds == [5]


def test_log_file(ie_run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IE_LOG", str(tmp_path / "log"))
    ie_run("fake.gguf", "-p", "y", "-s", "7")
    ie_run("other.gguf", "-p", "y")
    text = (tmp_path / "log").read_text()
    assert "seed 7" in text and "other.gguf: not the fake model" in text


def test_a_log_that_cannot_be_written_is_said_once(ie_run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IE_LOG", str(tmp_path / "no" / "log"))
    done = ie_run("fake.gguf", "-p", "y", "-s", "7")
    assert done.status == 0 and done.err.count("nothing is logged") == 1


def test_npy_dump(ie_run, tmp_path: Path) -> None:
    path = tmp_path / "l.npy"
    assert ie_run("fake.gguf", "-p", "vw", "--dump-logits", str(path)).out == b"vwxyz"
    expected = np.array([logits_after(ord(c)) for c in "vwxyz"])
    dumped = np.load(path)
    assert dumped.dtype == np.float32 and np.array_equal(dumped, expected)
    assert [p.name for p in tmp_path.iterdir()] == ["l.npy"]


def test_npy_dump_of_the_prompt_alone(ie_run, tmp_path: Path) -> None:
    path = tmp_path / "l.npy"
    assert ie_run("fake.gguf", "-p", "vw", "-n", "0", "--dump-logits", str(path)).out == b""
    assert np.array_equal(np.load(path), [logits_after(ord("v")), logits_after(ord("w"))])


def test_dump_of_a_long_prompt_is_computed_in_pieces(ie_run, tmp_path: Path) -> None:
    prompt = bytes(97 + i % 20 for i in range(600))
    for n in ("0", "1"):
        loader = FakeLoader(FakeEngine(n_ctx=1000))
        dump = ["--dump-logits", str(tmp_path / "l.npy")]
        assert ie_run("fake.gguf", "-p", prompt.decode(), "-n", n, *dump, loader=loader).status == 0
        assert [len(piece) for piece in loader.engine.fed] == [256, 256, 88]
        assert np.array_equal(np.load(tmp_path / "l.npy"), [logits_after(c) for c in prompt])


def test_text_dump(ie_run, tmp_path: Path) -> None:
    path = tmp_path / "l.txt"
    ie_run("fake.gguf", "-p", "xy", "-n", "1", "--dump-logits", str(path))
    rows = [line.split(" ") for line in path.read_text().splitlines()]
    assert [row[:2] for row in rows] == [["0", "120"], ["1", "121"]]
    assert np.array_equal(np.array([row[2:] for row in rows], np.float32), [logits_after(120), logits_after(121)])


def test_dump_after_a_failure_leaves_nothing(ie_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(FakeEngine):
        def forward(self, seq, tokens, want):  # type: ignore[no-untyped-def]
            if len(seq) > 2:
                raise OSError(28, "No space left on device")
            return super().forward(seq, tokens, want)

    (tmp_path / "l.npy").write_bytes(b"before")
    got = ie_run("fake.gguf", "-p", "a", "--dump-logits", str(tmp_path / "l.npy"), loader=FakeLoader(Failing()))
    assert got.status == 1 and got.err.endswith(f"ie-run: {tmp_path / 'l.npy'}: No space left on device\n")
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"before"]


def test_dump_does_not_replace_a_device(ie_run) -> None:
    got = ie_run("fake.gguf", "-p", "a", "--dump-logits", "/dev/null")
    assert failed(got) == "--dump-logits /dev/null: this is a pipe, socket or device: name a file that may be replaced"
    assert Path("/dev/null").is_char_device()


def test_chat_template_is_used(ie_run) -> None:
    got = ie_run("fake.gguf", "-cnv", "-st", "-p", "hi", "-sys", "be", "-n", "2")
    assert (got.status, got.out) == (0, b"ab")
    assert bytes(got.loader.engine.fed[0]) == b"<system>be\n<user>hi\n<assistant>"


def test_chat_from_a_pipe(ie_run) -> None:
    got = ie_run("fake.gguf", "-cnv", "-n", "2", stdin=Stdin(b"hi\n"))
    assert got.out == b"ab" and bytes(got.loader.engine.fed[0]) == b"<user>hi\n<assistant>"


def test_help_and_version(ie_run) -> None:
    assert ie_run("--help").out.startswith(b"usage: ie-run [MODEL] [options]")
    assert ie_run("--version").out.startswith(b"ie-run 0.")


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "no model given. Name a GGUF file: ie-run model.gguf -p \"Water boils at\""),
        (["fake.gguf", "--tempo", "1"], "unknown option --tempo. Did you mean --temp?"),
        (["fake.gguf", "-p", "a", "-f", "b"], "-p and -f both give a prompt: leave out one of them"),
        (["fake.gguf", "--tokens", "1", "-p", ""], "-p and --tokens both give a prompt: leave out one of them"),
        (["fake.gguf", "-no-cnv"], "no prompt: give one with -p or -f, or pipe it in"),
        (["fake.gguf", "-p", "a", "-sys", "b"], "-sys is for conversations: add -cnv"),
        (["fake.gguf", "-p", "a", "-st"], "-st is for conversations: add -cnv"),
        (["fake.gguf", "-cnv", "--tokens", "1"],
         "--tokens gives token ids, but a conversation (-cnv) needs text: leave out one"),
        (["fake.gguf", "--info", "-n", "3"], "--info only looks at the file: leave out --n-predict"),
        (
            ["fake.gguf", "-p", "a", "--executor", "reference", "--cpu-isa", "avx2"],
            "--cpu-isa is for --executor cpu, not for reference: leave out one of them",
        ),
        (
            ["fake.gguf", "--dump-logits", "x.npy"],
            "--dump-logits is for a single answer, not for a conversation: add -st, or give a prompt with -p",
        ),
        (["fake.gguf", "--print-ids", "-cnv"],
         "--print-ids is for a single answer, not for a conversation: add -st, or give a prompt with -p"),
        (["fake.gguf", "-n", "0"], "-n 0 leaves nothing to say in a conversation"),
        (["fake.gguf", "-p", ""],
         "the prompt is empty, and this model begins no text by itself: give it a text with -p"),
        (["fake.gguf", "-p", "", "-cnv"], "-p: the prompt is empty"),
        (["fake.gguf", "--tokens", ""], "--tokens: no token ids in it"),
        (["fake.gguf", "--tokens", "1,258"], "--tokens: item 2: expected a token id from 0 to 257, got '258'"),
        (["fake.gguf", "--tokens", "1,,2"], "--tokens: item 2: expected a token id from 0 to 257, got nothing"),
        (["fake.gguf", "--tokens", "-1"], "--tokens: item 1: expected a token id from 0 to 257, got '-1'"),
        (["fake.gguf", "--tokens", "1;2"], "--tokens: item 1: expected a token id from 0 to 257, got '1;2'"),
        (["fake.gguf", "-f", "/nonexistent/p"], "/nonexistent/p: No such file or directory"),
        (["fake.gguf", "-f", "/"], "/: Is a directory"),
        (["fake.gguf", "-p", "a", "--dump-logits", "/nonexistent/l.npy"], None),
        (["no.gguf", "-p", "a"], "no.gguf: not the fake model"),
        (["a\nb\x1b[31m.gguf", "-p", "a"], r"a\nb\x1b[31m.gguf: not the fake model"),
    ],
)  # fmt: skip
def test_refused(ie_run, argv: list[str], message: str | None) -> None:
    said = failed(ie_run(*argv))
    if message is not None:
        assert said == message


def test_empty_pipe_is_an_empty_prompt(ie_run) -> None:
    assert failed(ie_run("fake.gguf", stdin=Stdin(b""))).startswith("the prompt is empty")
    assert failed(ie_run("fake.gguf", "-cnv", stdin=Stdin(b"\n"))) == "the standard input: the prompt is empty"


def test_endless_prompt_file(ie_run) -> None:
    said = failed(ie_run("fake.gguf", "-f", "/dev/zero"))
    assert said == "/dev/zero: longer than 64 MiB, which no context holds"


def test_conversation_needs_text(ie_run, tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"ab\xff")
    said = failed(ie_run("fake.gguf", "-cnv", "-st", "-f", str(tmp_path / "p")))
    assert said == "-f: not UTF-8 text: byte 0xff at offset 2. A conversation needs text"


@pytest.mark.parametrize(
    ("length", "hint"),
    [
        (65, "the context holds 64. Give it -c 128, or shorten it"),
        (128, "the context holds 64. Give it -c 128, or shorten it"),
        (129, "the context holds 64. This model was made for 128: shorten the prompt"),
    ],
)
def test_prompt_longer_than_the_context(ie_run, length: int, hint: str) -> None:
    assert failed(ie_run("fake.gguf", "-p", "a" * length)) == f"the prompt has {length} tokens and {hint}"


def test_prompt_that_fills_the_context(ie_run) -> None:
    assert ie_run("fake.gguf", "-p", "y" * 64).out == b"y" * 64 + b"z"


def test_no_chat_template(ie_run) -> None:
    loader = FakeLoader(tokenizer=FakeTokenizer(chat_template=None))
    said = failed(ie_run("fake.gguf", "-cnv", "-st", "-p", "a", loader=loader))
    assert said == "the model has no chat template: give a text to continue with -p, without -cnv"


def test_chat_template_without_a_result(ie_run) -> None:
    loader = FakeLoader(tokenizer=FakeTokenizer(chat_template="{# nothing #}"))
    said = failed(ie_run("fake.gguf", "-cnv", "-st", "-p", "a", loader=loader))
    assert said == "chat template: it makes no text of the conversation"


def test_a_bug_is_one_line_and_a_traceback_only_with_v(ie_run) -> None:
    class Broken(FakeEngine):
        def forward(self, seq, tokens, want):  # type: ignore[no-untyped-def]
            raise ZeroDivisionError("oops")

    got = ie_run("fake.gguf", "-p", "a", "--no-display-prompt", loader=FakeLoader(Broken()))
    assert failed(got) == "this is a bug: ZeroDivisionError: oops. -v shows where"
    got = ie_run("fake.gguf", "-p", "a", "-v", loader=FakeLoader(Broken()))
    assert got.status == 1 and "Traceback" in got.err and got.loader.engine.closed


def test_out_of_memory(ie_run) -> None:
    class Big(FakeEngine):
        def new_sequence(self):  # type: ignore[no-untyped-def]
            raise MemoryError

    assert failed(ie_run("fake.gguf", "-p", "a", loader=FakeLoader(Big()))).startswith("out of memory.")


def test_end_token_is_not_shown_as_text(ie_run) -> None:
    assert ie_run("fake.gguf", "--tokens", f"{ord('z')}, {END}", "-n", "1").out == b"za"


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with pytest.raises(ResourceError, match=re.escape(f"{path}: No space left on device")), AtomicFile(path) as target:
        target.file.write(b"a")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_errors_of_an_unfinished_file_name_the_one_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as missing:
        AtomicFile("none/x.npy")
    with pytest.raises(IsADirectoryError) as taken, AtomicFile("x") as target:
        Path("x").mkdir()
        target.commit()
    assert (missing.value.filename, taken.value.filename) == ("none/x.npy", "x")
    Path("link").symlink_to(tmp_path / "y")
    with pytest.raises(ResourceError, match="^link: No space left on device$"), AtomicFile("link"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert sorted(os.listdir()) == ["link", "x"]


def test_a_file_that_is_read_is_not_written_over(ie_run, tmp_path: Path) -> None:
    model, text, link = tmp_path / "m.gguf", tmp_path / "t.txt", tmp_path / "link"
    model.write_bytes(b"model")
    text.write_bytes(b"text")
    link.symlink_to(model)
    for words in (["--dump-logits", model], ["--trace", link], ["-f", text, "--dump-logits", text]):
        more = [] if "-f" in words else ["-p", "a"]
        assert "which is read: name another file" in failed(ie_run(*map(str, [model, *more, *words])))
    same = failed(ie_run(str(model), "-p", "a", "--trace", "x", "--dump-logits", "./x"))
    assert "the same file as --dump-logits" in same
    assert (model.read_bytes(), text.read_bytes()) == (b"model", b"text")


def test_signals_are_as_before_when_no_file_is_unfinished(tmp_path: Path) -> None:
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(n) for n in numbers]
    with AtomicFile(tmp_path / "a"):
        with AtomicFile(tmp_path / "b"):
            held = [signal.getsignal(n) for n in numbers]
        assert [signal.getsignal(n) for n in numbers] == held != before
    assert [signal.getsignal(n) for n in numbers] == before
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with AtomicFile(tmp_path / "a"):
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.signal(signal.SIGHUP, old) is signal.SIG_IGN


def test_rows_of_the_embedding_that_no_token_has_are_never_drawn(ie_run) -> None:
    class Short(FakeTokenizer):
        n_vocab = ord("y")

    got = ie_run("fake.gguf", "-p", "x", "-n", "1", "--temp", "0", loader=FakeLoader(tokenizer=Short()))
    assert got.status == 0 and ie_run("fake.gguf", "-p", "x", "-n", "1", "--temp", "0").out == b"xy" != got.out
