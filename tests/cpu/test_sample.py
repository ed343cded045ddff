"""The compiled samplers against their definitions: random and adversarial rows, ties, masks, every chain order.

tests/reference_sampler.py is the literal form. What each sampler does by itself, and to single logits, stands in
test_samplers.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ie import native
from ie.errors import SampleError
from ie.sample import SAMPLERS, Breakers, Sampler, SamplerParams, uniform
from tests.reference_sampler import Breaker, Reference, Unclear

NEG = -math.inf
NAMES = list(SAMPLERS)
PLAIN = SamplerParams(temp=1.0, top_k=0, top_p=1.0, min_p=0.0)


class Tally:
    """How many draws were compared, and how many of them could not be told apart."""

    def __init__(self) -> None:
        self.compared = self.close = self.unclear = 0

    def check(
        self,
        row: npt.NDArray[np.float32],
        p: SamplerParams,
        history: Sequence[int],
        indices: Iterable[int],
        breakers: Sequence[Breaker] = (),
    ) -> None:
        sampler = Sampler(p, len(row), Breakers.from_pairs(breakers))
        reference = Reference(p, breakers)
        for index in indices:
            try:
                expected = reference.tokens(row, index, history)
            except Unclear:
                self.unclear += 1
                continue
            self.compared += 1
            self.close += len(expected) > 1
            if not expected:
                with pytest.raises(SampleError, match="every logit is -inf"):
                    sampler.sample(row, index, history)
                continue
            assert sampler.sample(row, index, history) in expected, (p, index, history, breakers, expected)


def random_params(rng: np.random.Generator, n: int) -> SamplerParams:
    def pick(*values: float) -> float:
        return float(rng.choice(values))

    given: dict[str, Any] = {
        "temp": pick(0, 1e-3, 0.3, 0.8, 1, 1.7, 50),
        "top_k": int(pick(0, 0, 1, 2, 5, 40, 64, 200, 100_000)),
        "top_p": pick(0, 0.1, 0.5, 0.9, 0.95, 0.9999, 1, 1),
        "min_p": pick(0, 0, 0.001, 0.05, 0.3, 1),
        "typical_p": pick(1, 1, 1, 0, 0.2, 0.7, 0.95),
        "top_n_sigma": pick(-1, 0, 0.3, 1, 3),
        "xtc_probability": pick(0, 0.5, 1),
        "xtc_threshold": pick(0, 0.01, 0.1, 0.3, 0.5, 0.51),
        "repeat_last_n": int(pick(-1, 0, 1, 5, 64)),
        "repeat_penalty": pick(1, 1, 1.1, 2, 0.5),
        "presence_penalty": pick(0, 0.5, -0.5),
        "frequency_penalty": pick(0, 0.25, -0.1),
        "dry_multiplier": pick(0, 0, 0.8, 3),
        "dry_base": pick(1.75, 1, 0.5, 2),
        "dry_allowed_length": int(pick(0, 1, 2, 3)),
        "dry_penalty_last_n": int(pick(-1, 0, 1, 20, 64)),
        "dynatemp_range": pick(0, 0, 0.5, 2),
        "dynatemp_exponent": pick(1, 0, 0.5, 3),
        "min_keep": int(pick(0, 0, 1, 3, 500)),
        "seed": int(rng.integers(0, 1 << 63)),
    }
    if rng.random() < 0.5:
        given["samplers"] = tuple(str(name) for name in rng.choice(NAMES, size=rng.integers(0, 8)))
    if rng.random() < 0.3:  # token 0 stays, so that one does
        given["logit_bias"] = tuple((int(t), pick(NEG, 1, -2.5)) for t in rng.integers(0, n, 3) if t)
    return SamplerParams(**given)


def random_history(rng: np.random.Generator, n: int) -> list[int]:
    kinds = int(rng.choice([1, 2, 3, 5, n]))
    return [int(t) % n for t in rng.integers(0, kinds, int(rng.choice([0, 1, 2, 5, 30, 100])))]


def random_breakers(rng: np.random.Generator) -> list[Breaker]:
    def tail() -> tuple[int, ...]:
        return tuple(int(t) for t in rng.integers(0, 3, int(rng.integers(0, 3))))

    return [(int(head), tail()) for head in rng.integers(0, 5, int(rng.integers(0, 3)))]


def test_random_chains_give_the_references_tokens() -> None:
    rng = np.random.default_rng(1)
    tally = Tally()
    for _ in range(2000):
        n = int(rng.choice([1, 2, 3, 7, 8, 9, 127, 128, 129, 255, 256, 257, 300, 1000]))
        row = (rng.normal(size=n) * float(rng.choice([0.01, 1, 5, 40]))).astype(np.float32)
        if rng.random() < 0.2:
            row = np.round(row)  # ties
        if rng.random() < 0.2:
            row[rng.random(n) < 0.5] = NEG
            row[0] = 0.5
        tally.check(row, random_params(rng, n), random_history(rng, n), range(3), random_breakers(rng))
    assert tally.compared > 5500
    assert tally.close < 70


LARGE = 152_064
LARGE_CASES: list[dict[str, Any]] = [
    {},
    {"top_k": 64},
    {"top_k": 594},
    {"top_k": 595},
    {"top_k": 5000},
    {"top_k": LARGE - 1},
    {"top_k": 0},
    {"top_k": 0, "top_p": 1},
    {"top_k": 0, "top_p": 1, "min_p": 0},
    {"top_k": 0, "top_p": 0.3, "min_p": 0},
    {"top_k": 0, "top_n_sigma": 1.5},
    {"top_n_sigma": 1.5},
    {"top_k": 0, "min_p": 0, "top_p": 1, "xtc_probability": 1, "xtc_threshold": 0.001},
    {"top_k": 0, "min_p": 0, "top_p": 1, "dynatemp_range": 0.5},
    {"samplers": ("temperature", "top_k", "top_p")},
    {"samplers": ("min_p", "top_k", "penalties", "top_p"), "repeat_penalty": 1.3},
    {"repeat_penalty": 1.3, "dry_multiplier": 0.8, "logit_bias": ((151_000, NEG), (3, 2.0))},
    {"temp": 0},
]


@pytest.mark.parametrize("case", LARGE_CASES, ids=str)
def test_a_large_vocabulary(case: dict[str, Any]) -> None:
    rng = np.random.default_rng(2)
    tally = Tally()
    peaked = rng.normal(size=LARGE) * 2
    peaked[rng.integers(0, LARGE, 30)] += 12
    for row in (rng.normal(size=LARGE) * 3, peaked, np.arange(LARGE) * 1e-4):
        history = [int(t) for t in np.argsort(-row)[rng.integers(0, 20, 64)]]
        tally.check(row.astype(np.float32), SamplerParams(seed=5, **case), history, range(1))
    assert tally.compared == 3 and tally.close <= 1


@pytest.mark.parametrize("n", [5000, LARGE])
def test_typical_of_many(n: int) -> None:
    """Distances take few values, so that their order is clear."""
    row = np.random.default_rng(3).integers(0, 12, n).astype(np.float32) / 4
    tally = Tally()
    for typical in (0.1, 0.6, 0.95):
        tally.check(row, replace(PLAIN, typical_p=typical), [], range(3))
    assert tally.compared == 9


ADVERSARIAL: dict[str, list[float] | npt.NDArray[Any]] = {
    "one token": [3.5],
    "one token, negative": [-1e38],
    "two tokens": [1.0, 0.5],
    "two tokens, one masked": [NEG, -2.0],
    "all equal": np.zeros(1000),
    "all equal, one block": np.full(128, -7.25),
    "two values": np.tile([1.0, 2.0], 700),
    "equal maxima in the last block": np.concatenate([np.zeros(1279), np.ones(100)]),
    "masked but one": [NEG] * 500 + [1.0] + [NEG] * 500,
    "masked but three, in three blocks": np.where(np.isin(np.arange(600), [5, 300, 599]), 0.5, NEG),
    "zeros of both signs": np.tile([0.0, -0.0], 300),
    "the whole range": [3.4e38, -3.4e38, 0.0, 3.4e38, NEG],
    "denormals": np.tile([1e-45, 0.0, -1e-45], 100),
    "far apart": [0.0, -90.0, -100.0, -1e4],
    "mask at the ends": [NEG, 0.0, 0.0, NEG],
    "rising": np.arange(300) * 0.05,
    "one far above": np.concatenate([np.arange(500) % 7 * 0.25, [1e6]]),
}


@pytest.mark.parametrize("row", ADVERSARIAL.values(), ids=ADVERSARIAL.keys())
def test_adversarial_rows_give_the_references_tokens(row: Any) -> None:
    rng = np.random.default_rng(3)
    tally = Tally()
    logits = np.asarray(row, np.float32)
    for _ in range(60):
        p = replace(random_params(rng, len(logits)), logit_bias=())
        tally.check(logits, p, random_history(rng, len(logits)), range(4), random_breakers(rng))
    assert tally.compared - tally.close > 150


@pytest.mark.parametrize("top_k", [0, 3, 64, 400])
@pytest.mark.parametrize("top_p", [0.25, 0.5, 1.0])
def test_equal_logits_stand_in_order_of_ids(top_k: int, top_p: float) -> None:
    """All weights are exactly 1, so that every decision is exact and the kept ids are the lowest ones."""
    row = np.zeros(4096, np.float32)
    p = SamplerParams(temp=1.0, top_k=top_k, top_p=top_p, min_p=0.0, seed=9)
    Tally().check(row, p, [], range(10))
    kept = math.ceil((top_k or 4096) * top_p * (1 - 1e-6))
    seen = {Sampler(p, 4096).sample(row, i, []) for i in range(300)}
    assert max(seen) < kept
    assert len(seen) > min(kept, 150) * 0.6


@pytest.mark.parametrize("top_k", [100, 1000])
def test_ties_that_penalties_make_in_a_sorted_list(top_k: int) -> None:
    """Each even id comes down to the odd one below it, and stands before it in the list until that is sorted again."""
    row = (np.arange(3000) / 256).astype(np.float32)
    p = replace(PLAIN, top_k=top_k, presence_penalty=1 / 256, repeat_last_n=-1, temp=50.0, top_p=0.999)
    tally = Tally()
    for samplers in (("top_k", "penalties", "top_p", "temperature"), ("top_k", "penalties", "typ_p", "top_p")):
        tally.check(row, replace(p, typical_p=0.9999, samplers=samplers), range(0, 3000, 2), range(40))
    assert tally.compared - tally.close > 35


def test_dynamic_temperature_gives_the_references_tokens() -> None:
    row = (np.random.default_rng(9).normal(size=1000) * 2).astype(np.float32)
    tally = Tally()
    for exponent in (0.3, 0.5, 2.0, 7.5):
        p = replace(PLAIN, dynatemp_range=0.9, dynatemp_exponent=exponent)
        tally.check(row, p, [], range(150))
        tally.check(row, replace(p, samplers=("temperature", "min_p"), min_p=1e-4), [], range(50))
    assert tally.compared == 800 and tally.close < 16


def test_greedy_takes_the_lowest_id_of_the_largest() -> None:
    p = SamplerParams(temp=0, top_k=3, top_p=0.1)
    for n, at in ((1, [0]), (300, [7, 8]), (300, [127, 128]), (300, [299]), (1000, [500, 999])):
        row = np.full(n, -2.0, np.float32)
        row[at] = 1.0
        assert Sampler(p, n).sample(row, 0, []) == at[0]
    rng = np.random.default_rng(8)
    for n in (5, 127, 1000, 151_936):
        for row in (np.arange(n) * 1e-4, rng.normal(size=n), rng.integers(0, 9, n), -rng.random(n) * 1e-6):
            single = row.astype(np.float32)
            for isa in available():
                assert Sampler(p, n, isa=isa).sample(single, 0, []) == int(np.argmax(single))
    signs = np.array([-1.0, -0.0, 0.0], np.float32)
    assert Sampler(p, 3).sample(signs, 0, []) == 1


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [{"temp": 0.0}, {"temp": 0.7}, {"repeat_penalty": 1.5}, {"logit_bias": ((130, NEG),)}])
def test_rows_that_cannot_be_sampled(case: dict[str, Any]) -> None:
    """A mask or a penalty on the token does not hide it."""
    sampler = Sampler(SamplerParams(**case), 500)
    for value, what in ((math.nan, "NaN"), (-math.nan, "NaN"), (math.inf, r"\+inf")):
        for at in (0, 20, 130, 150, 250, 383, 499):
            row = np.zeros(500, np.float32)
            row[at] = value
            with pytest.raises(SampleError, match=rf"token 3: the logit of token id {at} is {what}"):
                sampler.sample(row, 3, [at])
    with pytest.raises(SampleError, match="token 4: every logit is -inf"):
        sampler.sample(np.full(500, NEG, np.float32), 4, [7])
    row = np.full(500, NEG, np.float32)
    row[320] = -3e38
    assert sampler.sample(row, 0, [7]) == 320


def test_everything_forbidden() -> None:
    p = SamplerParams(logit_bias=tuple((t, NEG) for t in range(300)))
    with pytest.raises(SampleError, match="every logit is -inf"):
        Sampler(p, 300).sample(np.zeros(300, np.float32), 0, [])


def test_rows_that_are_not_float32_or_of_another_length_are_our_own_mistake() -> None:
    sampler = Sampler(PLAIN, 300)
    for row in (np.zeros(300), np.zeros(299, np.float32), np.zeros((1, 300), np.float32)):
        with pytest.raises(AssertionError):
            sampler.sample(row, 0, [])


def test_a_row_may_be_strided_and_read_only() -> None:
    grid = np.zeros((300, 2), np.float32)
    grid[123, 1] = 5
    assert Sampler(SamplerParams(temp=0), 300).sample(grid[:, 1], 0, []) == 123
    row = np.zeros(300, np.float32)
    row.flags.writeable = False
    p = replace(PLAIN, temp=2.0, repeat_penalty=2.0, logit_bias=((7, 90.0),), samplers=("temperature", "top_k"))
    assert Sampler(p, 300).sample(row, 0, [9]) == 7


# -- what a token depends on -------------------------------------------------------------------------------------------

EVERYTHING = SamplerParams(
    seed=11,
    top_k=0,
    top_n_sigma=3.0,
    typical_p=0.99,
    xtc_probability=0.5,
    repeat_penalty=1.2,
    frequency_penalty=0.1,
    dry_multiplier=0.5,
    dynatemp_range=0.2,
)


def rows_and_histories(count: int, n: int = 1000) -> list[tuple[npt.NDArray[np.float32], list[int]]]:
    rng = np.random.default_rng(4)
    history = [int(t) for t in rng.integers(0, 9, 200)]
    return [((rng.normal(size=n) * 2).astype(np.float32), history[: 100 + i]) for i in range(count)]


def test_a_token_depends_on_logits_seed_index_and_history_alone() -> None:
    cases = rows_and_histories(40)
    one = Sampler(EVERYTHING, 1000)
    expected = [one.sample(row, i, history) for i, (row, history) in enumerate(cases)]
    assert len(set(expected)) > 20
    # Backwards, as after a draft that was taken back; and again, from a sampler that has seen other rows.
    for i in reversed(range(40)):
        assert one.sample(*(cases[i][0], i, cases[i][1])) == expected[i]
    other = Sampler(replace(EVERYTHING, seed=12), 1000)
    assert [other.sample(row, i, history) for i, (row, history) in enumerate(cases)] != expected
    for batch in (1, 4, 16):  # rows of several requests in turn
        samplers = [Sampler(replace(EVERYTHING, seed=11 + r), 1000) for r in range(batch)]
        got = [[s.sample(row, i, history) for s in samplers] for i, (row, history) in enumerate(cases)]
        assert [tokens[0] for tokens in got] == expected


def test_the_history_counts_as_far_as_the_windows_reach() -> None:
    (row, history), p = rows_and_histories(1)[0], replace(EVERYTHING, repeat_last_n=20, dry_penalty_last_n=30)
    sampler = Sampler(p, 1000)
    for i in range(30):
        expected = sampler.sample(row, i, history)
        for same in (tuple(history), np.array(history), [999] * 500 + history[-30:], history[-30:]):
            assert sampler.sample(row, i, same) == expected
        assert sampler.sample(row, i, [*history, 5, 6, 7], len(history)) == expected
    p = replace(PLAIN, temp=0, repeat_penalty=1e30, logit_bias=((5, 99.0),))
    for window, length, expected in ((20, 20, 5), (20, 19, 6), (-1, 5000, 6), (0, 1, 5)):
        row = np.zeros(1000, np.float32)
        row[6] = 1
        sampler = Sampler(replace(p, repeat_last_n=window), 1000)
        assert sampler.sample(row, 0, [5] + [0] * length) == expected


def test_tokens_of_the_history_that_the_vocabulary_lacks_are_passed_over() -> None:
    p = replace(EVERYTHING, repeat_last_n=-1, dry_penalty_last_n=-1)
    row = np.zeros(10, np.float32)
    assert 0 <= Sampler(p, 10).sample(row, 0, [1, 10, -1, 2**31 - 1, 1, 10, -1]) < 10


def test_xtc_has_random_numbers_of_its_own() -> None:
    row = (np.random.default_rng(5).normal(size=1000) * 2).astype(np.float32)
    plain = SamplerParams(seed=3)
    without = [Sampler(plain, 1000).sample(row, i, []) for i in range(200)]
    # Nothing reaches a threshold of one half, so XTC takes its number and removes nothing.
    idle = Sampler(replace(plain, xtc_probability=1.0, xtc_threshold=0.5), 1000)
    assert [idle.sample(row, i, []) for i in range(200)] == without
    sometimes = Sampler(replace(plain, xtc_probability=0.4, xtc_threshold=0.05), 1000)
    always = Sampler(replace(plain, xtc_probability=1.0, xtc_threshold=0.05), 1000)
    changed = 0
    for i in range(200):
        on = uniform(3, i, 1) <= 0.4
        expected = always.sample(row, i, []) if on else without[i]
        assert sometimes.sample(row, i, []) == expected
        changed += expected != without[i]
    assert 20 < changed < 120


def test_uniform_numbers() -> None:
    # The published first two outputs of SplitMix64 from state 0.
    assert uniform(0, 0) == (0xE220A8397B1DCDAF >> 11) * 2.0**-53
    assert uniform(0, 1) == (0x6E789E6AA1B965F4 >> 11) * 2.0**-53
    _, library = native.lib()
    rng = np.random.default_rng(6)
    for _ in range(200):
        seed, index = (int(v) for v in rng.integers(0, 1 << 64, 2, dtype=np.uint64))
        for stream in (0, 1, 2, 1 << 40):
            assert library.ie_uniform(seed, index, stream) == uniform(seed, index, stream)
    many = np.array([uniform(3, i, s) for s in range(4) for i in range(5000)])
    assert 0 <= many.min() < 0.001 and 0.999 < many.max() < 1
    assert abs(many.mean() - 0.5) < 0.01
    streams = many.reshape(4, 5000)
    assert np.all(np.abs(np.corrcoef(streams) - np.eye(4)) < 0.05)


# -- the C side --------------------------------------------------------------------------------------------------------


def available() -> list[int]:
    _, library = native.lib()
    return [isa for isa in range(len(native.ISAS)) if library.ie_isa_available(isa)]


def written_order(terms: npt.NDArray[Any]) -> float:
    """The sum of logit_passes.h: element i to lane i mod 16, then the upper half of the lanes to the lower."""
    lanes = np.zeros(16)
    for row in np.concatenate([terms, np.zeros(-len(terms) % 16)]).astype(np.float64).reshape(-1, 16):
        lanes = lanes + row
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = lanes[:half] + lanes[half:]
    return float(lanes[0])


def test_passes_have_the_same_bits_on_every_instruction_set() -> None:
    ffi, library = native.lib()
    rng = np.random.default_rng(7)
    for trial in range(150):
        n = int(rng.choice([1, 2, 15, 16, 17, 100, 127, 128]))
        row = (rng.normal(size=n) * 9).astype(np.float32)
        row[rng.random(n) < 0.2] = NEG
        row[rng.integers(0, n)] = 30
        temp = np.float32(rng.choice([1, 0.7, 3]))
        results = {}
        for isa in available():
            weights, sums = np.full(n + 1, 7, np.float32), np.zeros(4)
            library.ie_logit_passes(
                isa,
                native.pointer(row, "float *"),
                n,
                30.0,
                temp,
                native.pointer(weights, "float *"),
                native.pointer(sums, "double *"),
            )
            assert weights[n] == 7
            results[isa] = (weights.tobytes(), sums.tobytes())
        assert len(set(results.values())) == 1, trial
        assert sums[0] == written_order(weights[:n])
        assert sums[2] == written_order(np.where(np.isfinite(row), 30 - row.astype(np.float64), 0))
        below = 30 - row[np.isfinite(row)].astype(np.float64)
        exact = np.exp(((row - np.float32(30)) / temp).astype(np.float64))
        np.testing.assert_allclose(weights[:n], exact, rtol=3e-7, atol=1e-37)
        expected = [weights[:n].astype(np.float64).sum(), len(below), below.sum(), (below**2).sum()]
        np.testing.assert_allclose(sums, expected, rtol=1e-12, atol=1e-9)


def test_every_instruction_set_draws_the_same_tokens() -> None:
    for i, (row, history) in enumerate(rows_and_histories(40)):
        for p in (EVERYTHING, replace(PLAIN, temp=3.0), SamplerParams(top_k=0), SamplerParams()):
            tokens = {Sampler(p, 1000, isa=isa).sample(row, i, history) for isa in available()}
            assert len(tokens) == 1


def test_the_work_buffer_is_all_that_is_written() -> None:
    ffi, library = native.lib()
    rng = np.random.default_rng(7)
    given = (EVERYTHING, PLAIN, SamplerParams(top_k=1), replace(EVERYTHING, typical_p=1, top_n_sigma=-1, top_p=0.999))
    orders = (tuple(SAMPLERS), tuple(reversed(SAMPLERS)))
    history = np.array([1, 0, 1, 0, 1, 0, 1], np.int32)
    for n in (1, 2, 127, 128, 129, 1000, 100_001):
        need = library.ie_sample_work_bytes(n, len(history))
        assert need % 64 == 0
        memory = np.full(need + 192, 0xA5, np.uint8)
        start = -memory.ctypes.data % 64 + 64
        row = rng.normal(size=n).astype(np.float32)
        before, token = row.copy(), ffi.new("int32_t *")
        for p in (replace(p, samplers=order) for p in given for order in orders):
            sampler = Sampler(p, n)
            call = (
                native.pointer(row, "float *"), n, sampler._c_params, native.pointer(history, "int32_t *"),
                len(history), 1, 0, ffi.cast("void *", memory.ctypes.data + start),
            )  # fmt: skip
            assert library.ie_sample(*call, need, token) == 0
            assert 0 <= token[0] < n
            assert library.ie_sample(*call, need - 1, token) == library.IE_SAMPLE_ARGS
        assert np.all(memory[:start] == 0xA5) and np.all(memory[start + need :] == 0xA5)
        assert np.array_equal(row, before)


def test_calls_that_make_no_sense_are_refused() -> None:
    ffi, library = native.lib()
    row, work, token = np.zeros(8, np.float32), np.zeros(1 << 16, np.uint64), ffi.new("int32_t *")

    def call(n: int, **changes: int) -> int:
        params = Sampler(PLAIN, 8)._c_params
        for name, value in changes.items():
            setattr(params, name, value)
        args = (params, ffi.NULL, 0, 1, 0, native.pointer(work, "void *"), work.nbytes, token)
        return int(library.ie_sample(native.pointer(row, "float *"), n, *args))

    assert call(8) == 0
    assert {call(0), call(-1), call(8, n_steps=-1), call(8, n_steps=65)} == {library.IE_SAMPLE_ARGS}
    params = Sampler(replace(PLAIN, top_k=3), 8)._c_params
    params.steps[0] = len(SAMPLERS)
    args = (params, ffi.NULL, 0, 1, 0, native.pointer(work, "void *"), work.nbytes, token)
    assert library.ie_sample(native.pointer(row, "float *"), 8, *args) == library.IE_SAMPLE_ARGS


def test_a_window_longer_than_any_text_takes_no_memory() -> None:
    """Buffers grow with the history that there is; the tokens are those of a window as long as the text."""
    row = np.random.default_rng(3).standard_normal(40).astype(np.float32)
    history = [int(t) for t in np.random.default_rng(4).integers(0, 40, 50_000)]
    for options in ({"repeat_penalty": 1.3}, {"dry_multiplier": 1.0}):
        name = "repeat_last_n" if "repeat_penalty" in options else "dry_penalty_last_n"
        for window in (40_000, 2**31 - 1, -1):
            sampler = Sampler(SamplerParams(temp=0.9, seed=1, **options, **{name: window}), 40)
            assert sampler._work.nbytes < 1 << 22
            seen = history[-40_000:] if window == 40_000 else history
            exact = Sampler(SamplerParams(temp=0.9, seed=1, **options, **{name: len(seen)}), 40)
            for n in (3, 20_000, 50_000):
                assert sampler.sample(row, n, history, n) == exact.sample(row, n, history, n)
