"""Expected results of the kernels about arithmetic: sixteen bits, integers, F32, F64, conversions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.sim.case import Case, Near, case, specials, whole
from tests.sim.exact import F16, F32, F64, I32, U32, U64, bfloat16, float8, fma, fma64, from_bfloat16, to_float8
from tests.sim.ops_vector import fraction, median, number_max, number_min

Array = np.ndarray[Any, Any]
Rng = np.random.Generator
N = 192


def quiet(function: Any) -> Any:
    """Overflow and invalid operations are what these cases are about."""

    def wrapped(random: Rng) -> Case:
        with np.errstate(all="ignore"):
            return function(random)

    wrapped.__name__ = function.__name__
    return wrapped


def _launch(source: str, kernel: str, inputs: list[Array], want: Array, *scalars: Any) -> Case:
    """in0, in1, ..., out[rows][n], n: N elements in three workgroups of 64."""
    args = [*inputs, np.zeros_like(want), U32(N), *scalars]
    return Case(source, kernel, [3], [64], args, {len(inputs): want})


@case
@quiet
def f16_packed(random: Rng) -> Case:
    x, y, z = (specials(F16, 2 * N, random).reshape(N, 2) for _ in range(3))
    want = [
        x + y,
        x * y,
        fma(x, y, z, F16),
        number_min(x, y),
        number_max(x, y),
        x - y[:, ::-1],
        -x * y[:, :1],
        x + np.abs(z),
    ]
    want[7][:, 1] = y[:, 1] + np.abs(z[:, 1])
    return _launch("half", "f16_packed", [x, y, z], np.stack(want))


@case
@quiet
def f16_scalar(random: Rng) -> Case:
    x, y = specials(F16, N, random), specials(F16, N, random)
    bits = x.view(np.uint16)
    tame = np.where(np.abs(x) < 1000, x, F16(3)).astype(np.int16)
    half = F16(0.5)
    want = [x + y, x * y, fma(x, y, 1, F16), np.where(x > y, x, -y), np.floor(x), np.rint(x), np.abs(x) - y]
    want += [np.trunc(y), np.ceil(y), tame.astype(F16), bits.astype(F16)]
    want.append(median(x, y, np.full(N, half)))
    return _launch("half", "f16_scalar", [x, y], np.stack([w.astype(F16) for w in want]))


@case
@quiet
def f16_mixed(random: Rng) -> Case:
    x, y = (specials(F16, 2 * N, random).reshape(N, 2) for _ in range(2))
    s = specials(F32, N, random)
    rows = np.zeros((3, N), F32)
    rows[0] = s
    want = [fma(x[:, 0], y[:, 0], s), fma(x[:, 1], y[:, 1], x[:, 0]), fma(-x[:, 1].astype(F32), s, np.abs(y[:, 0]))]
    narrow = np.stack([fma(x[:, 0], y[:, 1], s), fma(x[:, 1], s, y[:, 0])], -1)
    args = [x, y, rows, np.zeros((N, 2), F16), U32(N)]
    # To F32 and from there to F16, in one instruction as in two.
    return Case("half", "f16_mixed", [3], [64], args, {2: np.stack(want), 3: narrow.astype(F16)})


def _parts(x: Array, bits: int, signed: bool) -> Array:
    count = 32 // bits
    out = np.stack(
        [x.astype(U64) >> np.uint64(bits * i) & np.uint64((1 << bits) - 1) for i in range(count)], -1
    ).astype(np.int64)
    return np.where(out >= 1 << (bits - 1), out - (1 << bits), out) if signed else out


@case
@quiet
def dots(random: Rng) -> Case:
    x, y, z = whole(U32, N, random), whole(U32, N, random), whole(I32, N, random)

    def dot(bits: int, sx: bool, sy: bool, clamp: bool, unsigned: bool = False) -> Array:
        total = (_parts(x, bits, sx) * _parts(y, bits, sy)).sum(-1) + (z.view(U32) if unsigned else z).astype(np.int64)
        if clamp:
            total = np.clip(total, 0, 2**32 - 1) if unsigned else np.clip(total, -(2**31), 2**31 - 1)
        return (total & 0xFFFFFFFF).astype(U32).view(I32)

    want = [dot(8, True, True, False), dot(8, True, False, False), dot(8, False, True, True)]
    want += [dot(8, False, False, False, True), dot(8, False, False, True, True)]
    want += [dot(4, True, True, False), dot(4, False, True, True), dot(4, False, False, False, True)]
    return _launch("half", "dots", [x, y, z], np.stack(want))


@case
@quiet
def dot_halves(random: Rng) -> Case:
    x, y = (random.integers(-50, 50, (N, 2)).astype(F16) / F16(4) for _ in range(2))
    c = random.integers(-50, 50, N).astype(F32)
    want = (x.astype(F32) * y.astype(F32)).sum(-1) + c
    return Case("half", "dot_halves", [3], [64], [x, y, c, np.zeros(N, F32)], {3: want})


@case
@quiet
def dot_small(random: Rng) -> Case:
    """Few significant bits and exponents near zero: every order of adding gives the same."""
    codes = random.integers(0, 2, (2, N, 4)).astype(np.uint8) << 7 | random.integers(0x34, 0x44, (2, N, 4)).astype(
        np.uint8
    )
    c = random.integers(-50, 50, N).astype(F32)
    a, b = codes
    want = [(float8(a, i).astype(F64) * float8(b, j)).sum(-1) + c for i, j in ((4, 4), (4, 5), (5, 4), (5, 5))]
    words = [np.ascontiguousarray(v).view(U32)[:, 0] for v in codes]
    wide = [from_bfloat16(v.reshape(-1).view(np.uint16)).reshape(N, 2).astype(F64) for v in words]
    # bfloat16 reads two codes as one number: with eight significant bits the sum may round.
    last = (wide[0] * wide[1]).sum(-1) + c
    near = Near(np.stack([*want, last]).astype(F32), 2e-7, 1e-5)
    return Case("half", "dot_small", [3], [64], [*words, c, np.zeros((5, N), F32), U32(N)], {3: near})


@case
@quiet
def fp8(random: Rng) -> Case:
    v, x = whole(U32, N, random), (random.standard_normal(N) * 10.0 ** random.integers(-4, 4, N)).astype(F32)
    x[:6] = [0.0, -0.0, 448.0, 1.0625, 2.0**-9, 57344.0]
    byte = [(v >> U32(8 * i) & U32(255)) for i in range(4)]
    out = [float8(byte[0], 4), float8(byte[3], 4), float8(byte[1], 5), float8(byte[2], 4), float8(byte[3], 4)]
    out += [float8(byte[0], 5), float8(byte[1], 5)]
    pair = to_float8(x, 4) | to_float8(-x, 4) << U32(8)
    high = (to_float8(x, 5) | to_float8(x * F32(0.5), 5) << U32(8)) << U32(16) | v & U32(0xFFFF)
    args = [v, x, np.zeros((7, N), F32), np.zeros((2, N), U32), U32(N)]
    return Case("half", "fp8", [3], [64], args, {2: np.stack(out), 3: np.stack([pair, high])})


def _quotient(x: Array, y: Array) -> Array:
    """Towards zero."""
    pairs = zip(x.tolist(), y.tolist(), strict=True)
    return np.array([abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in pairs], object)


def _wrap(x: Array, dtype: Any) -> Array:
    width = np.dtype(dtype).itemsize * 8
    return np.array([int(v) % (1 << width) for v in x], dtype)


@case
@quiet
def div32(random: Rng) -> Case:
    x, y = whole(U32, N, random), whole(U32, N, random)
    y[y == 0] = 3
    sx, sy = x.view(I32), (y | U32(1 << 20)).view(I32)
    q = _quotient(sx, sy)
    tenth = _quotient(sx, np.full(N, 10))
    small = (x & U32(0xFFFF)) // (y & U32(0xFFFF) | U32(1))
    want = [x // y, x % y, _wrap(q, U32), _wrap(sx - q * sy.astype(object), U32), x // U32(7), _wrap(tenth, U32), small]
    return _launch("integer", "div32", [x, y], np.stack(want))


@case
@quiet
def div64(random: Rng) -> Case:
    x, y = whole(U64, N, random), whole(U64, N, random)
    y[y == 0] = 3
    sx, sy = x.view(np.int64), (y | U64(1 << 40)).view(np.int64)
    q = _quotient(sx, sy)
    want = [x // y, x % y, _wrap(q, U64), _wrap(sx.astype(object) - q * sy.astype(object), U64)]
    return _launch("integer", "div64", [x, y], np.stack(want))


@case
@quiet
def wide64(random: Rng) -> Case:
    x, y = whole(U64, N, random), whole(U64, N, random)
    sx, sy, shift = x.view(np.int64), y.view(np.int64), y & U64(63)
    ox, oy = x.astype(object), y.astype(object)
    low = [v.astype(U32).view(I32).astype(object) for v in (x, y)]
    compared = (x < y) + 2 * (sx < sy) + 4 * (x == y) + 8 * (x >= y)
    counts = [v.bit_count() + 100 * (64 - (v | 1).bit_length()) for v in x.tolist()]
    zeros = [((w | 1 << 63) & -(w | 1 << 63)).bit_length() - 1 for w in y.tolist()]
    want = [x + y, x - y, x * y, x << shift, x >> shift, (sx >> shift.view(np.int64)).view(U64), compared.astype(U64)]
    want += [_wrap(ox * oy // 2**64, U64), x.astype(U32).astype(U64) * y.astype(U32) + (x >> U64(32))]
    want += [_wrap(low[0] * low[1] + oy, U64), (x & y) | (~x & (y >> U64(1)))]
    want += [np.array(counts, U64) + U64(10000) * np.array(zeros, U64), np.maximum(x, y)]
    return _launch("integer", "wide64", [x, y], np.stack(want))


def _bytes(x: Array) -> Array:
    return np.stack([x >> U32(8 * i) & U32(255) for i in range(4)], -1).astype(np.int64)


def _join(parts: Array) -> Array:
    return sum((parts[:, i].astype(U32) << U32(8 * i) for i in range(4)), np.zeros(len(parts), U32))


@case
@quiet
def bits(random: Rng) -> Case:
    x, y = whole(U32, N, random), whole(U32, N, random)
    sx, sy, by_y = x.view(I32), y.view(I32), y & U32(31)
    both = (x.astype(U64) << U64(32)) | y.astype(U64)
    length = np.array([v.bit_length() for v in x.tolist()])
    lowest = np.array([(v & -v).bit_length() - 1 if v else 32 for v in x.tolist()])
    turned = np.array([int(f"{v:032b}"[::-1], 2) for v in x.tolist()], U32)
    field = (x >> by_y) & U32(127)
    signed = (sx >> by_y.view(I32)).astype(np.int64) & 511
    signed = np.where(signed > 255, signed - 512, signed)
    ybytes, xbytes = _bytes(y), _bytes(x)
    picked = np.stack([xbytes[:, 3], ybytes[:, 1], xbytes[:, 1], np.zeros(N, np.int64)], -1)
    middle = np.sort(np.stack([sx, sy, np.full(N, 1000, I32)]), 0)[1]
    m24 = lambda v: (v << U32(8)).view(I32) >> 8  # noqa: E731
    masked = np.where(ybytes > 0, np.abs(xbytes - ybytes), 0).sum(-1) + 9
    lerp = (xbytes + ybytes + np.array([0, 1, 0, 1])) >> 1
    want = [
        np.array([v.bit_count() for v in x.tolist()]) + y.astype(np.int64), 32 - length, lowest, turned, field, signed,
        (x.astype(U64) * y) >> U64(32), (sx.astype(np.int64) * sy) >> 32, _join(picked),
        both >> (x & U32(31)).astype(U64), both >> (U32(8) * (y & U32(3))).astype(U64), x.byteswap(),
        (x & y) | (~x & U32(0x12345678)), np.abs(xbytes - ybytes).sum(-1) + 5, (x << U32(5)) + y,
        ((x + y) << U32(3)) ^ (x | y), np.minimum(x.astype(U64) + y, U64(2**32 - 1)),
        np.clip(sx.astype(np.int64) - sy, -(2**31), 2**31 - 1), middle,
        (x << by_y) | (sx >> by_y.view(I32)).view(U32), (x << by_y) | (x >> ((U32(32) - by_y) & U32(31))),
        (x & U32(0xFFFFFF)) * (y & U32(0xFFFFFF)) + (m24(x) * m24(y)).view(U32), masked, _join(lerp),
    ]  # fmt: skip
    return _launch("integer", "bits", [x, y], np.stack([(w.astype(np.int64) & 0xFFFFFFFF).astype(U32) for w in want]))


@case
@quiet
def packed16(random: Rng) -> Case:
    x, y = (whole(np.uint16, 2 * N, random).reshape(N, 2) for _ in range(2))
    sx, sy, shift = x.view(np.int16), y.view(np.int16), y & np.uint16(15)
    back = lambda v: v.astype(np.int16).view(np.uint16)  # noqa: E731
    want = [
        x + y,
        x - y,
        x * y + x,
        np.minimum(x, y),
        np.maximum(x, y),
        back(np.minimum(sx, sy)),
        back(np.maximum(sx, sy)),
    ]
    want += [
        x << shift,
        x >> shift,
        back(sx >> shift.view(np.int16)),
        np.minimum(x.astype(U32) + y, 65535).astype(np.uint16),
    ]
    want += [back(np.clip(sx.astype(I32) - sy, -32768, 32767)), np.stack([x[:, 1], y[:, 0]], -1)]
    return _launch("integer", "packed16", [x, y], np.stack(want))


@case
@quiet
def uniform(random: Rng) -> Case:
    values, scale = whole(U32, 150, random), F32(2.0**-31)
    n, mask = len(values), 2**32 - 1
    mixed, small, wide, total, peak = n, mask, n, F32(0), F32(0)
    for x in values.tolist():
        mixed = ((mixed ^ x) * 16777619 + (mixed >> 7)) & mask
        small = min(small, x)
        wide = (wide * 6364136223846793005 + x) % 2**64
        if x & 1:
            wide ^= wide >> 29
        f = F32(I32(x if x < 2**31 else x - 2**32)) * scale
        total = F32(fma(f, F32(0.5), total) + (F32(1) if f > 1 else f))
        peak = max(peak, abs(f))
        mixed = (mixed + x.bit_count() + (32 - x.bit_length() if x > 5 else 0)) & mask
    last = F32(np.floor(total) + np.ceil(peak) - np.trunc(scale))
    floats = np.array([total, peak, last], F32).view(U32)
    whole_part = int(np.trunc(total * F32(4))) & mask
    want = np.array([mixed, small, wide & mask, wide >> 32, floats[0], floats[1], whole_part, floats[2]], U32)
    return Case("integer", "uniform", [1], [32], [values, np.zeros(8, U32), U32(n), scale], {1: want})


def exp_poly(x: Array) -> Array:
    """The kernel's polynomial, step by step."""
    k = np.rint(x * F32(1.44269504))
    r = fma(k, F32(-1.42860677e-6), fma(k, F32(-0.693145752), x))
    p = np.full_like(x, F32(1.98756915e-4))
    for c in (1.39819994e-3, 8.33345205e-3, 4.16657962e-2, 1.66666657e-1, 0.5):
        p = fma(p, r, F32(c))
    p = fma(p, r * r, r) + F32(1)
    return ((k.astype(I32) + 127).astype(U32) << U32(23)).view(F32) * p


