"""Where the installed commands begin and end: Ctrl-C during the imports, or once more while the process ends, or
an import that fails, is no traceback.

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
            importlib.import_module("ie.paths").no_threads_of_numpy()
            status = importlib.import_module(f"{__package__}.{command}").main()
        except KeyboardInterrupt:
            print(f"ie-{command}: interrupted", file=sys.stderr)
        except (ImportError, MemoryError) as error:  # a package that is missing, or too little memory to load it
            if _interrupted(error):
                print(f"ie-{command}: interrupted", file=sys.stderr)
                return 130
            words = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            print(f"ie-{command}: a part of the program cannot be loaded: {words}", file=sys.stderr)
            status = 1
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left to do is the interpreter's
    except KeyboardInterrupt:  # one that was pending
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return status


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: numpy makes an ImportError of one that comes while it is loaded."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


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
