#!/usr/bin/env python3
"""Measures one op: `python scripts/op_bench.py matmul --format Q4_K --rows 1,4,16 --m 4864 --k 1024 -t 2`.

Owns: making a program of one op in any shape and format, timing it on the cpu executor, and printing the table. What a
layer has of its own (weights, keys and values, recurrent state) is there in as many copies as exceed the caches, and
each command of the timed program uses the next copy: it comes from memory, as it does in a model. Activations stay in
cache, as they do there. Beside the times stands whether a row's bits are the same alone as among the others.

Columns: us is the median time of one command, its barrier included; GB/s counts the op table's bytes, which are what
must come from memory; "of measured" is their share of what this machine reads.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ie import formats, native  # noqa: E402
from ie.devices import (  # noqa: E402
    CpuExecutor,
    base,
    diff,
    weights,
)
from ie.devices.base import MODEL, Binding, Job, Q8Rows  # noqa: E402
from ie.devices.cpu import read_bandwidth as measured_bandwidth  # noqa: E402
from ie.devices.reference import quantize_q8  # noqa: E402
from ie.devices.trace import Costs  # noqa: E402
from ie.errors import IeError, OptionError  # noqa: E402
from ie.gguf import TensorSet  # noqa: E402
from ie.machine import this_machine  # noqa: E402
from ie.model.config import RopeConfig, rope_table  # noqa: E402
from ie.ops import OPS  # noqa: E402
from ie.ops.table import Arg, Op  # noqa: E402
from ie.program import Buffer, Cache, Command, Matrix, Partials, Program, RopeTable, State, Table, Vector, View  # noqa: E402
from ie.program.step import OUTS, ROWS, SEGS, Run, StepInputs  # noqa: E402

N_TOKENS = 4096
MAX_COPIES = 1024
CHECKED_ROWS = 64  # most rows of a step whose bits are compared one by one
RECURRENT = ("conv", "deltanet")


@dataclass(frozen=True)
class Shape:
    """What the options say; an op uses the fields that its arguments' names ask for."""

    format: str = "Q4_0"
    m: int = 4096
    k: int = 4096
    cols: int = 4096
    width: int = 0  # of a normalised group; 0: all columns
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    depth: int = 1024  # positions before the rows
    window: int = 0
    act: int = 0
    taps: int = 4
    slots: int = 4
    experts: int = 8
    used: int = 2  # experts of a row
    q8: bool = False  # the optional Q8 output in place of F32


def view_columns(op: Op, s: Shape) -> Mapping[str, int]:
    """Columns by the dimension names of the op table."""
    width = s.width or s.cols
    channels = (2 * s.kv_heads + s.heads) * s.head_dim if op.name == "deltanet" else s.cols
    return {
        "N": s.cols, "W": width, "K": s.k, "M": s.m, "C": channels, "H": s.heads,
        "HD": s.heads * s.head_dim, "GD": s.kv_heads * s.head_dim, "E": s.experts, "R": 2 * s.used,
    }  # fmt: skip


def unnamed_columns(s: Shape) -> Mapping[tuple[str, str], int]:
    """Columns of arguments whose dimension has no name, being a product of others."""
    return {
        ("conv", "w"): s.cols * s.taps, ("combine", "x"): s.used * s.cols, ("combine", "gate"): 1,
        ("experts", "x"): s.k, ("experts", "y"): s.used * s.m,
    }  # fmt: skip


def scalars(s: Shape) -> Mapping[str, float]:
    """Scalar arguments by name."""
    return {
        "per_slot": 0, "k": s.k,
        "head_dim": s.head_dim, "dim": s.head_dim, "heads": s.heads, "value_heads": s.heads, "kv_heads": s.kv_heads,
        "key_heads": s.kv_heads, "window": s.window, "n_rot": s.head_dim, "neox": 1, "width": s.width or s.cols,
        "act": s.act, "cap": 30.0, "eps": 1e-5, "scale": 1 / math.sqrt(s.head_dim), "taps": s.taps, "slots": s.slots,
    }  # fmt: skip


