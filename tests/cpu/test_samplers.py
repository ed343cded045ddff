"""Each sampler by itself: what it keeps, what it makes of a logit, how the chain's order matters, what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ie.errors import OptionError
from ie.sample import (
    DEFAULT_BREAKERS,
    NO_BREAKERS,
    SAMPLERS,
    Breakers,
    Sampler,
    SamplerParams,
    chain_from_letters,
    chain_from_names,
)
from tests.reference_sampler import Reference, State

OFF: dict[str, Any] = {"temp": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


def survivors(probabilities: Sequence[float], n_vocab: int = 0, **steps: Any) -> set[int]:
    """Ids that are drawn at all; with n_vocab the given ones are spread over a larger vocabulary of masked ones."""
    n = max(n_vocab, len(probabilities))
    places = np.arange(len(probabilities)) * (n // len(probabilities))
    row = np.full(n, -math.inf, np.float32)
    with np.errstate(divide="ignore"):
        row[places] = np.log(np.asarray(probabilities))
    sampler = Sampler(SamplerParams(**{**OFF, **steps}), n)
    return {int(np.flatnonzero(places == sampler.sample(row, i, []))[0]) for i in range(400)}


def changed_logit(before: float, history: Sequence[int], breakers: Breakers = NO_BREAKERS, **params: Any) -> float:
    """What the penalties make of token 0's logit, by bisection against a token that they leave alone."""
    sampler = Sampler(SamplerParams(temp=0, **params), 1000, breakers)
    row = np.full(1000, -math.inf, np.float32)
    row[0] = before
    low, high = np.float32(-1e6), np.float32(1e6)
    while np.nextafter(low, high) < high:
        row[999] = np.float32((float(low) + float(high)) / 2)
        if row[999] in (low, high):
            row[999] = np.nextafter(low, high)
        if sampler.sample(row, 0, history) == 0:  # a tie is token 0's
            low = row[999]
        else:
            high = row[999]
    return float(low)


# -- what is kept ------------------------------------------------------------------------------------------------------

P532 = [0.5, 0.3, 0.2]


@pytest.mark.parametrize("n_vocab", [0, 300, 20_000])
@pytest.mark.parametrize(
    ("probabilities", "steps", "kept"),
    [
        (P532, {}, {0, 1, 2}),
        (P532, {"top_p": 0.5}, {0}),
        (P532, {"top_p": 0.51}, {0, 1}),
        (P532, {"top_p": 0.81}, {0, 1, 2}),
        (P532, {"top_p": 0.0}, {0}),
        (P532, {"top_p": 0.0, "min_keep": 2}, {0, 1}),
        (P532, {"min_p": 0.4}, {0, 1, 2}),
        (P532, {"min_p": 0.41}, {0, 1}),
        (P532, {"min_p": 1.0}, {0}),
        (P532, {"min_p": 1.0, "min_keep": 2}, {0, 1}),
        (P532, {"top_k": 1}, {0}),
        (P532, {"top_k": 2}, {0, 1}),
        # Top-p sees the shares that top-k leaves: 0.5 of 0.8 is 0.625.
        (P532, {"top_k": 2, "top_p": 0.62}, {0}),
        (P532, {"xtc_probability": 1, "xtc_threshold": 0.2}, {2}),
        (P532, {"xtc_probability": 1, "xtc_threshold": 0.21}, {1, 2}),
        (P532, {"xtc_probability": 1, "xtc_threshold": 0.31}, {0, 1, 2}),
        (P532, {"xtc_probability": 0, "xtc_threshold": 0.2}, {0, 1, 2}),
        ([0.45, 0.45, 0.1], {"xtc_probability": 1, "xtc_threshold": 0.3}, {1, 2}),
        # XTC never leaves nothing, nor only a token that a mask forbids.
        ([0.6, 0.4, 0.0], {"xtc_probability": 1, "xtc_threshold": 0.0}, {1}),
        # -ln p = 0.69, 1.20, 1.61 and the entropy 1.03: 0.3 is nearest, then 0.5, then 0.2.
        (P532, {"typical_p": 0.29}, {1}),
        (P532, {"typical_p": 0.3}, {0, 1}),
        (P532, {"typical_p": 0.79}, {0, 1}),
        (P532, {"typical_p": 0.8}, {0, 1, 2}),
        (P532, {"typical_p": 0.0}, {1}),
        (P532, {"typical_p": 0.0, "min_keep": 2}, {0, 1}),
        (P532, {"typical_p": 1.0}, {0, 1, 2}),
        # ln p = -0.69, -1.20, -1.61: the standard deviation is 0.374, the second is 1.36 of them below the first.
        (P532, {"top_n_sigma": 1.3}, {0}),
        (P532, {"top_n_sigma": 1.4}, {0, 1}),
        (P532, {"top_n_sigma": 2.5}, {0, 1, 2}),
        ([0.25] * 4, {"top_n_sigma": 0.1}, {0, 1, 2, 3}),
    ],
)
def test_what_each_sampler_keeps(
    probabilities: list[float], steps: dict[str, Any], kept: set[int], n_vocab: int
) -> None:
    assert survivors(probabilities, n_vocab, **steps) == kept


