"""What an op declaration is: argument kinds, the C structs they become, packing and checks.

Owns: the vocabulary (`Arg`, `Op`) and what is derived from one declaration: the layout of the C argument struct,
the bytes of a packed command, the dimension check, the accesses that hazards are computed from.
Does not own: any particular op (see the sibling modules, one per op) nor any buffer.

A command is 256 bytes: a 16-byte header (`op`, `domain`, `layer`, `flags`) and one struct of arguments.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

COMMAND_BYTES = 256
HEADER_BYTES = 16
ARGS_BYTES = COMMAND_BYTES - HEADER_BYTES


@dataclass(frozen=True)
class Kind:
    """An argument kind: its C type and the little-endian fields it packs to (`struct` codes)."""

    ctype: str
    fields: str
    size: int
    align: int


KINDS: Mapping[str, Kind] = {
    # activations: address of row 0, bytes from row to row, columns
    "f32v": Kind("ie_view", "Qii", 16, 8),
    "q8v": Kind("ie_view", "Qii", 16, 8),
    "i32v": Kind("ie_view", "Qii", 16, 8),  # token ids
    "act": Kind("ie_view", "Qii", 16, 8),  # f32 or q8, as the matrix layout demands
    # weights
    "matrix": Kind("ie_matrix", "Qiiii", 24, 8),  # address, layout id, tile bytes, blocks per row, rows of a tile
    "matrices": Kind("ie_matrices", "Qiiiiii", 32, 8),  # the same, then bytes from one matrix to the next, 0
    "vector": Kind("uint64_t", "Q", 8, 8),  # F32, contiguous
    "table": Kind("ie_table", "Qii", 16, 8),  # address, GGUF format id, bytes per row
    "rope": Kind("uint64_t", "Q", 8, 8),  # F32 [position][pair][cos, sin]
    "cache": Kind("ie_cache", "Qii", 16, 8),  # F16 pool of one layer: address, KiB from one chunk to the next, 0
    "partials": Kind("ie_partials", "Qii", 16, 8),  # address, key segments that there is room for, 0
    "state": Kind("uint64_t", "Q", 8, 8),  # F32, per sequence, see program.State
    # scalars
    "i32": Kind("int32_t", "i", 4, 4),
    "f32": Kind("float", "f", 4, 4),
}

VIEW_KINDS = ("f32v", "q8v", "i32v", "act")


@dataclass(frozen=True)
class Arg:
    """One argument.

    `dim` names the column count of a view, the length of a vector, or "M,K" of a matrix; equal names
    must have equal sizes within one command. `access` is r, w or rw. Optional arguments may be absent
    (address 0); `default` is the value of an absent scalar. `names` are those of a scalar's values 0, 1, …: C has them
    as IE_<argument>_<name>.
    """

    name: str
    kind: str
    dim: str = ""
    access: str = "r"
    optional: bool = False
    default: float = 0
    doc: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class CountFn:
    """A counting function of ie_core.h and the names of its arguments.

    Names are argument names (scalars), `NAME.cols` of a view, `NAME.blocks|tile|lanes` of a matrix, `NAME.stride` of
    matrices, or of the step inputs `rows`: the live rows of the command's domain; `pos` and `seq` of those rows; `seg`:
    all segments. Geometry has `rows` alone.
    """

    fn: str
    args: tuple[str, ...]


Magnitude = Callable[[Any, Mapping[str, Any], str], tuple[Any, float] | None]
"""How far executors with another order of operations may lie apart: (env, arguments, name of the output) -> (terms, c).

terms, float64 and of the output's shape, is the sum of |terms| that make up each value (for a cache: of the rows that
the step writes, [rows, heads, dim]; for a state: [sequences of the step, *shape]); c is as `compare.reduction` wants
it. None: the output is a copy and must be the same. `env` is the reference's environment in
float64. It holds the command's inputs: the command has not run.
"""


@dataclass(frozen=True)
class Op:
    """One op: see the module docstring of `ie.ops` for what is generated from it."""

    name: str
    args: tuple[Arg, ...]
    tolerance: str  # exact | elementwise | reduction | q8
    geometry: CountFn
    traffic: CountFn  # bytes that must move
    flops: CountFn | None
    reference: Callable[[Any, Mapping[str, Any]], None]
    doc: str
    magnitude: Magnitude | None = None  # elementwise and reduction ops have one
    skips: bool = False  # may set the step's skip flag

    def __post_init__(self) -> None:
        names = [a.name for a in self.args]
        assert len(set(names)) == len(names), f"{self.name}: argument named twice"
        assert self.args_size() <= ARGS_BYTES, f"{self.name}: arguments exceed {ARGS_BYTES} bytes"
        assert self.tolerance in ("exact", "elementwise", "reduction", "q8"), self.name

    def arg(self, name: str) -> Arg:
        return next(a for a in self.args if a.name == name)

    def offsets(self) -> dict[str, int]:
        """Byte offset of each argument inside the C struct (natural alignment)."""
        out, pos = {}, 0
        for a in self.args:
            kind = KINDS[a.kind]
            pos = (pos + kind.align - 1) // kind.align * kind.align
            out[a.name] = pos
            pos += kind.size
        return out

    def args_size(self) -> int:
        """sizeof the C struct: its end rounded up to 8 bytes."""
        last = self.args[-1]
        end = self.offsets()[last.name] + KINDS[last.kind].size
        return (end + 7) // 8 * 8

    def pack(self, values: Mapping[str, tuple[Any, ...]]) -> bytes:
        """Bytes of the argument struct. `values[name]` holds the fields of each argument present."""
        out = bytearray(self.args_size())
        offsets = self.offsets()
        for a in self.args:
            kind = KINDS[a.kind]
            fields = values.get(a.name)
            if fields is None:
                fields = (a.default,) if kind.fields == "f" else (int(a.default),) + (0,) * (len(kind.fields) - 1)
            struct.pack_into("<" + kind.fields, out, offsets[a.name], *fields)
        return bytes(out)
