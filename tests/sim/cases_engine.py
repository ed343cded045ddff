"""Expected results of the kernels that an inference engine is made of: matrix products, norms, attention, merges."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.sim.case import Case, Near, case
from tests.sim.exact import F16, F32, I32, U32, bfloat16, float8, fma, from_bfloat16, wave_sum

Array = np.ndarray[Any, Any]
Rng = np.random.Generator


def _lanes(dots: Array, scales: Array) -> Array:
    """One F32 for each row: lane l takes blocks l, l + 32, ... in order, then the tree."""
    rows, blocks = dots.shape
    acc = np.zeros((rows, 32), F32)
    for at in range(0, blocks, 32):
        n = min(32, blocks - at)
        acc[:, :n] = fma(dots[:, at : at + n].astype(F32), scales[:, at : at + n], acc[:, :n])
    return wave_sum(acc)


def _blocks(random: Rng, *shape: int) -> tuple[Array, Array]:
    return random.integers(-127, 128, (*shape, 32), np.int8), random.random(shape, F32) * F32(0.02)


@case
def matvec_q8(random: Rng) -> Case:
    rows, blocks = 37, 45
    wq, wd = _blocks(random, rows, blocks)
    xq, xd = _blocks(random, blocks)
    dots = np.einsum("rbi,bi->rb", wq.astype(I32), xq.astype(I32))
    record = np.dtype([("d", F32), ("q", np.int8, 32)])
    w, x = np.zeros((rows, blocks), record), np.zeros(blocks, record)
    w["d"], w["q"], x["d"], x["q"] = wd, wq, xd, xq
    args = [w.view(np.uint8), x.view(np.uint8), np.zeros(rows, F32), I32(rows), I32(blocks)]
    return Case("matvec", "matvec_q8", [10], [128], args, {2: _lanes(dots, wd * xd)})


@case
def matvec_lds(random: Rng) -> Case:
    rows, blocks = 43, 70
    wq, wd = _blocks(random, rows, blocks)
    xq, xd = _blocks(random, blocks)
    dots = np.einsum("rbi,bi->rb", wq.astype(I32), xq.astype(I32))
    args = [wq, wd, xq, xd, np.zeros(rows, F32), I32(rows), I32(blocks), I32(3)]
    return Case("matvec", "matvec_lds", [3], [256], args, {4: _lanes(dots, wd * xd)})


def _dot4(a: Array, b: Array) -> Array:
    x, y = (v.astype(U32).view(np.int8).reshape(*v.shape, 4).astype(I32) for v in (a, b))
    return (x * y).sum(-1).astype(I32)


def dot4_result(a: Array, b: Array, steps: int) -> Array:
    x, y = a.copy(), b.copy()
    s = [np.zeros(a.shape, I32) for _ in range(4)]
    with np.errstate(over="ignore"):
        for _ in range(steps):
            s[0] += _dot4(x, y)
            s[1] += _dot4(x ^ U32(0x01010101), y)
            s[2] += _dot4(x, y ^ U32(0x02020202))
            s[3] += _dot4(x ^ s[0].view(U32), y ^ s[1].view(U32))
            x = (x << U32(3)) | (x >> U32(29))
            y = y + U32(0x01020304)
    return np.bitwise_xor.reduce(s)


@case
def dot4_loop(random: Rng) -> Case:
    a, b = random.integers(0, 2**32, (2, 512), U32)
    return Case("matvec", "dot4_loop", [2], [256], [a, b, np.zeros(512, I32), I32(19)], {2: dot4_result(a, b, 19)})


@case
def rmsnorm(random: Rng) -> Case:
    x, w = random.standard_normal((5, 700), F32), random.standard_normal(700, F32)
    wide = x.astype(np.float64)
    want = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * w
    args = [x, w, np.zeros_like(x), I32(700), F32(1e-5)]
    return Case("norm", "rmsnorm", [5], [256], args, {2: Near(want.astype(F32), 2e-6)})


@case
def layernorm_f16(random: Rng) -> Case:
    x = (random.standard_normal((3, 321)) * 2 + 1).astype(F16)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    want = (centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)).astype(F16)
    # One unit of the last f16 digit: values near a tie may round either way.
    return Case("norm", "layernorm_f16", [3], [256], [x, np.zeros_like(x), I32(321)], {1: Near(want, 1e-3, 1e-6)})


@case
def softmax(random: Rng) -> Case:
    x = random.standard_normal((4, 500), F32) * F32(4)
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    want = (e / e.sum(-1, keepdims=True)).astype(F32)
    # exp2 of an argument near -30 rounded to F32: 30 * 2^-24 relative.
    return Case("norm", "softmax", [4], [256], [x, np.zeros_like(x), I32(500)], {1: Near(want, 6e-6)})


@case
def quantize_q8(random: Rng) -> Case:
    x = random.standard_normal((9, 32), F32)
    x[3] = 0
    x[4] = np.arange(-16, 16) * F32(0.5)
    x[4, 0] = 127
    amax = np.abs(x).max(-1, keepdims=True)
    inverse = np.where(amax == 0, F32(0), F32(127) / np.where(amax == 0, F32(1), amax)).astype(F32)
    q = np.rint(x * inverse).astype(np.int8)
    args = [x, np.zeros_like(q), np.zeros(9, F32), I32(9)]
    return Case("norm", "quantize_q8", [3], [128], args, {1: q, 2: (amax / F32(127))[:, 0]})


@case
def attention(random: Rng) -> Case:
    heads, kv, keys, scale = 6, 2, 53, F32(0.125)
    q = random.standard_normal((heads, 64), F32) * F32(3)
    k, v = random.standard_normal((2, keys, kv, 64)).astype(F16)
    want = np.empty((heads, 64))
    for h in range(heads):
        score = k[:, h // 3].astype(np.float64) @ q[h] * float(scale)
        p = np.exp(score - score.max())
        want[h] = p @ v[:, h // 3].astype(np.float64) / p.sum()
    args = [q, k, v, np.zeros_like(q), I32(keys), I32(kv), I32(3), scale]
    return Case("attention", "attention", [heads], [256], args, {3: Near(want.astype(F32), 1e-5, 1e-6)})


@case
def rope_table(random: Rng) -> Case:
    half, heads = 48, 5
    x, pos = random.standard_normal((heads, 2 * half), F32), random.integers(0, 11, heads, I32)
    angle = np.arange(11)[:, None] * 10000.0 ** -(np.arange(half) / half)
    table = np.stack([np.cos(angle), np.sin(angle)], -1).astype(F32)
    c, s = table[pos, :, 0], table[pos, :, 1]
    a, b = x[:, :half], x[:, half:]
    want = np.concatenate([a * c - b * s, a * s + b * c], -1)
    return Case("attention", "rope_table", [heads], [32], [x, table, pos, I32(half)], {0: want})


@case
def rope_sincos(random: Rng) -> Case:
    half, heads, pos = 32, 3, 37.0
    x, freq = random.standard_normal((heads, 2 * half), F32), (10000.0 ** -(np.arange(half) / half)).astype(F32)
    angle = pos * freq.astype(np.float64)
    a, b = x[:, :half].astype(np.float64), x[:, half:].astype(np.float64)
    want = np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], -1)
    # The angle in F32 revolutions loses 37 * 2^-25, the unit itself about as much again.
    args = [x, freq, F32(pos), I32(half)]
    return Case("attention", "rope_sincos", [heads], [32], args, {0: Near(want.astype(F32), 0, 6e-5)})


@case
def last_group_sum(random: Rng) -> Case:
    n, groups = 5000, 7
    x = random.standard_normal(n, F32)
    lanes = np.zeros((groups, 8, 32), F32)
    for at in range(0, n, groups * 256):
        part = np.zeros(groups * 256, F32)
        chunk = x[at : at + groups * 256]
        part[: len(chunk)] = chunk
        flat = lanes.reshape(-1)
        flat[: len(chunk)] += part[: len(chunk)]
    waves = wave_sum(lanes)
    parts = np.zeros(groups, F32)
    for w in range(8):
        parts += waves[:, w]
    total = F32(0)
    for p in parts:
        total += p
    args = [x, np.zeros(groups, F32), np.zeros(1, U32), np.zeros(1, F32), I32(n), I32(groups)]
    return Case("grid", "last_group_sum", [groups], [256], args, {1: parts, 3: np.array([total])})


@case
def persistent_ring(random: Rng) -> Case:
    n, steps, groups = 1000, 9, 5
    state = random.integers(0, 1000, n, U32)
    both = [state, np.zeros(n, U32)]
    for s in range(steps):
        x = both[s % 2]
        both[1 - s % 2] = x + U32(3) * np.roll(x, -1) + U32(5) * np.roll(x, 1)
    args = [state, np.zeros(n, U32), np.zeros(1, U32), np.zeros(1, U32), U32(n), U32(steps), U32(groups)]
    expect = {0: both[0], 1: both[1], 2: np.array([steps * groups], U32)}
    return Case("grid", "persistent_ring", [groups], [128], args, expect, coop=True)


@case
def broadcast(random: Rng) -> Case:
    message = (1000 + np.arange(64) * 7).astype(U32)
    want = np.concatenate([np.zeros(64, U32), np.tile(message, 4)])
    args = [np.zeros(64, U32), np.zeros(1, U32), np.zeros(320, U32)]
    return Case("grid", "broadcast", [5], [64], args, {0: message, 1: np.ones(1, U32), 2: want}, coop=True)


def _split(x: Array) -> Array:
    """Rows of k values as lanes want them: the first half of each 16, then the second."""
    return np.ascontiguousarray(x)


@case
def wmma_i8(random: Rng) -> Case:
    tiles = 5
    a, b = random.integers(-128, 128, (2, 16, 16 * tiles), np.int8)
    c = random.integers(-1000, 1000, (16, 16), I32)
    want = a.astype(I32) @ b.astype(I32).T + c
    return Case("wmma", "wmma_i8", [1], [32], [_split(a), _split(b), c, np.zeros((16, 16), I32), I32(tiles)], {3: want})


def _nibbles(x: Array, signed: bool) -> Array:
    both = np.stack([x & 15, x >> 4], -1).reshape(*x.shape[:-1], -1).astype(I32)
    return np.where(both > 7, both - 16, both) if signed else both


@case
def wmma_signs(random: Rng) -> Case:
    a, b = random.integers(0, 256, (2, 16, 16), np.uint8)
    s, t = a.view(np.int8).astype(I32), b.view(np.int8).astype(I32)
    u, v = a.astype(I32), b.astype(I32)
    big = np.array([0x7FFFFF00, 0x7FFFFF00, -0x7FFFFF00, -0x7FFFFF00, 0x7FFFFF00, 0x7FFFFF00, -0x7FFFFF00, 0])
    clamped = np.clip(s.astype(np.int64) @ t.T + np.tile(big, 2)[:, None], -(2**31), 2**31 - 1).astype(I32)
    # Four-bit steps: a lane's first 32 bits hold 8 values of K for 16 x 16 x 16, its 64 bits hold 16 for 16 x 16 x 32.
    first = np.concatenate([a[:, 0:4], a[:, 8:12]], 1), np.concatenate([b[:, 0:4], b[:, 8:12]], 1)
    small = _nibbles(first[0], True) @ _nibbles(first[1], False).T
    longer = _nibbles(a, True) @ _nibbles(b, True).T
    want = np.stack([u @ v.T, s @ v.T, u @ t.T, clamped, small, longer]).astype(I32)
    return Case("wmma", "wmma_signs", [1], [32], [a, b, np.zeros((6, 16, 16), I32)], {2: want})


@case
def wmma_f16(random: Rng) -> Case:
    tiles = 3
    a, b = random.standard_normal((2, 16, 16 * tiles)).astype(F16)
    c = random.standard_normal((16, 16), F32)
    want = (a.astype(np.float64) @ b.astype(np.float64).T + c).astype(F32)
    args = [a, b, c, np.zeros((16, 16), F32), I32(tiles)]
    # The order of the sum inside a step is not published: bound by the sum of magnitudes, about 40 terms.
    return Case("wmma", "wmma_f16", [1], [32], args, {3: Near(want, 1e-6, 2e-5)})


@case
def wmma_f16_whole(random: Rng) -> Case:
    """Small whole numbers: every order of adding gives the same, so the comparison is exact."""
    tiles = 4
    a, b = random.integers(-9, 10, (2, 16, 16 * tiles)).astype(F16)
    c = random.integers(-100, 100, (16, 16)).astype(F32)
    want = a.astype(F32) @ b.astype(F32).T + c
    return Case("wmma", "wmma_f16", [1], [32], [a, b, c, np.zeros((16, 16), F32), I32(tiles)], {3: want})


@case
def wmma_f16_acc(random: Rng) -> Case:
    a, b = random.integers(-6, 7, (2, 16, 16)).astype(F16)
    want = (a.astype(F32) @ b.astype(F32).T).astype(F16)
    return Case("wmma", "wmma_f16_acc", [1], [32], [a, b, np.zeros((16, 16), F16)], {2: want})


@case
def wmma_bf16(random: Rng) -> Case:
    a, b = bfloat16(random.standard_normal((2, 16, 16)).astype(F32))
    want = from_bfloat16(a).astype(np.float64) @ from_bfloat16(b).astype(np.float64).T
    return Case(
        "wmma", "wmma_bf16", [1], [32], [a, b, np.zeros((16, 16), F32)], {2: Near(want.astype(F32), 1e-6, 1e-5)}
    )


@case
def wmma_fp8(random: Rng) -> Case:
    # Codes with small exponents: sums stay exact in F32. Both readings of a code are finite.
    a, b = random.integers(0, 2, (2, 16, 16)).astype(np.uint8) << 7 | random.integers(0x38, 0x48, (2, 16, 16)).astype(
        np.uint8
    )
    e4a, e5a, e4b = float8(a, 4), float8(a, 5), float8(b, 4)
    want = np.stack([e4a @ e4b.T, e5a @ e4b.T]).astype(F32)
    return Case("wmma", "wmma_fp8", [1], [32], [a, b, np.zeros((2, 16, 16), F32)], {2: want})


@case
def matmul_i8(random: Rng) -> Case:
    m, n, k = 64, 96, 128
    a, b = random.integers(-128, 128, (m, k), np.int8), random.integers(-128, 128, (n, k), np.int8)
    want = a.astype(I32) @ b.astype(I32).T
    args = [a, b, np.zeros((m, n), I32), I32(n), I32(k)]
    return Case("wmma", "matmul_i8", [n // 32, m // 32], [128], args, {2: want})


@case
def matmul_f32(random: Rng) -> Case:
    m, n, k = 37, 29, 41
    a, b = random.standard_normal((m, k), F32), random.standard_normal((k, n), F32)
    acc = np.zeros((m, n), F32)
    for i in range(-(-k // 16) * 16):
        x = a[:, i : i + 1] if i < k else np.zeros((m, 1), F32)
        acc = fma(x, b[i : i + 1] if i < k else np.zeros((1, n), F32), acc)
    args = [a, b, np.zeros((m, n), F32), I32(m), I32(n), I32(k)]
    return Case("real", "matmul_f32", [2, 3], [256], args, {2: acc})
