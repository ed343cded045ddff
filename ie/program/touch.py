"""What a command touches in one step: rows of its domain, and whether it runs at all.

Owns: these questions for everybody who looks at commands one by one (comparing, tracing).
"""

from __future__ import annotations

import numpy as np

from .step import OUTS, ROW, ROWS, StepInputs
from .symbols import Command

# ---- what a command touches ----


def live(step: StepInputs, domain: int) -> int:
    """Rows, output rows or segments of a step; 1 for a command on one given row."""
    return {ROWS: step.n_rows, OUTS: step.n_outs, ROW: 1}.get(domain, step.n_segs)


def left_out(step: StepInputs, command: Command) -> bool:
    """Whether a step runs nothing of a command."""
    return live(step, command.domain) == 0 or bool(command.skippable and step.skip)


def rows_of(step: StepInputs, command: Command) -> np.ndarray:
    """Indices of the step's rows whose positions a command works at."""
    return np.array([command.row]) if command.domain == ROW else np.arange(step.n_rows)
