"""Files that appear whole or not at all, and logits written as such files.

Owns: `AtomicFile` and the two formats of --dump-logits. Rows are written as they come, so memory does not grow with
the number of positions.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from .. import native
from ..errors import ResourceError
from . import ends
from .session import Logits

_NPY_HEADER_BYTES = 128
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # a write's own error does not name the file
_LONGEST_STEM = 200  # bytes; names of files have at most 255


class AtomicFile:
    """A file that takes its name only on commit(); leaving the `with` block without it removes what was written.

    Until then it stands beside its place as NAME.PID.part, which SIGTERM, SIGHUP, SIGQUIT and a lost model file remove
    too. A file that has the name keeps its permissions. ResourceError when the name belongs to something that is not a
    regular file, since that would be replaced; errors name the file by `path`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.given = os.fsdecode(path)
        mode = None
        with self._named():
            self.path = Path(os.path.realpath(path))
            with contextlib.suppress(FileNotFoundError):
                found = self.path.stat().st_mode
                if not stat.S_ISREG(found):
                    raise ResourceError(f"{self.given}: not a regular file: name a file that may be replaced")
                mode = stat.S_IMODE(found)
            self._committed, self._part = False, self.path
            self._made = False  # whether there may be a file of that name that is ours
            ends.add(self.remove)
            try:
                self.file = self._open(mode)
            except BaseException:
                ends.remove(self.remove)
                raise
        self._unwatch = native.watch_unfinished(self._part)

    def _open(self, mode: int | None) -> BinaryIO:
        """A new file beside the place: one that is there, from a process that was killed, is not followed or reused."""
        # A name may have so many bytes that nothing can be added to it.
        name = os.fsdecode(os.fsencode(self.path.name)[:_LONGEST_STEM])
        for number in range(100):
            self._part = self.path.with_name(f"{name}.{os.getpid()}{f'-{number}' if number else ''}.part")
            if os.path.lexists(self._part):
                continue
            self._made = True  # before it is: a signal may come at any moment
            with contextlib.suppress(FileExistsError):
                descriptor = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
                if mode is not None:
                    os.fchmod(descriptor, mode)
                return open(descriptor, "wb")
            self._made = False
        raise ResourceError(f"{self.given}: {self._part} is in the way: remove it and those like it")

    def commit(self) -> None:
        """Everything is written: the file takes its name."""
        with self._named():
            self.file.close()
            os.replace(self._part, self.path)
        self._committed = True

    def remove(self) -> None:
        """Nothing is left of it, unless it has its name."""
        if self._made and not self._committed:
            self._part.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """An error is about the file that was asked for, not about the one that stands in for it."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.given) from error
        except ValueError as error:
            raise ResourceError(f"{self.given}: not a file name: {error}") from error

    def __enter__(self) -> AtomicFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if not self._committed:
            # Closing flushes, which fails again where the disk is full; the first error is the one to report.
            with contextlib.suppress(OSError):
                self.file.close()
            with contextlib.suppress(OSError):
                self.remove()
        ends.remove(self.remove)
        self._unwatch()
        if isinstance(value, OSError) and value.filename is None and value.errno in _DISK_ERRORS:
            raise ResourceError(f"{self.given}: {value.strerror}") from value


def npy_header(rows: int, columns: int) -> bytes:
    """Header of a version 1.0 .npy file of float32 [rows, columns], always 128 bytes, so that it can be rewritten."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}"
    body = text.ljust(_NPY_HEADER_BYTES - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body.encode("ascii")


class LogitsDump:
    """--dump-logits: the logits of consecutive positions from 0, one row for each token that was computed."""

    def __init__(self, path: str, n_vocab: int) -> None:
        self._npy = path.endswith(".npy")
        self._n_vocab = n_vocab
        self._target = AtomicFile(path)
        self.rows = 0
        if self._npy:
            self._target.file.write(npy_header(0, n_vocab))

    def add(self, tokens: Sequence[int], logits: Logits) -> None:
        """logits [n, vocabulary] after each of n tokens, which follow those of the last call."""
        assert logits.shape == (len(tokens), self._n_vocab), (logits.shape, len(tokens), self._n_vocab)
        if self._npy:
            self._target.file.write(np.ascontiguousarray(logits, dtype="<f4").data)
        else:
            for number, (token, row) in enumerate(zip(tokens, logits, strict=True), self.rows):
                values = " ".join(map("{:.9g}".format, row.tolist()))
                self._target.file.write(f"{number} {token} {values}\n".encode("ascii"))
        self.rows += len(tokens)

    def commit(self) -> None:
        """The run is over: completes the file and gives it its name."""
        if self._npy:
            self._target.file.seek(0)
            self._target.file.write(npy_header(self.rows, self._n_vocab))
        self._target.commit()

    def __enter__(self) -> LogitsDump:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._target.__exit__(kind, value, tb)
