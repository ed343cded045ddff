"""GGUF blocks to the interleaved device layout.

Owns: the numpy definition of the repacking, which tests hold against the C code (kernels_c/host/repack.c), and
the call into it. Where each byte goes is decided by core_laws/ie_core.h.
"""

from __future__ import annotations

import numpy as np

from .. import native
from ..errors import DeviceError
from ..formats import Layout


def repack_reference(layout: Layout, data: np.ndarray, rows: int, k: int) -> np.ndarray:
    """Tiles of `rows` rows of k values: uint8 [row groups, blocks, layout.size]. data: the tensor's bytes."""
    lanes, blocks, groups = layout.rows, k // layout.block, -(-rows // layout.rows)
    padded = np.zeros((groups * lanes, blocks, layout.size_per_row_block), np.uint8)
    padded[:rows] = data.reshape(rows, blocks, -1)
    if not layout.fields:
        return padded.reshape(groups, blocks, -1)
    if layout.arranged:
        padded = _ARRANGEMENTS[layout.format_name](padded)
    parts = []
    for f in layout.fields:
        part = padded[..., f.source : f.source + f.unit * f.count]
        if f.transform in _PLANES:
            part = _planes(f.transform, part.reshape(groups, lanes, blocks, f.count))
        else:
            part = _transform(f.transform, part)
            part[rows:] = 0
            part = part.reshape(groups, lanes, blocks, f.count, f.unit).transpose(0, 2, 3, 1, 4)
        parts.append(part.reshape(groups, blocks, -1))
    return np.ascontiguousarray(np.concatenate(parts, axis=-1))


_PLANES = {"nibbles": 4, "pairs": 2}
"""Bits of a lane in a plane, by transform."""


