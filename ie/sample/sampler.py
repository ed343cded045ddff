"""The sampler: parameters and buffers in the form that C wants them.

Owns: the counter random numbers in Python, and the thin call of ie_sample. Keeps no state between calls but its
buffers: a token depends on the logits, the seed, its index and the tokens before it, so speculation may sample
rows ahead and take them back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import native
from ..errors import OptionError, SampleError
from .breakers import NO_BREAKERS, Breakers
from .params import SAMPLERS, SamplerParams

_MASK64 = (1 << 64) - 1
_STEPS = {name: step for step, name in enumerate(SAMPLERS)}  # the order of the enum in sample.h
_LARGEST = float(np.finfo(np.float32).max)
_SMALLEST = float(np.finfo(np.float32).tiny)
FIRST_HISTORY = 1 << 14
"""Tokens of history that there is room for from the start, where a window may need them; more are made room for."""


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


class Sampler:
    """Samples rows of `n_vocab` logits. Not for several threads at once."""

    def __init__(
        self, params: SamplerParams, n_vocab: int, breakers: Breakers = NO_BREAKERS, *, isa: int | None = None
    ) -> None:
        self.params = params
        self.n_vocab = n_vocab
        self._ffi, self._lib = native.lib()
        self._window = params.window()
        self._keep: list[Any] = []  # what the C struct points to
        self._c_params = self._fill(breakers, self._lib.ie_isa_best() if isa is None else isa)
        self._token = self._ffi.new("int32_t *")
        self._capacity = -1
        self._reserve(min(max(64, self._window), FIRST_HISTORY))

    def _fill(self, breakers: Breakers, isa: int) -> Any:
        p = self.params
        c = self._ffi.new("ie_sample_params *")
        for name in ("repeat_penalty", "frequency_penalty", "presence_penalty", "dry_multiplier", "dry_base"):
            setattr(c, name, getattr(p, name))
        for name in ("top_n_sigma", "top_p", "typical_p", "min_p", "xtc_probability", "xtc_threshold"):
            setattr(c, name, getattr(p, name))
        c.dynatemp_range, c.dynatemp_exponent = p.dynatemp_range, p.dynatemp_exponent
        # A float32 ends before the option does; a temperature beyond it is as flat, or as sharp, as the last one.
        c.temp = min(max(p.temp, _SMALLEST), _LARGEST)
        c.greedy = p.temp == 0
        c.repeat_last_n, c.dry_last_n = p.repeat_last_n, p.dry_penalty_last_n
        c.dry_allowed_length = p.dry_allowed_length
        c.top_k, c.min_keep, c.isa = p.top_k, p.min_keep, isa
        steps = p.active()
        c.n_steps = len(steps)
        for i, step in enumerate(steps):
            c.steps[i] = _STEPS[step]
        biases: dict[int, float] = {}
        for token, bias in p.logit_bias:
            if token >= self.n_vocab:
                raise OptionError(f"logit bias: token id {token} is outside the vocabulary of {self.n_vocab:,} tokens")
            total = biases.get(token, 0.0) + bias
            # A sum that overflows is not yet a mask.
            biases[token] = total if total == -math.inf else min(max(total, -_LARGEST), _LARGEST)
        c.n_bias, c.n_breakers = len(biases), len(breakers.heads)
        c.bias_ids = self._pointer(np.array(sorted(biases), np.int32))
        c.bias = self._pointer(np.array([biases[token] for token in sorted(biases)], np.float32))
        c.breaker_heads, c.tail_start = self._pointer(breakers.heads), self._pointer(breakers.starts)
        c.tails = self._pointer(breakers.tails)
        return c

    def _pointer(self, array: npt.NDArray[Any]) -> Any:
        self._keep.append(array)
        return self._ffi.cast("void *", array.ctypes.data)

    def _reserve(self, history: int) -> None:
        """Buffers for so many tokens of history."""
        self._capacity = history
        self._history = np.empty(history, np.int32)
        self._history_pointer = self._ffi.cast("const int32_t *", self._history.ctypes.data)
        self._work_bytes = self._lib.ie_sample_work_bytes(self.n_vocab, history)
        self._work = np.empty(self._work_bytes + 64, np.uint8)
        address = self._work.ctypes.data
        self._work_pointer = self._ffi.cast("void *", address + -address % 64)

    def sample(
        self,
        logits: npt.NDArray[np.float32],
        index: int,
        history: Sequence[int] | npt.NDArray[Any],
        length: int | None = None,
    ) -> int:
        """The id for logits float32 [n_vocab]; `index` counts the generated tokens from 0.

        `history` are the accepted tokens before this one, the prompt's included, or the first `length` of them: a
        list that already holds drafts need not be cut. Only the last ones that a window needs are read. SampleError
        when a logit is NaN or +inf, or all are −inf.
        """
        assert logits.shape == (self.n_vocab,) and logits.dtype == np.float32, (logits.shape, logits.dtype)
        row = np.ascontiguousarray(logits)
        count = 0
        if self._window:
            length = len(history) if length is None else length
            count = length if self._window < 0 else min(self._window, length)
            if count > self._capacity:
                self._reserve(2 * count if self._window < 0 else min(2 * count, self._window))
            if count:
                self._history[:count] = history[length - count : length]
        code = self._lib.ie_sample(
            self._ffi.cast("const float *", row.ctypes.data),
            self.n_vocab,
            self._c_params,
            self._history_pointer,
            count,
            self.params.seed,
            index,
            self._work_pointer,
            self._work_bytes,
            self._token,
        )
        return int(self._token[0]) if code == 0 else self._refuse(code, index)

    def _refuse(self, code: int, index: int) -> int:
        if code in (self._lib.IE_SAMPLE_NAN, self._lib.IE_SAMPLE_INF):
            what = "NaN" if code == self._lib.IE_SAMPLE_NAN else "+inf"
            token = int(self._token[0])
            raise SampleError(
                f"generated token {index}: the logit of token id {token} is {what}; expected finite numbers"
            )
        assert code == self._lib.IE_SAMPLE_MASKED, code
        raise SampleError(f"generated token {index}: every logit is -inf, so no token can be drawn")
