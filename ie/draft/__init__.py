"""Drafters: each proposes tokens that may come next. What they propose never changes the output, only its speed.

`Drafter` is the interface; `make` builds what the options ask for. The loop that verifies is in `generate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..engine import Engine
from ..kv import Sequence as KvSequence

__all__ = ["Drafter", "DraftStats", "make"]


@dataclass
class DraftStats:
    """What a drafter did: steps of the model, drafts proposed and accepted, tokens emitted, and why it was off."""

    name: str = ""
    steps: int = 0
    proposed: int = 0
    accepted: int = 0
    emitted: int = 0
    by_name: dict[str, list[int]] = field(default_factory=dict)  # drafter -> [proposed, accepted]
    off: str = ""

    def add(self, name: str, proposed: int, accepted: int) -> None:
        self.steps += 1
        self.proposed += proposed
        self.accepted += accepted
        self.emitted += accepted + 1
        if proposed:
            entry = self.by_name.setdefault(name, [0, 0])
            entry[0] += proposed
            entry[1] += accepted

    def describe(self) -> str:
        """For the summary line; empty when nothing was drafted and nothing explains it."""
        if not self.proposed:
            return f"drafts: none ({self.off})" if self.off else ""
        parts = [
            f"{name} {n:,} proposed, {a:,} accepted ({100 * a / n:.0f} %)" for name, (n, a) in self.by_name.items()
        ]
        rate = f"{self.emitted / self.steps:.1f} tok/step" if self.steps else ""
        return f"drafts: {'; '.join(parts)}, {rate}" + (f"; {self.off}" if self.off else "")


class Drafter(Protocol):
    """Proposes drafts for one sequence."""

    name: str
    limit: int
    off: str

    def propose(self, seq: KvSequence, token: int, budget: int) -> list[int]:
        """At most min(limit, budget) tokens to follow `token`, the newest, which has not run yet."""

    def observe(self, drafts: Sequence[int], accepted: int, seconds: float) -> None:
        """What became of the last proposal: how many held, and how long draft and verification took."""


def make(kind: str, engine: Engine, depth: int) -> Drafter | None:
    """The drafter called `kind`: mtp, lookup, mtp+lookup or auto; None when drafting is off."""
    from .choose import build

    return build(kind, engine, depth)
