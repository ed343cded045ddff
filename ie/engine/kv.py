"""Paged KV cache and recurrent-state slots: which blocks of the pool belong to which sequence.

Owns: block numbers and block tables. Half-open rule: a sequence of n tokens owns exactly the blocks of
positions [0, n), block i of its table covering positions [32 i, 32 i + 32). Allocation of memory happens once,
in the executor; here only numbers move. Does not own: what is written into the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import ResourceError
from ..program.step import StepInputs

BLOCK = 32  # IE_KV_BLOCK in core_laws/ie_core.h; a test compares them
CHUNK = 16  # IE_KV_CHUNK: blocks that take memory together; likewise


class BlockPool:
    """Free block numbers 0 … n - 1, handed out lowest first."""

    def __init__(self, n_blocks: int) -> None:
        self.n_blocks = n_blocks
        self._free = list(range(n_blocks - 1, -1, -1))

    @property
    def n_free(self) -> int:
        return len(self._free)

    def take(self) -> int:
        if not self._free:
            raise ResourceError(f"the KV cache is full: all {self.n_blocks} blocks of {BLOCK} positions are in use")
        return self._free.pop()

    def give(self, block: int) -> None:
        self._free.append(block)

    def check(self, owned: list[list[int]]) -> None:
        """Every block is free or owned by one sequence; AssertionError otherwise."""
        every = sorted(self._free + [b for blocks in owned for b in blocks])
        assert every == list(range(self.n_blocks)), "blocks lost or owned twice"


@dataclass
class Sequence:
    """Tokens of one sequence whose keys and values are (or are about to be) in the cache."""

    slot: int
    pool: BlockPool
    step: StepInputs
    limit: int  # most tokens
    slots: int = 0  # copies of recurrent state in the ring; 0: the model has none
    hidden: int = 0  # positions whose hidden states are kept for drafting; 0: none are
    tokens: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    stored: int = 0  # tokens whose effect the caches and the current state hold; the rest must be fed again
    state: int = -1  # slot of the current state; -1: the zero state before the first token
    kept: int = 0  # how many tokens can be taken back by stepping to an older slot
    reached: int = 0  # positions that hidden states were written for: the last `hidden` of them are there

    def __len__(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: list[int]) -> None:
        """Reserve blocks for more tokens and record them. ResourceError leaves the sequence as it was."""
        n = len(self.tokens) + len(tokens)
        if n > self.limit:
            raise ResourceError(
                f"the context is full: {len(self.tokens)} tokens held, {len(tokens)} more do not fit into "
                f"{self.limit}; a longer context (-c) or a shorter prompt is needed"
            )
        self.reserve(n)
        self.tokens += tokens

    def reserve(self, positions: int) -> None:
        """Own blocks for at least this many positions (drafts may need more than there are tokens)."""
        need = -(-positions // BLOCK) - len(self.blocks)
        if need > self.pool.n_free:
            raise ResourceError(f"the KV cache is full: {need} blocks needed, {self.pool.n_free} free")
        for _ in range(need):
            block = self.pool.take()
            self.step.tables[self.slot, len(self.blocks)] = block
            self.blocks.append(block)

    def keep(self, rows: int) -> int:
        """How many of the next `rows` rows of one step should leave their state behind."""
        return rows if rows <= self.slots else 1

    def advance(self, rows: int) -> None:
        """`rows` more tokens have run in one step, keeping `keep(rows)` states."""
        self.stored += rows
        self.touch(self.stored)
        if self.slots:
            keep = self.keep(rows)
            self.state = (self.state + keep) % self.slots
            self.kept = min((self.kept if keep == rows else -1) + keep, self.slots - 1, self.stored)

    def abandon(self, rows: int) -> None:
        """A step of `rows` more tokens was cut short. It may have written any slot of the recurrent state, also the
        current one: everything is fed again by the next forward. Keys and values do no harm, they are written anew."""
        self.touch(self.stored + rows)
        if self.slots:
            self.state, self.kept, self.stored, self.reached = -1, 0, 0, 0

    def touch(self, positions: int) -> None:
        """Hidden states of positions below this one were written, in place of those `hidden` positions before."""
        self.reached = max(self.reached, positions)

    def _can_step_back(self, n: int) -> bool:
        """Whether everything that the first n tokens left behind is still there. Keys and values always are."""
        if n == 0 or (self.slots and self.stored - n > self.kept):
            return False
        return not self.hidden or n + self.hidden > self.reached

    def truncate(self, n: int) -> None:
        """Forget all but the first n tokens; the blocks of the others return to the pool.

        Recurrent state steps back to an older slot of the ring; when none is old enough, or the hidden state before
        the next token is gone, everything is fed again by the next forward.
        """
        if not 0 <= n <= len(self.tokens):
            raise ValueError(f"truncate to {n} of {len(self.tokens)} tokens")
        back = self.stored - n
        if back > 0 and self._can_step_back(n):
            self.stored = n
            if self.slots:
                self.state, self.kept = (self.state - back) % self.slots, self.kept - back
        elif back > 0:
            self.state, self.kept, self.stored, self.reached = -1, 0, 0, 0
        del self.tokens[n:]
        keep = -(-n // BLOCK)
        for block in reversed(self.blocks[keep:]):
            self.pool.give(block)
        self.step.tables[self.slot, keep : len(self.blocks)] = -1
        del self.blocks[keep:]

    def close(self) -> None:
        self.truncate(0)
