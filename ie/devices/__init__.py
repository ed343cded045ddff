"""Executors: each runs the same program. `make` chooses one by name."""

from __future__ import annotations

from ..errors import OptionError
from .base import Executor
from .cpu import CpuExecutor
from .reference import ReferenceExecutor

__all__ = ["CpuExecutor", "Executor", "ReferenceExecutor", "make"]


def make(name: str, threads: int, isa: str = "auto") -> CpuExecutor | ReferenceExecutor:
    """The executor called `name`: cpu, reference (q8 mode) or reference-float64."""
    if name == "cpu":
        return CpuExecutor(threads, isa)
    if name == "reference":
        return ReferenceExecutor("q8")
    if name == "reference-float64":
        return ReferenceExecutor("float64")
    raise OptionError(f"unknown executor {name!r}; known: cpu, reference, reference-float64")
