"""Vector instructions without memory: names, types, and what AMD's instruction pseudo-code says they compute.

Owns: the table of operations; `variants` makes snippets with modifiers from it. Formulas are written on
numpy arrays of the operand types. Does not own: matrix steps (sample kernels compare them with numpy).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.sim.exact import F16, F32, F64, I32, U32, U64, float8, fma, to_float8

Array = np.ndarray[Any, Any]
I16, U16, I64 = np.int16, np.uint16, np.int64


@dataclass(frozen=True)
class Op:
    """form: 1, 2, 3 for VOP1, VOP2, VOP3; p for VOP3P. near: (rtol, atol) of results that hardware only approximates.

    reads_old: the destination's old value is the last operand.
    """

    name: str
    form: str
    out: str
    ins: tuple[str, ...]
    f: Callable[..., Array]
    near: tuple[float, float] = (0.0, 0.0)
    reads_old: bool = False
    int_clamp: Callable[..., Array] | None = None
    domain: Callable[..., Array] | None = None


OPS: list[Op] = []


def ops(
    form: str, signature: str, near: tuple[float, float] = (0.0, 0.0), reads_old: bool = False, **table: Any
) -> None:
    out, *ins = signature.split()
    for name, f in table.items():
        OPS.append(Op(f"v_{name}", form, out, tuple(ins), f, near, reads_old))


def number_min(x: Array, y: Array) -> Array:
    """The smaller, a number rather than NaN, -0 below +0."""
    return np.where((x == 0) & (y == 0), np.where(np.signbit(x), x, y), np.fmin(x, y)).astype(x.dtype)


def number_max(x: Array, y: Array) -> Array:
    return np.where((x == 0) & (y == 0), np.where(np.signbit(x), y, x), np.fmax(x, y)).astype(x.dtype)


def nan_min(x: Array, y: Array) -> Array:
    return np.where(np.isnan(x) | np.isnan(y), x.dtype.type(np.nan), number_min(x, y))


def nan_max(x: Array, y: Array) -> Array:
    return np.where(np.isnan(x) | np.isnan(y), x.dtype.type(np.nan), number_max(x, y))


def median(x: Array, y: Array, z: Array) -> Array:
    """By the pseudo-code: drop the largest, the larger of the rest; the smallest if one is NaN."""
    top = number_max(number_max(x, y), z)
    rest = np.where(top == x, number_max(y, z), np.where(top == y, number_max(x, z), number_max(x, y)))
    return np.where(np.isnan(x) | np.isnan(y) | np.isnan(z), number_min(number_min(x, y), z), rest).astype(x.dtype)


def middle(x: Array, y: Array, z: Array) -> Array:
    return np.sort(np.stack([x, y, z]), 0)[1]


def to_int_clipped(x: Array, dtype: Any, rounding: Callable[[Array], Array] = np.trunc) -> Array:
    """Float to integer: out of range becomes the nearest end, NaN 0."""
    info = np.iinfo(dtype)
    wide = rounding(x.astype(F64))
    inside = np.where(np.isnan(wide), 0.0, np.clip(wide, float(info.min), float(info.max)))
    out = np.clip(inside, -(2.0**62), 2.0**62).astype(I64)
    return np.clip(out, info.min, info.max).astype(dtype)


def fraction(x: Array) -> Array:
    """x - floor(x), kept below 1 as compilers rely on; the pseudo-code does not say so."""
    return np.minimum(x + -np.floor(x), np.nextafter(x.dtype.type(1), x.dtype.type(0)))


def frexp_mantissa(x: Array) -> Array:
    return np.where(np.isfinite(x), np.frexp(x)[0], x).astype(x.dtype)


def frexp_exponent(x: Array) -> Array:
    return np.where(np.isfinite(x), np.frexp(x)[1], 0)


def ldexp(x: Array, n: Array) -> Array:
    """x * 2**n with one rounding: through F64 for the narrow types."""
    if x.dtype == F64:
        return np.ldexp(x, np.clip(n, -5000, 5000))
    return np.ldexp(x.astype(F64), np.clip(n, -600, 600)).astype(x.dtype)


def bits_of(x: Array) -> Array:
    return np.array([v.bit_count() for v in x.ravel().tolist()]).reshape(x.shape)


def length(x: Array) -> Array:
    return np.array([v.bit_length() for v in x.ravel().tolist()]).reshape(x.shape)


def lowest(x: Array) -> Array:
    return np.array([(v & -v).bit_length() - 1 for v in x.ravel().tolist()]).reshape(x.shape)


def reverse(x: Array, n: int) -> Array:
    return np.array([int(f"{v:0{n}b}"[::-1], 2) for v in x.ravel().tolist()], x.dtype).reshape(x.shape)


def sign_bits(x: Array) -> Array:
    """Leading bits equal to the sign, -1 if all are."""
    flipped = np.where(x < 0, ~x, x).view(U32)
    return np.where(flipped == 0, -1, 32 - length(flipped))


def byte(x: Array, i: int) -> Array:
    return x >> U32(8 * i) & U32(255)


def joined(parts: list[Array]) -> Array:
    return sum((p.astype(U32) << U32(8 * i) for i, p in enumerate(parts)), np.zeros(parts[0].shape, U32))


def extended(x: Array, n: Array) -> Array:
    """Signed value of the low n bits (n 0...31), 0 for n = 0."""
    x, n = x.astype(I64), n.astype(I64)
    top = np.where(n > 0, I64(1) << np.maximum(n - 1, 0), 0)
    low = x & ((I64(1) << n) - 1)
    return np.where(n > 0, (low ^ top) - top, 0)


def signed24(x: Array) -> Array:
    return (x << 8) >> 8


def permuted(a: Array, b: Array, selector: Array) -> Array:
    """v_perm_b32: bytes 0...3 of b, 4...7 of a, then sign copies, 0 and 255."""
    whole = (a.astype(U64) << U64(32)) | b.astype(U64)
    parts = []
    for i in range(4):
        s = (selector >> U32(8 * i) & U32(255)).astype(U64)
        plain = whole >> (U64(8) * (s & U64(7))) & U64(255)
        sign_at = np.where(s == 8, 15, np.where(s == 9, 31, np.where(s == 10, 47, 63))).astype(U64)
        sign = np.where(whole >> sign_at & U64(1) == 1, U64(255), U64(0))
        parts.append(np.where(s < 8, plain, np.where(s < 12, sign, np.where(s == 12, U64(0), U64(255)))))
    return joined(parts)


def absolute_sum(a: Array, b: Array, c: Array, bits: int, masked: bool = False) -> Array:
    total = c.astype(U64)
    for at in range(0, 32, bits):
        x, y = (v.astype(U64) >> U64(at) & U64((1 << bits) - 1) for v in (a, b))
        step = np.where(x > y, x - y, y - x)
        total = total + (np.where(y == 0, U64(0), step) if masked else step)
    return total


def dot(a: Array, b: Array, bits: int) -> Array:
    """Sum of products of the unsigned fields, I64."""
    total = np.zeros(a.shape, I64)
    for at in range(0, 32, bits):
        x, y = ((v >> U32(at) & U32((1 << bits) - 1)).astype(I64) for v in (a, b))
        total += x * y
    return total


def classes(x: Array, mask: Array) -> Array:
    """v_cmp_class: signalling, quiet NaN, -inf, -normal, -denormal, -0, +0, +denormal, +normal, +inf from bit 0 on."""
    info = np.finfo(x.dtype)
    raw = x.view(f"u{x.itemsize}")
    quiet = raw >> raw.dtype.type(info.nmant - 1) & raw.dtype.type(1) == 1
    tiny = (x != 0) & (np.abs(x) < info.tiny)
    kind = np.where(np.isinf(x), 0, np.where(tiny, 2, np.where(x == 0, 3, 1)))
    number = np.where(np.signbit(x), 2 + kind, 9 - kind)
    which = np.where(np.isnan(x), np.where(quiet, 1, 0), number)
    return (mask.astype(U32) >> which.astype(U32)) & U32(1) == 1


# One source.
ops("1", "u32 u32", mov_b32=lambda a: a, not_b32=lambda a: ~a, bfrev_b32=lambda a: reverse(a, 32))
ops("1", "i32 u32", clz_i32_u32=lambda a: np.where(a == 0, -1, 32 - length(a)), ctz_i32_b32=lowest)
ops("1", "i32 i32", cls_i32=sign_bits)
ops("1", "f32 i32", cvt_f32_i32=lambda a: a.astype(F32))
ops("1", "f32 u32", cvt_f32_u32=lambda a: a.astype(F32))
for _i in range(4):
    ops("1", "f32 u32", **{f"cvt_f32_ubyte{_i}": lambda a, i=_i: byte(a, i).astype(F32)})
ops("1", "u32 f32", cvt_u32_f32=lambda a: to_int_clipped(a, U32))
ops("1", "i32 f32", cvt_i32_f32=lambda a: to_int_clipped(a, I32))
ops("1", "i32 f32", cvt_nearest_i32_f32=lambda a: to_int_clipped(np.floor(a + F32(0.5)), I32))
ops("1", "i32 f32", cvt_floor_i32_f32=lambda a: to_int_clipped(a, I32, np.floor))
ops("1", "f16 f32", cvt_f16_f32=lambda a: a.astype(F16))
ops("1", "f32 f16", cvt_f32_f16=lambda a: a.astype(F32))
ops("1", "f32 f64", cvt_f32_f64=lambda a: a.astype(F32))
ops("1", "f64 f32", cvt_f64_f32=lambda a: a.astype(F64))
ops("1", "f64 i32", cvt_f64_i32=lambda a: a.astype(F64))
ops("1", "f64 u32", cvt_f64_u32=lambda a: a.astype(F64))
ops("1", "i32 f64", cvt_i32_f64=lambda a: to_int_clipped(a, I32))
ops("1", "u32 f64", cvt_u32_f64=lambda a: to_int_clipped(a, U32))
ops("1", "f16 u16", cvt_f16_u16=lambda a: a.astype(F16))
ops("1", "f16 i16", cvt_f16_i16=lambda a: a.astype(F16))
ops("1", "u16 f16", cvt_u16_f16=lambda a: to_int_clipped(a, U16))
ops("1", "i16 f16", cvt_i16_f16=lambda a: to_int_clipped(a, I16))
ops("1", "i32 i16", cvt_i32_i16=lambda a: a.astype(I32))
ops("1", "u32 u16", cvt_u32_u16=lambda a: a.astype(U32))
ops("1", "u16 u16", not_b16=lambda a: ~a)
for _t in ("f16", "f32", "f64"):
    _round = {"trunc": np.trunc, "ceil": np.ceil, "floor": np.floor, "rndne": np.rint, "fract": fraction}
    ops("1", f"{_t} {_t}", **{f"{k}_{_t}": f for k, f in _round.items()}, **{f"frexp_mant_{_t}": frexp_mantissa})
ops("1", "i32 f32", frexp_exp_i32_f32=frexp_exponent)
ops("1", "i32 f64", frexp_exp_i32_f64=frexp_exponent)
ops("1", "i16 f16", frexp_exp_i16_f16=frexp_exponent)
ULP = (1.3e-7, 1.5e-45)
ops("1", "f32 f32", ULP, rcp_f32=lambda a: 1 / a.astype(F64), rsq_f32=lambda a: 1 / np.sqrt(a.astype(F64)))
ops("1", "f32 f32", ULP, sqrt_f32=lambda a: np.sqrt(a.astype(F64)), rcp_iflag_f32=lambda a: 1 / a.astype(F64))
ops("1", "f32 f32", ULP, exp_f32=lambda a: np.exp2(a.astype(F64)))
ops("1", "f32 f32", (2e-7, 2e-7), log_f32=lambda a: np.log2(a.astype(F64)))
ops("1", "f64 f64", (1e-7, 0), rcp_f64=lambda a: 1 / a, rsq_f64=lambda a: 1 / np.sqrt(a), sqrt_f64=np.sqrt)
HALF = (1e-3, 6e-8)
ops("1", "f16 f16", HALF, rcp_f16=lambda a: 1 / a.astype(F32), rsq_f16=lambda a: 1 / np.sqrt(a.astype(F32)))
ops("1", "f16 f16", HALF, sqrt_f16=np.sqrt, exp_f16=lambda a: np.exp2(a.astype(F32)))
ops("1", "f16 f16", (1e-3, 1e-3), log_f16=lambda a: np.log2(a.astype(F32)))
ops("1", "u16 s2", sat_pk_u8_i16=lambda a: np.clip(a[..., 0], 0, 255) | np.clip(a[..., 1], 0, 255).astype(I32) << 8)
ops("1", "f32 u32", cvt_f32_fp8=lambda a: float8(a & U32(255), 4), cvt_f32_bf8=lambda a: float8(a & U32(255), 5))

# Two sources.
for _t in ("f16", "f32"):
    ops("2", f"{_t} {_t} {_t}", **{
        f"add_{_t}": lambda a, b: a + b, f"sub_{_t}": lambda a, b: a - b, f"subrev_{_t}": lambda a, b: b - a,
        f"mul_{_t}": lambda a, b: a * b, f"min_num_{_t}": number_min, f"max_num_{_t}": number_max,
    })  # fmt: skip
    ops("3", f"{_t} {_t} {_t}", **{f"minimum_{_t}": nan_min, f"maximum_{_t}": nan_max})
    ops("3", f"{_t} {_t} {_t} {_t}", **{
        f"fma_{_t}": lambda a, b, c: fma(a, b, c, a.dtype), f"med3_num_{_t}": median,
        f"min3_num_{_t}": lambda a, b, c: number_min(number_min(a, b), c),
        f"max3_num_{_t}": lambda a, b, c: number_max(number_max(a, b), c),
        f"minimum3_{_t}": lambda a, b, c: nan_min(nan_min(a, b), c),
        f"maximum3_{_t}": lambda a, b, c: nan_max(nan_max(a, b), c),
        f"minmax_num_{_t}": lambda a, b, c: number_max(number_min(a, b), c),
        f"maxmin_num_{_t}": lambda a, b, c: number_min(number_max(a, b), c),
    })  # fmt: skip
    ops("2", f"{_t} {_t} {_t} {_t}", reads_old=True, **{f"fmac_{_t}": lambda a, b, d: fma(a, b, d, a.dtype)})
ops(
    "2",
    "f64 f64 f64",
    add_f64=lambda a, b: a + b,
    mul_f64=lambda a, b: a * b,
    min_num_f64=number_min,
    max_num_f64=number_max,
)
ops("2", "f16 f16 i16", ldexp_f16=ldexp)
ops("3", "f32 f32 i32", ldexp_f32=ldexp)
ops("3", "f64 f64 i32", ldexp_f64=ldexp)
ops("2", "f32 f32 f32", mul_dx9_zero_f32=lambda a, b: np.where((a == 0) | (b == 0), F32(0), a * b))
ops("2", "u32 u32 u32", and_b32=lambda a, b: a & b, or_b32=lambda a, b: a | b, xor_b32=lambda a, b: a ^ b)
ops("2", "u32 u32 u32", xnor_b32=lambda a, b: ~(a ^ b), min_u32=np.minimum, max_u32=np.maximum)
ops("2", "i32 i32 i32", min_i32=np.minimum, max_i32=np.maximum, ashrrev_i32=lambda a, b: b >> (a & 31))
ops("2", "u32 u32 u32", lshlrev_b32=lambda a, b: b << (a & U32(31)), lshrrev_b32=lambda a, b: b >> (a & U32(31)))
ops("2", "u64 u32 u64", lshlrev_b64=lambda a, b: b << (a & U32(63)).astype(U64))
ops("3", "u64 u32 u64", lshrrev_b64=lambda a, b: b >> (a & U32(63)).astype(U64))
ops("3", "i64 u32 i64", ashrrev_i64=lambda a, b: b >> (a & U32(63)).astype(I64))
ops("2", "u32 u32 u32", add_nc_u32=lambda a, b: a + b, sub_nc_u32=lambda a, b: a - b, subrev_nc_u32=lambda a, b: b - a)
ops("2", "i32 i32 i32", mul_i32_i24=lambda a, b: signed24(a) * signed24(b))
ops("2", "i32 i32 i32", mul_hi_i32_i24=lambda a, b: (signed24(a).astype(I64) * signed24(b)) >> 32)
ops("2", "u32 u32 u32", mul_u32_u24=lambda a, b: (a & U32(0xFFFFFF)) * (b & U32(0xFFFFFF)))
ops("2", "u32 u32 u32", mul_hi_u32_u24=lambda a, b: ((a & U32(0xFFFFFF)).astype(U64) * (b & U32(0xFFFFFF))) >> U64(32))
ops("3", "u32 u32 u32", mul_lo_u32=lambda a, b: a * b, mul_hi_u32=lambda a, b: (a.astype(U64) * b) >> U64(32))
ops("3", "i32 i32 i32", mul_hi_i32=lambda a, b: (a.astype(I64) * b) >> 32)
ops("3", "u32 u32 u32", bcnt_u32_b32=lambda a, b: bits_of(a).astype(U32) + b)
ops("3", "u32 u32 u32", bfm_b32=lambda a, b: ((U32(1) << (a & U32(31))) - U32(1)) << (b & U32(31)))
ops("3", "i32 i32 i32", add_nc_i32=lambda a, b: a + b, sub_nc_i32=lambda a, b: a - b)
ops("3", "u16 u16 u16", add_nc_u16=lambda a, b: a + b, sub_nc_u16=lambda a, b: a - b, mul_lo_u16=lambda a, b: a * b)
ops(
    "3",
    "i16 i16 i16",
    add_nc_i16=lambda a, b: a + b,
    sub_nc_i16=lambda a, b: a - b,
    min_i16=np.minimum,
    max_i16=np.maximum,
)
ops("3", "u16 u16 u16", min_u16=np.minimum, max_u16=np.maximum, lshlrev_b16=lambda a, b: b << (a & U16(15)))
ops(
    "3",
    "u16 u16 u16",
    lshrrev_b16=lambda a, b: b >> (a & U16(15)),
    and_b16=lambda a, b: a & b,
    or_b16=lambda a, b: a | b,
)
ops("3", "u16 u16 u16", xor_b16=lambda a, b: a ^ b)
ops("3", "i16 i16 i16", ashrrev_i16=lambda a, b: b >> (a & 15))
ops("3", "u32 u32 u32", cvt_pk_u16_u32=lambda a, b: np.minimum(a, 65535) | np.minimum(b, 65535).astype(U32) << U32(16))
ops(
    "3",
    "u32 i32 i32",
    cvt_pk_i16_i32=lambda a, b: (np.clip(a, -32768, 32767) & 0xFFFF) | np.clip(b, -32768, 32767) << 16,
)
ops("3", "u32 f16 f16", pack_b32_f16=lambda a, b: a.view(U16).astype(U32) | b.view(U16).astype(U32) << U32(16))


def _norm(low: int, high: int) -> Callable[[Array, Array], Array]:
    def pack(a: Array, b: Array) -> Array:
        parts = [
            np.where(np.isnan(v), 0, np.rint(np.clip(v.astype(F64), low, 1) * high)).astype(I64) & 0xFFFF
            for v in (a, b)
        ]
        return parts[0] | parts[1] << 16

    return pack


ops("3", "u32 f32 f32", cvt_pk_norm_i16_f32=_norm(-1, 32767), cvt_pk_norm_u16_f32=_norm(0, 65535))


def toward_zero(a: Array) -> Array:
    """F32 to F16 without rounding up: magnitudes above the largest finite value stay there."""
    near = a.astype(F16)
    over = np.abs(near.astype(F64)) > np.abs(a.astype(F64))
    return np.where(over, np.nextafter(near, F16(0)), near).astype(F16)


ops("2", "h2 f32 f32", cvt_pk_rtz_f16_f32=lambda a, b: np.stack([toward_zero(a), toward_zero(b)], -1))
ops("3", "u16 f32 f32", cvt_pk_fp8_f32=lambda a, b: to_float8(a, 4) | to_float8(b, 4) << U32(8))
ops("3", "u16 f32 f32", cvt_pk_bf8_f32=lambda a, b: to_float8(a, 5) | to_float8(b, 5) << U32(8))

# Three sources.
ops("3", "u32 u32 u32 u32", add3_u32=lambda a, b, c: a + b + c, or3_b32=lambda a, b, c: a | b | c)
ops("3", "u32 u32 u32 u32", xor3_b32=lambda a, b, c: a ^ b ^ c, and_or_b32=lambda a, b, c: (a & b) | c)
ops("3", "u32 u32 u32 u32", lshl_add_u32=lambda a, b, c: (a << (b & U32(31))) + c, xad_u32=lambda a, b, c: (a ^ b) + c)
ops("3", "u32 u32 u32 u32", add_lshl_u32=lambda a, b, c: (a + b) << (c & U32(31)))
ops(
    "3",
    "u32 u32 u32 u32",
    lshl_or_b32=lambda a, b, c: (a << (b & U32(31))) | c,
    bfi_b32=lambda a, b, c: (a & b) | (~a & c),
)
ops("3", "u32 u32 u32 u32", bfe_u32=lambda a, b, c: (a >> (b & U32(31))) & ((U32(1) << (c & U32(31))) - U32(1)))
ops("3", "i32 i32 i32 i32", bfe_i32=lambda a, b, c: extended(a >> (b & 31), c & 31))
ops("3", "u32 u32 u32 u32", alignbit_b32=lambda a, b, c: ((a.astype(U64) << U64(32)) | b) >> (c & U32(31)).astype(U64))
ops(
    "3",
    "u32 u32 u32 u32",
    alignbyte_b32=lambda a, b, c: ((a.astype(U64) << U64(32)) | b) >> (U32(8) * (c & U32(3))).astype(U64),
)
ops("3", "u32 u32 u32 u32", perm_b32=permuted)
ops("3", "u32 u32 u32 u32", lerp_u8=lambda a, b, c: joined(
    [(byte(a, i) + byte(b, i) + (c >> U32(8 * i) & U32(1))) >> U32(1) for i in range(4)]))  # fmt: skip
ops(
    "3",
    "u32 u32 u32 u32",
    sad_u8=lambda a, b, c: absolute_sum(a, b, c, 8),
    sad_u16=lambda a, b, c: absolute_sum(a, b, c, 16),
)
ops(
    "3",
    "u32 u32 u32 u32",
    sad_u32=lambda a, b, c: absolute_sum(a, b, c, 32),
    msad_u8=lambda a, b, c: absolute_sum(a, b, c, 8, True),
)
ops("3", "u32 u32 u32 u32", sad_hi_u8=lambda a, b, c: (absolute_sum(a, b, U32(0) * c, 8) << U64(16)) + c)
ops("3", "i32 i32 i32 i32", mad_i32_i24=lambda a, b, c: signed24(a) * signed24(b) + c)
ops("3", "u32 u32 u32 u32", mad_u32_u24=lambda a, b, c: (a & U32(0xFFFFFF)) * (b & U32(0xFFFFFF)) + c)
ops("3", "u32 u16 u16 u32", mad_u32_u16=lambda a, b, c: a.astype(U32) * b + c)
ops("3", "i32 i16 i16 i32", mad_i32_i16=lambda a, b, c: a.astype(I32) * b + c)
ops("3", "u16 u16 u16 u16", mad_u16=lambda a, b, c: a * b + c)
ops("3", "i16 i16 i16 i16", mad_i16=lambda a, b, c: a * b + c)
for _t, _low, _high in (("u32", np.minimum, np.maximum), ("i32", np.minimum, np.maximum)):
    ops("3", f"{_t} {_t} {_t} {_t}", **{
        f"min3_{_t}": lambda a, b, c: np.minimum(np.minimum(a, b), c), f"med3_{_t}": middle,
        f"max3_{_t}": lambda a, b, c: np.maximum(np.maximum(a, b), c),
        f"minmax_{_t}": lambda a, b, c: np.maximum(np.minimum(a, b), c),
        f"maxmin_{_t}": lambda a, b, c: np.minimum(np.maximum(a, b), c),
    })  # fmt: skip
for _t in ("u16", "i16"):
    ops("3", f"{_t} {_t} {_t} {_t}", **{
        f"min3_{_t}": lambda a, b, c: np.minimum(np.minimum(a, b), c), f"med3_{_t}": middle,
        f"max3_{_t}": lambda a, b, c: np.maximum(np.maximum(a, b), c),
    })  # fmt: skip

# Packed.
ops("p", "h2 h2 h2", pk_add_f16=lambda a, b: a + b, pk_mul_f16=lambda a, b: a * b, pk_min_num_f16=number_min)
ops("p", "h2 h2 h2", pk_max_num_f16=number_max, pk_minimum_f16=nan_min, pk_maximum_f16=nan_max)
ops("p", "h2 h2 h2 h2", pk_fma_f16=lambda a, b, c: fma(a, b, c, F16))
ops("p", "u2 u2 u2", pk_add_u16=lambda a, b: a + b, pk_sub_u16=lambda a, b: a - b, pk_mul_lo_u16=lambda a, b: a * b)
ops("p", "u2 u2 u2", pk_min_u16=np.minimum, pk_max_u16=np.maximum, pk_lshlrev_b16=lambda a, b: b << (a & U16(15)))
ops("p", "u2 u2 u2", pk_lshrrev_b16=lambda a, b: b >> (a & U16(15)))
ops(
    "p",
    "s2 s2 s2",
    pk_add_i16=lambda a, b: a + b,
    pk_sub_i16=lambda a, b: a - b,
    pk_min_i16=np.minimum,
    pk_max_i16=np.maximum,
)
ops("p", "s2 s2 s2", pk_ashrrev_i16=lambda a, b: b >> (a & 15))
ops("p", "u2 u2 u2 u2", pk_mad_u16=lambda a, b, c: a * b + c)
ops("p", "s2 s2 s2 s2", pk_mad_i16=lambda a, b, c: a * b + c)
ops("p", "u32 u32 u32 u32", dot4_u32_u8=lambda a, b, c: dot(a, b, 8) + c, dot8_u32_u4=lambda a, b, c: dot(a, b, 4) + c)
