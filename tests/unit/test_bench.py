"""What ie-bench times, on a model that writes down what it is asked and a clock that it moves itself."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ie.measure import bench
from ie.measure.bench import Case, Samples


class FakeSequence:
    def __init__(self, model: FakeModel) -> None:
        self.tokens: list[int] = []
        self.model = model

    def truncate(self, n: int) -> None:
        assert 0 <= n <= len(self.tokens)
        del self.tokens[n:]

    def close(self) -> None:
        self.model.open -= 1


class FakeModel:
    """A step of n tokens takes 10 n ns; `log` holds (tokens before, tokens fed)."""

    n_vocab = 1000

    def __init__(self) -> None:
        self.now, self.open = 0, 0
        self.log: list[tuple[int, list[int]]] = []
        self.timed: list[bool] = []
        self.running = False

    def clock(self) -> int:
        self.running = not self.running
        return self.now

    def new_sequence(self) -> FakeSequence:
        self.open += 1
        assert self.open == 1
        return FakeSequence(self)

    def forward(self, seq: FakeSequence, tokens: Sequence[int], want: str) -> np.ndarray:
        assert want == "last" and all(0 <= t < self.n_vocab for t in tokens)
        self.log.append((len(seq.tokens), list(tokens)))
        self.timed.append(self.running)
        seq.tokens += tokens
        self.now += 10 * len(tokens)
        return np.zeros((1, self.n_vocab), np.float32)

    def verify(self, seq: FakeSequence, tokens: Sequence[int]) -> np.ndarray:
        return self.forward(seq, tokens, "last")


def run(test: Case, **more: object) -> tuple[FakeModel, Samples]:
    model = FakeModel()
    samples = bench.measure(model, test, repetitions=3, clock=model.clock, **more)  # type: ignore[arg-type]
    assert model.open == 0
    return model, samples


def test_labels() -> None:
    labels = [Case(512, 0).label, Case(0, 128).label, Case(512, 128).label, Case(0, 32, 4096).label]
    assert labels == ["pp512", "tg128", "pp512+tg128", "tg32 @ d4096"]


def test_the_plan_is_every_combination() -> None:
    tests = bench.plan((512, 0, 64), (128, 0), [(8, 4), (0, 0)], (0, 100))
    assert [t.label for t in tests] == [
        *("pp512", "pp64", "tg128", "pp8+tg4"),
        *("pp512 @ d100", "pp64 @ d100", "tg128 @ d100", "pp8+tg4 @ d100"),
    ]
    assert max(t.tokens for t in tests) == 612
    assert bench.plan((0,), (0,), (), (0, 5)) == []


def test_a_prompt_is_one_call_and_generation_a_call_a_token() -> None:
    model, samples = run(Case(20, 3))
    shape = [(before, len(fed)) for before, fed in model.log]
    assert shape[:2] == [(0, 20), (20, 1)]  # warm-up: the whole prompt, one token
    assert shape[2:] == 3 * [(0, 20), (20, 1), (21, 1), (22, 1)]
    assert model.timed == [False] * 2 + [True] * 12
    assert samples.ns == (230, 230, 230) and samples.rates == pytest.approx([1e8] * 3)


def test_without_warm_up() -> None:
    model, _ = run(Case(20, 0), warmup=False)
    assert [len(fed) for _, fed in model.log] == [20] * 3 and all(model.timed)


def test_depth_is_fed_once_and_not_timed() -> None:
    model, samples = run(Case(0, 2, 50))
    timed = [entry for entry, inside in zip(model.log, model.timed, strict=True) if inside]
    untimed = [entry for entry, inside in zip(model.log, model.timed, strict=True) if not inside]
    assert [(before, len(fed)) for before, fed in timed] == 3 * [(50, 1), (51, 1)]
    # One token to warm up, the depth, and before each further repetition its last token again.
    assert [(before, len(fed)) for before, fed in untimed] == [(0, 1), (0, 50), (49, 1), (49, 1)]
    assert untimed[2][1] == untimed[1][1][-1:]
    assert samples.ns == (20, 20, 20)


def test_bos_begins_prompt_and_generation() -> None:
    model, _ = run(Case(20, 2), bos=777, warmup=False)
    firsts = [fed[0] for _, fed in model.log]
    assert firsts[::3] == [777] * 3 and firsts[1::3] == [777] * 3 and 777 not in firsts[2::3]
    model, _ = run(Case(20, 2), warmup=False)
    assert 777 not in [fed[0] for _, fed in model.log]


def test_tokens_vary_and_come_back() -> None:
    first, second = (run(Case(200, 0))[0].log for _ in range(2))
    assert first == second and first[0][1] != first[1][1]
    assert len(set(first[0][1])) > 150


@given(st.lists(st.floats(0.001, 1e9), min_size=2, max_size=20))
def test_mean_and_sample_deviation(values: list[float]) -> None:
    mean, deviation = bench.mean_and_deviation(values)
    assert mean == pytest.approx(statistics.fmean(values))
    assert deviation == pytest.approx(statistics.stdev(values), rel=1e-6, abs=1e-6)


def test_one_repetition_has_no_deviation() -> None:
    assert bench.mean_and_deviation([3.0]) == (3.0, 0.0)


def test_the_rate_is_the_mean_of_rates_and_not_of_times() -> None:
    samples = Samples(Case(10, 0), (1000, 3000))
    assert samples.rate[0] == pytest.approx((1e7 + 1e7 / 3) / 2)
    assert samples.duration == (2000, pytest.approx(2000 / 2**0.5))


def test_bytes_of_weights_only_where_nothing_but_generation_is_timed() -> None:
    assert bench.weight_rate(Samples(Case(0, 4), (1000,)), 500) == pytest.approx(500 * 4e6)
    assert bench.weight_rate(Samples(Case(4, 4), (1000,)), 500) is None


def test_the_memory_is_read_around_each_repetition() -> None:
    readings = iter([10.0, 20.0, 40.0, 60.0])
    _, samples = run(Case(0, 4), bandwidth=lambda: next(readings))
    assert samples.bandwidths == (15.0, 30.0, 50.0)
    rate = 1e9 / 10  # tokens a second: a step takes 10 ns
    assert bench.bandwidth_share(samples, 7) == pytest.approx(7 * rate / 30)  # the median
    assert bench.bandwidth_share(Samples(Case(0, 4), (40,)), 7) is None
    assert bench.bandwidth_share(Samples(Case(4, 4), (40,), bandwidths=(1.0,)), 7) is None
    _, unknown = run(Case(0, 4), bandwidth=lambda: 0.0)
    assert unknown.bandwidths == ()
