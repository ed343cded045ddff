"""GGUF blocks to the interleaved device layout.

Owns: the numpy definition of the repacking, which tests hold against the C code (kernels_c/host/repack.c), and
the call into it. Where each byte goes is decided by core_laws/ie_core.h.
"""

from __future__ import annotations

import numpy as np

from . import native
from .errors import DeviceError
from .formats import Layout

LANES = 16


def repack_reference(layout: Layout, data: np.ndarray, rows: int, k: int) -> np.ndarray:
    """Tiles of `rows` rows of k values: uint8 [row groups, blocks, layout.size]. data: the tensor's bytes."""
    blocks = k // layout.block
    size = data.size // (rows * blocks)
    groups = -(-rows // LANES)
    src = np.zeros((groups * LANES, blocks, size), np.uint8)
    src[:rows] = data.reshape(rows, blocks, size)
    src = src.reshape(groups, LANES, blocks, size).transpose(0, 2, 1, 3)  # [group, block, lane, byte]
    parts, pos = [], 0
    for name, _, nbytes in layout.fields:
        width = nbytes // LANES  # bytes of one lane in this field
        part = src[..., pos : pos + width]
        pos += width
        if name == "q":  # words of all lanes side by side
            if layout.name == "q8_0x16":
                part = part ^ 0x80
                part = np.where((np.arange(groups * LANES) < rows).reshape(groups, 1, LANES, 1), part, 0)
            part = part.reshape(groups, blocks, LANES, -1, 4).swapaxes(2, 3)
        parts.append(part.reshape(groups, blocks, -1))
    return np.ascontiguousarray(np.concatenate(parts, axis=-1))


def repack(pool: object, layout: Layout, data: np.ndarray, dst: np.ndarray, rows: int, k: int) -> None:
    """Write the tiles of a tensor to dst (zeroed uint8), split over the pool's threads."""
    _, library = native.lib()
    assert dst.size >= layout.nbytes(rows, k), "destination too small"
    src_ptr, dst_ptr = native.pointer(data, "uint8_t *"), native.pointer(dst, "uint8_t *")
    if library.ie_repack(pool, layout.id, src_ptr, dst_ptr, rows, k) != 0:
        raise DeviceError(f"cannot repack {rows} rows of {k} values to {layout.name}")