@case
@quiet
def swiglu(random: Rng) -> Case:
    n = 300
    g, up = random.standard_normal(n, F32) * F32(30), random.standard_normal(n, F32)
    tame = np.clip(g, F32(-80), F32(80))
    e = np.where(g < -80, F32(0), np.where(g > 80, F32(1e30), exp_poly(tame))).astype(F32)
    want = g * (e / (F32(1) + e)) * up
    return Case("real", "swiglu", [3], [128], [g, up, np.zeros(n, F32), I32(n)], {2: want})


@case
@quiet
def f32_forms(random: Rng) -> Case:
    x, y = specials(F32, N, random), specials(F32, N, random)
    mantissa, exponent = np.frexp(x)
    chosen = np.where(x < y, x, np.where(x == y, F32(7), np.where(np.isnan(x), F32(8), y)))
    bits = x.view(U32)
    is_nan, denormal = np.isnan(x), (bits & U32(0x7F800000) == 0) & (bits << U32(1) != 0)
    kind = np.where(is_nan, F32(1), np.where(denormal, F32(2), F32(0)))
    want = [
        x / y, np.sqrt(np.abs(x)), np.floor(x) + np.ceil(y), np.trunc(x) - np.rint(y),
        np.copysign(x, y), fma(-x, y, -1),
        number_min(x, y), number_max(np.abs(x), -y), median(x, y, np.ones(N, F32)),
        np.ldexp(x, y.view(I32) & 15), chosen,
        np.where(x < 0, F32(0), np.where(x > 1, F32(1), x)), (x + y) * F32(2),
        np.where(np.isfinite(x), mantissa, x), np.where(np.isfinite(x), exponent, 0), kind,
        fraction(x),
    ]  # fmt: skip
    return _launch("real", "f32_forms", [x, y], np.stack([w.astype(F32) for w in want]))


