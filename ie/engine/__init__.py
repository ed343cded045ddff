"""The engine: sequences in memory, steps of a model, and the loop that generates."""

from .engine import Engine, Stats
from .steps import Part

__all__ = ["Engine", "Part", "Stats"]
