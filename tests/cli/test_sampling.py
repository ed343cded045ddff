"""Sampling options: their words, the file's recommendations, and which of the two wins."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ie.cli import sampling
from ie.cli.options import parse
from ie.cli.sampling import FileSampling, SamplerMaker, breaker_texts, check, from_file, notes, parameters, parse_bias
from ie.errors import GgufError, OptionError
from ie.gguf import GgufFile
from ie.sample import DEFAULT_BREAKERS, SAMPLERS, SamplerParams
from tests import gguf_bytes as w
from tests.cli.fake import FakeTokenizer

NOTHING = FileSampling()


def given(*argv: str) -> SamplerParams:
    return parameters(parse("ie-run", argv), NOTHING, 7)


def test_without_options_the_defaults_are_those_of_the_samplers() -> None:
    assert given() == SamplerParams(seed=7)


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        (["--temp", "0.5"], "temp", 0.5),
        (["--top-k", "7"], "top_k", 7),
        (["--top-p", "0.5"], "top_p", 0.5),
        (["--min-p", "0.5"], "min_p", 0.5),
        (["--typical", "0.5"], "typical_p", 0.5),
        (["--typical-p", "0.5"], "typical_p", 0.5),
        (["--top-nsigma", "1.5"], "top_n_sigma", 1.5),
        (["--top-n-sigma", "-1"], "top_n_sigma", -1),
        (["--xtc-probability", "0.5"], "xtc_probability", 0.5),
        (["--xtc-threshold", "0.2"], "xtc_threshold", 0.2),
        (["--repeat-last-n", "-1"], "repeat_last_n", -1),
        (["--repeat-penalty", "1.1"], "repeat_penalty", 1.1),
        (["--presence-penalty", "-0.5"], "presence_penalty", -0.5),
        (["--frequency-penalty", "0.5"], "frequency_penalty", 0.5),
        (["--dry-multiplier", "0.8"], "dry_multiplier", 0.8),
        (["--dry-base", "2"], "dry_base", 2),
        (["--dry-allowed-length", "3"], "dry_allowed_length", 3),
        (["--dry-penalty-last-n", "100"], "dry_penalty_last_n", 100),
        (["--dynatemp-range", "0.5"], "dynatemp_range", 0.5),
        (["--dynatemp-exp", "2"], "dynatemp_exponent", 2),
        (["--samplers", "top-k;temp"], "samplers", ("top_k", "temperature")),
        (["--samplers", "min_p,topk,Top_K"], "samplers", ("min_p", "top_k", "top_k")),
        (["--samplers", ""], "samplers", ()),
        (["--sampling-seq", "kt"], "samplers", ("top_k", "temperature")),
        (["--sampler-seq", "edskypmxt"], "samplers", tuple(SAMPLERS)),
        (["-l", "5-inf", "--logit-bias", "6+1.5"], "logit_bias", ((5, -math.inf), (6, 1.5))),
    ],
)
def test_each_option_reaches_its_parameter(argv: list[str], name: str, value: object) -> None:
    params = given(*argv)
    assert getattr(params, name) == value
    changed = {f for f in SamplerParams.__dataclass_fields__ if getattr(params, f) != getattr(given(), f)}
    assert changed == ({name} if value != getattr(given(), name) else set())


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--samplers", "top_k;typikal"], "--samplers: unknown sampler 'typikal'. Did you mean typ_p?"),
        (["--samplers", "mirostat"], "--samplers: unknown sampler 'mirostat'. There are: penalties, dry, "),
        (["--samplers", "top_k;"], "--samplers: unknown sampler ''. There are: "),
        (["--samplers", ";".join(["xtc"] * 65)], "--samplers: 65 samplers, expected at most 64"),
        (["--sampler-seq", "kq"], "--sampler-seq: unknown sampler 'q'. There are: e penalties, d dry, "),
        (["--sampler-seq", "k", "--samplers", "top_k"], "--samplers and --sampler-seq both give an order"),
        (["-l", "5"], "--logit-bias: expected a token id, + or -, and a number, as 15043+1 or 15043-inf, got '5'"),
        (["-l", "5+inf"], "--logit-bias: expected a token id"),
        (["-l", "5+nan"], "--logit-bias: expected a token id"),
        (["-l", "5+1e99"], "logit_bias has 5: 1e+99: expected a token id and a finite number or -inf"),
        (["--repeat-penalty", "0"], "--repeat-penalty: expected a number of at least 1e-06, got '0'"),
        (["--frequency-penalty", "1e99"], "frequency_penalty is 1e+99: expected a finite number"),
    ],
)
def test_wrong_options_are_named(argv: list[str], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        check(parse("ie-run", argv))
    assert str(caught.value).startswith(message)


def test_a_bias_beyond_the_vocabulary() -> None:
    check(parse("ie-run", ["-l", "299+1"]), 300)
    with pytest.raises(OptionError, match="--logit-bias: token id 300 is outside the vocabulary of 300 tokens"):
        check(parse("ie-run", ["-l", "300+1"]), 300)
    assert parse_bias("7-.5e1") == (7, -5.0)


def test_breakers_replace_the_default_ones() -> None:
    assert breaker_texts(parse("ie-run", [])) == DEFAULT_BREAKERS == ("\n", ":", '"', "*")
    words = ["--dry-sequence-breaker", r"\n", "--dry-sequence-breaker", r"a\\\q\t"]
    assert breaker_texts(parse("ie-run", words)) == ("\n", "a\\\\q\t")
    assert breaker_texts(parse("ie-run", ["--dry-sequence-breaker", "none"])) == ()


# -- the file ----------------------------------------------------------------------------------------------------------


def file_with(tmp_path: Path, **keys: tuple[int, Any]) -> FileSampling:
    records = [w.record(f"general.sampling.{key}", kind, value) for key, (kind, value) in keys.items()]
    path = tmp_path / "m.gguf"
    path.write_bytes(w.gguf([w.record("general.architecture", w.STRING, "llama"), *records]))
    with GgufFile.open(path) as gguf:
        return from_file(gguf)


def test_a_file_may_recommend(tmp_path: Path) -> None:
    file = file_with(
        tmp_path,
        temp=(w.F32, 0.5),
        top_k=(w.I32, 20),
        top_p=(w.F32, 0.75),
        min_p=(w.F32, 0.25),
        xtc_probability=(w.F32, 0.125),
        xtc_threshold=(w.F32, 0.25),
        penalty_last_n=(w.I32, 32),
        penalty_repeat=(w.F32, 1.5),
        sequence=(w.STRING, "top_k;temperature"),
    )
    expected = SamplerParams(
        temp=0.5, top_k=20, top_p=0.75, min_p=0.25, xtc_probability=0.125, xtc_threshold=0.25, repeat_last_n=32,
        repeat_penalty=1.5, samplers=("top_k", "temperature"), seed=7,
    )  # fmt: skip
    assert parameters(parse("ie-run", []), file, 7) == expected
    # The command line wins, option by option, also where it repeats a default.
    chosen = parse("ie-run", ["--temp", "0.8", "--top-k", "3", "--sampler-seq", "kp"])
    params = parameters(chosen, file, 7)
    assert (params.temp, params.top_k, params.samplers, params.top_p) == (0.8, 3, ("top_k", "top_p"), 0.75)
    told = notes(chosen, file)
    assert len(told) == 1 and "top-p 0.75" in told[0] and "repeat-penalty 1.5" in told[0]
    assert "temp" not in told[0] and "samplers" not in told[0]
    assert "temp 0.5" in notes(parse("ie-run", []), file)[0]


def test_a_file_that_recommends_nothing(tmp_path: Path) -> None:
    file = file_with(tmp_path)
    assert file == NOTHING and notes(parse("ie-run", []), file) == []


def test_recommendations_out_of_range(tmp_path: Path) -> None:
    file = file_with(
        tmp_path, temp=(w.F32, -1.0), top_k=(w.I32, -5), top_p=(w.F32, 1.5), penalty_last_n=(w.I32, -9),
        penalty_repeat=(w.F32, 0.0), sequence=(w.STRING, "top_k;adaptive_p"), mirostat=(w.I32, 2),
    )  # fmt: skip
    assert file.values == {"temp": 0.0, "top_k": 0, "top_p": 1.0, "repeat_last_n": -1}
    assert parameters(parse("ie-run", []), file, 7).samplers == tuple(SAMPLERS)
    text = "\n".join(notes(parse("ie-run", []), file))
    for part in ("penalty_repeat is not above 0", "unknown sampler 'adaptive_p'", "recommends mirostat"):
        assert part in text


def test_recommendations_of_a_wrong_type(tmp_path: Path) -> None:
    for key, value in (("temp", (w.STRING, "hot")), ("top_k", (w.F32, 3.0)), ("temp", (w.F32, math.nan))):
        with pytest.raises(GgufError, match=f"general.sampling.{key}"):
            file_with(tmp_path, **{key: value})


# -- samplers of a run -------------------------------------------------------------------------------------------------


def test_forbidden_tokens_are_never_drawn() -> None:
    make = SamplerMaker(FakeTokenizer(), 258, NOTHING)
    row = np.zeros(258, np.float32)
    row[[3, 257]] = 9
    chosen = parse("ie-run", ["--temp", "0"])
    assert make(chosen, 0, [3]).sample(row, 0, []) == 257
    assert make(chosen, 0, frozenset({3, 257})).sample(row, 0, []) == 0


def test_breakers_come_from_the_vocabulary_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    real = sampling.Breakers.from_texts

    def counted(texts: Any, tokenizer: Any) -> Any:
        calls.append(texts)
        return real(texts, tokenizer)

    monkeypatch.setattr(sampling.Breakers, "from_texts", staticmethod(counted))
    make = SamplerMaker(FakeTokenizer(), 258, NOTHING)
    row = np.zeros(258, np.float32)
    make(parse("ie-run", []), 0, ())
    assert calls == []
    chosen = parse("ie-run", ["--temp", "0", "--dry-multiplier", "9", "--dry-allowed-length", "1"])
    for _ in range(2):
        history = list(b"ab.ab")
        row[ord(".")] = 1
        assert make(chosen, 0, ()).sample(row, 0, history) != ord(".")
        assert make(chosen, 0, ()).sample(row, 0, list(b"ab.ab:")) == ord(".")  # nothing follows the breaker yet
    assert calls == [DEFAULT_BREAKERS]