class Bench:
    """An op in a shape: programs of one copy and of many, and the tensors that they use."""

    def __init__(self, op: Op, shape: Shape) -> None:
        self.op, self.shape = op, shape
        self.columns = view_columns(op, shape)
        self.format = formats.format_by_name(shape.format)
        self.layout = formats.layout_for(self.format)
        self.domain = OUTS if op.name == "gather" else SEGS if op.name in RECURRENT else ROWS
        self.tensors: dict[str, Any] = {}
        self._data: np.ndarray | None = None

    def command(self, copy: int) -> Command:
        """The op with copy `copy` of what a layer has of its own."""
        args: dict[str, Any] = {}
        outputs = [a.name for a in self.op.args if a.optional and a.access == "w"]
        unwanted = {("y" if self.shape.q8 else "yq")} & set(outputs) | {"res", "bias", "ids"}
        if self.shape.q8 and "yq" not in outputs:
            raise OptionError(f"{self.op.name} has no Q8 output")
        for arg in self.op.args:
            if arg.kind in ("i32", "f32"):
                values = scalars(self.shape)
                if arg.name not in values:
                    raise OptionError(
                        f"{self.op.name}: no shape says what {arg.name} is; this op cannot be measured alone"
                    )
                args[arg.name] = 1.0 if self.op.name == "embed" and arg.name == "scale" else values[arg.name]
            elif not (arg.optional and arg.name in unwanted):
                args[arg.name] = self._argument(arg, copy)
        made = Command(self.op.name, args, copy, self.domain)
        made.check()
        return made

    def _argument(self, arg: Arg, copy: int) -> Any:
        s = self.shape
        if arg.kind in ("matrix", "matrices"):
            return self._matrix(f"{arg.name}{copy}")
        if arg.kind == "cache":
            return Cache(copy, arg.name[0], s.kv_heads, s.head_dim)
        if arg.kind == "partials":
            return Partials(s.heads, s.head_dim)
        if arg.kind == "state":
            shape = (s.slots, s.heads, s.head_dim, s.head_dim) if self.op.name == "deltanet" else (32, s.cols)
            return State(copy, arg.name, shape)
        if arg.kind == "rope":
            return RopeTable(0)
        cols = self.columns.get(arg.dim, unnamed_columns(s).get((self.op.name, arg.name)))
        if cols is None:
            raise OptionError(f"{self.op.name}: no shape says what {arg.dim} is; this op cannot be measured alone")
        if arg.kind == "vector":
            self._tensor(arg.name, "F32", (cols,), np.full(cols, -0.1, np.float32))
            return Vector((arg.name,), cols)
        if arg.kind == "table":
            self._tensor(arg.name, s.format, (cols, N_TOKENS), self._rows(cols, N_TOKENS))
            return Table(arg.name, cols)
        q8 = arg.kind == "q8v" or (arg.kind == "act" and self.layout.activation == "q8")
        domain = ROWS if self.domain == SEGS or (self.domain == OUTS and arg.name == "x") else self.domain
        return View.of(Buffer(arg.name, "q8" if q8 else "f32", cols, domain))

    def _matrix(self, name: str) -> Matrix:
        s, n = self.shape, self.shape.experts if self.op.name == "experts" else 1
        if self._data is None:
            self._data = self._rows(s.k, n * s.m)
        self._tensor(name, s.format, (s.k, n * s.m), self._data)
        starts = tuple(i * s.m for i in range(n)) if n > 1 else ()
        kind = s.format, self.layout.activation
        return Matrix((name,) * n, (s.m,) * n, s.k, *kind, starts, self.op.name == "experts")

    def _rows(self, cols: int, rows: int) -> np.ndarray:
        """Rows of random weights in the format; a few different ones, again and again."""
        from tiny_models.weights import encode

        few = encode(1, "w", min(rows, 64), cols, self.shape.format, 0.0, 0.05)
        raw = np.ascontiguousarray(few).view(np.uint8).reshape(len(few), -1)
        return np.tile(raw, (-(-rows // len(raw)), 1))[:rows]

    def _tensor(self, name: str, fmt: str, shape: tuple[int, ...], data: np.ndarray) -> None:
        raw = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        self.tensors[name] = SimpleNamespace(
            name=name, shape=shape, format=formats.format_by_name(fmt), data=lambda: raw, release=lambda: None
        )

    def program(self, copies: int) -> Program:
        """One command after the other: each waits for the one before, as in a model."""
        commands = tuple(self.command(i) for i in range(copies))
        return Program(commands, tuple(range(copies)))

    def fields(self) -> list[str]:
        """Fields of the shape that this op uses: those without which it would look different."""
        kinds, dims = {a.kind for a in self.op.args}, {d for a in self.op.args for d in a.dim.split(",")}
        names = {a.name for a in self.op.args}
        heads = bool(dims & {"HD", "GD", "H"})
        used = {
            "format": bool(kinds & {"matrix", "matrices", "table"}),
            "m": bool(kinds & {"matrix", "matrices"}), "k": bool(kinds & {"matrix", "matrices"}),
            "experts": "E" in dims or self.op.name == "experts", "used": "R" in dims,
            "cols": bool(dims & {"N", "C"}) and not heads, "width": "width" in names and self.shape.width > 0,
            "heads": heads, "kv_heads": heads, "head_dim": heads, "depth": "cache" in kinds,
            "window": "window" in names, "act": "act" in names, "taps": "taps" in names, "slots": "slots" in names,
            "q8": self.shape.q8,
        }  # fmt: skip
        return [name for name, wanted in used.items() if wanted]


def step_of(bench: Bench, rows: int) -> StepInputs:
    """The step that is timed: rows of one sequence, all of them output rows. A recurrence goes on from a state."""
    last = bench.shape.depth + rows
    step = StepInputs(max(rows, 1), 1, -(-last // 32))
    step.tables[0] = np.arange(step.max_blocks)
    tokens = np.random.default_rng(2).integers(0, N_TOKENS, rows).tolist()
    step.fill([Run(0, bench.shape.depth, tokens, 0)], range(rows))
    return step


class Device:
    """A cpu executor with a program of a bench, filled with random activations, keys and states."""

    def __init__(self, bench: Bench, copies: int, rows: int, threads: int, isa: str) -> None:
        s = bench.shape
        self.bench, self.rows, self.program = bench, rows, bench.program(copies)
        last = s.depth + rows
        self.step = step_of(bench, rows)
        self.tokens = self.step.token[:rows].tolist()
        self.executor = CpuExecutor(threads, isa)
        rope = RopeConfig(s.head_dim, 10000.0, True)
        ropes = [rope_table(rope, last, None)] if bench.op.name == "rope" else []
        file = TensorSet("memory", bench.tensors)
        shape = base.Shape(last, self.step.max_blocks)
        job = Job(file, ropes, {MODEL: self.program}, [Binding(MODEL, rows, rows)], shape)
        self.executor.load(job, lambda done, total: None)
        self.handle = 0
        self._own()
        self.inputs = self._inputs()

    def fill(self, tokens: Sequence[int], first: int, state: int, keep: int = 1) -> None:
        """A step of one sequence; every row is an output row."""
        self.step.fill([Run(0, first, tokens, state, keep)], range(len(tokens)))

    def _own(self) -> None:
        """Keys and values of every position, states: untouched memory would be read from one page of zeros."""
        rng = np.random.default_rng(3)
        made: dict[str, np.ndarray] = {}
        for command in self.program.commands:
            for _, item in (*diff.items(command, "r"), *diff.items(command, "w")):
                if isinstance(item, Cache | State):
                    place = diff.place_of(self.step, command, item, "r")
                    kind = type(item).__name__
                    if kind not in made and isinstance(item, Cache):
                        values = rng.standard_normal((len(place.blocks), item.heads, item.dim))
                        made[kind] = values.astype(np.float16)
                    elif kind not in made:
                        made[kind] = rng.standard_normal((1, *item.shape)).astype(np.float32)
                    self.executor.poke(self.handle, item, place, made[kind])

    def _inputs(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(4)
        views = [(a, v) for a, v in self.program.commands[0].views() if "r" in a.access]
        made = {a.name: rng.standard_normal((self.rows, v.cols)).astype(np.float32) for a, v in views}
        if "route" in made:  # expert ids, each once in a row, then weights
            s = self.bench.shape
            ids = rng.random((self.rows, s.experts)).argsort(axis=-1)[:, : s.used]
            made["route"] = np.concatenate([ids, np.full(ids.shape, 1 / s.used)], axis=-1).astype(np.float32)
        return made

    def poke(self, rows: slice) -> None:
        """Give the first command rows of the inputs."""
        command = self.program.commands[0]
        for arg, view in command.views():
            if "r" in arg.access:
                values = self.inputs[arg.name][rows]
                data = Q8Rows(*quantize_q8(values)) if view.buffer.dtype == "q8" else values
                self.executor.poke(self.handle, view, diff.place_of(self.step, command, view, "r"), data)

    def peek(self) -> list[np.ndarray]:
        """Bytes of each row of each output: [rows, bytes]."""
        command, out = self.program.commands[0], []
        for arg, view in command.views():
            if "w" in arg.access:
                data = self.executor.peek(self.handle, view, diff.place_of(self.step, command, view, "w"))
                parts = (data.codes, data.scales) if isinstance(data, Q8Rows) else (data,)
                out += [np.ascontiguousarray(p).view(np.uint8) for p in parts]
        return out


def same_bits(bench: Bench, rows: int, threads: int, isa: str) -> bool:
    """Whether each row alone gives the bits that it gives among `rows`."""
    device = Device(bench, 1, rows, threads, isa)
    try:
        depth = 0 if bench.op.name in RECURRENT else bench.shape.depth  # a recurrence starts from nothing
        device.fill(device.tokens, depth, -1)
        device.poke(slice(0, rows))
        device.executor.run_command(device.handle, device.step, 0)
        together = device.peek()
        chosen = set(range(min(rows, CHECKED_ROWS)))
        if bench.op.name not in RECURRENT:
            chosen |= {rows // 2, rows - 1}
        for r in sorted(chosen):
            device.fill(device.tokens[r : r + 1], depth + r, (r - 1) % bench.shape.slots if r else -1)
            device.poke(slice(r, r + 1))
            device.executor.run_command(device.handle, device.step, 0)
            if any(not np.array_equal(a[0], t[r]) for a, t in zip(device.peek(), together, strict=True)):
                return False
        return True
    finally:
        device.executor.close()


def own_memory(bench: Bench, rows: int) -> int:
    """Bytes that a layer has of its own and that a command reads: weights, keys and values, state."""
    matrices = [w for w in bench.program(1).weights() if isinstance(w, Matrix)]
    if any(arg.kind == "state" or (arg.kind == "cache" and arg.access == "r") for arg in bench.op.args):
        return Costs(bench.program(1)).of(0, step_of(bench, rows))[1]
    return sum(weights.nbytes(w, lambda name: bench.layout) for w in matrices)


def copies_for(bench: Bench, rows: int, min_bytes: int) -> int:
    """Commands of the timed program: enough that their own memory exceeds the caches."""
    own = own_memory(bench, rows)
    return max(1, min(MAX_COPIES, -(-min_bytes // own))) if own else 64


def measure(bench: Bench, rows: int, threads: int, isa: str, repetitions: int, min_bytes: int) -> dict[str, Any]:
    """One line of the table."""
    copies = copies_for(bench, rows, min_bytes)
    device = Device(bench, copies, rows, threads, isa)
    try:
        device.poke(slice(0, rows))
        _, moved, flops = Costs(bench.program(1)).of(0, device.step)
        times = []
        for _ in range(repetitions + 1):  # the first warms up
            begin = time.perf_counter()
            device.executor.run(device.handle, device.step)
            times.append((time.perf_counter() - begin) / copies)
        isa = device.executor.isa
    finally:
        device.executor.close()
    seconds = statistics.median(times[1:])
    return {
        "op": bench.op.name, "rows": rows, "threads": threads, "isa": isa, "copies": copies,
        "microseconds": seconds * 1e6, "best_microseconds": min(times[1:]) * 1e6, "bytes": moved, "flops": flops,
        "gb_per_s": moved / seconds / 1e9, "gflop_per_s": flops / seconds / 1e9,
        "of_measured": moved / seconds / measured_bandwidth(threads) if own_memory(bench, rows) else None,
        "same_bits": same_bits(bench, rows, threads, isa), "samples": times[1:],
    }  # fmt: skip


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """The results for people."""
    head = f"{'rows':>6} {'us':>11} {'GB/s':>8} {'of measured':>12} {'GFLOP/s':>9}  bits of a row alone"
    out = [head]
    for r in lines:
        flops = f"{r['gflop_per_s']:9.1f}" if r["flops"] else f"{'-':>9}"
        share = f"{r['of_measured']:.0%}" if r["of_measured"] is not None else "in cache"
        out.append(
            f"{r['rows']:6} {r['microseconds']:11.2f} {r['gb_per_s']:8.2f} {share:>12} {flops}  "
            + ("the same" if r["same_bits"] else "DIFFERENT")
        )
    return "\n".join(out)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument("op", choices=sorted(OPS), metavar="OP", help=", ".join(OPS))
    for name, value in asdict(Shape()).items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            made.add_argument(flag, action="store_true", help="write Q8 in place of F32")
        else:
            made.add_argument(flag, type=type(value), default=value, help=f"default {value}")
    made.add_argument("--rows", default="1", help="rows of a step; several, separated by commas")
    made.add_argument("-t", "--threads", type=int, default=this_machine().cores)
    made.add_argument("--isa", default="auto", choices=("auto", *native.ISAS))
    made.add_argument("-r", "--repetitions", type=int, default=7)
    made.add_argument("--min-mb", type=int, default=256, help="copies of weights, keys or states exceed this")
    made.add_argument("--json", action="store_true", help="print JSON with every sample")
    return made


def main(argv: Sequence[str] | None = None, out: Callable[[str], None] = print) -> int:
    args = parser().parse_args(argv)
    shape = replace(Shape(), **{name: getattr(args, name) for name in asdict(Shape())})
    try:
        counts = [int(word) for word in args.rows.split(",")]
        if min(counts) < 1 or args.repetitions < 1 or args.threads < 1 or args.min_mb < 0:
            raise OptionError("--rows, -r and -t are at least 1, --min-mb at least 0")
        bench = Bench(OPS[args.op], shape)
        lines = [measure(bench, n, args.threads, args.isa, args.repetitions, args.min_mb << 20) for n in counts]
    except (IeError, ValueError, AssertionError) as error:
        print(f"op_bench: {error}", file=sys.stderr)
        return 1
    here = this_machine()
    if args.json:
        machine = {"cpu": here.cpu_name, "cores": here.cores}
        out(json.dumps({"machine": machine, "shape": asdict(shape), "results": lines}, indent=1))
    else:
        used = " ".join(f"{name}={getattr(shape, name)}" for name in bench.fields())
        out(f"{args.op} {used}, {lines[0]['threads']} threads, {lines[0]['isa']}, {here.cpu_name}")
        out(table(lines))
    return 0 if all(r["same_bits"] for r in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
