"""What fits: bytes that a model needs at a context length, and the context to use.

Owns: pure functions from a model's shape and the free memory to a decision, and the words for one that failed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..devices.cpu import partials_bytes
from ..errors import ResourceError
from ..model.config import ModelConfig
from ..settings import resolve_context
from .kv import BLOCK, CHUNK

STATE_SLOTS, FEW_STATE_SLOTS = 16, 8
"""Copies of recurrent state that a sequence keeps, so that up to 15 (or 7) rejected drafts can be taken back."""

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


def memory_need(
    config: ModelConfig, weight_bytes: int, work_bytes: int, n_ctx: int, slots: int = STATE_SLOTS
) -> MemoryNeed:
    """What a context of n_ctx tokens takes: KV in whole chunks, `slots` states; rotary tables and the room for partial
    results of attention are counted as work."""
    rope = sum(4 * r.n_rot * n_ctx for r in config.ropes)
    heads = {layer.n_head for layer in config.layers if not layer.delta}
    work_bytes += sum(partials_bytes(n, config.head_dim, n_ctx) for n in heads)
    kv = -(-n_ctx // (CHUNK * BLOCK)) * CHUNK * BLOCK * config.kv_bytes_per_token
    return MemoryNeed(weight_bytes, kv, work_bytes + rope, config.state_bytes(slots))


def choose_slots(config: ModelConfig, weight_bytes: int, work_bytes: int, free: int, n_ctx: int) -> int:
    """Copies of recurrent state to keep: 16, or 8 when memory is short; 0 for models without recurrent layers."""
    if config.delta is None:
        return 0
    roomy = memory_need(config, weight_bytes, work_bytes, n_ctx, STATE_SLOTS).total <= free
    return STATE_SLOTS if roomy else FEW_STATE_SLOTS


def largest_context(config: ModelConfig, weight_bytes: int, work_bytes: int, free: int, limit: int) -> int:
    """Most tokens of context, at most `limit`, that fit into `free` bytes; 0 when not even one block does."""
    lo, hi = 0, -(-limit // BLOCK)
    while lo < hi:
        mid = (lo + hi + 1) // 2
        if memory_need(config, weight_bytes, work_bytes, mid * BLOCK, FEW_STATE_SLOTS).total <= free:
            lo = mid
        else:
            hi = mid - 1
    return min(lo * BLOCK, limit)


def choose_context(
    path: str, requested: int, config: ModelConfig, weight_bytes: int, work_bytes: int, free: int, bound: str = ""
) -> int:
    """The context length to use; ResourceError when it, or any, does not fit, naming the one that would. `bound`: what
    makes `free` so small, if it is not the machine's memory."""
    limit = requested or config.n_ctx_train
    fits = largest_context(config, weight_bytes, work_bytes, free, limit)
    n_ctx = resolve_context(requested, config.n_ctx_train, fits)
    if fits == 0 or n_ctx > fits:
        need = memory_need(config, weight_bytes, work_bytes, max(n_ctx, 1), FEW_STATE_SLOTS)
        hint = (
            f"It fits with -c {fits}."
            if fits
            else "Not even a short context fits: a smaller model or quantisation or --chunk is needed"
            + (", or a higher limit." if bound else ".")
        )
        by = f" (limited by {bound})" if bound else ""
        raise ResourceError(f"{path}: does not fit: {need.describe()}, free {free / 1e9:.1f} GB{by}. {hint}")
    return n_ctx