def test_xtc_keeps_its_hands_off_where_it_would_leave_too_few() -> None:
    both = {"xtc_probability": 1, "xtc_threshold": 0.2}
    assert survivors(P532, **both, min_keep=1) == {2}
    assert survivors(P532, **both, min_keep=2) == {0, 1, 2}
    assert survivors(P532, **both, min_keep=2, top_k=2) == {0, 1}
    assert survivors([1.0], **both) == {0}


def test_the_order_of_the_chain_matters() -> None:
    both = {"top_k": 2, "top_p": 0.62}
    assert survivors(P532, **both) == {0}
    assert survivors(P532, **both, samplers=("top_p", "top_k")) == {0, 1}
    assert survivors(P532, **both, samplers=("top_k",)) == {0, 1}
    assert survivors(P532, **both, samplers=()) == {0, 1, 2}
    # A high temperature flattens what top-p sees when it comes first, and only then.
    assert survivors(P532, top_p=0.5, temp=100.0) == {0}
    assert survivors(P532, top_p=0.5, temp=100.0, samplers=("temperature", "top_p")) == {0, 1}
    # Twice the same: 0.5 of 0.8 reaches 0.55 by itself.
    assert survivors(P532, top_p=0.55, samplers=("top_p",)) == {0, 1}
    assert survivors(P532, top_p=0.55, samplers=("top_p", "top_p")) == {0}
    # XTC takes two of three away, and then sees one.
    assert survivors([0.4, 0.35, 0.25], xtc_probability=1, xtc_threshold=0.3, samplers=("xtc",)) == {1, 2}
    assert survivors([0.4, 0.35, 0.25], xtc_probability=1, xtc_threshold=0.3, samplers=("xtc", "xtc")) == {2}


def test_penalties_behind_a_truncation() -> None:
    """They change the order of what is left, and bring nothing back."""
    row = np.array([3.0, 2.5, 2.0, 1.0], np.float32)
    p = SamplerParams(temp=0, top_k=2, repeat_penalty=10.0, samplers=("top_k", "penalties"))
    assert Sampler(p, 4).sample(row, 0, [0]) == 1
    assert Sampler(p, 4).sample(row, 0, [0, 1]) == 0
    tied = SamplerParams(temp=0, top_k=2, presence_penalty=1.0, samplers=("top_k", "penalties"))
    assert Sampler(tied, 3).sample(np.array([0.0, 2.0, 3.0], np.float32), 0, [2]) == 1  # behind 2 in the list
    first = SamplerParams(temp=0, top_k=2, repeat_penalty=10.0)
    assert Sampler(first, 4).sample(row, 0, [0, 1]) == 2


# -- temperature -------------------------------------------------------------------------------------------------------


def frequencies(row: np.ndarray, n: int = 20_000, **params: Any) -> np.ndarray:
    sampler = Sampler(SamplerParams(**{**OFF, "seed": 77, **params}), len(row))
    return np.bincount([sampler.sample(row, i, []) for i in range(n)], minlength=len(row)) / n


@pytest.mark.parametrize("top_k", [0, 4])
def test_frequencies_are_the_probabilities(top_k: int) -> None:
    p = np.array([0.05, 0.4, 0.25, 0.3, 1e-9])
    found = frequencies(np.log(p).astype(np.float32), top_k=top_k)
    assert np.all(np.abs(found - p) <= 4 * np.sqrt(p * (1 - p) / 20_000) + 1e-7)


def test_temperature_reshapes() -> None:
    row = np.log(np.array([0.8, 0.2])).astype(np.float32)
    assert abs(frequencies(row, temp=2.0)[0] - 2 / 3) < 0.015  # sqrt(0.8) : sqrt(0.2) = 2 : 1
    # The same before a sampler that keeps everything.
    before = frequencies(row, temp=2.0, top_p=0.9999, samplers=("temperature", "top_p"))
    assert abs(before[0] - 2 / 3) < 0.015


