"""GGUF blocks to the interleaved device layout.

Owns: the numpy definition of the repacking, which tests hold against the C code (kernels_c/host/repack.c), and
the call into it. Where each byte goes is decided by core_laws/ie_core.h.
"""

from __future__ import annotations

import numpy as np

from . import native
from .errors import DeviceError
from .formats import Layout


def repack_reference(layout: Layout, data: np.ndarray, rows: int, k: int) -> np.ndarray:
    """Tiles of `rows` rows of k values: uint8 [row groups, blocks, layout.size]. data: the tensor's bytes."""
    lanes, blocks, groups = layout.rows, k // layout.block, -(-rows // layout.rows)
    padded = np.zeros((groups * lanes, blocks, layout.size_per_row_block), np.uint8)
    padded[:rows] = data.reshape(rows, blocks, -1)
    if not layout.fields:
        return padded.reshape(groups, blocks, -1)
    parts = []
    for f in layout.fields:
        part = _transform(f.transform, padded[..., f.source : f.source + f.unit * f.count])
        part[rows:] = 0
        part = part.reshape(groups, lanes, blocks, f.count, f.unit).transpose(0, 2, 3, 1, 4)
        parts.append(part.reshape(groups, blocks, -1))
    return np.ascontiguousarray(np.concatenate(parts, axis=-1))


def _transform(name: str, part: np.ndarray) -> np.ndarray:
    """uint8 [..., n] with a field's transform applied; always a copy."""
    if name == "bias":
        return part ^ np.uint8(0x80)
    if name == "spread":  # bit i of the four bytes, i = 4w + b, goes to bit w of byte b
        bits = np.unpackbits(part, axis=-1, bitorder="little").reshape(*part.shape[:-1], 8, 4)
        return np.packbits(bits.swapaxes(-1, -2).reshape(*part.shape[:-1], 32), axis=-1, bitorder="little")
    return part.copy()


def repack(pool: object, layout: Layout, data: np.ndarray, dst: np.ndarray, rows: int, k: int) -> None:
    """Write the tiles of a tensor to dst (zeroed uint8), split over the pool's threads."""
    _, library = native.lib()
    assert dst.size >= layout.nbytes(rows, k), "destination too small"
    src_ptr, dst_ptr = native.pointer(data, "uint8_t *"), native.pointer(dst, "uint8_t *")
    if library.ie_repack(pool, layout.id, src_ptr, dst_ptr, rows, k) != 0:
        raise DeviceError(f"cannot repack {rows} rows of {k} values to {layout.name}")
