"""ffn: the commands of one gated feed-forward layer."""

from __future__ import annotations

from ..ops.glu import GELU, SILU
from ..program import View
from .builder import Builder


def emit(b: Builder, layer: int, u: View) -> View:
    """W_down(act(W_gate u) * (W_up u)) for the normed input u, before the residual."""
    blk, n_ff = f"blk.{layer}.", b.spec(layer).n_ff
    gate = b.linear(u, blk + "ffn_gate.weight", n_ff, blk + "ffn_gate.bias")
    up = b.linear(u, blk + "ffn_up.weight", n_ff, blk + "ffn_up.bias")
    y = b.buffer(blk + "ffn_glu", n_ff)
    b.emit("glu", gate=gate, up=up, y=y, act={"silu": SILU, "gelu": GELU}[b.config.arch.act])
    return b.linear(y, blk + "ffn_down.weight", b.config.n_embd, blk + "ffn_down.bias")