def test_dynamic_temperature_follows_the_entropy() -> None:
    p = np.array([0.8, 0.2])
    row = np.log(p).astype(np.float32)
    share = float(-(p * np.log(p)).sum() / math.log(2))
    for exponent in (0.0, 0.5, 1.0, 3.0):
        temp = 0.5 + 1.0 * share**exponent
        expected = 0.8 ** (1 / temp) / (0.8 ** (1 / temp) + 0.2 ** (1 / temp))
        found = frequencies(row, temp=1.0, dynatemp_range=0.5, dynatemp_exponent=exponent)[0]
        assert abs(found - expected) < 0.015, exponent
    # Where everything is equally likely it is the highest, where one token is certain the lowest, at least 0.
    certain = np.array([0.0, -200.0], np.float32)
    assert frequencies(certain, 200, temp=0.5, dynatemp_range=2.0)[0] == 1


@pytest.mark.parametrize("samplers", [tuple(SAMPLERS), ("temperature", "top_k", "top_p", "min_p"), ("xtc", "temp")[:1]])
def test_temperature_0_is_argmax(samplers: tuple[str, ...]) -> None:
    rng = np.random.default_rng(1)
    for n in (1, 2, 300, 5000):
        row = np.round(rng.normal(size=n) * 3).astype(np.float32)
        p = SamplerParams(temp=0, samplers=samplers, top_n_sigma=1.0, dynatemp_range=0.5)
        assert Sampler(p, n).sample(row, 0, []) == int(np.argmax(row))
    # Over what the chain leaves: XTC removes the likeliest, and the repeated token is pushed down.
    assert survivors(P532, temp=0, xtc_probability=1, xtc_threshold=0.25) == {1}
    assert survivors(P532, temp=0, typical_p=0.1) == {1}
    assert survivors(P532, temp=0, xtc_probability=1, xtc_threshold=0.25, samplers=("temperature", "xtc")) == {0}
    assert survivors(P532, temp=0, samplers=()) == {0}


def test_extreme_temperatures() -> None:
    row = np.array([0.0, 1.0, 0.5], np.float32)
    for temp in (1e-300, 1e-45, 1e-10):
        for samplers in (("temperature",), ("temperature", "min_p")):
            p = SamplerParams(**{**OFF, "temp": temp, "min_p": 1e-9}, samplers=samplers)
            assert Sampler(p, 3).sample(row, 0, []) == 1
            assert Sampler(p, 3).sample(-row - 1, 0, []) == 0
    # Where a quotient is infinite the first of the largest is left, also among equal ones.
    ties = np.array([1.0, 5.0, 5.0, 0.0], np.float32)
    for samplers in (("top_k", "temperature", "top_p"), ("temperature", "top_p")):
        p = SamplerParams(temp=1e-45, top_k=3, top_p=0.999, samplers=samplers)
        assert {Sampler(p, 4).sample(ties, i, []) for i in range(20)} == {1}
    flat = Sampler(SamplerParams(**{**OFF, "temp": 1e300}), 3)
    assert {flat.sample(row, i, []) for i in range(60)} == {0, 1, 2}


# -- penalties ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "history", "params", "after"),
    [
        (2.0, [0], {"repeat_penalty": 2.0}, 1.0),
        (-1.0, [0], {"repeat_penalty": 2.0}, -2.0),
        (0.0, [0], {"repeat_penalty": 2.0}, 0.0),
        (2.0, [0, 0, 0], {"repeat_penalty": 2.0}, 1.0),
        (2.0, [1, 2], {"repeat_penalty": 2.0, "presence_penalty": 1.0}, 2.0),
        (2.0, [0, 5, 0, 0], {"frequency_penalty": 0.5, "presence_penalty": 0.25}, 0.25),
        (2.0, [0, 0, 0], {"repeat_penalty": 2.0, "frequency_penalty": 0.5, "presence_penalty": 0.25}, -0.75),
        (2.0, [0, 0, 1], {"frequency_penalty": -0.5}, 3.0),
        (2.0, [0, 1, 1], {"frequency_penalty": 1.0, "repeat_last_n": 2}, 2.0),
        (2.0, [0, 1, 1], {"frequency_penalty": 1.0, "repeat_last_n": 3}, 1.0),
        (2.0, [0] * 100, {"frequency_penalty": 1.0}, -62.0),
        (2.0, [0] * 100, {"frequency_penalty": 1.0, "repeat_last_n": -1}, -98.0),
        (2.0, [0] * 100, {"frequency_penalty": 1.0, "repeat_last_n": 0}, 2.0),
        (2.0, [], {"frequency_penalty": 1.0}, 2.0),
        (2.0, [0], {"frequency_penalty": 1.0, "logit_bias": ((0, 3.0),)}, 4.0),
        (2.0, [], {"logit_bias": ((0, 3.0), (5, 1.0), (0, -0.5))}, 4.5),
    ],
)
def test_penalties_and_biases(before: float, history: list[int], params: dict[str, Any], after: float) -> None:
    assert changed_logit(before, history, **params) == after


