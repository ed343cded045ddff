"""Random tensor contents in any stored format.

Owns: the number stream (bit-identical on every machine and numpy release), quantisation of random values, and
random valid blocks for formats that the `gguf` package cannot quantise. It does not own which tensors exist.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Tensor type ids that the installed `gguf` package may not know: name -> (id, elements, bytes) of a block.
EXTRA_FORMATS = {"Q2_0": (42, 64, 18)}
#: Types that exist only for activations or indices; never made as weights.
_NOT_WEIGHTS = {"Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64"}
#: Mean of the signed E2M1 table's squares (0 1 2 3 4 6 8 12, doubled values), as a root.
_FP4_RMS = math.sqrt((0 + 1 + 4 + 9 + 16 + 36 + 64 + 144) / 8)


@dataclass(frozen=True)
class _Scales:
    """Byte offsets of the half-precision scales of a block; `m` is the minimum's scale, `ratio` m/d for a zero mean."""

    d: int
    m: int | None = None
    ratio: float = 0.0


#: Blocks whose remaining bytes may hold anything. The ratio is the mean code, since scale and minimum codes are alike.
_RANDOM: dict[str, _Scales] = {
    "Q2_K": _Scales(80, 82, 1.5),
    "Q3_K": _Scales(108),
    "Q4_K": _Scales(0, 2, 7.5),
    "Q5_K": _Scales(0, 2, 15.5),
    "Q6_K": _Scales(208),
    "IQ4_NL": _Scales(0),
    "IQ4_XS": _Scales(0),
    "IQ2_XXS": _Scales(0),
    "IQ2_XS": _Scales(0),
    "IQ2_S": _Scales(0),
    "IQ3_XXS": _Scales(0),
    "IQ3_S": _Scales(0),
    "IQ1_S": _Scales(0),
}


def format_names() -> list[str]:
    """Every format that `encode` accepts."""
    from gguf.constants import GGMLQuantizationType

    return [t.name for t in GGMLQuantizationType if t.name not in _NOT_WEIGHTS] + list(EXTRA_FORMATS)


def block_of(name: str) -> tuple[int, int, int]:
    """(type id, elements, bytes) of a format's block; ValueError for a name that is not a weight format."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    if name in EXTRA_FORMATS:
        return EXTRA_FORMATS[name]
    if name not in format_names():
        raise ValueError(f"format {name!r}: expected one of {', '.join(format_names())}")
    kind = GGMLQuantizationType[name]
    return (int(kind), *GGML_QUANT_SIZES[kind])


def raw_bits(seed: int, name: str, n: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """n random 64-bit words that depend on the seed and the tensor's name only (the Philox stream is frozen)."""
    return np.random.Philox(key=[seed & (2**64 - 1), zlib.crc32(name.encode())]).random_raw(n)


