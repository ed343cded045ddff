"""The comparator as tests use it: `assert_*` functions and buffers with guard bands.

Owns: turning a verdict of `ie.compare` into a test failure, and finding stray or missing writes. The judgement itself
is in `ie/devices/compare.py`, tests of both are in tests/unit/test_compare.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ie.devices import compare

Array = np.ndarray[Any, Any]


def _require(verdict: compare.Verdict) -> None:
    if not verdict.ok:
        raise AssertionError(verdict.message)


def assert_exact(got: Array, want: Array, name: str = "array") -> None:
    """Same shape, type and bits; finite."""
    _require(compare.exact(name, got, want))


def assert_q8(got: Array, want: Array, got_d: Array, want_d: Array, name: str = "q8", **limits: float) -> None:
    """Q8 codes within one step and scales within rounding."""
    _require(compare.q8(name, got, want, got_d, want_d, **limits))


def assert_reduction(got: Array, want: Array, terms: Array, c: float, name: str = "sum", **limits: float) -> None:
    """|got - want| <= c * eps * terms, elementwise."""
    _require(compare.reduction(name, got, want, terms, c, **limits))


def assert_logits(got: Array, want: Array, name: str = "logits", **limits: float) -> None:
    """Mean KL divergence, largest difference and best tokens within limits (`max_kl`, `max_abs`, `tie`)."""
    _require(compare.logits(name, got, want, **limits))


class Guarded:
    """An array between two sentinel bands, to be handed to code that writes through a pointer.

    `array` starts as NaN (floats) or 0xA5 bytes (integers), so elements nobody wrote show up; its address is
    aligned to `align` bytes plus `skew` (to test unaligned access). `check()` raises AssertionError when a byte of a
    band changed.
    """

    FILL = 0xC3

    def __init__(
        self, shape: int | tuple[int, ...], dtype: Any = np.float32, *, band: int = 256, align: int = 64, skew: int = 0
    ) -> None:
        if band < 1 or align < 1 or skew < 0:
            raise ValueError(f"band={band} and align={align} must be positive and skew={skew} not negative")
        kind = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        self._raw = np.full(size + 2 * band + align + skew, self.FILL, np.uint8)
        start = band + (-(self._raw.ctypes.data + band)) % align + skew
        self._start, self._end = start, start + size
        self.array: Array = self._raw[start : self._end].view(kind).reshape(shape)
        if kind.kind == "f":
            self.array.fill(np.nan)
        else:
            self._raw[start : self._end] = 0xA5

    @classmethod
    def copy_of(cls, values: Array, **options: int) -> Guarded:
        """A guarded buffer that holds `values` already."""
        out = cls(values.shape, values.dtype, **options)
        out.array[...] = values
        return out

    @property
    def address(self) -> int:
        """Address of the first element."""
        return int(self._raw.ctypes.data) + self._start

    @property
    def whole(self) -> Array:
        """The array with both bands, as bytes."""
        return self._raw

    def check(self, name: str = "buffer") -> None:
        """Raise AssertionError when anything outside the array was written, saying at which distance."""
        for band, origin, side in (
            (self._raw[: self._start], self._start, "before"),
            (self._raw[self._end :], 0, "after"),
        ):
            bad = np.flatnonzero(band != self.FILL)
            if bad.size:
                nearest = origin - int(bad[-1]) if side == "before" else int(bad[0]) + 1
                raise AssertionError(f"{name}: {bad.size} bytes {side} the buffer were written, nearest {nearest} away")
