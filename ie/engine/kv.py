"""Paged KV cache and recurrent state: which blocks of the pool, and which slots of its ring, belong to which sequence.

Owns: block numbers, and for each sequence its tokens with their phases. Half-open rule: a sequence of n tokens owns
exactly the blocks of positions [0, n), block i of its table covering positions [32 i, 32 i + 32). Allocation of memory
happens once, in the executor; here only numbers move, and the engine writes them into step inputs. Does not own: what
is written into the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..errors import ResourceError
from ..program.step import Phase

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


@dataclass(eq=False)
class KvSequence:
    """Tokens of one sequence whose keys and values are (or are about to be) in the cache.

    Invariants: stored <= len(tokens) == len(phases); blocks cover exactly the tokens, and before a step of drafts some
    positions more. With recurrent layers (`copies` > 0) `state` is the slot after `stored` tokens and the `kept` slots
    before it in the ring hold the states of as many tokens earlier. `index` is the sequence's block table and its place
    in recurrent state, given back by `release` when it is closed.
    """

    index: int
    pool: BlockPool
    limit: int  # most tokens
    copies: int = 0  # of recurrent state in the ring; 0: the model has none
    hidden: int = 0  # positions whose hidden states are kept for drafting; 0: none are
    release: Callable[[int], object] = lambda index: None
    tokens: list[int] = field(default_factory=list)
    phases: bytearray = field(default_factory=bytearray)  # of each token
    blocks: list[int] = field(default_factory=list)
    changed: int = 0  # blocks before this one stand in the step inputs' table
    stored: int = 0  # tokens whose effect the caches and the current state hold; the rest must be fed again
    state: int = -1  # slot of the current state; -1: the zero state before the first token
    kept: int = 0  # how many tokens can be taken back by stepping to an older slot
    reached: int = 0  # positions that hidden states were written for: the last `hidden` of them are there
    open: bool = True

    def __len__(self) -> int:
        return len(self.tokens)

    def require(self, n: int) -> None:
        """ResourceError when there is no room for n more tokens."""
        if len(self.tokens) + n > self.limit:
            raise ResourceError(
                f"the context is full: {len(self.tokens)} tokens held, {n} more do not fit into "
                f"{self.limit}; a longer context (-c) or a shorter prompt is needed"
            )
        need = -(-(len(self.tokens) + n) // BLOCK) - len(self.blocks)
        if need > self.pool.n_free:
            raise ResourceError(f"the KV cache is full: {need} blocks needed, {self.pool.n_free} free")

    def extend(self, tokens: Sequence[int], phase: Phase = Phase.PROMPT) -> None:
        """Own blocks for more tokens and record them. ResourceError leaves the sequence as it was."""
        self.require(len(tokens))
        self.tokens += tokens
        self.phases += bytes((phase,)) * len(tokens)
        self.reserve(len(self.tokens))

    def reserve(self, positions: int) -> None:
        """Own blocks for at least this many positions (drafts may need more than there are tokens)."""
        need = -(-positions // BLOCK) - len(self.blocks)
        if need > self.pool.n_free:
            raise ResourceError(f"the KV cache is full: {need} blocks needed, {self.pool.n_free} free")
        for _ in range(need):
            self.blocks.append(self.pool.take())

    def keep(self, rows: int) -> int:
        """How many of the next `rows` rows of one step should leave their state behind."""
        return rows if rows <= self.copies else 1

    def advance(self, rows: int) -> None:
        """`rows` more tokens have run in one step, keeping `keep(rows)` states."""
        self.stored += rows
        self.touch(self.stored)
        if self.copies:
            keep = self.keep(rows)
            self.state = (self.state + keep) % self.copies
            self.kept = min((self.kept if keep == rows else -1) + keep, self.copies - 1, self.stored)

    def abandon(self, rows: int) -> None:
        """A step of `rows` more tokens was cut short. It may have written any slot of the recurrent state, also the
        current one: everything is fed again by the next step. Keys and values do no harm, they are written anew."""
        self.touch(self.stored + rows)
        if self.copies:
            self.state, self.kept, self.stored, self.reached = -1, 0, 0, 0

    def touch(self, positions: int) -> None:
        """Hidden states of positions below this one were written, in place of those `hidden` positions before."""
        self.reached = max(self.reached, positions)

    def _can_step_back(self, n: int) -> bool:
        """Whether everything that the first n tokens left behind is still there. Keys and values always are."""
        if n == 0 or (self.copies and self.stored - n > self.kept):
            return False
        return not self.hidden or n + self.hidden > self.reached

    def truncate(self, n: int) -> None:
        """Forget all but the first n tokens; the blocks of the others return to the pool.

        Recurrent state steps back to an older slot of the ring; when none is old enough, or the hidden state before
        the next token is gone, everything is fed again by the next step.
        """
        if not 0 <= n <= len(self.tokens):
            raise ValueError(f"truncate to {n} of {len(self.tokens)} tokens")
        back = self.stored - n
        if back > 0 and self._can_step_back(n):
            self.stored = n
            if self.copies:
                self.state, self.kept = (self.state - back) % self.copies, self.kept - back
        elif back > 0:
            self.state, self.kept, self.stored, self.reached = -1, 0, 0, 0
        del self.tokens[n:], self.phases[n:]
        keep = -(-n // BLOCK)
        for block in reversed(self.blocks[keep:]):
            self.pool.give(block)
        del self.blocks[keep:]
        self.changed = min(self.changed, keep)

    def close(self) -> None:
        """Give everything back; the sequence is of no use afterwards."""
        self.truncate(0)
        if self.open:
            self.open = False
            self.release(self.index)