def _planes(name: str, part: np.ndarray) -> np.ndarray:
    """uint8 [groups, lanes, blocks, count] as planes: uint8 [groups, blocks, bytes]."""
    groups, lanes, blocks, count = part.shape
    width = _PLANES[name]
    bits = _bits(part).reshape(groups, lanes, blocks, count, 8 // width, width)
    order = (0, 2, 4, 3, 1, 5) if name == "nibbles" else (0, 2, 3, 4, 1, 5)
    return _bytes(bits.transpose(order).reshape(groups, blocks, -1))


def _bits(x: np.ndarray) -> np.ndarray:
    """uint8 [..., n] to its bits [..., 8n], lowest first."""
    return np.unpackbits(x, axis=-1, bitorder="little")


def _bytes(bits: np.ndarray) -> np.ndarray:
    """Bits [..., 8n], lowest first, to uint8 [..., n]."""
    return np.packbits(bits, axis=-1, bitorder="little")


# Arrangements of blocks whose codes index a grid: uint8 [..., bytes] to as many bytes, a permutation of bits.
# All begin with d. Then words of index bytes, one for each run of 8 (IQ2) or 4 (IQ3) values: bytes 1 and 2 of each word
# change places (ie_pair_bytes). Then 32 bytes of signs: byte 8l + k has those of run l of 8 in group k of 32. Where a
# file has 7 bits for 8 signs, bit 7 is a bit l of the group's scale (of its first half in IQ2_XS); the kernel finds the
# eighth sign from the parity. Then scales, then the bits 8 and 9 of the indices, those of neighbours side by side.


def _pair_bytes(index: np.ndarray) -> np.ndarray:
    """Index bytes [..., 4n] with the two in the middle of each four exchanged."""
    return index.reshape(*index.shape[:-1], -1, 4)[..., [0, 2, 1, 3]].reshape(index.shape)


def _by_run(signs: np.ndarray) -> np.ndarray:
    """Sign bytes [..., 8 groups, 4 runs] to [..., 32], all groups of a run together."""
    return signs.swapaxes(-1, -2).reshape(*signs.shape[:-2], 32)


def _sign_bytes(a: np.ndarray) -> np.ndarray:
    """Groups' words [..., 8, 4 bytes] of four 7-bit codes and a 4-bit scale: sign bytes [..., 8, 4]."""
    bits = _bits(a)
    codes = bits[..., :28].reshape(*a.shape[:-1], 4, 7)
    return _bytes(np.concatenate([codes, bits[..., 28:, None]], axis=-1).reshape(*a.shape[:-1], 32))


def _arrange_iq2_xxs(b: np.ndarray) -> np.ndarray:
    groups = b[..., 2:].reshape(*b.shape[:-1], 8, 8)
    index = groups[..., :4].reshape(*b.shape[:-1], 32)
    return np.concatenate([b[..., :2], _pair_bytes(index), _by_run(_sign_bytes(groups[..., 4:]))], axis=-1)


def _arrange_iq2_xs(b: np.ndarray) -> np.ndarray:
    bits = _bits(b[..., 2:66]).reshape(*b.shape[:-1], 8, 4, 16)  # 8 index bits, the ninth, 7 signs
    scales = _bits(b[..., 66:]).reshape(*b.shape[:-1], 8, 2, 4)
    signs = np.concatenate([bits[..., 9:], scales[..., 0, :, None]], axis=-1)
    index, second, ninth = (x.reshape(*b.shape[:-1], -1) for x in (bits[..., :8], scales[..., 1, :], bits[..., 8]))
    parts = [b[..., :2], _pair_bytes(_bytes(index)), _by_run(_bytes(signs)[..., 0]), _bytes(second), _bytes(ninth)]
    return np.concatenate(parts, axis=-1)


def _arrange_iq2_s(b: np.ndarray) -> np.ndarray:
    signs = _by_run(b[..., 34:66].reshape(*b.shape[:-1], 8, 4))
    high = _bits(b[..., 66:74]).reshape(*b.shape[:-1], -1, 2, 2).swapaxes(-1, -2).reshape(*b.shape[:-1], 64)
    return np.concatenate([b[..., :2], _pair_bytes(b[..., 2:34]), signs, b[..., 74:], _bytes(high)], axis=-1)


def _arrange_iq3_xxs(b: np.ndarray) -> np.ndarray:
    signs = _by_run(_sign_bytes(b[..., 66:].reshape(*b.shape[:-1], 8, 4)))
    return np.concatenate([b[..., :2], _pair_bytes(b[..., 2:66]), signs], axis=-1)


def _arrange_iq3_s(b: np.ndarray) -> np.ndarray:
    signs = _by_run(b[..., 74:106].reshape(*b.shape[:-1], 8, 4))
    return np.concatenate([b[..., :2], _pair_bytes(b[..., 2:66]), signs, b[..., 106:], b[..., 66:74]], axis=-1)


_ARRANGEMENTS = {
    "IQ2_XXS": _arrange_iq2_xxs,
    "IQ2_XS": _arrange_iq2_xs,
    "IQ2_S": _arrange_iq2_s,
    "IQ3_XXS": _arrange_iq3_xxs,
    "IQ3_S": _arrange_iq3_s,
}


def _transform(name: str, part: np.ndarray) -> np.ndarray:
    """uint8 [..., n] with a field's transform applied; always a copy."""
    if name == "bias":
        return part ^ np.uint8(0x80)
    if name == "spread":  # bit i of the four bytes, i = 4w + b, goes to bit w of byte b
        bits = np.unpackbits(part, axis=-1, bitorder="little").reshape(*part.shape[:-1], 8, 4)
        return np.packbits(bits.swapaxes(-1, -2).reshape(*part.shape[:-1], 32), axis=-1, bitorder="little")
    return part.copy()


def repack(pool: object, layout: Layout, data: np.ndarray, dst: np.ndarray, rows: int, k: int) -> bool:
    """Write the tiles of a tensor to dst (zeroed uint8), split over the pool's threads.

    False when a number of the tensor is NaN or infinite. DeviceError for what is no such matrix."""
    _, library = native.lib()
    assert dst.size >= layout.nbytes(rows, k), "destination too small"
    src_ptr, dst_ptr = native.pointer(data, "uint8_t *"), native.pointer(dst, "uint8_t *")
    result = int(library.ie_repack(pool, layout.id, src_ptr, dst_ptr, rows, k))
    if result < 0:
        raise DeviceError(f"cannot repack {rows} rows of {k} values to {layout.name}")
    return result == 0
