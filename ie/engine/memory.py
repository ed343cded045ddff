"""What fits: bytes that programs need at a context length, and the context to use.

Owns: pure functions from a program's caches, states and rooms, the executor's sizes and the free memory to a decision,
and the words for one that failed. The sizes of caches and rooms are those of core_laws/ie_core.h, for every device.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from .. import native
from ..devices.base import Sizes
from ..devices.compiled import partials_bytes
from ..errors import ResourceError
from ..program import Program
from ..settings import resolve_context
from .kv import BLOCK, CHUNK

STATE_SLOTS, FEW_STATE_SLOTS = 16, 8
"""Copies of recurrent state that a sequence keeps, so that up to 15 (or 7) rejected drafts can be taken back."""

RECURRENT = "delta"
"""The kind of state that is kept in copies."""

HOST_BYTES = 64 << 20
"""Set aside for Python and its libraries when deciding what fits."""


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a model needs at a context length, by purpose."""

    weights: int
    kv: int
    work: int
    state: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.state + self.work + HOST_BYTES

    def describe(self) -> str:
        parts = [("weights", self.weights), ("KV", self.kv), ("work", self.work + HOST_BYTES)]
        if self.state:
            parts.insert(2, ("state", self.state))
        return f"{' + '.join(f'{name} {n / 1e9:.1f}' for name, n in parts)} = {self.total / 1e9:.1f} GB"


@dataclass(frozen=True)
class Demand:
    """What asks for memory: all of an engine's programs as one, their sizes on the executor, values of a rotary table's
    position (of each table), and how many sequences there may be."""

    program: Program
    sizes: Sizes
    rope_values: Sequence[int] = ()
    n_seqs: int = 1

    @functools.cached_property
    def _caches(self) -> int:
        """Bytes of a chunk of all layers' keys and values."""
        return sum(2 * native.lib()[1].ie_core_kv_chunk_elems(c.heads, c.dim) for c in self.program.caches())

    @functools.cached_property
    def _rooms(self) -> list[tuple[int, int]]:
        return [(p.heads, p.dim) for p in self.program.partials()]

    @functools.cached_property
    def _states(self) -> tuple[int, int]:
        """Bytes of a sequence's states of one kind and of the other: a slot of the recurrent ones, and all the rest."""
        slot = sum(4 * s.size // s.shape[0] for s in self.program.states() if s.which == RECURRENT)
        return slot, sum(4 * s.size for s in self.program.states() if s.which != RECURRENT)

    @property
    def recurrent(self) -> bool:
        return self._states[0] > 0

    def at(self, n_ctx: int, slots: int = STATE_SLOTS) -> MemoryNeed:
        """At a context of n_ctx tokens a sequence: KV in whole chunks, `slots` copies of recurrent state; rotary tables
        and the room for partial results of attention are counted as work."""
        chunks = -(-(-(-n_ctx // BLOCK) * self.n_seqs) // CHUNK)
        work = self.sizes.activations + sum(partials_bytes(heads, dim, n_ctx) for heads, dim in self._rooms)
        work += sum(4 * n * n_ctx for n in self.rope_values)
        slot, rest = self._states
        return MemoryNeed(self.sizes.weights, chunks * self._caches, work, self.n_seqs * (slots * slot + rest))


def choose_slots(demand: Demand, free: int, n_ctx: int) -> int:
    """Copies of recurrent state to keep: 16, or 8 when memory is short; 0 for models without recurrent layers."""
    if not demand.recurrent:
        return 0
    return STATE_SLOTS if demand.at(n_ctx, STATE_SLOTS).total <= free else FEW_STATE_SLOTS


def largest_context(demand: Demand, free: int, limit: int) -> int:
    """Most tokens of context, at most `limit`, that fit into `free` bytes; 0 when not even one block does."""
    lo, hi = 0, -(-limit // BLOCK)
    while lo < hi:
        mid = (lo + hi + 1) // 2
        if demand.at(mid * BLOCK, FEW_STATE_SLOTS).total <= free:
            lo = mid
        else:
            hi = mid - 1
    return min(lo * BLOCK, limit)


def choose_context(path: str, requested: int, trained: int, demand: Demand, free: int, bound: str = "") -> int:
    """The context length to use; ResourceError when it, or any, does not fit, naming the one that would.

    requested: 0 for auto; trained: the model's own. bound: what makes `free` so small, if it is not the machine's
    memory."""
    fits = largest_context(demand, free, requested or trained)
    n_ctx = resolve_context(requested, trained, fits)
    if fits == 0 or n_ctx > fits:
        need = demand.at(max(n_ctx, 1), FEW_STATE_SLOTS)
        hint = (
            f"It fits with -c {fits}."
            if fits
            else "Not even a short context fits: a smaller model or quantisation or --chunk is needed"
            + (", or a higher limit." if bound else ".")
        )
        by = f" (limited by {bound})" if bound else ""
        raise ResourceError(f"{path}: does not fit: {need.describe()}, free {free / 1e9:.1f} GB{by}. {hint}")
    return n_ctx
