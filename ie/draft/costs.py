"""costs: how long steps of so many rows take, and how often drafts hold, both measured while generating.

Owns: exponentially decayed averages and the choice that follows from them. Pure arithmetic over what it is told.
"""

from __future__ import annotations

DECAY = 0.9
STALE = 48  # steps after which a time is no longer relied on


class Average:
    """An exponentially decayed mean; the first samples weigh as in a plain one."""

    def __init__(self, decay: float = DECAY) -> None:
        self.decay, self.total, self.weight = decay, 0.0, 0.0

    def add(self, value: float, weight: float = 1.0) -> None:
        self.total = self.decay * self.total + weight * value
        self.weight = self.decay * self.weight + weight

    @property
    def value(self) -> float:
        return self.total / self.weight if self.weight else 0.0


class StepCosts:
    """Seconds of a step by its number of rows. Unmeasured numbers are guessed from the nearest measured ones, and so
    are numbers of several rows that were measured long ago: a step that was held up once would never be tried again."""

    def __init__(self) -> None:
        self._times: dict[int, Average] = {}
        self._last: dict[int, int] = {}  # rows -> number of the step that had them
        self._steps = 0

    def add(self, rows: int, seconds: float) -> None:
        self._steps += 1
        if rows > 1 and not self.known(rows):
            self._times.pop(rows, None)
        self._times.setdefault(rows, Average()).add(seconds)
        self._last[rows] = self._steps

    def known(self, rows: int) -> bool:
        return rows in self._times and (rows == 1 or self._steps - self._last[rows] < STALE)

    def seconds(self, rows: int) -> float:
        """Linear between measured numbers of rows; beyond them, one row more costs a sixth of a single-row step (that
        is what a small model's rows cost on a processor; large models' cost less)."""
        known = [r for r in self._times if self.known(r)]
        if rows in known:
            return self._times[rows].value
        below = max((r for r in known if r < rows), default=None)
        above = min((r for r in known if r > rows), default=None)
        if below is None:
            return self._times[above].value if above is not None else 0.0
        base = self._times[below].value
        if above is None:
            single = self._times[min(known)].value
            return base + (rows - below) * single / 6
        share = (rows - below) / (above - below)
        return base + share * (self._times[above].value - base)


def expected_tokens(p: float, drafts: int) -> float:
    """Tokens that a step emits when each draft holds with probability p given the ones before: 1 + p + p^2 + …"""
    return 1.0 + sum(p**i for i in range(1, drafts + 1))


def best_length(p: float, most: int, costs: StepCosts) -> int:
    """How many drafts give the most tokens per second; 0 when none do."""
    best, rate = 0, 1.0 / costs.seconds(1) if costs.seconds(1) > 0 else 0.0
    for n in range(1, most + 1):
        seconds = costs.seconds(n + 1)
        if seconds > 0 and expected_tokens(p, n) / seconds > rate:
            best, rate = n, expected_tokens(p, n) / seconds
    return best
