"""Packing: commands into bytes, once addresses are known.

Owns: the command array's layout around the argument structs of the op table.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ..ops import OP_IDS, OPS
from .symbols import Program

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
