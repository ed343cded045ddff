"""Expected results of the kernels about lanes, control flow and private memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.sim.case import Case, case, whole
from tests.sim.exact import F32, I32, U32, wave_sum

Array = np.ndarray[Any, Any]
Rng = np.random.Generator
LANES = np.arange(32)


def dpp_source(control: int) -> Array:
    """The lane that each lane reads, -1 where it lies outside the row."""
    row, at = LANES & ~15, LANES & 15
    if control < 0x100:
        return (LANES & ~3) + np.array([control >> 2 * i & 3 for i in range(4)])[LANES & 3]
    amount, kind = control & 15, control >> 4
    if kind == 0x10:
        return np.where(at + amount < 16, LANES + amount, -1)
    if kind == 0x11:
        return np.where(at >= amount, LANES - amount, -1)
    if kind == 0x12:
        return row + (at - amount) % 16
    if kind == 0x15:
        return row + amount
    if kind == 0x16:
        return row + (at ^ amount)
    return {0x140: row + 15 - at, 0x141: (LANES & ~7) + 7 - (LANES & 7)}[control]


def dpp(
    old: Array, x: Array, control: int, rows: int = 15, banks: int = 15, bound: bool = False, on: int = -1
) -> Array:
    """A DPP move with FI off: a source that is outside or inactive gives 0 with bound, else leaves `old`."""
    source = dpp_source(control)
    valid = (source >= 0) & ((on >> np.maximum(source, 0)) & 1 == 1)
    moved = np.where(valid, x[source], 0 if bound else old)
    enabled = (rows >> LANES // 16 & 1 == 1) & (banks >> (LANES & 15) // 4 & 1 == 1)
    return np.where(enabled, moved, old)


def _select16(low: int, high: int) -> Array:
    return np.array([(low >> 4 * i & 15) if i < 8 else (high >> 4 * (i - 8) & 15) for i in LANES & 15])


@case
def dpp_forms(random: Rng) -> Case:
    x, old = random.integers(-1000, 1000, 32, I32), -1 - LANES
    row, other = LANES & ~15, (LANES & ~15) ^ 16
    forms = [
        (0x1B,), (0x101,), (0x10F, 15, 15, True), (0x111,), (0x118, 15, 15, True), (0x121,), (0x12F, 15, 15, True),
        (0x140,), (0x141,), (0x155,), (0x163,), (0x111, 1), (0x112, 15, 5), (0x114, 2, 10, True),
    ]  # fmt: skip
    want = [dpp(old, x, *form) for form in forms]
    want.append(x[(LANES & ~7) + np.array([0x53977 >> 3 * i & 7 for i in range(8)])[LANES & 7]])
    want.append(x[row + _select16(0x02468ACE, 0x13579BDF)])
    want.append(x[other + _select16(0x76543210, 0xFEDCBA98)])
    want.append(x[LANES ^ 1])
    want.append(x[(LANES & ~3) + np.array([3, 2, 1, 0])[LANES & 3]])
    want.append(x[LANES * 5 & 31])
    permuted = np.zeros(32, I32)
    permuted[LANES * 3 & 31] = x
    want += [permuted, x[row + LANES * 5 % 16], x[other + LANES * 7 % 16]]
    return Case("cross", "dpp_forms", [1], [32], [x, np.zeros((23, 32), I32)], {1: np.stack(want).astype(I32)})


@case
def dpp_masked(random: Rng) -> Case:
    x, old, mask = random.integers(-1000, 1000, 32, I32), -1 - LANES, 0x5BF0_6DB6
    on = mask >> LANES & 1 == 1
    other = LANES ^ 16
    first, neighbour = int(np.argmax(on)), (LANES + 1) % 32
    eights = (LANES & ~7) + np.array([0xFAC688 >> 3 * i & 7 for i in range(8)])[LANES & 7]
    forms = [
        dpp(old, x, 0x111, on=mask),
        dpp(old, x, 0x111, bound=True, on=mask),
        dpp(old, x, 0x121, on=mask),
        np.where(on[other], x[other], old),
        x[other],
        np.where(on[neighbour], x[neighbour], 0),
        np.full(32, x[first]),
        np.where(on[eights], x[eights], 0),
    ]
    want = np.where(on, np.stack(forms), 0).astype(I32)
    return Case("cross", "dpp_masked", [1], [32], [x, np.zeros((8, 32), I32), U32(mask)], {1: want})


@case
def scan(random: Rng) -> Case:
    x = random.integers(-1000, 1000, (3, 32), I32)
    return Case("cross", "scan", [3], [32], [x, np.zeros_like(x)], {1: np.cumsum(x, -1, dtype=I32)})


@case
def reduce_all(random: Rng) -> Case:
    x, k = random.standard_normal((16, 32), F32), random.integers(-(2**31), 2**31, (16, 32), dtype=I32)
    args = [x, k, np.zeros(16, F32), np.zeros(16, F32), np.zeros(16, I32)]
    return Case("cross", "reduce_all", [2], [256], args, {2: wave_sum(x), 3: x.max(-1), 4: k.sum(-1, dtype=I32)})


@case
def argmax(random: Rng) -> Case:
    x = random.integers(0, 60, (6, 107)).astype(F32)
    x[2] = -np.inf
    x[2, 40] = -1e30
    return Case("cross", "argmax", [6], [32], [x, np.zeros(6, I32), I32(107)], {1: x.argmax(-1).astype(I32)})


@case
def ballots(random: Rng) -> Case:
    x = random.integers(-20, 20, 32, I32)
    odd = sum(int(b) << i for i, b in enumerate(x & 1))
    rank = [bin(odd & ((1 << i) - 1)).count("1") for i in LANES]
    put = x.copy()
    put[9] = x[3]
    count = odd.bit_count() + ((odd | 1 << 31) & -(odd | 1 << 31)).bit_length() - 1
    positive = sum(1 << int(i) for i in LANES[x > 0])
    low = sum(1 << int(i) for i in LANES[x < -5])
    last = np.where(x > 0, positive, low ^ 0xFFFFFFFF)
    want = np.stack([np.full(32, odd), rank, put.view(U32), np.full(32, count), last]).astype(U32)
    return Case("cross", "ballots", [1], [32], [x, np.zeros((5, 32), U32)], {1: want})


@case
def collatz(random: Rng) -> Case:
    x = random.integers(1, 3000, 100, U32)

    def steps(n: int) -> int:
        count = 0
        while n != 1 and count < 500:
            n, count = (3 * n + 1 if n & 1 else n // 2), count + 1
        return count

    want = np.array([steps(int(n)) for n in x], U32)
    return Case("control", "collatz", [2], [64], [x, np.zeros(100, U32), I32(100)], {1: want})


def _wrap(x: int) -> int:
    return (x + 2**31) % 2**32 - 2**31


def _branch(x: int) -> int:
    kind, r = x & 7, 0
    if kind == 0:
        r = _wrap(x + 1)
    elif kind == 1:
        r = _wrap(x * 3)
    elif kind == 2:
        for i in range(x & 31):
            if i % 5 == 4:
                continue
            if r > 200:
                break
            r += i
    elif kind == 3:
        r = -x ^ 0x55
    elif kind == 4:
        r = 0x55
    elif kind == 5:
        r = x - 100 if x > 100 else 100 - x
    else:
        r = abs(x) // 3 * (1 if x > 0 else -1)
    return r % 7 if r < 0 else r


@case
def branches(random: Rng) -> Case:
    x = random.integers(-100000, 100000, 192, I32)
    want = np.array([_branch(int(v)) for v in x], I32)
    return Case("control", "branches", [3], [64], [x, np.zeros(192, I32)], {1: want})


def _twist(x: int, times: int) -> int:
    for _ in range(times):
        x = _wrap(x * 1103515245 + 12345)
    return _wrap(x ^ (x % 2**32 >> 16))


@case
def calls(random: Rng) -> Case:
    x = random.integers(-(2**31), 2**31, 96, I32)
    want = []
    for v in x.tolist():
        y = _twist(v, 3)
        want.append(_twist(y, (v & 3) + 1) if y & 1 else y)
    return Case("control", "calls", [3], [32], [x, np.zeros(96, I32)], {1: np.array(want, I32)})


def _ackermann(m: int, n: int) -> int:
    if m == 0:
        return n + 1
    return _ackermann(m - 1, 1 if n == 0 else _ackermann(m, n - 1))


@case
def recursion(random: Rng) -> Case:
    want = np.array([_ackermann(i % 3, i % 4) for i in range(32)], U32)
    return Case("control", "recursion", [1], [32], [np.zeros(32, U32)], {0: want})


@case
def pointers(random: Rng) -> Case:
    x = random.integers(0, 30000, 32, I32)
    want = np.choose(x % 3, [-x, x * x, x + 1]).astype(I32)
    return Case("control", "pointers", [1], [32], [x, np.zeros(32, I32)], {1: want})


@case
def ids(random: Rng) -> Case:
    grid, block = (3, 2, 2), (5, 3, 4)
    want = []
    for gz in range(grid[2]):
        for gy in range(grid[1]):
            for gx in range(grid[0]):
                for tz in range(block[2]):
                    for ty in range(block[1]):
                        for tx in range(block[0]):
                            want.append(tx | ty << 4 | tz << 8 | gx << 12 | gy << 16 | gz << 20 | grid[2] << 24)
    return Case("control", "ids", grid, block, [np.zeros(len(want), U32)], {0: np.array(want, U32)})


@case
def packet(random: Rng) -> Case:
    return Case("control", "packet", [3, 2, 4], [64], [np.zeros(3, U32)], {0: np.array([192, 2, 4], U32)})


@case
def private_large(random: Rng) -> Case:
    x = random.integers(0, 2**20, 128, U32)
    want = []
    for v in x.tolist():
        a = [v + i * i for i in range(200)]
        for i in range(200):
            a[(v + i * 7) % 200] ^= (a[(v * 3 + i) % 200] + i) % 2**32
        total = 0
        for e in a:
            total = (total * 31 + e) % 2**32
        want.append(total)
    return Case("scratch", "private_large", [2], [64], [x, np.zeros(128, U32)], {1: np.array(want, U32)})


def _eight(x: Array) -> Array:
    return (x[:, None] * np.arange(1, 9, dtype=U32)).astype(U32)


@case
def private_small(random: Rng) -> Case:
    x = whole(U32, 128, random)
    r, at = _eight(x), np.arange(128)
    r[at, x & 7] = 5
    want = r[at, x >> 3 & 7] + r[at, x >> 6 & 7]
    return Case("scratch", "private_small", [2], [64], [x, np.zeros(128, U32)], {1: want})


@case
def private_uniform(random: Rng) -> Case:
    x, which = whole(U32, 64, random), 0b101_010_110
    r = _eight(x)
    r[:, which & 7] += 9
    want = r[:, which >> 3 & 7] ^ r[:, which >> 6 & 7]
    return Case("scratch", "private_uniform", [1], [64], [x, np.zeros(64, U32), U32(which)], {1: want})


@case
def private_bytes(random: Rng) -> Case:
    x, out = random.integers(0, 256, 64, np.uint8), []
    for at in range(128):
        held = [int(x[(at + i) % 64]) for i in range(64)]
        words = [held[i * int(x[at % 64]) % 64] * 3 for i in range(32)]
        pick = int(x[(at + 1) % 64])
        first = pick if (pick >> 1 & 1) == (pick & 1) else pick + 4
        out.append((held[pick % 64] + words[pick % 32] + first + first + 3) % 256)
    return Case("scratch", "private_bytes", [2], [64], [x, np.zeros(128, np.uint8)], {1: np.array(out, np.uint8)})
