"""Shortened programs: the first layers only, or everything up to one command.

Owns: finding a command by what a person writes, cutting a program, and the words for a command that every report
uses. A cut program is an ordinary one: any executor runs it, and only the weights that it uses are loaded. Does not
own running or comparing (see `diff`).
"""

from __future__ import annotations

import re
from dataclasses import replace

from ..errors import OptionError
from ..ops import OPS
from .passes import substitute
from .stages import stages
from .symbols import Program, View


def keep_layers(program: Program, n: int) -> Program:
    """The first n layers, then the commands after the last layer. OptionError when there are fewer.

    What the first layer left out would have read, the residual stream, is what the rest now reads in place of the
    last layer's.
    """
    layers = 1 + max((c.layer for c in program.commands), default=-1)
    if not 1 <= n <= layers:
        raise OptionError(f"--layers {n}: the model has {layers} layers")
    if n == layers:
        return program
    kept = [c for c in program.commands if c.layer < n]
    entry = next(c for c in program.commands if c.layer == n)
    stream = next(v.buffer for a, v in entry.views() if "r" in a.access)
    written = {v.buffer for c in kept for a, v in c.views() if "w" in a.access}
    missing = {v.buffer for c in kept for a, v in c.views() if "r" in a.access} - written
    for buffer in missing:
        if len(missing) != 1 or buffer.cols != stream.cols:
            raise OptionError(f"--layers {n}: what follows the layers needs more than their result")
        kept = substitute(kept, buffer, View.of(stream))
    return replace(program, commands=tuple(kept), stage=stages(tuple(kept)))


def stop_after(program: Program, index: int) -> Program:
    """Commands 0 … index; the outputs are what the last of them writes, by argument name."""
    last = program.commands[index]
    outputs = {arg.name: view for arg, view in last.views() if "w" in arg.access}
    return Program(program.commands[: index + 1], program.stage[: index + 1], outputs)


def find(program: Program, text: str) -> int:
    """Index of the command that `text` names: an index, `OP` (the first of that op) or `OP:LAYER`. OptionError."""
    commands = program.commands
    where = re.fullmatch(r"(\d{1,9})|([a-z_]\w*)(?::(\d{1,9}))?", text, re.ASCII)
    if where is None:
        raise OptionError(f"--stop-after: expected OP, OP:LAYER or an index, got '{text}'")
    index, op, layer = where.groups()
    if index is not None:
        if int(index) >= len(commands):
            raise OptionError(f"--stop-after {text}: the program has commands 0 to {len(commands) - 1}")
        return int(index)
    if op not in OPS:
        raise OptionError(f"--stop-after: no op {op}; there are {', '.join(OPS)}")
    for i, command in enumerate(commands):
        if command.op == op and (layer is None or command.layer == int(layer)):
            return i
    raise OptionError(f"--stop-after {text}: the program has no such command")


def describe(program: Program, index: int) -> str:
    """`command 12 matmul, layer 3`."""
    command = program.commands[index]
    return f"command {index} {command.op}" + (f", layer {command.layer}" if command.layer >= 0 else "")
