"""The comparator must fail on every kind of wrong result before it may judge anything."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ie.devices import compare
from tests.compare import Guarded, assert_exact, assert_logits, assert_q8, assert_reduction

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)
N = 100


def _nan(x: Array) -> Array:
    x.flat[x.size // 2] = np.nan
    return x


def _inf(x: Array) -> Array:
    x.flat[x.size // 2] = np.inf
    return x


def _minus_inf(x: Array) -> Array:
    x.flat[0] = -np.inf
    return x


def _sign(x: Array) -> Array:
    at = int(np.abs(x).argmax())
    x.flat[at] = -x.flat[at]
    return x


def _all_signs(x: Array) -> Array:
    return -x


def _ragged(x: Array) -> Array:
    return x[..., :-1]


def _longer(x: Array) -> Array:
    return np.concatenate([x, x[..., :1]], axis=-1)


def _other_axis(x: Array) -> Array:
    return x.reshape(x.shape[::-1]) if x.ndim > 1 else x[None]


def _last_element(x: Array) -> Array:
    x.flat[-1] += 1
    return x


def _zero_tail(x: Array) -> Array:
    x[..., -4:] = 0
    return x


def _shifted(x: Array) -> Array:
    return np.roll(x, 1, axis=-1)


def _empty(x: Array) -> Array:
    return x[:0]


Fault = Callable[[Array], Array]
FAULTS: list[Fault] = [
    *(_nan, _inf, _minus_inf, _sign, _all_signs, _ragged, _longer, _other_axis),
    *(_last_element, _zero_tail, _shifted, _empty),
]
INTEGER_FAULTS = [f for f in FAULTS if f not in (_nan, _inf, _minus_inf)]


def _dot() -> tuple[Array, Array]:
    """Results of 5 x 20 dot products of length 64 and their sums of absolute terms."""
    products = RNG.standard_normal((5, N // 5, 64))
    return products.sum(axis=-1).astype(np.float32), np.abs(products).sum(axis=-1)


def _logits() -> Array:
    return (3 * RNG.standard_normal((5, N // 5))).astype(np.float32)


# ---- equal inputs and allowed differences pass (or the faults below would prove nothing) ----


def test_equal_passes() -> None:
    x, terms = _dot()
    assert_exact(x.copy(), x)
    assert_exact(np.arange(N), np.arange(N))
    assert_reduction(x.copy(), x, terms, 1.0)
    assert_logits(x.copy(), x, max_kl=1e-9, max_abs=1e-9)


def test_reordered_sum_passes() -> None:
    products = RNG.standard_normal((N, 256)).astype(np.float32)
    terms = np.abs(products.astype(np.float64)).sum(axis=1)
    forward = np.cumsum(products, axis=1, dtype=np.float32)[:, -1]
    backward = np.cumsum(products[:, ::-1], axis=1, dtype=np.float32)[:, -1]
    assert (forward != backward).any()
    assert_reduction(forward, backward, terms, 256.0)


# ---- every fault fails ----


@pytest.mark.parametrize("fault", FAULTS)
def test_exact_float_finds(fault: Fault) -> None:
    x, _ = _dot()
    assert not compare.exact("x", fault(x.copy()), x)


@pytest.mark.parametrize("fault", INTEGER_FAULTS)
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_exact_integer_finds(fault: Fault, dtype: Any) -> None:
    x = RNG.integers(1, 100, (5, N // 5)).astype(dtype)
    assert not compare.exact("x", fault(x.copy()), x)


def test_exact_compares_bits_and_types() -> None:
    x, _ = _dot()
    assert not compare.exact("x", np.nextafter(x, np.float32(9)), x)
    assert not compare.exact("x", np.array([-0.0], np.float32), np.array([0.0], np.float32))
    assert not compare.exact("x", x.astype(np.float64), x)
    assert not compare.exact("x", np.arange(4, dtype=np.int32), np.arange(4, dtype=np.uint32))


@pytest.mark.parametrize("fault", FAULTS)
def test_reduction_finds(fault: Fault) -> None:
    x, terms = _dot()
    assert not compare.reduction("x", fault(x.copy()), x, terms, 64.0)


@pytest.mark.parametrize("fault", [_nan, _inf, _minus_inf, _ragged, _empty, _all_signs])
def test_reduction_distrusts_its_bound(fault: Fault) -> None:
    x, terms = _dot()
    assert not compare.reduction("x", x, x, fault(terms.copy()), 64.0)


@pytest.mark.parametrize("fault", [_nan, _inf, _minus_inf, _ragged, _empty])
def test_reduction_distrusts_the_expected_value(fault: Fault) -> None:
    x, terms = _dot()
    assert not compare.reduction("x", x, fault(x.copy()), terms, 64.0)
    both = fault(x.copy())
    assert not compare.reduction("x", both, both.copy(), terms, 64.0)


def test_reduction_bound_is_sharp() -> None:
    want, terms = np.ones(4, np.float64), np.full(4, 2.0)
    tol = 3.0 * compare.EPS32 * 2.0
    inside, outside = want.copy(), want.copy()
    inside[3] += 0.99 * tol
    outside[3] += 1.01 * tol
    assert compare.reduction("x", inside, want, terms, 3.0)
    assert not compare.reduction("x", outside, want, terms, 3.0)
    assert not compare.reduction("x", want, want, terms, float("nan"))
    assert not compare.reduction("x", want + 1e-30, want * 0, terms * 0, 3.0)


def _q8() -> tuple[Array, Array]:
    return RNG.integers(-127, 128, (4, 320)).astype(np.int8), RNG.uniform(0.1, 1, (4, 10)).astype(np.float32)


def test_q8_allows_one_step_now_and_then() -> None:
    q, d = _q8()
    near = q.copy()
    near[1, 5] += 1 if near[1, 5] < 127 else -1
    assert_q8(near, q, d.copy(), d)
    assert_q8(q.copy(), q, np.nextafter(d, np.float32(9)), d)


@pytest.mark.parametrize("fault", [_all_signs, _ragged, _longer, _other_axis, _shifted, _empty])
def test_q8_finds_in_codes(fault: Fault) -> None:
    q, d = _q8()
    assert not compare.q8("x", fault(q.copy()), q, d, d)


@pytest.mark.parametrize("fault", FAULTS)
def test_q8_finds_in_scales(fault: Fault) -> None:
    q, d = _q8()
    assert not compare.q8("x", q, q, fault(d.copy()), d)


def test_q8_finds_two_steps_wrap_and_bias() -> None:
    q, d = _q8()
    q[0, :3] = (0, 1, 127)
    for at, value in ((0, 2), (0, -2), (1, -1), (2, -128)):
        wrong = q.copy()
        wrong[0, at] = value
        assert not compare.q8("x", wrong, q, d, d)
    biased = np.where(q < 127, q + 1, q).astype(np.int8)
    assert not compare.q8("x", biased, q, d, d)
    assert not compare.q8("x", q.astype(np.int16), q.astype(np.int16), d, d)


@pytest.mark.parametrize("fault", FAULTS)
def test_logits_find(fault: Fault) -> None:
    x = _logits()
    assert not compare.logits("x", fault(x.copy()), x, max_kl=0.01, max_abs=0.3)
    assert not compare.logits("x", x, fault(x.copy()), max_kl=0.01, max_abs=0.3)


def test_logits_limits_count_separately() -> None:
    x = _logits()
    noise = RNG.uniform(-0.2, 0.2, x.shape)
    assert not compare.logits("x", x + noise, x, max_kl=1e-6, max_abs=0.3)
    assert not compare.logits("x", x + 0.31, x, max_kl=0.01, max_abs=0.3)
    assert not compare.logits("x", x[0], x[0], max_kl=0.01, max_abs=0.3)


def test_logits_accept_only_near_ties() -> None:
    want = np.array([[5.0, 4.95, 0.0]])
    swapped = np.array([[4.96, 5.0, 0.0]])
    assert compare.logits("x", swapped, want, max_kl=1.0, max_abs=0.1, tie=0.06)
    assert not compare.logits("x", swapped, want, max_kl=1.0, max_abs=0.1, tie=0.04)
    assert not compare.logits("x", np.array([[4.9, 4.8, 5.0]]), want, max_kl=9.0, max_abs=9.0, tie=0.06)


def test_kl_divergence_of_known_distributions() -> None:
    p, q = np.array([[0.5, 0.25, 0.25]]), np.array([[0.25, 0.25, 0.5]])
    expected = 0.5 * np.log(2) + 0.25 * np.log(0.5)
    got = compare.kl_divergence(np.log(q) + 3, np.log(p) - 5)
    assert not (abs(float(got[0]) - expected) > 1e-12)


def test_message_names_the_place() -> None:
    x, terms = _dot()
    wrong = x.copy()
    wrong[3, 7] += 1
    with pytest.raises(AssertionError, match=r"out: 1 of 100 differ, first at \[3, 7\]"):
        assert_reduction(wrong, x, terms, 64.0, name="out")
    with pytest.raises(AssertionError, match=r"first at \[3, 7\]"):
        assert_exact(wrong, x)


# ---- guard bands ----


def _poke(guard: Guarded, offset: int, value: int = 0) -> None:
    """Writes one byte at a distance from the first element, as stray native code would."""
    ctypes.memset(guard.address + offset, value, 1)


@pytest.mark.parametrize("skew", [0, 1, 4])
def test_guard_accepts_writes_inside(skew: int) -> None:
    guard = Guarded((3, 5), np.float32, skew=skew)
    assert guard.address % 64 == skew
    _poke(guard, 0)
    _poke(guard, 3 * 5 * 4 - 1)
    guard.array[...] = 1.0
    guard.check()


@pytest.mark.parametrize(("offset", "message"), [(-1, "before.*nearest 1 "), (-256, "before.*nearest 256")])
def test_guard_finds_underrun(offset: int, message: str) -> None:
    guard = Guarded(7, np.int8)
    _poke(guard, offset)
    with pytest.raises(AssertionError, match=message):
        guard.check()


@pytest.mark.parametrize("distance", [0, 1, 63, 255])
def test_guard_finds_overrun(distance: int) -> None:
    guard = Guarded(7, np.float16)
    _poke(guard, 14 + distance)
    with pytest.raises(AssertionError, match=f"after the buffer were written, nearest {distance + 1} away"):
        guard.check()


def test_unwritten_elements_are_seen() -> None:
    guard = Guarded(8, np.float32)
    want = np.arange(8, dtype=np.float32)
    guard.array[:7] = want[:7]
    assert not compare.exact("x", guard.array, want)
    integers = Guarded(8, np.int32)
    assert not (integers.array == 0).any()
    filled = Guarded.copy_of(want)
    assert_exact(filled.array, want)
    filled.check()
