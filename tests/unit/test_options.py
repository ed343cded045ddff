"""The command line: parsing, its error messages, and the help that is derived from the same table."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ie import settings
from ie.cli import flags, help, options
from ie.cli.flags import Spec
from ie.cli.options import Options, parse
from ie.errors import OptionError
from scripts import write_generated

COUNTS = Spec(("-p",), "counts", "", "model", lo=0, hi=1000)


def error(*argv: str, command: str = "ie-run") -> str:
    with pytest.raises(OptionError) as caught:
        parse(command, argv)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_defaults_are_those_of_the_dataclass() -> None:
    assert parse("ie-run", []) == Options()
    assert Options().temp == 0.8 and Options().top_k == 40 and Options().n_predict == -1


def test_options_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        parse("ie-run", []).temp = 1.0  # type: ignore[misc]


def test_every_field_but_given_has_a_spec() -> None:
    without = {f.name for f in dataclasses.fields(Options) if "spec" not in f.metadata}
    assert without == {"given"}


def test_no_flag_stands_twice() -> None:
    for command in options.COMMANDS:
        flags = [flag for spec in options.specs(command).values() for flag in spec.flags + spec.off_flags]
        assert len(flags) == len(set(flags))
        assert all("_" not in flag for flag in flags)


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        (["m.gguf"], "model", "m.gguf"),
        (["-m", "m.gguf"], "model", "m.gguf"),
        (["--model=a=b"], "model", "a=b"),
        (["--", "--odd"], "model", "--odd"),
        (["-p", ""], "prompt", ""),
        (["-p", "- a list"], "prompt", "- a list"),
        (["-p", "--x is unknown here"], "prompt", "--x is unknown here"),
        (["-p=-n"], "prompt", "-n"),
        (["--n_predict", "5"], "n_predict", 5),
        (["-n", "-1"], "n_predict", -1),
        (["--top_k=5"], "top_k", 5),
        (["--top-k", "5"], "top_k", 5),
        (["--temp", "1e-1"], "temp", 0.1),
        (["--temp", ".5"], "temp", 0.5),
        (["-no_cnv"], "conversation", False),
        (["-cnv", "-no-cnv"], "conversation", False),
        (["-no-cnv", "-cnv"], "conversation", True),
        (["--no-display-prompt"], "display_prompt", False),
        (["--stop", "a", "--stop=b"], "stop", ("a", "b")),
        (["-n", "1", "-n", "2"], "n_predict", 2),
        (["-s", str(2**64 - 1)], "seed", 2**64 - 1),
        (["-f", "-"], "file", "-"),
        (["--executor", "reference"], "executor", "reference"),
    ],
)
def test_accepted(argv: list[str], field: str, value: object) -> None:
    parsed = parse("ie-run", argv)
    assert getattr(parsed, field) == value
    assert parsed.given == {field}
    assert dataclasses.replace(parsed, given=frozenset(), **{field: getattr(Options(), field)}) == Options()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--tempo", "0.7"], "unknown option --tempo. Did you mean --temp?"),
        (["--tempo=0.7"], "unknown option --tempo. Did you mean --temp?"),
        (["-temp", "1"], "unknown option -temp. Did you mean --temp?"),
        (["--topk", "1"], "unknown option --topk. Did you mean --top-k?"),
        (["--zzzzzz"], "unknown option --zzzzzz. --help lists them all."),
        (["--te", "1"], "unknown option --te. Did you mean --temp?"),
        (["--chat-template", "x"], "unknown option --chat-template. --help lists them all."),
        (["-ngl", "99"], "unknown option -ngl. --help lists them all."),
        (["--temp", "warm"], "--temp: expected a number of at least 0, got 'warm'"),
        (["--temp", "nan"], "--temp: expected a number of at least 0, got 'nan'"),
        (["--temp", "inf"], "--temp: expected a number of at least 0, got 'inf'"),
        (["--temp", "1e999"], "--temp: expected a number of at least 0, got '1e999'"),
        (["--temp", "-1"], "--temp: expected a number of at least 0, got '-1'"),
        (["--top-p", "1.01"], "--top-p: expected a number from 0 to 1, got '1.01'"),
        (["-n", "1.5"], "-n: expected an integer of at least -1, got '1.5'"),
        (["-n", "1_0"], "-n: expected an integer of at least -1, got '1_0'"),
        (["-n", " 1"], "-n: expected an integer of at least -1, got ' 1'"),
        (["-n", "٣"], "-n: expected an integer of at least -1, got '٣'"),
        (["-n", "-2"], "-n: expected an integer of at least -1, got '-2'"),
        (["-n", "9" * 31], f"-n: expected an integer of at least -1, got '{'9' * 31}'"),
        (["-n"], "-n needs a value: an integer of at least -1"),
        (
            ["-p", "-n", "3"],
            "-p needs a value: a text, but the flag -n follows. If it is meant as the value, write -p=-n",
        ),
        (["--stop", ""], "--stop: expected a text, got nothing"),
        (["-f", ""], "-f: expected a file name, got nothing"),
        (["-m", "a\0b"], "-m: the value contains a NUL character"),
        (["-cnv=1"], "-cnv takes no value, but got '1'"),
        (
            ["--cpu-isa", "sse"],
            "--cpu-isa: expected auto, avx512, avxvnni, avx2, i8mm, neon or portable, got 'sse'",
        ),
        (["a", "b"], "unexpected argument 'b': the model is already 'a'. A prompt is given with -p, in quotes"),
        ([""], "the name of the model file is empty"),
    ],
)
def test_refused(argv: list[str], message: str) -> None:
    assert error(*argv) == message


def test_commands_have_their_own_options() -> None:
    assert error("--temp", "1", command="ie-doctor").startswith("unknown option --temp.")
    assert error("x", command="ie-doctor") == "unexpected argument 'x': ie-doctor takes options only"
    assert parse("ie-doctor", ["-v"]).verbose


FLAGS = sorted(options.all_flags())


@given(st.sampled_from(list(options.COMMANDS)), st.lists(st.text(max_size=8) | st.sampled_from(FLAGS), max_size=6))
def test_any_words_parse_or_are_refused_in_one_line(command: str, words: list[str]) -> None:
    try:
        parse(command, words)
    except OptionError as refused:
        assert str(refused).splitlines()[0]


def test_engine_options_carry_over() -> None:
    got = parse("ie-run", ["-c", "99", "-t", "-1", "--chunk", "7", "--executor", "reference"]).engine()
    assert got == settings.EngineOptions(n_ctx=99, threads=0, chunk=7, executor="reference", cpu_isa="auto")


def test_auto_values() -> None:
    assert settings.resolve_threads(0, 6) == 6
    assert settings.resolve_threads(3, 6) == 3
    assert [settings.bound_threads(n, 4) for n in (-1, 0, 3, 4, 5, 1000)] == [-1, 0, 3, 4, 4, 4]
    assert settings.resolve_context(0, 32768, 10**6) == 8192
    assert settings.resolve_context(0, 2048, 10**6) == 2048
    assert settings.resolve_context(0, 32768, 1000) == 1000
    assert settings.resolve_context(20000, 2048, 1000) == 20000
    assert settings.resolve_seed(0, lambda: 9) == 0
    assert settings.resolve_seed(-1, lambda: 9) == 9


@pytest.mark.parametrize("command", options.COMMANDS)
def test_help_names_every_flag_and_fits_the_terminal(command: str) -> None:
    text = help.help_text(command)
    page = write_generated.cli_page()
    for spec in options.specs(command).values():
        for flag in spec.flags + spec.off_flags:
            assert flag in text and f"`{flag}`" in page
    assert max(len(line) for line in text.splitlines()) <= 100


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("512", (512,)),
        ("128,512,128", (128, 512, 128)),
        ("1-4", (1, 2, 3, 4)),
        ("1-8+3", (1, 4, 7)),
        ("16-100*2", (16, 32, 64)),
        ("0,5-5,7-8", (0, 5, 7, 8)),
    ],
)
def test_counts(text: str, values: tuple[int, ...]) -> None:
    assert flags.convert("-p", text, COUNTS) == values


@pytest.mark.parametrize(
    "text", ["", ",", "1,", "-1", "2-1", "1-8+0", "1-8*1", "0-8*2", "1-", "-", "1.5", "1-2-3", "0-65", "1,1001", "x"]
)
def test_counts_refused(text: str) -> None:
    with pytest.raises(OptionError, match="-p: expected integers from 0 to 1,000, as 512 or"):
        flags.convert("-p", text, COUNTS)


@pytest.mark.parametrize(("text", "value"), [("512,128", (512, 128)), ("0,0", (0, 0)), ("1", None), ("1,2,3", None)])
def test_a_pair(text: str, value: tuple[int, int] | None) -> None:
    spec = dataclasses.replace(COUNTS, kind="pair")
    if value is not None:
        assert flags.convert("-pg", text, spec) == value
        return
    with pytest.raises(OptionError, match="-pg: expected two integers from 0 to 1,000, as 512,128, got"):
        flags.convert("-pg", text, spec)


def test_letters_are_not_run_together() -> None:
    assert error("-vh").startswith("unknown option -vh.")
    assert error("-n5").startswith("unknown option -n5.")


def test_the_same_flag_means_its_own_thing_to_each_command() -> None:
    found = parse("ie-bench", ["m", "-p", "1-3", "-n", "0", "-pg", "5,6", "-pg=7,8", "-t", "2", "-d", "0,9"])
    assert (found.bench_prompt, found.bench_gen, found.bench_pair) == ((1, 2, 3), (0,), ((5, 6), (7, 8)))
    assert (found.bench_threads, found.bench_depth, found.threads, found.prompt) == ((2,), (0, 9), 0, None)
    assert parse("ie-ppl", ["m", "-c", "64", "-f", "t"]).window == 64
    assert error("-c", "3", command="ie-ppl") == "-c: expected an integer from 4 to 1,048,576, got '3'"
    assert parse("ie-tokenize", ["m", "-p", "-x y", "--no-bos"]).tokenize_text == "-x y"
