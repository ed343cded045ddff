"""A launch of a sample kernel with what it must leave behind.

Owns: `Case`, the register of cases, running one, and comparing. A comparison is exact (NaN equals NaN, the sign of zero
counts) unless the case states a tolerance for an output.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.sim.build import code_object
from tests.sim.hip import Buffer, Hip

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Near:
    """An expected array of floats that need not be met exactly: |got - want| <= atol + rtol * |want|."""

    want: Array
    rtol: float = 0.0
    atol: float = 0.0


@dataclass(frozen=True)
class Case:
    """args: arrays become device buffers, numpy scalars are passed by value. expect: argument number to contents after.

    Buffers that `expect` does not name must be unchanged.
    """

    source: str
    kernel: str
    grid: Sequence[int]
    block: Sequence[int]
    args: Sequence[Any]
    expect: Mapping[int, Array | Near]
    coop: bool = False
    defines: Sequence[str] = field(default=())

    def run(self, hip: Hip) -> list[Array]:
        """The contents of all buffers after one launch."""
        function = hip.kernel(code_object(self.source, *self.defines), self.kernel)
        given = [hip.buffer(a) if isinstance(a, np.ndarray) else a for a in self.args]
        hip.launch(function, self.grid, self.block, given, self.coop)
        out = []
        for argument, buffer in zip(self.args, given, strict=True):
            if isinstance(buffer, Buffer):
                out.append(buffer.read(argument.dtype, argument.shape))
                buffer.free()
        return out

    def buffers(self) -> list[int]:
        return [i for i, a in enumerate(self.args) if isinstance(a, np.ndarray)]

    def check(self, outputs: Sequence[Array]) -> None:
        """Raises AssertionError that names buffer, position and both values."""
        for number, got in zip(self.buffers(), outputs, strict=True):
            want = self.expect.get(number, self.args[number])
            compare(f"{self.kernel} argument {number}", got, want)


CASES: dict[str, Callable[[np.random.Generator], Case]] = {}


def case(make: Callable[[np.random.Generator], Case]) -> Callable[[np.random.Generator], Case]:
    """Registers a function that makes a case from a random generator, under its name."""
    CASES[make.__name__] = make
    return make


def build_case(name: str) -> Case:
    return CASES[name](np.random.default_rng(zlib.crc32(name.encode())))


def compare(what: str, got: Array, want: Array | Near) -> None:
    near = want if isinstance(want, Near) else Near(want)
    expected = np.asarray(near.want)
    assert got.shape == expected.shape and got.dtype == expected.dtype, (
        f"{what}: {got.dtype}{got.shape} {expected.dtype}{expected.shape}"
    )
    if isinstance(want, Near):
        wide, target = got.astype(np.float64), expected.astype(np.float64)
        with np.errstate(invalid="ignore"):
            good = np.abs(wide - target) <= near.atol + near.rtol * np.abs(target)
        good |= (wide == target) | (np.isnan(wide) & np.isnan(target))
    else:
        good = bits(got) == bits(expected)
        if got.dtype.kind == "f":
            good |= np.isnan(got) & np.isnan(expected)
    if not good.all():
        where = tuple(int(i[0]) for i in np.nonzero(~good))
        raise AssertionError(
            f"{what}: {np.count_nonzero(~good)} of {good.size} differ, first at {where}: "
            f"got {got[where]!r}, want {expected[where]!r}"
        )


def bits(x: Array) -> Array:
    """The same memory as unsigned integers of the element's size."""
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}") if x.dtype.kind == "f" else x


def specials(dtype: Any, n: int, random: np.random.Generator) -> Array:
    """n floats: edge values, denormals, whole numbers and random bit patterns of every exponent."""
    uint = np.dtype(f"u{np.dtype(dtype).itemsize}")
    info = np.finfo(dtype)
    edge = np.array(
        [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, np.inf, -np.inf, np.nan, info.max, info.min], dtype
    )
    tiny = np.array([info.tiny, -info.tiny, info.smallest_subnormal, -info.smallest_subnormal, info.tiny / 2], dtype)
    wild = random.integers(0, np.iinfo(uint).max, n, uint, endpoint=True).view(dtype)
    out = np.where(random.random(n) < 0.5, wild, (random.standard_normal(n) * 8).astype(dtype)).astype(dtype)
    known = np.concatenate([edge, tiny])
    at = random.permutation(n)[: min(n, 4 * len(known))]
    out[at] = np.resize(known, len(at))
    return out


def whole(dtype: Any, n: int, random: np.random.Generator) -> Array:
    """n integers: edges, small ones, and random ones of every length."""
    info = np.iinfo(dtype)
    out = random.integers(info.min, info.max, n, dtype, endpoint=True)
    out = np.where(random.random(n) < 0.3, random.integers(0, 40, n).astype(dtype), out).astype(dtype)
    out >>= random.integers(0, info.bits, n).astype(dtype) * (random.random(n) < 0.3).astype(dtype)
    edge = np.array([0, 1, 2, info.max, info.min, info.max - 1, info.min + 1], dtype)
    if info.min == 0:
        edge = np.append(edge, np.array([info.max // 2, info.max // 2 + 1], dtype))
    at = random.permutation(n)[: min(n, 6 * len(edge))]
    out[at] = random.choice(edge, len(at))
    return out