def test_biases_that_overflow_are_neither_masks_nor_errors() -> None:
    row = np.array([3e38, 1.0, -3e38], np.float32)
    p = SamplerParams(temp=0, logit_bias=((0, 3e38), (1, 3e38), (1, 3e38)))
    assert Sampler(p, 3).sample(row, 0, []) == 0
    forbidden = SamplerParams(temp=0, logit_bias=((0, -math.inf), (0, 5.0), (1, -math.inf)))
    assert Sampler(forbidden, 3).sample(row, 0, []) == 2
    with pytest.raises(OptionError, match="token id 3 is outside the vocabulary of 3 tokens"):
        Sampler(SamplerParams(logit_bias=((3, 1.0),)), 3)


# -- DRY ---------------------------------------------------------------------------------------------------------------

A, B, C, Y = 1, 2, 3, 4
ABC = [A, B, C, C, B, C, Y, A, B, C]


def dry_penalty(token: int, history: Sequence[int], breakers: Breakers = NO_BREAKERS, **params: Any) -> float:
    """What DRY subtracts from a token's logit; the tokens are renumbered so that this one is 0."""
    swap = {0: token, token: 0}
    turned = Breakers(
        np.array([swap.get(int(t), int(t)) for t in breakers.heads], np.int32),
        breakers.starts,
        np.array([swap.get(int(t), int(t)) for t in breakers.tails], np.int32),
    )
    pairs = [
        (int(turned.heads[i]), tuple(int(t) for t in turned.tails[turned.starts[i] : turned.starts[i + 1]]))
        for i in range(len(turned.heads))
    ]
    renamed = [swap.get(t, t) for t in history]
    return -changed_logit(0.0, renamed, Breakers.from_pairs(pairs), **{"dry_multiplier": 1.0, **params})


def test_dry_example() -> None:
    """The text ends in `a b c`, which was followed by c; `b c` was followed by y; `c` alone by b: too short."""
    assert dry_penalty(C, ABC) == np.float32(1.75)
    assert dry_penalty(Y, ABC) == 1.0
    assert dry_penalty(B, ABC) == 0.0
    assert dry_penalty(A, ABC) == 0.0
    assert dry_penalty(B, ABC, dry_allowed_length=1) == 1.0
    assert dry_penalty(C, ABC, dry_allowed_length=1, dry_base=2.0, dry_multiplier=0.5) == 0.5 * 4
    assert dry_penalty(C, ABC, dry_allowed_length=3) == 1.0
    assert dry_penalty(C, ABC, dry_allowed_length=4) == 0.0


def test_dry_window() -> None:
    assert dry_penalty(C, ABC, dry_penalty_last_n=9) == 1.0  # the first a is out of sight: b c repeats
    assert dry_penalty(C, ABC, dry_penalty_last_n=10) == 1.75
    assert dry_penalty(C, ABC, dry_penalty_last_n=0) == 0.0
    long = ABC[:4] + list(range(100, 200)) + ABC[-3:]
    assert dry_penalty(C, long) == 0.0
    assert dry_penalty(C, long, dry_penalty_last_n=-1) == 1.75
    assert dry_penalty(C, [C]) == 0.0 and dry_penalty(C, []) == 0.0


