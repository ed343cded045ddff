"""Averages, step costs and the choice of a draft's length: arithmetic against its definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ie.draft.costs import STALE, Average, StepCosts, best_length, expected_tokens

TIMES = st.floats(1e-3, 1e3)


def costs_of(times: dict[int, float]) -> StepCosts:
    costs = StepCosts()
    for rows, seconds in times.items():
        costs.add(rows, seconds)
    return costs


def test_an_average_forgets() -> None:
    average = Average(0.5)
    assert average.value == 0.0 and average.weight == 0.0
    average.add(8.0)
    assert average.value == 8.0
    average.add(2.0)
    assert average.value == pytest.approx((0.5 * 8 + 2) / 1.5)
    for _ in range(60):
        average.add(5.0)
    assert average.value == pytest.approx(5.0)


@given(st.lists(st.tuples(st.floats(-10, 10), st.floats(0.1, 5)), min_size=1, max_size=30), st.floats(0.5, 1))
def test_an_average_is_the_weighted_sum(samples: list[tuple[float, float]], decay: float) -> None:
    average = Average(decay)
    for value, weight in samples:
        average.add(value, weight)
    factors = [decay ** (len(samples) - 1 - i) * w for i, (_, w) in enumerate(samples)]
    want = sum(f * v for f, (v, _) in zip(factors, samples, strict=True)) / sum(factors)
    assert average.value == pytest.approx(want, abs=1e-9)


@given(st.dictionaries(st.integers(1, 16), TIMES, min_size=1))
def test_costs_are_those_measured_and_between_them(times: dict[int, float]) -> None:
    costs = costs_of(times)
    for rows in range(1, 17):
        below = [times[r] for r in times if r <= rows]
        above = [times[r] for r in times if r >= rows]
        got = costs.seconds(rows)
        assert costs.known(rows) == (rows in times)
        if rows in times:
            assert got == pytest.approx(times[rows])
        elif below and above:
            near = times[max(r for r in times if r < rows)], times[min(r for r in times if r > rows)]
            assert min(near) * 0.999999 <= got <= max(near) * 1.000001
        elif above:
            assert got == times[min(times)]
        else:
            assert got > times[max(times)], "more rows take longer"


def test_nothing_is_known_at_first() -> None:
    assert StepCosts().seconds(3) == 0.0 and not StepCosts().known(1)
    assert best_length(0.9, 15, StepCosts()) == 0


@given(st.floats(0, 1), st.integers(0, 15))
def test_expected_tokens(p: float, n: int) -> None:
    """The sum over the number accepted, each times its probability."""
    chances = [p**i * (1 - p) for i in range(n)] + [p**n]
    assert sum(chances) == pytest.approx(1)
    assert expected_tokens(p, n) == pytest.approx(sum((i + 1) * c for i, c in enumerate(chances)))


@given(st.floats(0, 1), st.integers(0, 15), st.lists(TIMES, min_size=16, max_size=16))
def test_best_length_has_the_best_rate(p: float, most: int, times: list[float]) -> None:
    costs = costs_of({i + 1: t for i, t in enumerate(times)})
    n = best_length(p, most, costs)
    rates = [expected_tokens(p, i) / times[i] for i in range(most + 1)]
    assert 0 <= n <= most and rates[n] == pytest.approx(max(rates))
    assert best_length(0.0, most, costs_of({i: float(i) for i in range(1, 17)})) == 0
    assert best_length(0.5, most, costs_of(dict.fromkeys(range(1, 17), 1.0))) == most


def test_a_step_that_was_held_up_is_tried_again() -> None:
    """Its time is forgotten after a while; that of single rows, to which all is compared, is not."""
    costs = costs_of({1: 1.0, 4: 1.6})
    costs.add(8, 100.0)
    assert best_length(0.95, 7, costs) < 7
    for _ in range(STALE):
        costs.add(4, 1.6)
    assert not costs.known(8) and costs.seconds(8) == pytest.approx(1.6 + 4 / 6)
    assert best_length(0.95, 7, costs) == 7
    costs.add(8, 2.4)
    assert costs.seconds(8) == pytest.approx(2.4), "nothing is left of the old time"
    assert costs.known(1) and costs.seconds(1) == 1.0
