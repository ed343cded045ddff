"""What files and pipes are read in."""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ie.cli.console import describe
from ie.cli.inputs import read_bytes
from ie.cli.options import Options
from ie.cli.task import Task, read_prompt
from ie.errors import OptionError


class Pieces(io.BytesIO):
    """A pipe that gives what is asked for, and keeps how much that was."""

    asked = 0

    def read(self, size: int | None = -1) -> bytes:
        assert size is not None and size >= 0
        self.asked = max(self.asked, size)
        return super().read(size)


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_everything_is_read_and_never_much_asked_for_at_once(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes(i % 251 for i in range(1021)) * (size // 1021 + 1)
    pipe, path = Pieces(data[:size]), tmp_path / "x"
    path.write_bytes(data[:size])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=pipe))
    assert read_bytes("-") == data[:size] == read_bytes(str(path))
    assert pipe.asked <= 1 << 20
    assert read_bytes(str(path), size) == data[:size]
    if size:
        with pytest.raises(OptionError, match=f"{path}: longer than {size - 1:,} bytes"):
            read_bytes(str(path), size - 1)


@pytest.mark.parametrize("read", [lambda: read_bytes("-"), lambda: read_prompt(Options(), Task("stdin", False, False))])
def test_an_input_that_cannot_be_read_is_named(read: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Broken()))
    with pytest.raises(OSError) as failed:
        read()
    assert describe(failed.value) == "the standard input: Input/output error"
