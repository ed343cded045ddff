"""Operand types of instructions: raw bits to numpy values and back, and how results are compared.

Raw operands are uint64 arrays. A type is a short name: f32, u16, h2 (two halves), ... 16-bit types live in the low half
of a register whose other half a 16-bit result leaves as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
U16, U32, U64 = np.uint16, np.uint32, np.uint64
SCALARS = {
    "f16": np.float16, "u16": np.uint16, "i16": np.int16, "f32": np.float32, "u32": np.uint32, "i32": np.int32,
    "f64": np.float64, "u64": np.uint64, "i64": np.int64, "u8": np.uint8, "i8": np.int8,
}  # fmt: skip
PAIRS = {"h2": np.float16, "u2": np.uint16, "s2": np.int16}
FLOAT_BITS = {"f16": 16, "f32": 32, "f64": 64, "h2": 16}
SIGN = {"f16": 0x8000, "f32": 0x80000000, "f64": 1 << 63}


def width(kind: str) -> int:
    """Bits of a register operand of this type."""
    return 64 if kind in ("f64", "u64", "i64") else 32


def typed(raw: Array, kind: str) -> Array:
    """Values of the type: the shape of raw, for pairs with a last axis of 2."""
    if kind in PAIRS:
        return np.ascontiguousarray(raw.astype(U32)).view(PAIRS[kind]).reshape(*raw.shape, 2)
    dtype = np.dtype(SCALARS[kind])
    return np.ascontiguousarray(raw.astype(f"u{dtype.itemsize}")).view(dtype)


def untyped(value: Array, kind: str, old: Array) -> Array:
    """Raw bits of a result; what the type does not cover comes from `old`."""
    if kind in PAIRS:
        low = np.ascontiguousarray(np.asarray(value, PAIRS[kind])).view(U16).astype(U64)
        bits = low[..., 0] | low[..., 1] << U64(16)
        return bits | old & U64(0xFFFFFFFF00000000)
    dtype = np.dtype(SCALARS[kind])
    if dtype.kind in "iu":
        value = np.asarray(value)
        value = value.astype(dtype) if value.dtype != object else to_int(value, dtype)
    bits = np.ascontiguousarray(np.asarray(value, dtype)).view(f"u{dtype.itemsize}").astype(U64)
    mask = (1 << 8 * dtype.itemsize) - 1
    return bits | old & U64(~mask & (2**64 - 1)) if mask < 2**64 - 1 else bits


def to_int(value: Array, dtype: Any) -> Array:
    """Python integers modulo the type's width."""
    bits = np.dtype(dtype).itemsize * 8
    flat = np.array([int(v) & ((1 << bits) - 1) for v in value.ravel()], f"u{bits // 8}")
    return flat.view(dtype).reshape(value.shape)


def comparison(kind: str, rtol: float = 0.0, atol: float = 0.0) -> Callable[[Array, Array], Array] | None:
    """For floats: equal values, NaN of any payload, or near enough; other bits of the registers must be equal."""
    if kind not in FLOAT_BITS:
        return None
    covered = (1 << (32 if kind == "h2" else FLOAT_BITS[kind])) - 1

    def same(got: Array, want: Array) -> Array:
        rest = (got ^ want) & U64(~covered & (2**64 - 1)) == 0
        x, y = typed(got, kind), typed(want, kind)
        good = (np.isnan(x) & np.isnan(y)) | (x.view(f"u{x.itemsize}") == y.view(f"u{y.itemsize}"))
        if rtol or atol:
            with np.errstate(all="ignore"):
                far = np.abs(x.astype(np.float64) - y.astype(np.float64))
                good |= far <= atol + rtol * np.abs(y.astype(np.float64))
        return rest & (good.all(-1) if kind == "h2" else good)

    return same


def modified(raw: Array, kind: str, negate: bool, absolute: bool) -> Array:
    """Source modifiers on a float's sign bit."""
    sign = U64(SIGN[kind])
    out = raw & ~sign if absolute else raw
    return out ^ sign if negate else out


def clamped(value: Array) -> Array:
    """Floats to [0, 1]; NaN becomes 0, and so does -0."""
    with np.errstate(invalid="ignore"):
        return np.where(value > 0, np.minimum(value, value.dtype.type(1)), value.dtype.type(0)).astype(value.dtype)