@case
@quiet
def f32_approx(random: Rng) -> Case:
    x = np.abs(specials(F32, N, random))
    x = np.where((x > 1e-30) & (x < 1000), x, F32(3.25)).astype(F32)
    wide = x.astype(F64)
    want = [1 / wide, 1 / np.sqrt(wide), np.sqrt(wide), np.exp2(wide / 8), np.log2(wide)]
    turn = np.mod(wide / 16, 1) * 2 * np.pi
    want += [np.sin(turn), np.cos(turn)]
    # About one unit in the last place; log, sine and cosine are small near their zeros.
    return Case(
        "real",
        "f32_approx",
        [3],
        [64],
        [x, np.zeros((7, N), F32), U32(N)],
        {1: Near(np.stack(want).astype(F32), 3e-7, 2e-6)},
    )


@case
@quiet
def f64_forms(random: Rng) -> Case:
    x, y = specials(F64, N, random), specials(F64, N, random)
    # The published steps of a division round a denormal quotient twice: not compared.
    x = np.where((np.abs(x / y) < np.finfo(F64).tiny) & (x != 0), 1.0, x)
    y = np.where((np.abs(x / y) < np.finfo(F64).tiny) & (x != 0), 3.0, y)
    finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(x * y)
    fused = x * y + 1
    fused[finite] = fma64(x[finite], y[finite], np.ones(int(finite.sum())))
    tame32 = np.where((x < 1e9) & (x > -1e9), x, 5.0).astype(I32)
    tame64 = np.where((x < 1e15) & (x > -1e15), x, 4.0).astype(np.int64)
    want = [
        x + y, x * y, fused, x / y, np.sqrt(np.abs(x)), np.floor(x) - np.trunc(y),
        np.where(x > y, -x, number_min(y, np.full(N, 3.0))),
        tame32 + np.arange(N, dtype=F64), x.astype(F32).astype(F64), tame64.astype(F64), np.rint(y) + np.ceil(x),
    ]  # fmt: skip
    return _launch("real", "f64_forms", [x, y], np.stack(want))


