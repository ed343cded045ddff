"""From logits to a token id.

Owns: the sampling parameters with their limits, the counter random numbers, and the thin call into C. Does not own:
the arithmetic (kernels_c/host/sample.c), the loop around it (generate.py), or which ids end generation.

The chain is top-k → top-p → min-p → temperature → draw. One uniform number per generated token comes from a counter
generator keyed by (seed, index of the token), so a token depends on nothing else in the batch.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import native
from .errors import OptionError, SampleError

SAMPLE_CDEF = """
typedef struct { double top_p; float min_p; float temp; int32_t top_k; int32_t reserved; } ie_sample_params;
double ie_uniform(uint64_t seed, uint64_t index, uint64_t stream);
int64_t ie_sample_work_bytes(int32_t n);
int32_t ie_argmax(const float *logits, int32_t n, int32_t *token);
int32_t ie_sample(const float *logits, int32_t n, const ie_sample_params *params, uint64_t seed, uint64_t index,
                  void *work, int64_t work_bytes, int32_t *token);
"""
"""Declarations of kernels_c/host/sample.h for cffi."""

_NAN, _INF, _MASKED = -1, -2, -3
_MASK64 = (1 << 64) - 1


@dataclass(frozen=True)
class SamplerParams:
    """What the chain does; every value is checked, OptionError names the one that is wrong.

    `temp` 0 takes the first largest logit; `top_k` 0, `top_p` 1 and `min_p` 0 each switch their step off. Top-p and
    min-p see probabilities before the temperature.
    """

    temp: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temp) and self.temp >= 0):
            raise OptionError(f"temp is {self.temp}: expected a finite number, 0 (greedy) or more")
        if not 0 <= self.top_k < 1 << 31:
            raise OptionError(f"top_k is {self.top_k}: expected 0 (off) or a positive 32-bit number")
        for name, value in (("top_p", self.top_p), ("min_p", self.min_p)):
            if not 0 <= value <= 1:
                raise OptionError(f"{name} is {value}: expected a number from 0 to 1")
        if not 0 <= self.seed <= _MASK64:
            raise OptionError(f"seed is {self.seed}: expected 0 or a positive 64-bit number")


def uniform(seed: int, index: int, stream: int = 0) -> float:
    """A number in [0, 1) with 53 bits: the SplitMix64 finaliser of key + (index + 1) · 0x9E3779B97F4A7C15.

    The key is the seed for stream 0, the draw; other samplers take a stream of their own, so that switching one on
    moves no other. The same numbers as `ie_uniform` in C.
    """
    key = _finalise(seed + stream * 0xD1342543DE82EF95) if stream else seed
    return float((_finalise(key + (index + 1) * 0x9E3779B97F4A7C15) >> 11) * 2.0**-53)


def _finalise(z: int) -> int:
    z &= _MASK64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK64
    return z ^ z >> 31


@functools.cache
def library() -> tuple[Any, Any]:
    """(ffi, library) of the built kernels, with the functions of SAMPLE_CDEF. DeviceError when they are not built."""
    ffi, opened = native.lib()
    ffi.cdef(SAMPLE_CDEF)
    return ffi, opened


class Sampler:
    """Samples rows of `n_vocab` logits. Keeps no state between calls but a work buffer: one per thread."""

    def __init__(self, params: SamplerParams, n_vocab: int) -> None:
        self.params = params
        self.n_vocab = n_vocab
        self._ffi, self._lib = library()
        # The limit of a float32 is below that of the option's type; a huge temperature is as flat as the largest.
        temp = min(params.temp, float(np.finfo(np.float32).max))
        temp = max(temp, float(np.finfo(np.float32).tiny)) if params.temp > 0 else 0.0
        self._c_params = self._ffi.new("ie_sample_params *", (params.top_p, params.min_p, temp, params.top_k, 0))
        self._work_bytes = self._lib.ie_sample_work_bytes(n_vocab)
        self._work = np.empty(self._work_bytes // 8 + 1, np.uint64)
        self._work_pointer = self._ffi.cast("void *", self._work.ctypes.data)
        self._token = self._ffi.new("int32_t *")

    def sample(self, logits: npt.NDArray[np.float32], index: int) -> int:
        """The id for logits float32 [n_vocab]; `index` counts the generated tokens from 0.

        SampleError when a logit is NaN or +inf, or all are −inf.
        """
        assert logits.shape == (self.n_vocab,) and logits.dtype == np.float32, (logits.shape, logits.dtype)
        row = np.ascontiguousarray(logits)
        code = self._lib.ie_sample(
            self._ffi.cast("const float *", row.ctypes.data),
            self.n_vocab,
            self._c_params,
            self.params.seed,
            index,
            self._work_pointer,
            self._work_bytes,
            self._token,
        )
        token = int(self._token[0])
        if code == 0:
            return token
        if code in (_NAN, _INF):
            what = "NaN" if code == _NAN else "+inf"
            raise SampleError(
                f"generated token {index}: the logit of token id {token} is {what}; expected finite numbers"
            )
        assert code == _MASKED, code
        raise SampleError(f"generated token {index}: every logit is -inf, so no token can be drawn")