def normal(seed: int, name: str, n: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """n values of mean 0 and variance 1, nearly Gaussian and bounded by 3.47: sums of four uniform 16-bit numbers.

    Integer sums and one division: the same bits everywhere, which a library Gaussian does not promise.
    """
    words = raw_bits(seed, name, n).astype("<u8").view("<u2").reshape(n, 4)
    centred = words.astype(np.int64).sum(axis=1) - 2 * 65535
    return (centred / math.sqrt((65536.0**2 - 1) / 3)).astype(np.float32)


def encode(
    seed: int, name: str, rows: int, cols: int, fmt: str, mean: float, std: float, diag: float = 0.0
) -> np.ndarray[Any, Any]:
    """Random tensor [rows, cols] as stored: float32/float16 values, or uint8 [rows, bytes of a row].

    diag is added on the diagonal that starts at the first element. ValueError when a row is not a whole number of
    blocks, or when a diagonal is wanted in a format whose blocks are random bytes.
    """
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import quantize

    _, block, size = block_of(fmt)
    if cols % block:
        raise ValueError(f"tensor {name}: rows of {cols} elements cannot hold {fmt} blocks of {block}")
    if fmt in _RANDOM or fmt in ("IQ1_M", "NVFP4", "Q1_0", "Q2_0"):
        if diag:
            raise ValueError(f"tensor {name}: {fmt} blocks are random here and cannot hold a diagonal")
        return _random_blocks(seed, name, rows * cols // block, size, fmt, std).reshape(rows, cols // block * size)
    values = (mean + std * normal(seed, name, rows * cols)).astype(np.float32).reshape(rows, cols)
    np.einsum("ii->i", values[: min(rows, cols), : min(rows, cols)])[:] += np.float32(diag)
    if fmt == "F32":
        return values
    if fmt == "F16":
        return values.astype(np.float16)
    return quantize(values, GGMLQuantizationType[fmt])


def _halves(value: float | np.ndarray[Any, Any], n: int) -> np.ndarray[Any, Any]:
    """n copies (or n values) of half-precision numbers as uint8 [n, 2]."""
    return np.broadcast_to(np.asarray(value, "<f2"), (n,)).copy().view(np.uint8).reshape(n, 2)


def _random_blocks(seed: int, name: str, n: int, size: int, fmt: str, std: float) -> np.ndarray[Any, Any]:
    """uint8 [n, size]: random bytes with scales chosen so that the decoded elements have about the wanted spread."""
    words = -(-n * size // 8)
    data = raw_bits(seed, name + "#bytes", words).astype("<u8").view(np.uint8)[: n * size].reshape(n, size).copy()
    jitter = 1.0 + 0.1 * normal(seed, name + "#scales", n)
    if fmt == "Q1_0":
        data[:, 0:2] = _halves(std * jitter, n)
    elif fmt == "Q2_0":
        codes = raw_bits(seed, name + "#codes", n * 64).reshape(n, 16, 4) % np.uint64(3)
        data[:, 0:2] = _halves(std / math.sqrt(2 / 3) * jitter, n)
        data[:, 2:] = (codes << np.arange(0, 8, 2, dtype=np.uint64)).sum(axis=2).astype(np.uint8)
    elif fmt == "NVFP4":
        data[:, :4] = _ue4m3(std / _FP4_RMS * (1.0 + 0.1 * normal(seed, name + "#scales", n * 4))).reshape(n, 4)
    elif fmt == "IQ1_M":
        _set_iq1m_scale(data, 1.0, n)
        _set_iq1m_scale(data, std / _decoded_std(data, fmt), n)
    else:
        _set_scales(data, _RANDOM[fmt], 1.0 / 64, jitter)
        _set_scales(data, _RANDOM[fmt], std / 64 / _decoded_std(data, fmt), jitter)
    return data


def _decoded_std(data: np.ndarray[Any, Any], fmt: str) -> float:
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    return float(np.std(dequantize(data[:64], GGMLQuantizationType[fmt]).astype(np.float64)))


def _set_scales(data: np.ndarray[Any, Any], s: _Scales, d: float, jitter: np.ndarray[Any, Any]) -> None:
    n = len(data)
    data[:, s.d : s.d + 2] = _halves(d * jitter, n)
    if s.m is not None:
        data[:, s.m : s.m + 2] = _halves(d * s.ratio * jitter, n)


def _set_iq1m_scale(data: np.ndarray[Any, Any], d: float, n: int) -> None:
    """The half-precision scale lies in the top nibbles of the four 16-bit scale words, lowest nibble first."""
    bits = int(np.asarray(d, "<f2").view("<u2"))
    for t in range(4):
        data[:, 49 + 2 * t] = (data[:, 49 + 2 * t] & 0x0F) | (((bits >> (4 * t)) & 15) << 4)


def _ue4m3(wanted: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Nearest scale bytes (1 ... 0x7E) to the wanted scales; a byte's scale is half its UE4M3 value."""
    codes = np.arange(1, 0x7F)
    exponent, mantissa = codes >> 3, codes & 7
    table = np.where(exponent == 0, mantissa * 2.0**-9, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0)) / 2
    return codes[np.abs(wanted[:, None] - table[None, :]).argmin(axis=1)].astype(np.uint8)
