"""A program: the fixed list of commands of one step, and the passes that shape it.

Owns: buffers, views, weights and commands as symbols (no addresses), the passes `join` (weights of one
layout that share an input become one matrix), `fuse` (neighbours become one command), the partition into
stages, and packing commands into bytes once addresses are known. The same program runs on every executor.
Does not own: which commands a model needs (see `blocks`), where buffers lie (see `plan`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from . import native
from .formats import Layout
from .ops import OP_IDS, OPS
from .ops.table import VIEW_KINDS, Arg
from .step import OUTS, ROWS


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
    """Weights in a device layout: rows of GGUF tensors, stacked; `k` values a row.

    Part i is rows[i] rows of tensor names[i] from row starts[i]; no starts: all from row 0.
    """

    names: tuple[str, ...]
    rows: tuple[int, ...]
    k: int
    layout: Layout
    starts: tuple[int, ...] = ()

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


# ---- accesses and stages ----


@dataclass(frozen=True)
class Access:
    """A command touches columns [lo, hi) of a space (a buffer, or a layer's cache)."""

    command: int
    space: Any
    lo: int
    hi: int
    write: bool


def accesses(commands: tuple[Command, ...]) -> list[Access]:
    """All accesses that hazards are computed from, in command order."""
    out = []
    for i, c in enumerate(commands):
        for arg in OPS[c.op].args:
            value = c.args.get(arg.name)
            if isinstance(value, View):
                lo, hi = value.offset, value.offset + value.cols
            elif isinstance(value, Cache | State | Partials):
                lo, hi = 0, 1
            else:
                continue
            space: Any = value
            if not isinstance(value, Partials):
                space = value.buffer if isinstance(value, View) else (value.layer, value.which)
            out += [Access(i, space, lo, hi, mode == "w") for mode in arg.access]
    return out


def stages(commands: tuple[Command, ...]) -> tuple[int, ...]:
    """Greedy partition into runs of commands without conflicts, accepted by the check in C."""
    acc = accesses(commands)
    by_command: dict[int, list[Access]] = {}
    for a in acc:
        by_command.setdefault(a.command, []).append(a)
    stage, current, open_accesses = [], 0, list[Access]()
    for i in range(len(commands)):
        mine = by_command.get(i, [])
        if any(_conflict(a, b) for a in mine for b in open_accesses):
            current, open_accesses = current + 1, []
        open_accesses += mine
        stage.append(current)
    check_stages(tuple(stage), acc)
    return tuple(stage)


def _conflict(a: Access, b: Access) -> bool:
    return a.space == b.space and a.lo < b.hi and b.lo < a.hi and (a.write or b.write)


def check_stages(stage: tuple[int, ...], acc: list[Access]) -> None:
    """Ask the schedule check of ie_core.h; AssertionError names the offending command."""
    ffi, library = native.lib()
    ids: dict[Any, int] = {}
    columns = [
        native.int64s(x)
        for x in (
            [a.command for a in acc],
            [ids.setdefault(a.space, len(ids)) for a in acc],
            [a.lo for a in acc],
            [a.hi for a in acc],
            [a.write for a in acc],
        )
    ]
    st = native.int64s(stage)
    ptrs = [native.pointer(c, "int64_t *") for c in columns]
    bad = library.ie_core_stage_check(len(stage), native.pointer(st, "int64_t *"), len(acc), *ptrs)
    assert bad != len(acc), "stage check refused: stages decrease"
    assert bad < 0, f"stage check refused access {bad}: command {acc[bad].command}"


# ---- passes ----


def substitute(commands: list[Command], old: Buffer, new: View) -> list[Command]:
    """Replace every view of `old` by the same columns of `new`."""

    def fix(value: Any) -> Any:
        if isinstance(value, View) and value.buffer == old:
            return View(new.buffer, new.offset + value.offset, value.cols)
        return value

    return [replace(c, args={k: fix(v) for k, v in c.args.items()}) for c in commands]


def join(commands: list[Command], keep: frozenset[Buffer] = frozenset()) -> list[Command]:
    """Consecutive matrix products with one input and one layout become one product with stacked weights.

    `keep` buffers are read after the program and stay what they are.
    """
    out: list[Command] = []
    moved: dict[Buffer, View] = {}  # a joined buffer holds the columns of these

    def place(value: Any) -> Any:
        while isinstance(value, View) and value.buffer in moved:
            whole = moved[value.buffer]
            value = View(whole.buffer, whole.offset + value.offset, value.cols)
        return value

    for b in commands:
        a = out[-1] if out else b
        if not out or not _joinable(a, b, keep):
            out.append(b)
            continue
        wa, wb = a.args["w"], b.args["w"]
        ya, yb = a.args["y"], b.args["y"]
        buffer = Buffer(f"{ya.buffer.name}|{yb.buffer.name}", "f32", ya.cols + yb.cols, ya.buffer.domain)
        starts = tuple(s for w in (wa, wb) for _, s, _ in w.parts())
        w = Matrix(wa.names + wb.names, wa.rows + wb.rows, wa.k, wa.layout, starts if any(starts) else ())
        args = {"x": a.args["x"], "w": w, "y": View.of(buffer)}
        if "bias" in a.args:
            args["bias"] = a.args["bias"].joined(b.args["bias"])
        out[-1] = replace(a, args=args)
        moved[ya.buffer], moved[yb.buffer] = View(buffer, 0, ya.cols), View(buffer, ya.cols, yb.cols)
    return [replace(c, args={k: place(v) for k, v in c.args.items()}) for c in out]


def _joinable(a: Command, b: Command, keep: frozenset[Buffer]) -> bool:
    if a.op != "matmul" or b.op != "matmul" or a.domain != b.domain or "res" in a.args or "res" in b.args:
        return False
    if a.args["y"].buffer in keep or b.args["y"].buffer in keep:
        return False
    wa, wb = a.args["w"], b.args["w"]
    whole = all(View.of(c.args["y"].buffer) == c.args["y"] for c in (a, b))
    same = a.args["x"] == b.args["x"] and wa.layout == wb.layout and ("bias" in a.args) == ("bias" in b.args)
    return whole and same and wa.m % wa.layout.rows == 0  # rows of the second start a row group


def fuse(commands: list[Command], keep: frozenset[Buffer] = frozenset()) -> list[Command]:
    """Fuse neighbours: producer + quantise, and matrix product + residual. `keep` buffers stay written."""
    last_read = {v.buffer: i for i, c in enumerate(commands) for a, v in c.views() if "r" in a.access}
    out: list[Command] = []
    for i, b in enumerate(commands):

        def wanted(view: View, after: int = i) -> bool:
            """Whether anybody reads the buffer after this command."""
            return view.buffer in keep or last_read.get(view.buffer, -1) > after

        fused = (_fuse_quantize(out[-1], b, wanted) or _fuse_residual(out[-1], b, wanted)) if out else None
        if fused:
            out[-1] = fused
        else:
            out.append(b)
    return out


Wanted = Callable[[View], bool]


def _fuse_quantize(a: Command, b: Command, wanted: Wanted) -> Command | None:
    """X writes F32, quantise makes Q8 of all of it: X writes Q8, and F32 only where somebody else reads it."""
    if b.op != "quantize" or a.op not in ("rmsnorm", "attention", "glu") or a.domain != b.domain:
        return None
    y = a.args.get("y")
    if y is None or y != b.args["x"] or a.args.get("yq") is not None:
        return None
    unit = {"rmsnorm": a.args.get("width", 0), "attention": a.args.get("head_dim", 0), "glu": y.cols}[a.op]
    if unit % native.constant("q8_block"):
        return None  # a worker's share must fill whole Q8 blocks
    args = {**a.args, "yq": b.args["yq"]}
    if not wanted(y):
        del args["y"]
    return replace(a, args=args)


def _fuse_residual(a: Command, b: Command, wanted: Wanted) -> Command | None:
    """y = x W^T; z = r + y becomes z = x W^T + r when nobody else reads y. z may be r, but not x."""
    if a.op != "matmul" or b.op != "add" or "res" in a.args or a.domain != b.domain:
        return None
    y = a.args["y"]
    if y not in (b.args["a"], b.args["b"]) or wanted(y):
        return None
    res = b.args["b"] if b.args["a"] == y else b.args["a"]
    if res == y or b.args["y"].buffer == a.args["x"].buffer:
        return None
    return replace(a, args={**a.args, "res": res, "y": b.args["y"]})


def finish(commands: list[Command], outputs: Mapping[str, View]) -> Program:
    """Join, fuse, check and partition."""
    keep = frozenset(v.buffer for v in outputs.values())
    final = tuple(fuse(join(commands, keep), keep))
    for c in final:
        c.check()
    return Program(final, stages(final), outputs)


# ---- packing ----

Resolve = Callable[[Any], tuple[Any, ...]]
"""Turns a symbolic argument (View, Matrix, …) into the fields of its C struct."""


def pack(program: Program, resolve: Resolve) -> bytes:
    """The command array: 256 bytes each, header and argument struct."""
    out = bytearray()
    for c in program.commands:
        op = OPS[c.op]
        values = {}
        for arg in op.args:
            value = c.args.get(arg.name)
            if value is not None:
                values[arg.name] = (value,) if arg.kind in ("i32", "f32") else resolve(value)
        body = op.pack(values)
        head = struct.pack("<HHiIi", OP_IDS[c.op], c.domain, c.layer, int(c.skippable), c.row)
        out += (head + body).ljust(256, b"\0")
    return bytes(out)


__all__ = [
    "OUTS",
    "ROWS",
    "Buffer",
    "Cache",
    "Command",
    "Matrix",
    "Partials",
    "Program",
    "RopeTable",
    "State",
    "Table",
    "Vector",
    "View",
]
