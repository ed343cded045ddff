"""deltanet: the commands of one gated-delta-net mixer (docs/models.md)."""

from __future__ import annotations

from ..ops.glu import SILU
from ..program import State, View
from ..program.step import SEGS
from .builder import Builder

RING = 32  # IE_CONV_RING in core_laws/ie_core.h


def emit(b: Builder, layer: int, u: View) -> View:
    """Mixer of layer `layer` on the normed input u [rows, n_embd], before the residual."""
    delta, blk = b.config.delta, f"blk.{layer}."
    assert delta is not None
    heads, inner = delta.value_heads, delta.value_heads * delta.dim
    raw = b.linear(u, blk + "attn_qkv.weight", delta.channels)
    z = b.linear(u, blk + "attn_gate.weight", inner)
    beta = b.linear(u, blk + "ssm_beta.weight", heads)
    alpha = b.linear(u, blk + "ssm_alpha.weight", heads)
    qkv = b.buffer(blk + "conv", delta.channels)
    ring = State(layer, "conv", (RING, delta.channels))
    b.emit(
        "conv",
        SEGS,
        x=raw,
        w=b.taps(blk + "ssm_conv1d.weight", delta.taps, delta.channels),
        y=qkv,
        ring=ring,
        taps=delta.taps,
    )
    y = b.buffer(blk + "delta", inner)
    state = State(layer, "delta", (b.slots, heads, delta.dim, delta.dim))
    b.emit(
        "deltanet", SEGS, qkv=qkv, beta=beta, alpha=alpha, y=y, state=state,
        decay=b.vector(blk + "ssm_a", heads), dt=b.vector(blk + "ssm_dt.bias", heads),
        key_heads=delta.key_heads, value_heads=heads, dim=delta.dim, slots=b.slots,
        eps=b.config.eps, scale=delta.dim**-0.5,
    )  # fmt: skip
    normed = b.rmsnorm(y, b.vector(blk + "ssm_norm.weight", delta.dim), blk + "ssm_norm")
    out = b.buffer(blk + "delta_gated", inner)
    b.emit("glu", gate=z, up=normed, y=out, act=SILU)
    return b.linear(out, blk + "ssm_out.weight", b.config.n_embd)
