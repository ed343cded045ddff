"""The file in which one model's log-probabilities are kept, to compare another with: llama-perplexity's format.

Owns: the layout, writing it, and reading it from a source that is not trusted. Does not own what is computed.

    8 bytes  "_logits_"
    u32      n, tokens of a window      i32  V, size of the vocabulary      i32  C, windows
    i32      C * n tokens of the text, the first of each window as it stands there
    then for each window the rows of positions n/2 … n - 2, each of 2 * ceil(V/2) + 4 u16:
             f32 step, f32 floor, V codes c (one more, unused, where V is odd): ln p = step * c + floor

The floor is that of the largest logit minus 16, or the smallest logit where that is higher; the step makes the largest
logit 65535. Everything is little-endian.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO

import numpy as np

from ..errors import FormatError
from ..paths import open_regular

MAGIC = b"_logits_"
RANGE = np.float32(16.0)  # nats between the largest logit and the floor
CODES = 65535
_HEADER = struct.Struct("<8sIii")
MAX_WINDOW, MAX_VOCAB = 1 << 24, 1 << 24


@dataclass(frozen=True)
class Shape:
    """What the header says: tokens of a window, vocabulary, windows."""

    n: int
    n_vocab: int
    chunks: int

    @property
    def rows(self) -> int:
        """Rows of a window: positions n // 2 … n - 2."""
        return self.n - self.n // 2 - 1

    @property
    def row_codes(self) -> int:
        """u16 of a row."""
        return 2 * (-(-self.n_vocab // 2)) + 4

    @property
    def head_bytes(self) -> int:
        return _HEADER.size + 4 * self.chunks * self.n

    @property
    def file_bytes(self) -> int:
        return self.head_bytes + 2 * self.chunks * self.rows * self.row_codes


def encode(logits: np.ndarray) -> np.ndarray:
    """Rows of a file, u16 [R, 2 * ceil(V/2) + 4], from logits float32 [R, V]."""
    rows, n_vocab = logits.shape
    top = logits.max(axis=1, keepdims=True)
    floor = np.maximum(logits.min(axis=1, keepdims=True), top - RANGE)
    total = np.exp(logits - top).sum(axis=1, dtype=np.float64, keepdims=True)
    step = (top - floor) / np.float32(CODES)
    out = np.zeros((rows, Shape(2, n_vocab, 0).row_codes), "<u2")
    out[:, :4] = np.hstack([step, floor - top - np.log(total).astype(np.float32)]).astype("<f4").view("<u2")
    with np.errstate(all="ignore"):  # a step may be zero, or so small that there is no inverse: codes are bounded below
        codes = np.rint((logits - floor) * (np.float32(1.0) / step))
    # A step of zero means that all logits are equal: every code is 0.
    out[:, 4 : 4 + n_vocab] = np.where((logits > floor) & (step > 0), np.minimum(codes, CODES), 0)
    return out


def decode(rows: np.ndarray, n_vocab: int) -> np.ndarray:
    """Log-probabilities float32 [R, V] of rows of a file."""
    head = np.ascontiguousarray(rows[:, :4]).view("<f4")
    codes = rows[:, 4 : 4 + n_vocab].astype(np.float32)
    out: np.ndarray = head[:, :1] * codes + head[:, 1:]
    return out


class Writer:
    """Writes the head at once, then rows as they come."""

    def __init__(self, file: BinaryIO, shape: Shape, tokens: np.ndarray) -> None:
        """tokens: int [chunks * n], as they stand in the text."""
        assert len(tokens) == shape.chunks * shape.n
        self._file, self._shape = file, shape
        file.write(_HEADER.pack(MAGIC, shape.n, shape.n_vocab, shape.chunks))
        file.write(np.asarray(tokens, "<i4").tobytes())

    def add(self, logits: np.ndarray) -> None:
        """The next rows, float32 [R, V]."""
        self._file.write(encode(logits).data)


class Reader:
    """Reads such a file. FormatError, with file and offset, for whatever is not as the header says."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._file = open(open_regular(self.path, os.O_RDONLY), "rb")
        try:
            self.shape = self._read_shape()
            self.tokens = self._read_tokens()
        except BaseException:
            self._file.close()
            raise
        self._row = 0

    def _read(self, n: int, dtype: str = "u1") -> np.ndarray:
        """At most n whole items: fewer where the file ends, as one does that is shortened meanwhile. OSError, named."""
        size = np.dtype(dtype).itemsize
        try:
            data = self._file.read(n * size)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from error
        return np.frombuffer(data, dtype, count=len(data) // size)

    def _read_shape(self) -> Shape:
        head = self._read(_HEADER.size).tobytes()
        if len(head) < _HEADER.size or head[:8] != MAGIC:
            raise FormatError(f"{self.path}: not a file of log-probabilities: {MAGIC.decode()} expected at its start")
        _, n, n_vocab, chunks = _HEADER.unpack(head)
        for name, value, offset, least, most in (
            ("tokens of a window", n, 8, 3, MAX_WINDOW),
            ("size of the vocabulary", n_vocab, 12, 1, MAX_VOCAB),
            ("number of windows", chunks, 16, 1, 2**31 - 1),
        ):
            if not least <= value <= most:
                raise FormatError(f"{self.path}: offset {offset}: {name} {value}, expected {least} to {most}")
        shape = Shape(n, n_vocab, chunks)
        size = os.fstat(self._file.fileno()).st_size
        if size != shape.file_bytes:
            raise FormatError(
                f"{self.path}: {size:,} bytes, expected {shape.file_bytes:,} for {chunks:,} windows of {n:,} tokens "
                f"and a vocabulary of {n_vocab:,}. Was the run that wrote it interrupted?"
            )
        return shape

    def _read_tokens(self) -> np.ndarray:
        """int32 [chunks, n]."""
        count = self.shape.chunks * self.shape.n
        tokens = self._read(count, "<i4")
        wrong = np.flatnonzero((tokens < 0) | (tokens >= self.shape.n_vocab))
        if len(tokens) != count or len(wrong):
            at = int(wrong[0]) if len(wrong) else len(tokens)
            raise FormatError(
                f"{self.path}: offset {_HEADER.size + 4 * at}: expected a token from 0 to {self.shape.n_vocab - 1}"
            )
        return tokens.reshape(self.shape.chunks, self.shape.n)

    def rows(self, count: int) -> np.ndarray:
        """Log-probabilities float32 [count, V] of the next rows, which must be there."""
        width, offset = self.shape.row_codes, self._file.tell()
        data = self._read(count * width, "<u2")
        if len(data) != count * width:
            raise FormatError(f"{self.path}: offset {offset:,}: the file ends inside a row")
        found = data.reshape(count, width)
        head = np.ascontiguousarray(found[:, :4]).view("<f4")
        good = np.isfinite(head).all(axis=1) & (head[:, 0] >= 0) & (head[:, 0] * CODES + head[:, 1] < 1.0)
        if not good.all():
            at = offset + 2 * width * int(np.argmin(good))
            raise FormatError(f"{self.path}: offset {at:,}: step {head[~good][0, 0]:g}, floor {head[~good][0, 1]:g}: "
                              "these are not log-probabilities")  # fmt: skip
        return decode(found, self.shape.n_vocab)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._file.close()
