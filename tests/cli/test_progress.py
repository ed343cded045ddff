"""The progress of loading: shown on a terminal when it takes its time, and nowhere else."""

from __future__ import annotations

import io
import sys

import pytest

from ie.cli import load


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(
    ("terminal", "patience", "shown"), [(True, 0.0, True), (True, 60.0, False), (False, 0.0, False)]
)
def test_shown(monkeypatch: pytest.MonkeyPatch, terminal: bool, patience: float, shown: bool) -> None:
    stream = Stream(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(load, "PATIENCE", patience)
    monkeypatch.setenv("TERM", "xterm")
    progress = load.Progress()
    for done in range(0, 101, 50):
        progress(done * 10**6, 100 * 10**6)
    progress.close()
    assert ("loading" in stream.getvalue()) == shown
    if shown:
        assert "100.0/100.0 MB" in stream.getvalue()
