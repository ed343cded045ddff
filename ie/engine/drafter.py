"""The interface of drafters, and the count of what drafting did.

Owns: `Drafter`, which the generation loop asks for tokens that may come next, `DraftModel`, which the engine asks
what a drafter with weights of its own needs of it, and `DraftStats`. What is proposed never changes the output, only
its speed. Does not own any drafter (`draft`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..gguf import TensorSet
from ..model.config import ModelConfig
from ..program import Program
from .kv import KvSequence

PLAIN = "plain"
"""The `source` of a step for which nobody drafted."""

MIN_PLAIN = 3  # steps without drafts that a speedup is told from


@dataclass
class DraftStats:
    """What drafting did: steps of the model, drafts proposed and accepted, tokens emitted, and why it was off."""

    steps: int = 0
    proposed: int = 0
    accepted: int = 0
    emitted: int = 0
    seconds: float = 0.0
    by_name: dict[str, list[int]] = field(default_factory=dict)  # drafter -> [proposed, accepted]
    plain_steps: int = 0  # steps that nobody drafted for: what the others are measured against
    plain_seconds: float = 0.0
    off: str = ""

    def add(self, name: str, proposed: int, accepted: int, seconds: float = 0.0) -> None:
        """One step: by whom the drafts were, how many, how many held, how long drafting and verifying took."""
        self.steps += 1
        self.proposed += proposed
        self.accepted += accepted
        self.emitted += accepted + 1
        self.seconds += seconds
        if name == PLAIN:
            self.plain_steps += 1
            self.plain_seconds += seconds
        if proposed:
            entry = self.by_name.setdefault(name, [0, 0])
            entry[0] += proposed
            entry[1] += accepted

    def __iadd__(self, other: DraftStats) -> DraftStats:
        """Add up the answers of a conversation."""
        for name in ("steps", "proposed", "accepted", "emitted", "seconds", "plain_steps", "plain_seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for drafter, (proposed, accepted) in other.by_name.items():
            entry = self.by_name.setdefault(drafter, [0, 0])
            entry[0] += proposed
            entry[1] += accepted
        self.off = other.off
        return self

    @property
    def speedup(self) -> float:
        """Tokens per second, over those of this run's steps without drafts; 0 when these are too few to tell."""
        if self.plain_steps < MIN_PLAIN or self.seconds <= 0 or self.plain_seconds <= 0:
            return 0.0
        return (self.emitted / self.seconds) / (self.plain_steps / self.plain_seconds)

    def describe(self) -> str:
        """For the summary line; empty when nothing was drafted and nothing explains it."""
        if not self.proposed:
            return f"drafts: none ({self.off})" if self.off else ""
        each = [f"{name} {n:,} proposed, {a:,} accepted ({100 * a / n:.0f} %)" for name, (n, a) in self.by_name.items()]
        text = f"drafts: {'; '.join(each)}, {self.emitted / self.steps:.1f} tok/step"
        if self.speedup:
            text += f" · {self.speedup:.1f}× plain"
        return text + (f"; then off: {self.off}" if self.off else "")


class DraftModel(Protocol):
    """Weights that draft for a model, before the engine is opened: what they tap, and the programs that they add."""

    def adopt(self, tensors: TensorSet, config: ModelConfig) -> tuple[TensorSet, ModelConfig]:
        """The model's tensors and configuration, with what a file of the drafter's own adds to them. ModelError."""

    def taps(self, config: ModelConfig) -> bool:
        """Whether the model's program is to keep hidden states for it."""

    def programs(self, tensors: TensorSet, config: ModelConfig, ring: int) -> Mapping[str, Program]:
        """Programs to be bound for one row each, by name; `ring` positions' hidden states are kept."""

    def close(self) -> None:
        """Close files of its own."""


class Drafter(Protocol):
    """Proposes drafts for one sequence at a time. `limit`: most drafts; `source`: whose the last ones were, PLAIN if
    nobody tried; `off`: why it does not draft at present, or empty."""

    limit: int
    off: str

    @property
    def source(self) -> str: ...

    def begin(self) -> None:
        """Generation starts, maybe after another text; what was measured stays."""

    def propose(self, seq: KvSequence, token: int, budget: int) -> list[int]:
        """At most min(limit, budget) tokens to follow `token`, the newest, which has not run yet."""

    def observe(self, drafts: Sequence[int], accepted: int, seconds: float) -> None:
        """What became of the last proposal: how many held, and how long draft and verification took."""
