"""ffn: the commands of one feed-forward layer, gated or a mixture of gated experts."""

from __future__ import annotations

from ..ops.glu import GELU, SILU
from ..program import View
from .builder import Builder


def emit(b: Builder, layer: int, u: View) -> View:
    """The layer's output for the normed input u, before the residual."""
    if b.config.moe is not None:
        return experts(b, layer, u)
    return gated(b, f"blk.{layer}.", "", u, b.spec(layer).n_ff)


def gated(b: Builder, blk: str, suffix: str, u: View, n_ff: int) -> View:
    """W_down(act(W_gate u) * (W_up u)); `suffix` tells the shared expert's tensors from the layer's own."""
    gate = b.linear(u, f"{blk}ffn_gate{suffix}.weight", n_ff, f"{blk}ffn_gate{suffix}.bias")
    up = b.linear(u, f"{blk}ffn_up{suffix}.weight", n_ff, f"{blk}ffn_up{suffix}.bias")
    y = b.buffer(f"{blk}ffn_glu{suffix}", n_ff)
    b.emit("glu", gate=gate, up=up, y=y, act={"silu": SILU, "gelu": GELU}[b.config.arch.act])
    return b.linear(y, f"{blk}ffn_down{suffix}.weight", b.config.n_embd, f"{blk}ffn_down{suffix}.bias")


def experts(b: Builder, layer: int, u: View) -> View:
    """Routed experts, each row by its own choice, plus the shared expert behind its gate (docs/models.md)."""
    moe, blk, n = b.config.moe, f"blk.{layer}.", b.config.n_embd
    assert moe is not None
    shared = gated(b, blk, "_shexp", u, moe.n_ff_shared)
    gate = b.linear(u, blk + "ffn_gate_inp_shexp.weight", 1)
    route = b.buffer(blk + "route", 2 * moe.n_used)
    b.emit("route", x=b.linear(u, blk + "ffn_gate_inp.weight", moe.n_expert), y=route)
    width = moe.n_ff
    if b.has(blk + "ffn_gate_up_exps.weight"):  # each expert's gate rows, then its up rows
        fused = blk + "ffn_gate_up_exps.weight"
        gates = b.expert_product(u, fused, 2 * width, (0, width), route)
        ups = b.expert_product(u, fused, 2 * width, (width, width), route)
    else:
        gates = b.expert_product(u, blk + "ffn_gate_exps.weight", width, (0, width), route)
        ups = b.expert_product(u, blk + "ffn_up_exps.weight", width, (0, width), route)
    y = b.buffer(blk + "experts_glu", moe.n_used * width)
    b.emit("glu", gate=gates, up=ups, y=y, act=SILU)
    down = b.expert_product(y, blk + "ffn_down_exps.weight", n, (0, n), route, per_slot=True)
    out = b.buffer(blk + "experts", n)
    b.emit("combine", x=down, route=route, y=out, shared=shared, gate=gate)
    return out
