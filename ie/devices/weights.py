"""Weights on their way from the file to a device: sizes, placement, and loading with progress.

Owns: how many bytes a program's weights need in the layouts of a device, where each lies in one block of its memory,
and the loop that fills it, tensor by tensor, giving file pages back as it goes so that memory does not double.
Does not own: the layouts (`Device.layout`), how bytes get into them (`Device.repack`), or the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import ModelError
from ..formats import Layout, dequantize, format_by_name
from ..gguf import TensorSet
from ..program import Matrix, Table, Vector
from .device import Device, Region

ALIGN = 256
PIECE = 1 << 22  # bytes of a tensor that are looked through at a time

Weight = Matrix | Vector | Table
LayoutOf = Callable[[str], Layout]
"""A device's layout of a tensor format."""


@dataclass(frozen=True)
class Placement:
    """Byte offset of each matrix and vector in one block of `total` bytes; tables lie elsewhere."""

    offsets: dict[Weight, int]
    total: int


def nbytes(weight: Weight, layout_of: LayoutOf) -> int:
    """Bytes of a matrix or vector on a device; tables, which stay as they are in the file, are not counted."""
    if isinstance(weight, Matrix):
        layout = layout_of(weight.format)
        return sum(layout.nbytes(m, weight.k) for m in (weight.rows if weight.separate else (weight.m,)))
    return 4 * weight.n if isinstance(weight, Vector) else 0


