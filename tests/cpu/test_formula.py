"""The scalar formulas of kernels_c/include/formula.h: exp over its whole range, activations, software fma."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from ie import native
from tests.rig import Array

FFI, LIB = native.lib()
F32 = np.float32


def call(name: str, *args: Array) -> Array:
    arrays = [np.ascontiguousarray(a, F32) for a in args]
    out = np.empty_like(arrays[0])
    ptrs = [native.pointer(a, "float *") for a in (*arrays, out)]
    getattr(LIB, f"ie_formula_{name}")(*ptrs, out.size)
    return out


def every(lo: int, hi: int, count: int) -> Array:
    """Floats whose bits are spread evenly over [lo, hi)."""
    return np.linspace(lo, hi - 1, count).astype(np.uint32).view(F32)


def bits(*values: float) -> list[int]:
    return np.array(values, F32).view(np.uint32).tolist()


# ---- exp ----


def test_exp_of_special_values() -> None:
    inf, nan = math.inf, math.nan
    x = np.array([0.0, -0.0, -inf, inf, nan, -86.6, -1000, 88.72, 88.73, 1e30, -1e30, 1e-40], F32)
    y = call("exp", x)
    assert bits(*y[:2]) == bits(1.0, 1.0)
    assert bits(y[2], y[5], y[6], y[10]) == bits(0.0, 0.0, 0.0, 0.0)
    assert np.isnan(y[4]) and y[3] == y[8] == y[9] == inf
    assert np.isfinite(y[7]) and bits(y[11]) == bits(1.0)


def test_exp_is_accurate_everywhere() -> None:
    """Against float64, with bits spread over all floats of the range, and densely near the reduction's seams."""
    seams = (np.arange(-124, 129) + 0.5) * math.log(2)
    near = np.concatenate([np.nextafter(F32(s), F32(d)) for s in seams for d in ([-999.0], [999.0])])
    x = np.concatenate([
        every(0, 0x42B17180, 200_000),  # up to 88.72
        -every(0, 0x42AD0000, 200_000),  # down to -86.5
        seams.astype(F32), near,
    ])  # fmt: skip
    x = x[(x > -86.5) & (x < 88.72)]
    want = np.exp(x.astype(np.float64))
    error = np.abs(call("exp", x).astype(np.float64) / want - 1)
    assert error.max() <= 1.5e-7, x[error.argmax()]


def test_exp_never_falls_by_more_than_its_rounding() -> None:
    x = np.sort(np.concatenate([every(0, 0x42B20000, 60_000), -every(0, 0x42B00000, 60_000)]))
    y = call("exp", x).astype(np.float64)
    assert (y[1:] >= y[:-1] * (1 - 2.5e-7)).all()
    apart = x[1:] - x[:-1] > 3e-7  # steps larger than the error must show
    assert (y[1:] >= y[:-1])[apart].all()


# ---- activations ----


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    return x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(("name", "formula", "slope"), [("silu", silu, 1.0), ("gelu", gelu, 4.0)])
def test_activations_are_accurate(name: str, formula: Callable[[Array], Array], slope: float) -> None:
    """Relative error a few roundings, times how far the exponent's argument is from 0."""
    x = np.concatenate([every(0, 0x42B00000, 50_000), -every(0, 0x42900000, 50_000)])
    with np.errstate(over="ignore"):
        want = formula(x.astype(np.float64))
    got = call(name, x).astype(np.float64)
    assert (
        np.abs(got - want) <= 5e-7 * np.abs(want) * (1 + slope * np.minimum(x.astype(np.float64) ** 2, 90)) + 1e-36
    ).all()


@pytest.mark.parametrize("name", ["silu", "gelu"])
def test_activations_of_special_values(name: str) -> None:
    y = call(name, np.array([0.0, -0.0, 100.0, -200.0, math.nan, 1e-30], F32))
    assert bits(*y[:2]) == bits(0.0, -0.0)
    assert y[2] == 100.0 and y[3] == 0.0 and np.isnan(y[4]) and abs(y[5] / 5e-31 - 1) < 1e-6


# ---- fused multiply-add ----


def nearest_float(value: Fraction) -> Fraction | float:
    """The float32 nearest to an exact value, ties to even; infinity beyond the range."""
    if value == 0:
        return Fraction(0)
    sign, size = (-1 if value < 0 else 1), abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    unit = Fraction(2) ** (max(exponent, -126) - 23)
    count, rest = divmod(size, unit)
    count += rest * 2 > unit or (rest * 2 == unit and count % 2 == 1)
    result = count * unit
    return sign * math.inf if result >= Fraction(2) ** 128 else sign * result


def _floats(pattern: Array) -> Array:
    return pattern.astype(np.uint32).view(F32)


