"""The C sampler against the same chain written in numpy here; ties, masks, refusals; the random numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ie.errors import OptionError, SampleError
from ie.sample import Sampler, SamplerParams, library, uniform

Logits = npt.NDArray[np.float32]

# Two exponentials of different make differ by some 1e-7: where a sum comes this close to its goal, relative to the
# whole sum, either outcome is right.
TOLERANCE = 1e-6


def reach(sums: npt.NDArray[np.float64], goal: float, tol: float) -> npt.NDArray[np.intp]:
    """Places where a rising sum may be the first to reach the goal."""
    before = np.concatenate([[-math.inf], sums[:-1]])
    slack = tol * sums[-1]
    return np.flatnonzero((sums >= goal - slack) & (before < goal + slack))


def reference(logits: Logits, p: SamplerParams, index: int, tol: float) -> set[int]:
    """The tokens that the chain may give; more than one only where a decision is closer than the tolerance."""
    x = logits + np.float32(0)
    order = np.lexsort((np.arange(len(x)), -x.astype(np.float64)))
    if p.temp == 0:
        return {int(order[0])}
    is_sorted = 0 < p.top_k < len(x)
    ids = order[: p.top_k] if is_sorted else np.arange(len(x))
    with np.errstate(over="ignore"):
        below = x - x[order[0]]
    likely = np.exp(below.astype(np.float64))
    lists = [ids]
    if p.top_p < 1:
        total = likely[ids].sum()
        ids = ids if is_sorted else order
        lists = [ids[: end + 1] for end in reach(np.cumsum(likely[ids]), p.top_p * total, tol)]
    tokens: set[int] = set()
    for ids in lists:
        if p.min_p > 0:
            ids = ids[likely[ids] >= float(np.float32(p.min_p))]
        with np.errstate(over="ignore"):
            weights = np.exp((below[ids] / np.float32(p.temp)).astype(np.float64))
        drawable = weights > 1e-37
        ids, weights = ids[drawable], weights[drawable]
        sums = np.cumsum(weights)
        tokens.update(int(ids[i]) for i in reach(sums, uniform(p.seed, index) * sums[-1], tol))
    return tokens


def check(logits: Any, p: SamplerParams, indices: range, tol: float = TOLERANCE) -> tuple[int, int]:
    """Compare; returns how many draws there were and how many were too close to be told apart."""
    row = np.asarray(logits, np.float32)
    sampler = Sampler(p, len(row))
    close = 0
    for index in indices:
        tokens = reference(row, p, index, tol)
        close += len(tokens) > 1
        assert sampler.sample(row, index) in tokens, (p, index, tokens)
    return len(indices), close


def params(rng: np.random.Generator) -> SamplerParams:
    return SamplerParams(
        temp=float(rng.choice([0.0, 1e-3, 0.3, 0.8, 1.0, 1.7, 50.0])),
        top_k=int(rng.choice([0, 1, 2, 5, 40, 64, 200, 100_000])),
        top_p=float(rng.choice([0.0, 0.1, 0.5, 0.9, 0.95, 0.9999, 1.0])),
        min_p=float(rng.choice([0.0, 0.001, 0.05, 0.3, 1.0])),
        seed=int(rng.integers(0, 1 << 63)),
    )


def test_random_rows_give_the_references_tokens() -> None:
    rng = np.random.default_rng(1)
    draws = close = 0
    for _ in range(300):
        n = int(rng.choice([1, 2, 3, 7, 8, 9, 127, 128, 129, 255, 256, 257, 1000, 5000]))
        row = rng.normal(size=n) * float(rng.choice([0.01, 1, 5, 40]))
        done, skipped = check(row, params(rng), range(6))
        draws, close = draws + done, close + skipped
    assert draws == 1800
    assert close < draws * 0.02


@pytest.mark.parametrize("top_k", [0, 1, 40, 64, 590, 600, 5000, 151_935])
@pytest.mark.parametrize("shape", ["normal", "rising", "falling"])
def test_a_large_vocabulary(top_k: int, shape: str) -> None:
    n = 151_936
    rows = {
        "normal": np.random.default_rng(2).normal(size=n) * 3,
        "rising": np.arange(n) * 1e-4,
        "falling": -np.arange(n) * 1e-4,
    }
    check(rows[shape], SamplerParams(top_k=top_k, top_p=0.9, min_p=0.0, seed=5), range(4))


NEG = -math.inf
ADVERSARIAL: dict[str, list[float] | npt.NDArray[Any]] = {
    "one token": [3.5],
    "one token, negative": [-1e38],
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
}


@pytest.mark.parametrize("row", ADVERSARIAL.values(), ids=ADVERSARIAL.keys())
def test_adversarial_rows_give_the_references_tokens(row: Any) -> None:
    rng = np.random.default_rng(3)
    compared = 0
    for _ in range(60):
        done, skipped = check(row, params(rng), range(4))
        compared += done - skipped
    assert compared > 100


@pytest.mark.parametrize("top_k", [0, 3, 64, 400])
@pytest.mark.parametrize("top_p", [0.25, 0.5, 1.0])
def test_equal_logits_stand_in_order_of_ids(top_k: int, top_p: float) -> None:
    """All weights are exactly 1, so that every decision is exact and the kept ids are the lowest ones."""
    row = np.zeros(4096, np.float32)
    p = SamplerParams(temp=1.0, top_k=top_k, top_p=top_p, min_p=0.0, seed=9)
    check(row, p, range(50), tol=0)
    kept = math.ceil((top_k or 4096) * top_p)
    seen = {Sampler(p, 4096).sample(row, i) for i in range(300)}
    assert max(seen) < kept
    assert len(seen) > min(kept, 150) * 0.6


def test_greedy_takes_the_lowest_id_of_the_largest() -> None:
    for n, at in ((1, [0]), (300, [7, 8]), (300, [127, 128]), (300, [299]), (1000, [500, 999])):
        row = np.full(n, -2.0, np.float32)
        row[at] = 1.0
        assert Sampler(SamplerParams(temp=0, top_k=3, top_p=0.1), n).sample(row, 0) == at[0]
    rng = np.random.default_rng(8)
    for n in (5, 127, 1000, 151_936):
        for row in (np.arange(n) * 1e-4, rng.normal(size=n), rng.integers(0, 9, n), -rng.random(n) * 1e-6):
            single = row.astype(np.float32)
            assert Sampler(SamplerParams(temp=0), n).sample(single, 0) == int(np.argmax(single))
    signs = np.array([-1.0, -0.0, 0.0], np.float32)
    assert Sampler(SamplerParams(temp=0), 3).sample(signs, 0) == 1


def survivors(probabilities: list[float], **steps: float) -> set[int]:
    row = np.log(np.asarray(probabilities)).astype(np.float32)
    options: dict[str, Any] = {"temp": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **steps}
    sampler = Sampler(SamplerParams(**options), len(row))
    return {sampler.sample(row, i) for i in range(400)}


def test_what_each_step_keeps() -> None:
    p = [0.2, 0.5, 0.3]
    assert survivors(p) == {0, 1, 2}
    assert survivors(p, top_p=0.4999) == {1}
    assert survivors(p, top_p=0.51) == {1, 2}
    assert survivors(p, top_p=0.81) == {0, 1, 2}
    assert survivors(p, top_p=0.0) == {1}
    assert survivors(p, min_p=0.39) == {0, 1, 2}
    assert survivors(p, min_p=0.41) == {1, 2}
    assert survivors(p, min_p=1.0) == {1}
    assert survivors(p, top_k=2) == {1, 2}
    # Top-p sees the shares that top-k leaves: 0.5 of 0.8 is 0.625.
    assert survivors(p, top_k=2, top_p=0.62) == {1}
    # The temperature comes last: a flat distribution keeps no more.
    assert survivors(p, top_p=0.4999, temp=100.0) == {1}


@pytest.mark.parametrize("top_k", [0, 4])
def test_frequencies_are_the_probabilities(top_k: int) -> None:
    p = np.array([0.05, 0.4, 0.25, 0.3, 1e-9])
    row = np.log(p).astype(np.float32)
    n = 20_000
    sampler = Sampler(SamplerParams(temp=1.0, top_k=top_k, top_p=1.0, min_p=0.0, seed=77), len(p))
    counts = np.bincount([sampler.sample(row, i) for i in range(n)], minlength=len(p))
    assert np.all(np.abs(counts - n * p) <= 4 * np.sqrt(n * p * (1 - p)) + 1e-3)


def test_temperature_reshapes() -> None:
    row = np.log(np.array([0.8, 0.2])).astype(np.float32)
    n = 20_000
    sampler = Sampler(SamplerParams(temp=2.0, top_k=0, top_p=1.0, min_p=0.0), 2)
    first = sum(sampler.sample(row, i) == 0 for i in range(n)) / n
    assert abs(first - 2 / 3) < 0.015  # sqrt(0.8) : sqrt(0.2) = 2 : 1


@pytest.mark.parametrize("temp", [0.0, 0.7])
def test_rows_that_cannot_be_sampled(temp: float) -> None:
    sampler = Sampler(SamplerParams(temp=temp), 500)
    for value, what in ((math.nan, "NaN"), (-math.nan, "NaN"), (math.inf, r"\+inf")):
        for at in (0, 130, 499):
            row = np.zeros(500, np.float32)
            row[at] = value
            with pytest.raises(SampleError, match=rf"token 3: the logit of token id {at} is {what}"):
                sampler.sample(row, 3)
    with pytest.raises(SampleError, match="token 4: every logit is -inf"):
        sampler.sample(np.full(500, NEG, np.float32), 4)
    row = np.full(500, NEG, np.float32)
    row[320] = -3e38
    assert sampler.sample(row, 0) == 320


def test_a_row_may_be_strided() -> None:
    grid = np.zeros((300, 2), np.float32)
    grid[123, 1] = 5
    assert Sampler(SamplerParams(temp=0), 300).sample(grid[:, 1], 0) == 123


def test_the_draw_depends_on_seed_and_index_alone() -> None:
    row = np.random.default_rng(4).normal(size=1000).astype(np.float32)
    first = Sampler(SamplerParams(seed=11), 1000)
    expected = [first.sample(row, i) for i in range(40)]
    other = Sampler(SamplerParams(seed=11), 1000)
    assert [other.sample(row, i) for i in reversed(range(40))] == expected[::-1]
    assert [Sampler(SamplerParams(seed=12), 1000).sample(row, i) for i in range(40)] != expected
    assert len(set(expected)) > 5


def test_uniform_numbers() -> None:
    # The published first two outputs of SplitMix64 from state 0.
    assert uniform(0, 0) == (0xE220A8397B1DCDAF >> 11) * 2.0**-53
    assert uniform(0, 1) == (0x6E789E6AA1B965F4 >> 11) * 2.0**-53
    _, native = library()
    rng = np.random.default_rng(6)
    for _ in range(200):
        seed, index = (int(v) for v in rng.integers(0, 1 << 64, 2, dtype=np.uint64))
        for stream in (0, 1, 2, 1 << 40):
            assert native.ie_uniform(seed, index, stream) == uniform(seed, index, stream)
    many = np.array([uniform(3, i, s) for s in range(4) for i in range(5000)])
    assert 0 <= many.min() < 0.001 and 0.999 < many.max() < 1
    assert abs(many.mean() - 0.5) < 0.01
    streams = many.reshape(4, 5000)
    assert np.all(np.abs(np.corrcoef(streams) - np.eye(4)) < 0.05)


def test_the_work_buffer_is_all_that_is_written() -> None:
    ffi, native = library()
    rng = np.random.default_rng(7)
    for n in (1, 2, 127, 128, 129, 1000, 100_001):
        need = native.ie_sample_work_bytes(n)
        assert need % 8 == 0
        guarded = np.full(need // 8 + 8, 0xA5A5A5A5A5A5A5A5, np.uint64)
        row = rng.normal(size=n).astype(np.float32)
        before = row.copy()
        token = ffi.new("int32_t *")
        for top_k, top_p in ((0, 1.0), (0, 0.999), (1, 1.0), (40, 0.9), (n // 2, 0.9)):
            p = ffi.new("ie_sample_params *", (top_p, 0.01, 1.0, top_k, 0))
            call = (ffi.from_buffer("float[]", row), n, p, 1, 0, ffi.cast("void *", guarded.ctypes.data))
            assert native.ie_sample(*call, need, token) == 0
            assert 0 <= token[0] < n
            assert native.ie_sample(*call, need - 1, token) == -4
        assert np.all(guarded[need // 8 :] == 0xA5A5A5A5A5A5A5A5)
        assert np.array_equal(row, before)
    assert native.ie_argmax(ffi.NULL, 0, token) == -4


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
        {"seed": -1},
        {"seed": 1 << 64},
    ],
)
def test_wrong_parameters_are_named(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(OptionError, match=f"^{name} is "):
        SamplerParams(**wrong)


def test_extreme_temperatures() -> None:
    row = np.array([0.0, 1.0, 0.5], np.float32)
    for temp in (1e-300, 1e-45, 1e-10):
        assert Sampler(SamplerParams(temp=temp, min_p=0.0, top_p=1.0), 3).sample(row, 0) == 1
    flat = Sampler(SamplerParams(temp=1e300, min_p=0.0, top_p=1.0, top_k=0), 3)
    assert {flat.sample(row, i) for i in range(60)} == {0, 1, 2}
