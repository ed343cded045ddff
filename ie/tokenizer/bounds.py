"""A bound on the time and the memory of code that cannot be trusted to end.

Owns: the context manager `bounded` and its exception. Time is checked between lines of Python, of this thread alone
and in its own CPU time, so that a busy machine does not matter. Memory is what the process may add while the bound
holds, where the system can limit that. Does not own: what is bounded (chat templates, see chat.py).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

EVENTS = 64  # lines between two looks at the clock


class OutOfTime(BaseException):
    """The time is over. Not an Exception: what is bounded must not catch it in passing."""


@contextlib.contextmanager
def bounded(seconds: float, memory: int) -> Iterator[None]:
    """Raises OutOfTime in the block after so many seconds of CPU time, MemoryError when it needs too many bytes."""
    end, left = time.thread_time() + seconds, EVENTS

    def look(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        left -= 1
        if left <= 0:
            left = EVENTS
            if time.thread_time() > end:
                raise OutOfTime
        return look

    before = sys.gettrace()
    with _memory(memory):
        sys.settrace(look)
        try:
            yield
        finally:
            sys.settrace(before)


@contextlib.contextmanager
def _memory(amount: int) -> Iterator[None]:
    """Lowers the soft limit of the address space to what is in use and `amount` more; no bound where that fails."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        limits = [used + amount, *(n for n in (soft, hard) if n != resource.RLIM_INFINITY)]
        resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
    except (ImportError, OSError, ValueError, AttributeError):
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
