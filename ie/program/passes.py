"""Passes that shape a program: `join` (weights that share an input become one matrix) and `fuse` (neighbours become
one command), then the partition into stages.

Owns: what may be joined and fused. Every result computes the same bits as the commands that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .. import native
from .stages import stages
from .symbols import Buffer, Command, Program, View

JOINED_ROWS = 32
"""Matrices are joined where the second begins at a multiple of this many rows, so that whatever group of rows a device
keeps together (16 and 32 are usual) none holds rows of both."""


def substitute(commands: list[Command], old: Buffer, new: View) -> list[Command]:
    """Replace every view of `old` by the same columns of `new`."""

    def fix(value: Any) -> Any:
        if isinstance(value, View) and value.buffer == old:
            return View(new.buffer, new.offset + value.offset, value.cols)
        return value

    return [replace(c, args={k: fix(v) for k, v in c.args.items()}) for c in commands]


def join(commands: list[Command], keep: frozenset[Buffer] = frozenset()) -> list[Command]:
    """Consecutive matrix products with one input and one format become one product with stacked weights.

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
        w = replace(wa, names=wa.names + wb.names, rows=wa.rows + wb.rows, starts=starts if any(starts) else ())
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
    same = a.args["x"] == b.args["x"] and wa.format == wb.format and ("bias" in a.args) == ("bias" in b.args)
    return whole and same and wa.m % JOINED_ROWS == 0


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
