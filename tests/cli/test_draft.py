"""ie-run --draft: the text, the summary, the trace and the refusals; conversations with drafts."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ie.cli import bench, run
from ie.cli.answer import answer
from ie.cli.chat import Conversation
from ie.cli.console import Console
from ie.cli.drafting import Drafting
from ie.cli.load import load
from ie.cli.options import parse
from ie.cli.summary import Timing, summary
from ie.engine import opening
from ie.engine.drafter import DraftStats
from ie.errors import OptionError
from ie.measure.bench import Case, measure_drafted, weight_rate
from ie.settings import DraftOptions
from tests.cli.fake import FakeEngine, FakeLoader
from tests.drafters import Scripted
from tiny_models import make_tiny

IeRun = Callable[..., tuple[int, bytes, str]]
PROMPT = "the quick brown fox, the quick brown fox, the quick brown"
ALWAYS = ("--draft-pmin", "0", "--draft", "7")
ONLY_MTP = (*ALWAYS, "--drafter", "mtp")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("draft")
    shape = {"arch": "qwen35", "n_layer": 2, "n_mtp": 1, "agreement": 10.0, "n_ctx": 400}
    out = {part: str(make_tiny(folder / f"{part}.gguf", part=part, **shape)) for part in ("all", "trunk", "mtp")}
    out["llama"] = str(make_tiny(folder / "llama.gguf", n_ctx=400))
    return out


@pytest.fixture
def ie_run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> IeRun:
    monkeypatch.setattr(sys, "stdin", None)

    def call(*argv: str) -> tuple[int, bytes, str]:
        status = run.main(list(argv))
        out, err = capfdbinary.readouterr()
        return status, out, err.decode()

    return call


# ---- text and summary ----


@pytest.mark.parametrize(
    "sampling", [("--temp", "0"), ("-s", "5", "--temp", "0.7"), ("-s", "5", "--repeat-penalty", "1.3")]
)
def test_the_text_is_the_same(ie_run: IeRun, files: dict[str, str], sampling: tuple[str, ...]) -> None:
    base = ["-p", PROMPT, "-n", "60", *sampling]
    want = ie_run(files["all"], *base)[1]
    assert len(want) > len(PROMPT) + 20
    for more in (ALWAYS, ONLY_MTP, ("--draft", "auto"), ("--draft", "15", "--drafter", "lookup"), ("--draft", "2")):
        status, out, err = ie_run(files["all"], *base, *more)
        assert (status, out) == (0, want), more
    status, out, err = ie_run(files["trunk"], *base, *ONLY_MTP, "--mtp", files["mtp"], "--draft-vocab", "0")
    assert (status, out) == (0, want) and "drafts: mtp" in err


def test_the_summary_says_what_became_of_drafts(ie_run: IeRun, files: dict[str, str]) -> None:
    _, _, err = ie_run(files["all"], "-p", PROMPT, "-n", "60", "--temp", "0", "--ignore-eos", *ONLY_MTP)
    found = re.search(
        r"60 tok generated, .*drafts: mtp (\d+) proposed, (\d+) accepted \((\d+) %\), (\d\.\d) tok/step", err
    )
    assert found, err
    proposed, accepted, percent = (int(found[i]) for i in (1, 2, 3))
    assert 0 < accepted < proposed and percent == round(100 * accepted / proposed)
    assert float(found[4]) == pytest.approx(59 / (59 - accepted), abs=0.051)


def test_why_nothing_was_drafted(ie_run: IeRun, files: dict[str, str]) -> None:
    base = ["-p", "ab", "-n", "3", "--temp", "0", "--ignore-eos"]
    assert "drafts: none (the text does not repeat itself)" in ie_run(files["llama"], *base, "--draft", "7")[2]
    unlikely = ("--draft", "7", "--draft-pmin", "1")
    assert "drafts: none (no guess reached --draft-pmin)" in ie_run(files["all"], *base, *unlikely)[2]
    assert "drafts" not in ie_run(files["all"], *base)[2]


def test_tokens_and_steps_are_told_apart() -> None:
    """The rate counts tokens; bytes of weights count steps."""
    line = summary(0.1, Timing(5, 1.0, 101, 25, 2.0, 100), 10**9, 0.0, "drafts: x")
    assert "101 tok generated, 50.0 tok/s · 12.5 GB/s of weights · drafts: x" in line
    both = Timing(5, 1.0, 101, 25, 2.0, 100) + Timing(5, 1.0, 11, 10, 2.0, 10)
    assert (both.decode_steps, both.decode_tokens) == (35, 110)


def test_trace_of_steps(ie_run: IeRun, files: dict[str, str]) -> None:
    base = [files["all"], "-p", PROMPT, "-n", "40", "--temp", "0", "--print-ids", "--ignore-eos"]
    _, out, err = ie_run(*base, *ONLY_MTP, "--spec-trace")
    printed = [int(word) for word in out.split()]
    text, at, accepted = printed[-40:], len(printed) - 40, 0
    lines = [line for line in err.splitlines() if line.startswith("position")]
    emitted = text[:1]
    for line in lines:
        found = re.fullmatch(r"position (\d+): (mtp \[(.*)\]|no drafts), model \[(.*)\], (\d+) accepted", line)
        assert found and int(found[1]) == at + len(emitted) - 1, line
        drafts = [int(word) for word in (found[3] or "").split(",") if word]
        model = [int(word) for word in found[4].split(",")]
        held = int(found[5])
        assert len(model) == held + 1 and drafts[:held] == model[:held] and drafts[held : held + 1] != model[held:]
        emitted += model
        accepted += held
    assert emitted == text and 0 < accepted and len(lines) < 39
    assert not any("position" in line for line in ie_run(*base, *ONLY_MTP)[2].splitlines())


# ---- what does not go together ----


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--mtp", "x.gguf"], "--mtp is for drafting: add --draft 7, or --draft auto"),
        (["--drafter", "mtp"], "--drafter is for drafting"),
        (["--draft-pmin", "0.5", "--draft", "0"], "--draft-pmin is for drafting"),
        (["--draft-head", "full"], "--draft-head is for drafting"),
        (["--draft-vocab", "5"], "--draft-vocab is for drafting"),
        (["--spec-trace"], "--spec-trace is for drafting"),
        (["--draft", "3", "--dump-logits", "x.npy"], "--dump-logits .*: leave out --draft"),
        (["--draft", "3", "--diff", "cpu,reference"], "--diff .*: leave out --draft"),
        (["--draft", "3", "--stop-after", "1"], "--stop-after .*: leave out --draft"),
        (["--draft", "3", "--layers", "1"], "--layers .*: leave out --draft"),
        (
            ["--draft", "3", "--drafter", "lookup", "--mtp", "x"],
            "--mtp is about the MTP block: leave it out, or --drafter",
        ),
        (["--draft", "3", "--drafter", "lookup", "--draft-pmin", "0"], "--draft-pmin is about the MTP block"),
        (["--draft", "16"], "--draft: expected an integer from 0 to 15, or auto, got '16'"),
        (["--draft", "-1"], "--draft: expected an integer from 0 to 15, or auto, got '-1'"),
        (["--draft", "some"], "got 'some'"),
        (["--draft", "3", "--draft-pmin", "1.5"], "--draft-pmin: expected a number from 0 to 1"),
        (["--draft", "3", "--drafter", "dflash"], "--drafter: expected auto, mtp, mtp.lookup or lookup"),
    ],
)
def test_refused(ie_run: IeRun, files: dict[str, str], argv: list[str], message: str) -> None:
    status, out, err = ie_run(files["all"], "-p", "a", *argv)
    assert status == 1 and out == b"" and re.search(message, err) and err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "argv", "message"),
    [
        (
            "trunk",
            ["--draft", "3", "--drafter", "mtp"],
            "trunk.gguf holds no MTP block: draft with --drafter lookup, or",
        ),
        ("trunk", ["--draft", "3", "--mtp", "{trunk}"], "trunk.gguf: the file holds no MTP block"),
        ("trunk", ["--draft", "3", "--mtp", "nowhere.gguf"], "nowhere.gguf: no such file"),
        ("llama", ["--draft", "3", "--mtp", "{mtp}"], "mtp.gguf: made for another model: architecture qwen35"),
        ("mtp", ["--draft", "3"], "mtp.gguf: the file holds only an MTP block.*with --mtp"),
        ("mtp", [], "mtp.gguf: the file holds only an MTP block.*with --mtp"),
    ],
)
def test_files_that_do_not_fit(ie_run: IeRun, files: dict[str, str], name: str, argv: list[str], message: str) -> None:
    status, out, err = ie_run(files[name], "-p", "a", *(word.format(**files) for word in argv))
    assert status == 1 and out == b"" and re.search(message, err) and err.count("\n") == 1, err


def test_options_become_the_engines() -> None:
    def drafting(*argv: str) -> DraftOptions | None:
        return parse("ie-run", argv).drafting()

    assert drafting() is None and drafting("--draft", "0") is None
    assert drafting("--draft", "3") == DraftOptions(3, 0.6, 131072, True, None)
    assert drafting("--draft", "auto") == DraftOptions(depth=7)
    assert drafting("--draft", "9", "--drafter", "lookup") is None, "no block is prepared for nobody"
    given = ["--draft", "15", "--draft-pmin", ".25", "--draft-vocab", "0", "--draft-head", "full", "--mtp", "m"]
    assert drafting(*given) == DraftOptions(15, 0.25, 0, False, "m")


def test_short_memory_is_said_once(ie_run: IeRun, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    base = [files["all"], "-p", PROMPT, "-n", "30", "--temp", "0"]
    want = ie_run(*base)[1]
    monkeypatch.setattr(opening, "choose_slots", lambda *args: 8)
    _, out, err = ie_run(*base, "--draft", "15", "--draft-pmin", "0", "--drafter", "mtp", "--spec-trace")
    assert out == want
    said = "note: memory is short: 8 copies of the recurrent state instead of 16, so a step checks at most 7 drafts"
    assert err.count(said) == 1
    drafts = [line.partition("[")[2].partition("]")[0] for line in err.splitlines() if ": mtp [" in line]
    assert max(d.count(",") + 1 for d in drafts) == 7
    assert "memory is short" not in ie_run(*base)[2]


# ---- where an answer ends ----


def test_stop_texts_inside_a_draft(ie_run: IeRun, files: dict[str, str]) -> None:
    base = [files["all"], "-p", PROMPT, "-n", "50", "-s", "4", "--no-display-prompt", "--ignore-eos"]
    whole = ie_run(*base)[1].decode()
    tried = 0
    for at in range(2, len(whole) - 2):
        stop = whole[at : at + 2]
        if not re.fullmatch(r"[\x20-\x7e]{2}", stop) or stop.startswith("-"):
            continue
        plain = ie_run(*base, "--stop", stop)
        drafted = ie_run(*base, "--stop", stop, *ONLY_MTP)
        assert plain[:2] == drafted[:2] and drafted[1].decode() == whole[: whole.index(stop)]
        tried += 1
    assert tried > 5, repr(whole)
    assert "ended: the context is full (-c)" in ie_run(*base[:4], "9999", *base[5:], "-c", "64", *ONLY_MTP)[2]


# ---- conversations ----


def talk(path: str, *argv: str) -> tuple[list[str], list[list[int]], Conversation]:
    """Answers and held tokens of a conversation with a second answer and a cut."""
    chosen = parse("ie-run", [path, "-s", "3", "-n", "25", "--temp", "0.6", "-c", "400", "--ignore-eos", *argv])
    session = load(chosen)
    try:
        conversation = Conversation(session, chosen, 3, Console("ie-run"))
        answers, held = [], []
        for act in ("hello", "again, hello", None, "hello hello", None, None, "/reset", "hello"):
            if act == "/reset":
                conversation.reset()
                continue
            result = conversation.say(act) if act is not None else conversation.regenerate()
            answers.append(result.text)
            held.append(list(conversation._seq.tokens))
        return answers, held, conversation
    finally:
        session.engine.close()


@pytest.mark.parametrize("name", ["all", "llama"])
def test_conversations_are_the_same(
    name: str, files: dict[str, str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    plain, held, _ = talk(files[name])
    assert len(set(plain)) > 4, "answers given again differ"
    for argv in (("--draft", "7", "--draft-pmin", "0"), ("--draft", "auto")) if name == "all" else (("--draft", "15"),):
        answers, held_too, conversation = talk(files[name], *argv)
        assert answers == plain and held_too == held, argv
        drafting = conversation._session.drafting
        assert drafting is not None and drafting.total.emitted >= 7 * 24
        assert conversation.total.decode_tokens == 7 * 24
        assert conversation.total.decode_steps == drafting.total.steps <= 7 * 24
    capfdbinary.readouterr()


def test_an_answer_that_stops_holds_no_drafts(files: dict[str, str]) -> None:
    """The sequence after a stop inside an accepted run is that of what was seen, at once."""
    chosen = parse("ie-run", [files["all"], "--temp", "0", "-n", "30", "--ignore-eos", "--draft", "15"])
    session = load(chosen)
    try:
        ids = session.tokenizer.encode(PROMPT)
        seq = session.engine.new_sequence()
        plain = answer(session, seq, ids, chosen, 1, lambda text: None)
        seq.close()
        session.drafting = Drafting(Scripted(ids, plain.ids, 15, 15))
        for n in range(4, 20):
            shown = session.tokenizer.decode(plain.ids[:n])
            if "\ufffd" in shown[-4:]:  # half a character: no text to stop at
                continue
            seq = session.engine.new_sequence()
            result = answer(session, seq, ids, replace(chosen, stop=(shown[-4:],)), 1, lambda text: None)
            assert result.reason == "stop" and result.ids == plain.ids[: len(result.ids)]
            assert seq.tokens == ids + result.ids[:-1]
            seq.close()
    finally:
        session.engine.close()


def test_an_interrupted_answer_counts_what_was_done() -> None:
    class Interrupted:
        off, source, limit = "", "mtp", 7

    loader = FakeLoader(FakeEngine())
    chosen = parse("ie-run", ["fake.gguf", "-n", "9"])
    session = loader(chosen)
    session.drafting = Drafting(Interrupted())  # type: ignore[arg-type]

    def generate(*args: object, stats: DraftStats, **more: object):  # type: ignore[no-untyped-def]
        yield 97
        stats.add("mtp", 7, 2, 1.0)
        yield 98
        raise KeyboardInterrupt

    session.generate = generate
    result = answer(session, session.engine.new_sequence(), [97], chosen, 1, lambda text: None)
    assert result.reason == "interrupt" and result.note.startswith("drafts: mtp 7 proposed, 2 accepted")
    assert result.note.endswith(" · interrupted") and session.drafting.total.steps == 1


def test_make_refuses_what_the_model_cannot(files: dict[str, str]) -> None:
    """And leaves no engine open: the next one loads."""
    with pytest.raises(OptionError, match="holds no MTP block"):
        load(parse("ie-run", [files["trunk"], "--draft", "3", "--drafter", "mtp"]))
    load(parse("ie-run", [files["trunk"], "--draft", "3"])).engine.close()


# ---- ie-bench ----


def test_bench_with_drafts(files: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    base = [files["all"], "-p", "8", "-n", "24", "-r", "2", "--no-warmup", *ONLY_MTP]
    assert bench.main([*base, "-o", "json"]) == 0
    prompt, generated = json.loads(capfd.readouterr().out)
    assert (prompt["test"], prompt["draft_proposed"], prompt["tokens_per_step"]) == ("pp8", None, None)
    assert generated["draft"] == "7" and len(generated["samples_ns"]) == 2
    assert 0 < generated["draft_accepted"] < generated["draft_proposed"]
    steps = 48 / generated["tokens_per_step"]
    assert steps == pytest.approx(48 - generated["draft_accepted"], abs=0.01)
    assert generated["weight_gbs"] is None
    assert bench.main(base) == 0
    header, _, first, second = capfd.readouterr().out.splitlines()
    names = [word.strip() for word in header.split("|")]
    assert names[-4:-1] == ["draft", "accepted", "tok/step"]
    assert [word.strip() for word in first.split("|")][-4:-1] == ["7", "–", "–"]
    percent = 100 * generated["draft_accepted"] / generated["draft_proposed"]
    assert f"{percent:.0f} %" in second, "the text is always the same"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--draft", "7", "-pg", "8,8"], "--draft is for tests that only generate"),
        (["--mtp", "x"], "--mtp is for drafting"),
        (["--draft", "3", "--drafter", "mtp"], "holds no MTP block"),
    ],
)
def test_bench_refuses(files: dict[str, str], argv: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert bench.main([files["llama"], "-n", "4", "-p", "0", *argv]) == 1
    assert message in capfd.readouterr().err


def test_bench_counts_only_what_is_timed() -> None:
    """Depth repeats the text; the first token and a run that warms up are not counted."""

    class Clock:
        now = 0

        def __call__(self) -> int:
            self.now += 1000
            return self.now

    class Engine(FakeEngine):
        opened = SimpleNamespace(n_ctx=99, state_slots=0, most_rows=lambda phase, every_logit=False: 512)

        def step(self, parts: Any, phase: Any) -> list[Any]:
            ((seq, tokens, outs),) = parts
            return [self.forward(seq, tokens, "all")[list(outs)]]

    class Alphabet:
        """Knows it up to m."""

        off, source, limit = "", "mtp", 7
        seen = 0

        def begin(self) -> None:
            self.seen += 1

        def propose(self, seq: Any, token: int, budget: int) -> list[int]:
            return [token + 1 + i for i in range(budget) if token + 1 + i <= ord("m")]

        def observe(self, drafts: Sequence[int], accepted: int, seconds: float) -> None:
            assert accepted == len(drafts)

    engine, drafter = Engine(n_ctx=99), Alphabet()
    found = measure_drafted(
        engine,
        Case(0, 20, 7),
        list(b"abc"),
        drafter,
        repetitions=2,
        warmup=True,
        clock=Clock(),  # type: ignore[arg-type]
    )
    assert engine.fed[0] == list(b"abcabca") and found.ns == (1000, 1000) and drafter.seen == 3
    assert found.drafts is not None and found.drafts.emitted == 40
    assert found.drafts.accepted == found.drafts.proposed == 20
    assert weight_rate(found, 1000) is None
