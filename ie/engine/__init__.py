"""The engine: sequences in memory, steps of a model, and the loop that generates."""

from .engine import Engine, Stats

__all__ = ["Engine", "Stats"]