def test_dry_breakers() -> None:
    def broken(*pairs: tuple[int, tuple[int, ...]], token: int = C, history: Sequence[int] = ABC) -> float:
        return dry_penalty(token, history, Breakers.from_pairs(pairs))

    assert broken((A, ())) == 1.0  # two tokens since a
    assert broken((B, ())) == 0.0  # one, and two are allowed
    assert broken((C, ()), token=B) == 0.0
    assert broken((Y, ())) == 1.75  # three: the whole match
    assert broken((Y, ()), token=Y) == 0.0  # a breaker is never penalised
    assert broken((Y, (A,))) == 1.0  # y a together: two tokens behind them
    assert broken((Y, (A,)), token=Y) == 1.0  # y alone is none
    assert broken((Y, (A, B))) == 0.0
    assert broken((Y, (B,))) == 1.75
    assert broken((Y, (A,)), (Y, (A, B))) == 0.0  # the longest tail counts
    assert broken((Y, (A, B)), (Y, ())) == 0.0
    assert broken((Y, (A, B, C, A))) == 1.75  # the text ends before the tail does
    assert broken((50, ())) == 1.75


def test_dry_power_is_capped() -> None:
    history = [A] * 3000
    penalty = dry_penalty(A, history, dry_penalty_last_n=-1, dry_base=2.0, dry_multiplier=2.0**-110)
    assert penalty == 2.0**17  # 2^127 is the largest power that a float32 holds
    assert dry_penalty(A, history, dry_penalty_last_n=-1, dry_base=1.0) == 1.0


@pytest.mark.parametrize("base", [1.0, 1.5, 2.0])
def test_dry_equals_its_definition(base: float) -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        kinds = int(rng.integers(1, 5))
        history = [int(t) + 1 for t in rng.integers(0, kinds, int(rng.integers(0, 80)))]
        history = history[int(rng.integers(0, 20)) :] * int(rng.choice([1, 2]))
        pairs = [
            (int(head), tuple(int(t) for t in rng.integers(1, 5, int(rng.integers(0, 3)))))
            for head in rng.integers(1, 6, int(rng.integers(0, 3)))
        ]
        given = {
            "dry_multiplier": 0.5,
            "dry_base": base,
            "dry_allowed_length": int(rng.integers(0, 5)),
            "dry_penalty_last_n": int(rng.choice([-1, 5, 30, 64])),
        }
        reference = Reference(SamplerParams(**given), pairs)
        reference.history = history
        (after,) = reference.dry(State(np.arange(6), np.zeros(6)))
        for token in range(1, 5):
            found = dry_penalty(token, history, Breakers.from_pairs(pairs), **given)
            expected = min(-after.logits[token], 1e6)
            assert found == pytest.approx(expected, rel=1e-6), (token, history, pairs, given)


def test_dry_is_linear_in_its_window() -> None:
    """Quadratic work on these would be 10^10 comparisons."""
    row = np.zeros(1000, np.float32)
    for history in ([7] * 100_000, [7, 8] * 50_000, ([7] * 999 + [8]) * 100):
        p = SamplerParams(temp=0, dry_multiplier=1.0, dry_penalty_last_n=-1)
        assert Sampler(p, 1000).sample(row, 0, history) == 0