def _hard_sums(rng: np.random.Generator, n: int) -> tuple[Array, Array, Array]:
    """c near the product, or so far from it that the exact sum lies a hair beside the middle of two floats."""
    a = _floats(rng.integers(0x3F000000, 0x40800000, n))
    b = _floats(rng.integers(0x3F000000, 0x40800000, n))
    product = a.astype(np.float64) * b
    shift = rng.integers(-30, 60, n)
    c = (np.ldexp(product.astype(F32), -shift.astype(np.int32)) * rng.choice([-1, 1], n)).astype(F32)
    return a, b, c


def _near_ties(rng: np.random.Generator, n: int) -> tuple[Array, Array, Array]:
    """c plus half a unit of c and so little more or less that a double drops it: rounding there first would make a tie.

    The half unit is a product: (2^23 + i)(2^24 - 2i) lies just below 2^47, and with 2048 for i and one more in the
    second factor just above.
    """
    below, i = rng.random(n) < 0.5, rng.integers(1, 30, n)
    a = np.where(below, 2**23 + i, 2**23 + 2048)
    b = np.where(below, 2**24 - 2 * i, 2**24 - 2 * 2048 + 1)
    count = rng.integers(2**23, 2**24, n)  # c in units
    scale = np.ldexp(1.0, rng.integers(-80, 40, n).astype(np.int32))  # one unit
    sign, other = rng.choice([-1.0, 1.0], n), rng.choice([-1.0, 1.0], n)
    return (a * 2.0**-24).astype(F32), (sign * b * 2.0**-24 * scale).astype(F32), (other * count * scale).astype(F32)


def _ties() -> tuple[Array, Array, Array]:
    """c = 2^24 + an even or odd integer, product half a unit or that plus or minus the smallest amount."""
    out = []
    for c in (2.0**24, 2.0**24 + 2, 2.0**25 - 2):
        for p in (1.0, 1 + 2.0**-23, 1 - 2.0**-24, 3.0, 3 - 2.0**-22):
            for sa in (1, -1):
                for sc in (1, -1):
                    out.append((sa * p, 1.0, sc * c))
    tiny = 2.0**-149
    out += [(2.0**-75, 2.0**-75, tiny), (2.0**-75, 2.0**-75, 0.0), (3 * 2.0**-75, 2.0**-75, tiny), (tiny, 0.5, tiny)]
    out += [(2.0**-100, -(2.0**-100), 2.0**-126), (2.0**-60, 2.0**-90, -tiny), (3.4e38, 1.0, 1e31), (1e30, 1e10, -1e38)]
    return tuple(np.array(col, F32) for col in zip(*out, strict=True))  # type: ignore[return-value]


def test_software_fma_rounds_once() -> None:
    """Against exact rational arithmetic: random bits of all magnitudes, cancellation, ties, subnormal results."""
    rng = np.random.default_rng(8)
    anything = [_floats(rng.integers(0, 0x7F800000, 3000) | (rng.integers(0, 2, 3000) << 31)) for _ in "abc"]
    anything[1][:1500] = 1 / np.maximum(np.abs(anything[0][:1500]), F32(1e-38))  # keeps the product in range
    a, b, c = (
        np.concatenate(x) for x in zip(anything, _hard_sums(rng, 3000), _near_ties(rng, 2000), _ties(), strict=True)
    )
    got = call("fma_soft", a, b, c)
    for x, y, z, g in zip(a.tolist(), b.tolist(), c.tolist(), got.tolist(), strict=True):
        want = nearest_float(Fraction(x) * Fraction(y) + Fraction(z))
        assert g == want, (x.hex(), y.hex(), z.hex(), g.hex())


def test_software_fma_of_special_values() -> None:
    inf, nan = math.inf, math.nan
    table = [
        (inf, 1, 1, inf), (inf, -1, 1, -inf), (1, 1, -inf, -inf), (3e38, 3e38, 0, inf), (-3e38, 3e38, 0, -inf),
        (inf, 0, 1, nan), (inf, 1, -inf, nan), (nan, 1, 1, nan), (1, 1, nan, nan),
        (1, 1, -1, 0.0), (-0.0, 1, -0.0, -0.0), (-0.0, 1, 0.0, 0.0), (0.0, 1, -0.0, 0.0),
    ]  # fmt: skip
    a, b, c, want = (np.array(col, F32) for col in zip(*table, strict=True))
    got = call("fma_soft", a, b, c)
    same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
    assert same.all(), np.flatnonzero(~same)


def test_the_exact_rounding_above_is_right() -> None:
    """Its own check: floats are fixed points, and numpy's double to float conversion agrees."""
    rng = np.random.default_rng(9)
    x = rng.standard_normal(500) * 10.0 ** rng.integers(-44, 38, 500)
    with np.errstate(over="ignore"):
        for value, single in zip(x.tolist(), x.astype(F32).tolist(), strict=True):
            assert nearest_float(Fraction(value)) == single
    assert nearest_float(Fraction(2) ** 128) == math.inf
