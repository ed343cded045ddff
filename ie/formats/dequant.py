"""The meaning of each tensor format's bytes, in numpy.

Owns: `dequantize`, the definition that the C decoders of kernels_c/include/decode.h are compared with bit for bit.

Arithmetic is F32 with one rounding per written operation. The order of the products is part of the format:
``(d * s) * q - dm * m`` is not ``d * (s * q) - dm * m``.
Names in the formulas: ``d`` block scale, ``m``/``dm`` minimum, ``q`` code, ``s``/``sc`` sub-scale.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..errors import FormatError
from .iq_grids import grid
from .table import Bytes, Floats, Format


def dequantize(fmt: Format, data: Bytes) -> Floats:
    """Decode whole blocks: uint8 [..., bytes] to F32 [..., elements], a new array.

    Every bit pattern decodes; NaN and infinite scales give what F32 arithmetic gives.
    FormatError unless the last dimension is a whole number of blocks.
    """
    data = np.asarray(data)
    if data.dtype != np.uint8 or data.ndim == 0 or data.shape[-1] % fmt.size:
        raise FormatError(
            f"{fmt.name} data of type {data.dtype}, shape {data.shape}: expected uint8, "
            f"the last dimension a multiple of {fmt.size} bytes"
        )
    shape = (*data.shape[:-1], data.shape[-1] // fmt.size * fmt.block)
    blocks = np.ascontiguousarray(data).reshape(-1, fmt.size)
    out = np.empty((len(blocks), fmt.block), dtype=np.float32)
    decode = _DECODERS[fmt.name]
    step = max(1, _CHUNK_ELEMENTS // fmt.block)
    with np.errstate(all="ignore"):
        for start in range(0, len(blocks), step):
            chunk = blocks[start : start + step]
            out[start : start + step] = decode(chunk).reshape(len(chunk), fmt.block)
    return out.reshape(shape)


# Decoding in chunks bounds the temporaries: a whole embedding would need several times its F32 size.
_CHUNK_ELEMENTS = 1 << 19

_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.float32)
_FP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.float32)

# Sign masks of runs of 8: bit j set makes element j negative. A 7-bit code is completed to even parity.
_SIGNS = np.where((np.arange(256)[:, None] >> np.arange(8)) & 1, -1, 1).astype(np.float32)
_EVEN = np.array([c | ((c.bit_count() & 1) << 7) for c in range(128)], dtype=np.uint8)

# UE4M3 scales by byte, with the factor 1/2 that the doubled FP4 values need; bit 7 does not count.
_UE4M3 = np.array(
    [(m * 2.0**-10 if e == 0 else (8 + m) * 2.0 ** (e - 11)) for _ in range(2) for e in range(16) for m in range(8)],
    dtype=np.float32,
)
_UE4M3[0x7F] = 0.0


def _f16(b: Bytes, offset: int, count: int = 1) -> Floats:
    """``count`` halves at a byte offset of each block, as F32 [N, count]."""
    return b[:, offset : offset + 2 * count].view("<f2").astype(np.float32)


def _u16(b: Bytes, offset: int, count: int = 1) -> npt.NDArray[np.int32]:
    return b[:, offset : offset + 2 * count].view("<u2").astype(np.int32)


def _u32(b: Bytes, offset: int, count: int = 1) -> npt.NDArray[np.uint32]:
    return b[:, offset : offset + 4 * count].view("<u4").astype(np.uint32)


def _nibbles(qs: Bytes) -> Bytes:
    """[..., n] bytes to [..., 2n] codes: all low nibbles, then all high ones."""
    return np.concatenate([qs & 15, qs >> 4], axis=-1)


def _planes(qs: Bytes, width: int, count: int) -> Bytes:
    """[N, groups, lanes] bytes to [N, groups, count, lanes]: bit fields of ``width`` bits, lowest first."""
    shifts = (np.arange(count, dtype=np.uint8) * np.uint8(width))[:, None]
    out: Bytes = (qs[:, :, None, :] >> shifts) & np.uint8((1 << width) - 1)
    return out


def _floats(x: npt.NDArray[np.generic]) -> Floats:
    return x.astype(np.float32)


def _plain(dtype: str) -> Callable[[Bytes], Floats]:
    """A decoder of an unblocked type that numpy knows."""
    return lambda b: b.view(dtype).astype(np.float32)


def _bf16(b: Bytes) -> Floats:
    return (b.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def _q4_0(b: Bytes) -> Floats:
    return _f16(b, 0) * (_floats(_nibbles(b[:, 2:])) - np.float32(8))


def _q4_1(b: Bytes) -> Floats:
    return _f16(b, 0) * _floats(_nibbles(b[:, 4:])) + _f16(b, 2)


def _fifth_bits(b: Bytes, offset: int) -> Bytes:
    """Bit i of the u32 at ``offset``, times 16, for element i: [N, 32]."""
    return np.unpackbits(b[:, offset : offset + 4], axis=-1, bitorder="little") << np.uint8(4)


def _q5_0(b: Bytes) -> Floats:
    return _f16(b, 0) * (_floats(_nibbles(b[:, 6:]) | _fifth_bits(b, 2)) - np.float32(16))


def _q5_1(b: Bytes) -> Floats:
    return _f16(b, 0) * _floats(_nibbles(b[:, 8:]) | _fifth_bits(b, 4)) + _f16(b, 2)


def _q8_0(b: Bytes) -> Floats:
    return _f16(b, 0) * _floats(b[:, 2:].view(np.int8))


def _q8_1(b: Bytes) -> Floats:
    return _f16(b, 0) * _floats(b[:, 4:].view(np.int8))


def _q8_k(b: Bytes) -> Floats:
    return b[:, :4].view("<f4").astype(np.float32) * _floats(b[:, 4:260].view(np.int8))


def _iq4_nl(b: Bytes) -> Floats:
    return _f16(b, 0) * _NL[_nibbles(b[:, 2:])]


def _mxfp4(b: Bytes) -> Floats:
    e = b[:, :1].astype(np.uint32)
    # 2^(e - 128): the two smallest are subnormal in F32
    bits = np.where(e < 2, np.uint32(0x00200000) << e, (e - np.uint32(1)) << np.uint32(23))
    return bits.astype(np.uint32).view(np.float32) * _FP4[_nibbles(b[:, 1:])]


def _nvfp4(b: Bytes) -> Floats:
    return _UE4M3[b[:, :4]][:, :, None] * _FP4[_nibbles(b[:, 4:].reshape(-1, 4, 8))]


def _q1_0(b: Bytes) -> Floats:
    d = _f16(b, 0)
    return np.where(np.unpackbits(b[:, 2:], axis=-1, bitorder="little"), d, -d)


def _q2_0(b: Bytes) -> Floats:
    codes = (b[:, 2:, None] >> np.array([0, 2, 4, 6], dtype=np.uint8)) & 3
    return (_floats(codes) - np.float32(1)).reshape(-1, 64) * _f16(b, 0)


def _q2_k(b: Bytes) -> Floats:
    q = _floats(_planes(b[:, 16:80].reshape(-1, 2, 32), 2, 4)).reshape(-1, 16, 16)
    s = b[:, :16, None]
    d, dm = _f16(b, 80)[:, :, None], _f16(b, 82)[:, :, None]
    return (d * _floats(s & 15)) * q - dm * _floats(s >> 4)


def _q3_k(b: Bytes) -> Floats:
    low = _planes(b[:, 32:96].reshape(-1, 2, 32), 2, 4)
    high = _planes(b[:, None, :32], 1, 8).reshape(-1, 2, 4, 32)
    q = _floats(low | (high << 2)).reshape(-1, 16, 16) - np.float32(4)
    packed_high = _planes(b[:, None, 104:108], 2, 4).reshape(-1, 16)
    scale = _floats(_nibbles(b[:, 96:104]) | (packed_high << 4)) - np.float32(32)
    out: Floats = (_f16(b, 108) * scale)[:, :, None] * q
    return out


def _k_scales(p: Bytes) -> tuple[Floats, Floats]:
    """The eight 6-bit scales and minima of Q4_K and Q5_K from their 12 bytes: two F32 [N, 8, 1]."""
    scale = np.concatenate([p[:, :4] & 63, (p[:, 8:] & 15) | (p[:, :4] >> 6 << 4)], axis=-1)
    minimum = np.concatenate([p[:, 4:8] & 63, (p[:, 8:] >> 4) | (p[:, 4:8] >> 6 << 4)], axis=-1)
    return _floats(scale)[:, :, None], _floats(minimum)[:, :, None]


def _k45(b: Bytes, q: Bytes) -> Floats:
    """Q4_K and Q5_K from their codes [N, 8, 32]."""
    scale, minimum = _k_scales(b[:, 4:16])
    return (_f16(b, 0)[:, :, None] * scale) * _floats(q) - _f16(b, 2)[:, :, None] * minimum


def _q4_k(b: Bytes) -> Floats:
    return _k45(b, _planes(b[:, 16:].reshape(-1, 4, 32), 4, 2).reshape(-1, 8, 32))


def _q5_k(b: Bytes) -> Floats:
    low = _planes(b[:, 48:].reshape(-1, 4, 32), 4, 2).reshape(-1, 8, 32)
    high = _planes(b[:, None, 16:48], 1, 8).reshape(-1, 8, 32)
    return _k45(b, low | (high << np.uint8(4)))


def _q6_k(b: Bytes) -> Floats:
    low = _planes(b[:, :128].reshape(-1, 2, 64), 4, 2).reshape(-1, 2, 4, 32)
    high = _planes(b[:, 128:192].reshape(-1, 2, 32), 2, 4)
    q = _floats(low | (high << 4)).reshape(-1, 16, 16) - np.float32(32)
    out: Floats = (_f16(b, 208) * _floats(b[:, 192:208].view(np.int8)))[:, :, None] * q
    return out


def _codes7(a: npt.NDArray[np.uint32]) -> Floats:
    """Four 7-bit sign codes from the low 28 bits of each u32 [N, 8]: signs [N, 8, 4, 8]."""
    codes = (a[:, :, None] >> np.array([0, 7, 14, 21], dtype=np.uint32)) & np.uint32(127)
    signs: Floats = _SIGNS[_EVEN[codes]]
    return signs


def _half_scales(d: Floats, s: Bytes | npt.NDArray[np.uint32], factor: float) -> Floats:
    """``(d * (0.5 + s)) * factor``: F32 of the shape of ``s``."""
    return (d * (np.float32(0.5) + _floats(s))) * np.float32(factor)


def _iq2_xxs(b: Bytes) -> Floats:
    groups = b[:, 2:].reshape(-1, 8, 8)
    a = _u32(groups.reshape(-1, 8), 4).reshape(-1, 8)
    scale = _half_scales(_f16(b, 0), a >> np.uint32(28), 0.25)
    values = _floats(grid("IQ2_XXS")[groups[:, :, :4]])
    return (scale[:, :, None, None] * values) * _codes7(a)


def _sub_scales(b: Bytes, offset: int) -> Floats:
    """The 16 4-bit scales of IQ2_XS and IQ2_S, one for two runs of 8: F32 [N, 8, 4, 1]."""
    s = _planes(b[:, offset : offset + 8, None], 4, 2).reshape(-1, 16)
    return np.repeat(_half_scales(_f16(b, 0), s, 0.25), 2, axis=-1).reshape(-1, 8, 4, 1)


def _iq2_xs(b: Bytes) -> Floats:
    w = _u16(b, 2, 32).reshape(-1, 8, 4)
    signs: Floats = _SIGNS[_EVEN[w >> 9]]
    return (_sub_scales(b, 66) * _floats(grid("IQ2_XS")[w & 511])) * signs


def _iq2_s(b: Bytes) -> Floats:
    high = _planes(b[:, 66:74, None], 2, 4).reshape(-1, 8, 4).astype(np.int32)
    index = b[:, 2:34].reshape(-1, 8, 4) + (high << 8)
    return (_sub_scales(b, 74) * _floats(grid("IQ2_S")[index])) * _SIGNS[b[:, 34:66].reshape(-1, 8, 4)]


def _iq3_xxs(b: Bytes) -> Floats:
    a = _u32(b, 66, 8)
    scale = _half_scales(_f16(b, 0), a >> np.uint32(28), 0.5)
    values = _floats(grid("IQ3_XXS")[b[:, 2:66]]).reshape(-1, 8, 4, 8)
    return (scale[:, :, None, None] * values) * _codes7(a)


def _iq3_s(b: Bytes) -> Floats:
    high = np.unpackbits(b[:, 66:74], axis=-1, bitorder="little").astype(np.int32)
    values = _floats(grid("IQ3_S")[b[:, 2:66] + (high << 8)]).reshape(-1, 8, 4, 8)
    s = _planes(b[:, 106:110, None], 4, 2).reshape(-1, 8)
    scale = _f16(b, 0) * (np.float32(1) + np.float32(2) * _floats(s))
    return (scale[:, :, None, None] * values) * _SIGNS[b[:, 74:106].reshape(-1, 8, 4)]


def _delta(negative: npt.NDArray[np.int32]) -> Floats:
    """The shift of a run of 8 in IQ1_S and IQ1_M."""
    return np.where(negative != 0, np.float32(-0.125), np.float32(0.125))


def _iq1_s(b: Bytes) -> Floats:
    w = _u16(b, 34, 8)[:, :, None]
    index = b[:, 2:34].reshape(-1, 8, 4) + (((w >> np.array([0, 3, 6, 9])) & 7) << 8)
    scale = _f16(b, 0) * _floats(2 * ((w[:, :, 0] >> 12) & 7) + 1)
    return scale[:, :, None, None] * (_floats(grid("IQ1_S")[index]) + _delta(w & 0x8000)[:, :, :, None])


def _iq1_m(b: Bytes) -> Floats:
    c = _u16(b, 48, 4)
    bits = ((c >> 12) << np.array([0, 4, 8, 12])).sum(axis=-1).astype(np.uint16)
    d = bits.view(np.float16).astype(np.float32)[:, None]
    v = _planes(b[:, 32:48, None], 4, 2).reshape(-1, 32).astype(np.int32)
    s = ((c[:, :, None] >> np.array([0, 3, 6, 9])) & 7).reshape(-1, 16)
    scale: Floats = np.repeat(d * _floats(2 * s + 1), 2, axis=-1)[:, :, None]
    return scale * (_floats(grid("IQ1_S")[b[:, :32] + ((v & 7) << 8)]) + _delta(v & 8)[:, :, None])


def _iq4_xs(b: Bytes) -> Floats:
    low = _planes(b[:, 4:8, None], 4, 2).reshape(-1, 8)
    high = (_u16(b, 2) >> (2 * np.arange(8))) & 3
    scale = _f16(b, 0) * _floats(low + (high << 4) - 32)
    return scale[:, :, None] * _NL[_nibbles(b[:, 8:].reshape(-1, 8, 16))]


def _tq1_0(b: Bytes) -> Floats:
    """Base-3 digits, the most significant first: digit n of a byte is the top trit of byte * 3^n mod 256."""
    powers = np.array([1, 3, 9, 27, 81], dtype=np.uint8)[:, None]
    parts = [(b[:, None, first:last] * powers[:n]).reshape(len(b), -1) for first, last, n in _TQ1_PARTS]
    trits = (np.concatenate(parts, axis=-1).astype(np.uint16) * 3) >> 8
    return (_floats(trits) - np.float32(1)) * _f16(b, 52)


_TQ1_PARTS = ((0, 32, 5), (32, 48, 5), (48, 52, 4))


def _tq2_0(b: Bytes) -> Floats:
    codes = _planes(b[:, :64].reshape(-1, 2, 32), 2, 4).reshape(-1, 256)
    return (_floats(codes) - np.float32(1)) * _f16(b, 64)


_DECODERS: dict[str, Callable[[Bytes], Floats]] = {
    "F32": _plain("<f4"),
    "F16": _plain("<f2"),
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q8_1": _q8_1,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "Q8_K": _q8_k,
    "IQ2_XXS": _iq2_xxs,
    "IQ2_XS": _iq2_xs,
    "IQ3_XXS": _iq3_xxs,
    "IQ1_S": _iq1_s,
    "IQ4_NL": _iq4_nl,
    "IQ3_S": _iq3_s,
    "IQ2_S": _iq2_s,
    "IQ4_XS": _iq4_xs,
    "I8": _plain("<i1"),
    "I16": _plain("<i2"),
    "I32": _plain("<i4"),
    "I64": _plain("<i8"),
    "F64": _plain("<f8"),
    "IQ1_M": _iq1_m,
    "BF16": _bf16,
    "TQ1_0": _tq1_0,
    "TQ2_0": _tq2_0,
    "MXFP4": _mxfp4,
    "NVFP4": _nvfp4,
    "Q1_0": _q1_0,
    "Q2_0": _q2_0,
}