class Pieces:
    """A vocabulary of a few texts; encodes by the longest piece."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces, self.n_vocab = pieces, len(pieces)

    def piece(self, id: int, *, special: bool = False) -> bytes:
        return self.pieces[id] if special or not self.pieces[id].startswith(b"<") else b""

    def encode(self, text: bytes, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        out = [999] if add_special or parse_special else []
        while text:
            best = max((p for p in self.pieces if p and text.startswith(p)), key=len)
            out.append(self.pieces.index(best))
            text = text[len(best) :]
        return out


def found_breakers(texts: Sequence[str], *pieces: bytes) -> list[tuple[int, tuple[int, ...]]]:
    b = Breakers.from_texts(texts, Pieces(*pieces))  # type: ignore[arg-type]
    assert b.heads.dtype == b.starts.dtype == b.tails.dtype == np.int32
    tails = [tuple(int(t) for t in b.tails[b.starts[i] : b.starts[i + 1]]) for i in range(len(b.heads))]
    return list(zip((int(h) for h in b.heads), tails, strict=True))


def test_breakers_of_a_vocabulary() -> None:
    assert found_breakers(["\n"], b"a", b"\n", b"x\n\n", b"b", b"<\n>") == [(1, ()), (2, ()), (4, ())]
    # `:-)` is in one piece, begins at the end of others, and is finished by the tokens of its rest.
    pieces = (b"a:", b":-", b"-)", b"-", b")", b"x:-)y", b"a:-", b":", b"-:")
    expected = [(0, (2,)), (1, (4,)), (5, ()), (6, (4,)), (7, (2,)), (8, (2,))]
    assert found_breakers([":-)"], *pieces) == expected
    # One piece may end in two beginnings; the longer tail is tried first.
    assert found_breakers(["aab"], b"aa", b"a", b"b") == [(0, (1, 2)), (0, (2,)), (1, (1, 2))]
    assert found_breakers(["a", "", "a"], b"a", b"b") == [(0, ())]
    assert found_breakers([], b"a") == []
    # 40 bytes of a breaker count, and 20 tokens of its rest.
    assert found_breakers(["x" + "y" * 60], b"x", b"y", b"x" + b"y" * 39) == [(0, (1,) * 20), (2, ())]


def test_the_default_breakers_work_on_a_vocabulary() -> None:
    breakers = Breakers.from_texts(DEFAULT_BREAKERS, Pieces(b"a", b"b", b"c", b"c:", b"y"))  # type: ignore[arg-type]
    assert breakers.heads.tolist() == [3] and breakers.tails.size == 0


# -- parameters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"temp": -0.1},
        {"temp": math.nan},
        {"temp": math.inf},
        {"top_k": -1},
        {"top_k": 1 << 31},
        {"top_p": 1.01},
        {"top_p": math.nan},
        {"min_p": -0.01},
        {"typical_p": 1.5},
        {"top_n_sigma": math.nan},
        {"xtc_probability": -1},
        {"xtc_threshold": 2},
        {"repeat_last_n": -2},
        {"repeat_penalty": 0.0},
        {"repeat_penalty": -1.0},
        {"repeat_penalty": math.inf},
        {"presence_penalty": math.inf},
        {"frequency_penalty": 1e39},
        {"dry_multiplier": -1.0},
        {"dry_base": math.nan},
        {"dry_allowed_length": -1},
        {"dry_penalty_last_n": -2},
        {"dynatemp_range": -1},
        {"dynatemp_exponent": -1},
        {"min_keep": -1},
        {"seed": -1},
        {"seed": 1 << 64},
        {"samplers": ("top_k", "topk")},
        {"samplers": ("top_k",) * 65},
        {"logit_bias": ((-1, 1.0),)},
        {"logit_bias": ((1, math.nan),)},
        {"logit_bias": ((1, math.inf),)},
        {"logit_bias": ((1, -1e39),)},
    ],
    ids=str,
)
def test_wrong_parameters_are_named(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(OptionError, match=f"^{name}(:| is | has )"):
        SamplerParams(**wrong)


def test_what_is_off_is_left_out() -> None:
    assert SamplerParams().active() == ("top_k", "top_p", "min_p", "temperature")
    assert SamplerParams(**OFF).active() == ()
    off: dict[str, Any] = {
        "repeat_penalty": 1.5, "repeat_last_n": 0, "dry_multiplier": 1.0, "dry_base": 0.5, "xtc_probability": 1.0,
        "xtc_threshold": 0.6, "top_n_sigma": 0.0,
    }  # fmt: skip
    assert SamplerParams(**OFF, **off).active() == ()
    assert SamplerParams(temp=0).active() == ()
    assert SamplerParams(temp=0, presence_penalty=1, typical_p=0.5).active() == ("penalties", "top_k", "typ_p")
    assert SamplerParams().window() == 0
    assert SamplerParams(presence_penalty=1, dry_multiplier=1, dry_penalty_last_n=100).window() == 100
    assert SamplerParams(presence_penalty=1, repeat_last_n=-1, dry_multiplier=1).window() == -1
    assert SamplerParams(repeat_last_n=500).window() == 0


def test_chains_from_names_and_letters() -> None:
    assert chain_from_names("penalties;dry,top_n_sigma", "x") == ("penalties", "dry", "top_n_sigma")
    words = "top-k,topk,TOP_K,nucleus,temp,typ,typical,typ-p,top-n-sigma,topnsigma, minp"
    assert chain_from_names(words, "x") == (
        "top_k", "top_k", "top_k", "top_p", "temperature", "typ_p", "typ_p", "typ_p", "top_n_sigma", "top_n_sigma",
        "min_p",
    )  # fmt: skip
    assert chain_from_names(" ", "x") == () == chain_from_letters("", "x")
    assert chain_from_letters("edskypmxt", "x") == tuple(SAMPLERS)
    for text, near in (("top_q", "top_p"), ("temprature", "temperature"), ("penalty", "penalties")):
        with pytest.raises(OptionError, match=f"^where: unknown sampler '{text}'. Did you mean {near}"):
            chain_from_names(text, "where")
