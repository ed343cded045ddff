"""A program: the fixed list of commands of one step, the passes that shape it, and the inputs that change."""

from .passes import finish
from .symbols import (
    Buffer,
    Cache,
    Command,
    Matrix,
    Partials,
    Program,
    RopeTable,
    State,
    Table,
    Vector,
    View,
    union,
)

__all__ = [
    "Buffer",
    "Cache",
    "Command",
    "Matrix",
    "Partials",
    "Program",
    "RopeTable",
    "State",
    "Table",
    "Vector",
    "View",
    "finish",
    "union",
]