def place(weights: Sequence[Weight], layout_of: LayoutOf, apart: int = 0) -> Placement:
    """Lay weights out in order of use, each aligned, `apart` more bytes behind each."""
    offsets: dict[Weight, int] = {}
    pos = 0
    for w in weights:
        if not isinstance(w, Table):
            offsets[w] = pos
            pos += -(-nbytes(w, layout_of) // ALIGN) * ALIGN + apart
    return Placement(offsets, pos)


def vector_values(tensors: TensorSet, weight: Vector) -> np.ndarray:
    """float32 [n]: the tensors of a vector one after the other. ModelError when a value is NaN or infinite."""
    parts = [dequantize(tensors[n].format, tensors[n].data()).reshape(-1) for n in weight.names]
    if weight.pieces:
        values = dict(zip(weight.names, parts, strict=True))
        parts = [values[name][first : first + n] for name, first, n in weight.pieces]
    out = np.concatenate([p.reshape(-1) for p in parts]).astype(np.float32, copy=False)
    if not np.isfinite(out).all():
        for name in dict.fromkeys(weight.names):
            refuse_bad_numbers(tensors, name)
    return out


def refuse_bad_numbers(tensors: TensorSet, name: str) -> None:
    """ModelError that names the first NaN or infinity of a tensor; nothing when there is none.

    A weight that is no number gives results that are none, or worse, that look like some: no executor loads it."""
    info = tensors[name]
    row_bytes = info.format.row_bytes(info.shape[0])
    rows = info.data().reshape(-1, row_bytes)
    step = max(1, PIECE // row_bytes)
    for start in range(0, len(rows), step):
        values = dequantize(info.format, rows[start : start + step])
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            row, column = (int(i) for i in bad[0])
            what = "NaN" if np.isnan(values[row, column]) else "an infinity"
            where = f"value {column}" + (f" of row {start + row}" if len(rows) > 1 else "")
            raise ModelError(
                f"{tensors.named(name)} holds {what} ({where}): the file is damaged; fetch it or convert it again"
            )


def matrix_values(tensors: TensorSet, weight: Matrix) -> np.ndarray:
    """float32 [m, k]: the tensors of a matrix, dequantised and stacked."""
    out = []
    for name, first, m in weight.parts():
        values = dequantize(tensors[name].format, rows_of(tensors, name, first, m, weight.k)).reshape(-1, weight.k)
        if requantized(tensors, weight, name):
            values = dequantize(format_by_name(weight.format), quantize_q4_0(values)).reshape(-1, weight.k)
        out.append(values)
    return np.concatenate(out)


def requantized(tensors: TensorSet, weight: Matrix, name: str) -> bool:
    """Whether the matrix is kept in another format than the file's: a Q4_0 copy, made while loading."""
    return tensors[name].format.name != weight.format


def quantize_q4_0(x: np.ndarray) -> np.ndarray:
    """Q4_0 blocks uint8 [rows, bytes] of float32 [rows, n]: the element of largest magnitude gets code 0 (-8)."""
    blocks = x.reshape(x.shape[0], -1, 32).astype(np.float32)
    at = np.abs(blocks).argmax(axis=-1)[..., None]
    d = np.take_along_axis(blocks, at, axis=-1) / np.float32(-8)
    with np.errstate(all="ignore"):  # a file may hold anything; drafts of such a block are no good, and that is all
        inverse = np.where(d == 0, np.float32(0), np.float32(1) / d)
        codes = np.minimum(15, (blocks * inverse + np.float32(8.5)).astype(np.int32)).astype(np.uint8)
        scale = d.astype(np.float16).view(np.uint8).reshape(*d.shape[:-1], 2)
    packed = codes[..., :16] | (codes[..., 16:] << 4)
    return np.concatenate([scale, packed], axis=-1).reshape(x.shape[0], -1)


def rows_of(tensors: TensorSet, name: str, first: int, rows: int, k: int) -> np.ndarray:
    """Bytes of rows [first, first + rows) of a tensor whose rows hold k values: uint8, zero copy."""
    info = tensors[name]
    size = info.format.row_bytes(k)
    return info.data()[first * size : (first + rows) * size]


def load(
    tensors: TensorSet,
    placement: Placement,
    device: Device,
    region: Region,
    progress: Callable[[int, int], None],
) -> None:
    """Fill a zeroed region with the weights of a placement; progress(bytes done, bytes in total).

    ModelError for the first weight, in order of use, that is NaN or infinite."""
    done = 0
    for weight, offset in placement.offsets.items():
        if isinstance(weight, Vector):
            device.write(region, offset, vector_values(tensors, weight).view(np.uint8))
        elif isinstance(weight, Matrix):
            _load_matrix(tensors, weight, device, region, offset)
            for name in set(weight.names):
                tensors[name].release()
        done += nbytes(weight, device.layout)
        progress(done, placement.total)


def _load_matrix(tensors: TensorSet, weight: Matrix, device: Device, region: Region, at: int) -> None:
    """Parts one after the other. Those that do not fill the device's groups of rows are put together first: rows of a
    tensor are runs of bytes, and so is what is made of several."""
    layout, k = device.layout(weight.format), weight.k
    fill = weight.separate or all(rows % layout.rows == 0 for rows in weight.rows[:-1])
    same = not any(requantized(tensors, weight, name) for name in weight.names)
    if not fill and same:
        data = np.concatenate([rows_of(tensors, name, first, rows, k) for name, first, rows in weight.parts()])
        if not device.repack(layout, data, region, at, weight.m, k):
            for name in dict.fromkeys(weight.names):
                refuse_bad_numbers(tensors, name)
        return
    assert fill, "a requantised matrix has parts of whole groups of rows"
    for name, first, rows in weight.parts():
        if same:
            if not device.repack(layout, rows_of(tensors, name, first, rows, k), region, at, rows, k):
                refuse_bad_numbers(tensors, name)
        else:
            _load_q4_0(tensors, weight, name, first, rows, device, region, at)
        at += layout.nbytes(rows, k)


def check(tensors: TensorSet, weights: Sequence[Weight]) -> None:
    """What `load` refuses, for an executor that reads the weights as it goes. ModelError."""
    for weight in weights:
        if not isinstance(weight, Table):
            for name in dict.fromkeys(weight.names):
                refuse_bad_numbers(tensors, name)


def _load_q4_0(
    tensors: TensorSet, weight: Matrix, name: str, first: int, rows: int, device: Device, region: Region, at: int
) -> None:
    """Repack rows of a tensor as Q4_0, a few thousand rows at a time so that no F32 copy of it exists."""
    piece, layout = 4096, device.layout(weight.format)  # whole row groups
    for start in range(0, rows, piece):
        n = min(piece, rows - start)
        raw = rows_of(tensors, name, first + start, n, weight.k)
        values = dequantize(tensors[name].format, raw).reshape(n, weight.k)
        if not np.isfinite(values).all():
            refuse_bad_numbers(tensors, name)
        packed = quantize_q4_0(values).reshape(-1)
        device.repack(layout, packed, region, at + layout.nbytes(start, weight.k), n, weight.k)
