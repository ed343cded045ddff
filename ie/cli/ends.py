"""What is put right before a signal ends the process: unfinished files go, the terminal gets its modes back.

Owns: SIGTERM, SIGHUP and SIGQUIT while there is something to put right. They keep their meaning: afterwards the process
ends as it would have. Ctrl-C is not among them, it is an exception. Does not own what is put right.

A signal that is ignored, as under nohup, stays so, and one that somebody else handles is left to them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

_steps: list[Callable[[], None]] = []


def add(step: Callable[[], None]) -> None:
    """Take `step` before one of the signals ends the process, until remove(). It may be taken between any two
    instructions of Python: it must wait for nothing."""
    _steps.append(step)
    _change(signal.SIG_DFL, _end)


def remove(step: Callable[[], None]) -> None:
    """There is nothing to put right any more."""
    if step in _steps:
        _steps.remove(step)
    if not _steps:
        _change(_end, signal.SIG_DFL)


@contextlib.contextmanager
def during(step: Callable[[], None]) -> Iterator[None]:
    """For the length of a `with` block."""
    add(step)
    try:
        yield
    finally:
        remove(step)


def _change(old: Any, new: Any) -> None:
    """What the signals do, where it is `old`. Only a process's first thread may change that."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            if signal.getsignal(number) == old:
                signal.signal(number, new)


def _end(number: int, frame: FrameType | None) -> None:
    for step in reversed(_steps):
        with contextlib.suppress(Exception):
            step()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
