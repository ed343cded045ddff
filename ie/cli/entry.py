"""Where the installed commands begin: imports a command and runs it, so that Ctrl-C during the imports is no traceback.

Owns: nothing but that. It imports as little as possible itself.
"""

from __future__ import annotations

import importlib
import sys


def _start(command: str) -> int:
    try:
        module = importlib.import_module(f"{__package__}.{command}")
    except KeyboardInterrupt:
        print(f"ie-{command}: interrupted", file=sys.stderr)
        return 130
    status: int = module.main()
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
