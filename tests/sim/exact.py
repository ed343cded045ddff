"""Arithmetic as the hardware rounds it, in numpy: fused multiply-add, the wave's tree, eight-bit floats."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
F16, F32, F64, I32, U32, U64 = np.float16, np.float32, np.float64, np.int32, np.uint32, np.uint64


def _sum_to_odd(a: Array, b: Array) -> Array:
    """a + b in F64, rounded so that a second rounding to fewer digits gives what one rounding would (round to odd)."""
    with np.errstate(all="ignore"):
        total = a + b
        part = total - a
        error = (a - (total - part)) + (b - part)
    bits = total.view(U64)
    fix = np.isfinite(total) & (error != 0) & ((bits & np.uint64(1)) == 0)
    away = (error > 0) == (total > 0)
    return np.where(fix, np.where(away, bits + np.uint64(1), bits - np.uint64(1)), bits).view(F64)


def fma(a: Any, b: Any, c: Any, dtype: Any = F32) -> Array:
    """a * b + c with one rounding to F32 or F16; the operands are values of at most F32."""
    with np.errstate(all="ignore"):
        product = np.asarray(a, F64) * np.asarray(b, F64)
        product, addend = (np.array(v) for v in np.broadcast_arrays(product, np.asarray(c, F64)))
        return _sum_to_odd(product, addend).astype(dtype)


def fma64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c with one rounding to F64, for finite values."""
    wide = zip(a.ravel().tolist(), b.ravel().tolist(), c.ravel().tolist(), strict=True)
    return np.array([float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in wide]).reshape(a.shape)


def wave_sum(x: Array) -> Array:
    """Sum over the last axis, of 32 lanes or fewer, neighbours first, in the type of x."""
    while x.shape[-1] > 1:
        x = x[..., 0::2] + x[..., 1::2]
    return x[..., 0]


def float8(code: Array, exponent_bits: int) -> Array:
    """Values of OCP E4M3 (4 exponent bits; no infinity) or E5M2 (5) codes, as F32."""
    mantissa_bits, code = 7 - exponent_bits, code.astype(I32)
    bias, sign = (1 << (exponent_bits - 1)) - 1, np.where(code & 0x80, -1.0, 1.0)
    exponent, mantissa = (code & 0x7F) >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
    fraction = mantissa / float(1 << mantissa_bits)
    value = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    top = exponent == (1 << exponent_bits) - 1
    if exponent_bits == 4:
        value = np.where(top & (mantissa == 7), np.nan, value)
    else:
        value = np.where(top, np.where(mantissa == 0, np.inf, np.nan), value)
    return (sign * value).astype(F32)


def to_float8(x: Array, exponent_bits: int) -> Array:
    """Nearest-even codes; what is too large becomes infinity (E5M2) or NaN (E4M3)."""
    codes = np.arange(128, dtype=U32)
    values = float8(codes, exponent_bits).astype(F64)
    finite = values[np.isfinite(values)]
    limit = finite[-1] + (finite[-1] - finite[-2]) / 2
    size = np.abs(x.astype(F64))
    above = np.clip(np.searchsorted(finite, size), 1, len(finite) - 1)
    low, high = finite[above - 1], finite[above]
    up = (size - low > high - size) | ((size - low == high - size) & (above % 2 == 0))
    code = np.where(up, above, above - 1)
    over, special = (0x7F, 0x7F) if exponent_bits == 4 else (0x7C, 0x7E)
    # A tie at the limit goes to the even code above, which does not exist.
    code = np.where((size > limit) | ((size == limit) & (len(finite) % 2 == 0)), over, code)
    code = np.where(np.isnan(size), special, code)
    return (code | np.where(np.signbit(x), 0x80, 0)).astype(U32)


def bfloat16(x: Array) -> Array:
    """Nearest-even bfloat16 bits of F32, NaN made quiet."""
    bits = x.astype(F32).view(U32).astype(U64)
    rounded = (bits + np.uint64(0x7FFF) + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(x), (bits >> np.uint64(16)) | np.uint64(0x40), rounded).astype(np.uint16)


def from_bfloat16(bits: Array) -> Array:
    return (bits.astype(U32) << np.uint32(16)).view(F32)
