"""What a program is made of: buffers, views, weights and commands as symbols, without addresses.

Owns: these nouns and what can be asked of a whole program. The same program runs on every executor. Does not own:
which commands a model needs (`model`), where buffers lie (`plan`), what an executor does with them (`devices`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ops import OPS
from ..ops.table import VIEW_KINDS, Arg
from .step import ROWS


@dataclass(frozen=True)
class Buffer:
    """One row-major activation buffer: `cols` values a row, F32, Q8 or I32, as many rows as its domain has."""

    name: str
    dtype: str  # f32 | q8 | i32
    cols: int
    domain: int = ROWS


@dataclass(frozen=True)
class View:
    """Columns [offset, offset + cols) of a buffer."""

    buffer: Buffer
    offset: int
    cols: int

    @staticmethod
    def of(buffer: Buffer) -> View:
        return View(buffer, 0, buffer.cols)

    def slice(self, offset: int, cols: int) -> View:
        assert self.buffer.dtype == "f32" and 0 <= offset and offset + cols <= self.cols
        return View(self.buffer, self.offset + offset, cols)


@dataclass(frozen=True)
class Matrix:
    """Weights: rows of GGUF tensors, stacked; `k` values a row.

    Part i is rows[i] rows of tensor names[i] from row starts[i]; no starts: all from row 0. `format` is the tensor
    format that they are kept in (a tensor of another one is requantised), `activation` what products with them read,
    q8 or f32; how a device lays them out is its own business. `separate`: each part is a matrix of its own, of the same
    shape as the others (experts).
    """

    names: tuple[str, ...]
    rows: tuple[int, ...]
    k: int
    format: str
    activation: str
    starts: tuple[int, ...] = ()
    separate: bool = False

    @property
    def m(self) -> int:
        return sum(self.rows)

    def parts(self) -> list[tuple[str, int, int]]:
        """(tensor, first row, rows) of each part."""
        return list(zip(self.names, self.starts or (0,) * len(self.names), self.rows, strict=True))


@dataclass(frozen=True)
class Vector:
    """F32 weights of `n` values, contiguous: tensors `names` one after the other, or only pieces of them.

    A piece is (tensor, first value, values)."""

    names: tuple[str, ...]
    n: int
    pieces: tuple[tuple[str, int, int], ...] = ()

    def joined(self, other: Vector) -> Vector:
        """This one's values, then the other's."""
        pieces = tuple(p for v in (self, other) for p in v.pieces or ((v.names[0], 0, v.n),))
        return Vector(self.names + other.names, self.n + other.n, pieces)


@dataclass(frozen=True)
class Table:
    """Rows in a GGUF format, read from the file: the embedding."""

    name: str
    cols: int


@dataclass(frozen=True)
class RopeTable:
    """Index of a cos/sin table (see `config.RopeConfig`)."""

    index: int


@dataclass(frozen=True)
class Cache:
    """The key ("k") or value ("v") pool of one layer: `heads` heads of `dim` values a position."""

    layer: int
    which: str
    heads: int
    dim: int


@dataclass(frozen=True)
class Partials:
    """Memory where the threads that share a row's keys leave their results: `heads` query heads of `dim` values."""

    heads: int
    dim: int


@dataclass(frozen=True)
class State:
    """F32 memory that a layer keeps from step to step, `shape` for each sequence."""

    layer: int
    which: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Command:
    """One op with its arguments; absent optional arguments are left out."""

    op: str
    args: Mapping[str, Any]
    layer: int = -1
    domain: int = ROWS
    row: int = 0  # of the step inputs, for the domain ROW
    skippable: bool = False  # left out when the step's skip flag is set

    def views(self) -> Iterator[tuple[Arg, View]]:
        for arg in OPS[self.op].args:
            if arg.kind in VIEW_KINDS and self.args.get(arg.name) is not None:
                yield arg, self.args[arg.name]

    def check(self) -> None:
        """Dimensions agree and required arguments are there; AssertionError names what is not."""
        bound: dict[str, tuple[int, str]] = {}
        for arg in OPS[self.op].args:
            value = self.args.get(arg.name)
            where = f"{self.op} (layer {self.layer}).{arg.name}"
            if value is None:
                assert arg.optional or arg.kind in ("i32", "f32"), f"{where} is missing"
                continue
            if arg.kind in ("f32v", "q8v", "i32v"):
                assert value.buffer.dtype == arg.kind.removesuffix("v"), f"{where} is {value.buffer.dtype}"
            for dim, size in zip(arg.dim.split(","), _sizes(value), strict=False):
                if dim:
                    first, named = bound.setdefault(dim, (size, where))
                    assert first == size, f"{where}: {dim} is {size}, but {first} at {named}"
        unknown = set(self.args) - {a.name for a in OPS[self.op].args}
        assert not unknown, f"{self.op}: no argument {unknown}"


def _sizes(value: Any) -> tuple[int, ...]:
    if isinstance(value, View | Table):
        return (value.cols,)
    if isinstance(value, Matrix):
        return (value.m, value.k)
    return (value.n,) if isinstance(value, Vector) else ()


@dataclass(frozen=True)
class Program:
    """Commands with their stages. `stage[i]` is the stage of command i; stages never decrease."""

    commands: tuple[Command, ...]
    stage: tuple[int, ...] = ()
    outputs: Mapping[str, View] = field(default_factory=dict)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Every buffer, in order of first use."""
        seen: dict[Buffer, None] = {}
        for c in self.commands:
            for _, v in c.views():
                seen[v.buffer] = None
        return tuple(seen)

    def weights(self) -> tuple[Matrix | Vector | Table, ...]:
        """Every weight, in order of first use."""
        seen: dict[Any, None] = {}
        for c in self.commands:
            for v in c.args.values():
                if isinstance(v, Matrix | Vector | Table):
                    seen[v] = None
        return tuple(seen)

    def states(self) -> tuple[State, ...]:
        """Every state, in order of first use."""
        return tuple(dict.fromkeys(v for c in self.commands for v in c.args.values() if isinstance(v, State)))

    def caches(self) -> tuple[Cache, ...]:
        """Every KV pool, in order of first use."""
        return tuple(dict.fromkeys(v for c in self.commands for v in c.args.values() if isinstance(v, Cache)))

    def partials(self) -> tuple[Partials, ...]:
        """Every room for partial results, in order of first use."""
        return tuple(dict.fromkeys(v for c in self.commands for v in c.args.values() if isinstance(v, Partials)))

    def stage_starts(self) -> list[int]:
        """Index of the first command of each stage, and the number of commands at the end."""
        starts = [i for i, s in enumerate(self.stage) if i == 0 or s != self.stage[i - 1]]
        return [*starts, len(self.commands)]


def union(programs: Sequence[Program]) -> Program:
    """All commands, for asking what weights, caches and states they use; not to be run."""
    return Program(tuple(c for p in programs for c in p.commands))
