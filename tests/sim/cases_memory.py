"""Expected results of the kernels about memory: atomics, transposes, copies of all widths, flat addresses."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.sim.case import Case, case
from tests.sim.exact import F16, F32, I32, U32, U64

Array = np.ndarray[Any, Any]
Rng = np.random.Generator


@case
def histogram(random: Rng) -> Case:
    x = random.integers(0, 256, 3000, np.uint8)
    x[:500] = 7
    want = np.bincount(x, minlength=256).astype(U32)
    return Case("atomics", "histogram", [4], [256], [x, np.zeros(256, U32), I32(3000)], {1: want})


def _extremes(x: Array) -> list[Array]:
    """What the atomics leave: add, sub, min, max, and, or, xor."""
    fold = np.bitwise_and.reduce(x | U32(255)), np.bitwise_or.reduce(x & U32(255)), np.bitwise_xor.reduce(x)
    total = x.sum(dtype=U32)
    return [total, U32(-int(total) & 0xFFFFFFFF), x.min(), x.max(), *fold]


def _wide(x: Array) -> list[Array]:
    w = x.astype(U64)
    return [
        (w << U64(20)).sum(dtype=U64),
        (w << U64(8)).min(),
        np.bitwise_xor.reduce(w << U64(13)),
        (w << U64(30)).max(),
    ]


@case
def lds_atomics(random: Rng) -> Case:
    x = random.integers(0, 2**32, (2, 128), U32)
    want = np.zeros((2, 20), U32)
    for g in range(2):
        want[g, :7] = _extremes(x[g])
        want[g, 7] = max(0, int(x[g].view(I32).max()))
        want[g, 8:16] = np.array(_wide(x[g]), U64).view(U32)
        want[g, 16] = (x[g] & U32(15)).sum().astype(F32).view(U32)
    return Case("atomics", "lds_atomics", [2], [128], [x, np.zeros((2, 20), U32)], {1: want})


class Tickets(Case):
    """Who gets which ticket is open: each is given once, in each workgroup and overall."""

    def check(self, outputs: Any) -> None:
        counter, out, seen = outputs
        assert counter[0] == 512 and out[0] == 511 * 512 // 2 and out[1] == 4
        assert (out[2:6] == 5).all()
        assert (np.bincount(seen, minlength=129)[1:] == 4).all()


@case
def tickets(random: Rng) -> Case:
    return Tickets("atomics", "tickets", [4], [128], [np.zeros(1, U32), np.zeros(6, U32), np.zeros(512, U32)], {})


@case
def global_atomics(random: Rng) -> Case:
    x = random.integers(0, 2**32, (3, 128), U32)
    cell, wide = np.zeros(10, U32), np.zeros(4, U64)
    cell[[2, 4]], wide[1] = 2**32 - 1, U64(2**64 - 1)
    want, signed = np.zeros(10, U32), x.view(I32)
    want[:7] = _extremes(x.ravel())
    want[7], want[8] = np.array([min(0, signed.min()), max(0, signed.max())], I32).view(U32)
    value = 0
    for _ in range(x.size):
        value = (value * 3 + 1) % 2**32
    want[9] = value
    real = (x & U32(15)).sum().astype(F32).reshape(1)
    args = [x, cell, wide, np.zeros(1, F32)]
    return Case("atomics", "global_atomics", [3], [128], args, {1: want, 2: np.array(_wide(x.ravel()), U64), 3: real})


@case
def float_atomics(random: Rng) -> Case:
    x = random.integers(-500, 500, 64).astype(F32)
    args = [np.ones(1, F32), np.ones(2, F16), np.zeros(1, F32), np.zeros(1, F32), x]
    expect = {0: x.sum(keepdims=True) + F32(1), 1: np.array([65, 129], F16)}
    expect |= {2: np.minimum(x.min(keepdims=True), F32(0)), 3: np.maximum(x.max(keepdims=True), F32(0))}
    return Case("atomics", "float_atomics", [1], [64], args, expect)


@case
def transpose_b32(random: Rng) -> Case:
    x = random.integers(0, 2**32, (70, 45), U32)
    args = [x, np.zeros((45, 70), U32), I32(70), I32(45)]
    return Case("movement", "transpose_b32", [2, 3], [256], args, {1: np.ascontiguousarray(x.T)})


@case
def transpose_wide(random: Rng) -> Case:
    a, b = random.integers(0, 2**63, (16, 16), U64), random.integers(0, 2**32, (16, 16, 4), U32)
    expect = {1: np.ascontiguousarray(a.T), 3: np.ascontiguousarray(b.transpose(1, 0, 2))}
    args = [a, np.zeros_like(a), b, np.zeros_like(b)]
    return Case("movement", "transpose_wide", [1], [256], args, expect)


@case
def lds_pairs(random: Rng) -> Case:
    x = random.integers(0, 2**32, 64, U32)
    r = x[::-1]
    w = r.astype(U64)
    five, seven = (r * U32(1)).astype(U64) * U64(5), w * U64(7)
    pairs = ((w + (w << U64(9))) >> U64(3)).astype(U32) + (five ^ seven).astype(U32)
    words = r + U32(3) * (r + U32(1)) + U32(5) * (r + U32(2)) + U32(7) * (r + U32(3))
    low, high = r.astype(np.uint8), (r >> U32(8)).astype(np.uint8)
    upper = (r >> U32(16)).astype(np.uint16)
    signed = low.view(np.int8).astype(I32) + upper.view(np.int16).astype(I32)
    out = np.stack([words, pairs, r + U32(3) * (r * U32(2)) + U32(5) * (r * U32(3)), signed.view(U32)])
    args = [x, np.zeros((4, 64), U32), np.zeros(64, np.uint8), np.zeros(64, np.uint16)]
    expect = {1: out, 2: low + np.uint8(2) * high, 3: r.astype(np.uint16) ^ upper}
    return Case("movement", "lds_pairs", [1], [64], args, expect)


@case
def copy_widths(random: Rng) -> Case:
    n = 128
    x = random.integers(0, 256, 54 * n, np.uint8)
    out = np.zeros_like(x)
    out[:n] = x[:n]
    out[n : 3 * n] = (x[n : 3 * n].view(np.int16) + np.int16(1)).view(np.uint8)
    out[4 * n : 8 * n] = x[:n].view(np.int8).astype(I32).view(np.uint8)
    out[8 * n : 16 * n] = x[8 * n : 16 * n]
    out[16 * n : 28 * n] = (
        np.ascontiguousarray(x[16 * n : 28 * n].view(U32).reshape(n, 3)[:, [2, 0, 1]]).view(np.uint8).ravel()
    )
    out[32 * n : 48 * n] = x[32 * n : 48 * n]
    loose = x[48 * n : 53 * n].reshape(n, 5).copy()
    loose[:, :4] ^= np.array([4, 3, 2, 1], np.uint8)
    loose[:, 4] = 9
    out[48 * n : 53 * n] = loose.ravel()
    return Case("movement", "copy_widths", [2], [64], [x, np.zeros_like(x), U32(n)], {1: out})


@case
def d16_loads(random: Rng) -> Case:
    n = 128
    b, h = random.integers(0, 256, 2 * n, np.uint8), random.integers(0, 65536, 2 * n, np.uint16)
    out = np.zeros((4, n, 2), np.uint16)
    out[3] = random.integers(0, 65536, (n, 2))
    want = out.copy()
    want[0] = h.reshape(n, 2)[:, ::-1]
    want[1] = np.stack([b[:n], b[:n][::-1]], -1)
    want[2] = b.view(np.int8).reshape(2, n).T.astype(np.int16).view(np.uint16)
    args = [b, h, np.zeros(2 * n, np.uint16), out, U32(n)]
    return Case("movement", "d16_loads", [2], [64], args, {2: out[3][:, ::-1].ravel(), 3: want})


@case
def flat(random: Rng) -> Case:
    x = random.integers(0, 1000, 64, U32)
    shared = np.concatenate([x + U32(1), np.arange(4, dtype=U32)])
    out = np.zeros(66, U32)
    for t in range(64):
        own = x[t] * np.arange(1, 9, dtype=U32)
        own[x[t] & 3] = 11
        p = (shared[t:], own, x[t % 32 :])[t % 3]
        out[t] = p[0] + 3 * p[1] + 5 * p[2] + 7 * p[3]
    out[64], out[65] = 32, shared[0] + 32
    return Case("movement", "flat", [1], [64], [x, np.zeros(66, U32)], {1: out})


@case
def gather_q4(random: Rng) -> Case:
    width, rows, ids = 96, 11, np.array([3, 10, 0, 3, 7], I32)
    record = np.dtype([("d", F16), ("q", np.uint8, 16)])
    table = np.zeros((rows, width // 32), record)
    table["d"], table["q"] = random.standard_normal((rows, 3)).astype(F16), random.integers(0, 256, (rows, 3, 16))
    codes = np.concatenate([table["q"] & 15, table["q"] >> 4], -1).astype(F32) - F32(8)
    want = (codes * table["d"].astype(F32)[..., None]).reshape(rows, width)[ids]
    args = [table.view(np.uint8).ravel(), ids, np.zeros((5, width), F32), I32(width)]
    return Case("movement", "gather_q4", [5], [32], args, {2: want})


@case
def bitonic_sort(random: Rng) -> Case:
    x = random.integers(0, 2**32, (2, 512), U32)
    return Case("movement", "bitonic_sort", [2], [256], [x], {0: np.sort(x, -1)})