@case
@quiet
def conversions(random: Rng) -> Case:
    x = whole(U32, N, random)
    x[:64] = specials(F32, 64, random).view(U32)
    # Payloads of NaN are left to the opcode tests: here bits are compared.
    x[np.isnan(x.view(F32)) | np.isnan(x.astype(np.uint16).view(F16))] = 0x3FC03C00
    f = x.view(F32)
    tame = np.where(np.abs(f) < 2e9, f, F32(12.5)).astype(F32)
    byte = [(x >> U32(8 * i) & U32(255)).astype(F32) for i in range(4)]
    half = f.astype(F16)
    bits = half.view(np.uint16).astype(U32)
    signed = x.view(I32).astype(np.int64)
    low = x.astype(np.uint8).view(np.int8).astype(I32) + (x >> U32(8)).astype(np.uint16).view(np.int16).astype(I32)
    pair = bfloat16(f).astype(U32) | bfloat16(tame).astype(U32) << U32(16)
    as_bits = lambda v: v.astype(F32).view(U32)  # noqa: E731
    want = [
        as_bits(x), as_bits(x.view(I32)), tame.astype(I32).view(U32), np.abs(tame).astype(U32),
        as_bits(byte[0] + byte[1]),
        as_bits(byte[2] - byte[3]), bits, as_bits(x.astype(np.uint16).view(F16)), low.view(U32),
        as_bits(x.astype(U64) << U64(13)), as_bits(signed << 17), as_bits(f), pair, as_bits(from_bfloat16(bfloat16(f))),
    ]  # fmt: skip
    return _launch("real", "conversions", [x], np.stack(want))
