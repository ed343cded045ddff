"""Executors: each runs the same program. `make` chooses one by name."""

from __future__ import annotations

from ..errors import OptionError
from .base import Executor
from .compiled import CompiledExecutor
from .cpu import CpuDevice
from .reference import ReferenceExecutor

__all__ = ["CompiledExecutor", "CpuDevice", "CpuExecutor", "Executor", "ReferenceExecutor", "make"]


class CpuExecutor(CompiledExecutor):
    """Programs on the processor: `threads` workers, the caller included; `isa`: a name of native.ISAS, or auto."""

    def __init__(self, threads: int, isa: str = "auto") -> None:
        super().__init__(CpuDevice(threads, isa))


def make(name: str, threads: int, isa: str = "auto") -> Executor:
    """The executor called `name`: cpu, reference (q8 mode) or reference-float64."""
    if name == "cpu":
        return CpuExecutor(threads, isa)
    if name == "reference":
        return ReferenceExecutor("q8")
    if name == "reference-float64":
        return ReferenceExecutor("float64")
    raise OptionError(f"unknown executor {name!r}; known: cpu, reference, reference-float64")
