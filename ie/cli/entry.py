"""Where the installed commands begin and end: Ctrl-C during the imports, or once more while the process ends, is no
traceback.

Owns: nothing but that. It imports as little as possible itself.
"""

from __future__ import annotations

import importlib
import signal
import sys


def _start(command: str) -> int:
    status = 130
    try:
        try:
            status = importlib.import_module(f"{__package__}.{command}").main()
        except KeyboardInterrupt:
            print(f"ie-{command}: interrupted", file=sys.stderr)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left to do is the interpreter's
    except KeyboardInterrupt:  # one that was pending
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return status


def run() -> int:
    return _start("run")


def ppl() -> int:
    return _start("ppl")


def bench() -> int:
    return _start("bench")


def tokenize() -> int:
    return _start("tokenize")


def doctor() -> int:
    return _start("doctor")
