"""Blocks: each emits the commands of one part of a layer; `build` strings them into a model's program.

There is no file per architecture: what differs is in `config.ARCHITECTURES` and in which tensors a file has.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ModelError
from ..gguf import TensorSet
from ..program import Program, View, finish
from ..program.step import OUTS, ROWS
from . import attention, deltanet, ffn, mtp
from .builder import Builder
from .config import ModelConfig

__all__ = ["build"]


def build(tensors: TensorSet, config: ModelConfig, slots: int = 16, ring: int = 0) -> Program:
    """The program of one step: tokens of the step inputs to `logits` [outputs, vocabulary].

    `slots`: copies of recurrent state that each sequence keeps. `ring` > 0: for drafting with the MTP block, keep the
    hidden states of that many positions and store the block's keys and values."""
    if config.mtp and "blk.0.attn_norm.weight" not in tensors:
        raise ModelError(
            f"{tensors.path}: the file holds only an MTP block, which guesses for a model: open the model's own file "
            "and name this one with --mtp"
        )
    b = Builder(tensors, config, slots)
    x = b.buffer("embd", config.n_embd)
    b.emit("embed", y=x, table=b.table("token_embd.weight", config.n_vocab, config.n_embd), scale=config.embed_scale)
    for i in range(len(config.layers)):
        b.layer = i
        x = layer(b, i, x)
    b.layer = -1
    norm = b.vector("output_norm.weight", config.n_embd)
    hidden = None
    if ring:  # every row's hidden state is wanted, not only those of output rows
        x = b.rmsnorm(x, norm, "output_norm")
        hidden = mtp.hidden_ring(config, ring)
        b.emit("ring_put", x=x, ring=hidden, size=ring)
    b.domain = OUTS
    h = b.buffer("output_rows", config.n_embd)
    b.emit("gather", x=x, y=h)
    if hidden is None:
        h = b.rmsnorm(h, norm, "output_norm")
    head = "output.weight" if b.has("output.weight") else "token_embd.weight"
    logits = b.linear(h, head, config.n_vocab, "output.bias")
    if config.softcap:
        b.emit("softcap", x=logits, cap=config.softcap)
    if hidden is not None:
        b.domain = ROWS
        mtp.emit_kv(b, hidden)
    for rope in config.ropes:
        if rope.factors:
            b.vector(rope.factors, rope.n_rot // 2)
    b.used.add("rope_factors_short.weight")
    if config.mtp:  # the MTP block has a program of its own, which checks them
        b.used.update(name for name in tensors if name.startswith(f"blk.{len(config.layers)}."))
    b.check_all_used()
    return finish(b.commands, {"logits": logits})


def layer(b: Builder, i: int, x: View) -> View:
    """Layer i of the trunk: mixer, then feed-forward, each on a residual branch."""
    mixer = deltanet.emit if b.config.layers[i].delta else attention.emit
    x = branch(b, i, x, "attn_norm", "post_attention_norm", mixer)
    return branch(b, i, x, b.config.arch.ffn_norm, "post_ffw_norm", ffn.emit)


def branch(b: Builder, i: int, x: View, norm: str, post: str, emit: Callable[[Builder, int, View], View]) -> View:
    """x + post norm(block(norm(x))): one residual branch of layer i."""
    n, blk = b.config.n_embd, f"blk.{i}."
    y = emit(b, i, b.rmsnorm(x, b.vector(f"{blk}{norm}.weight", n), blk + norm))
    if b.config.arch.post_norms:
        y = b.rmsnorm(y, b.vector(f"{blk}{post}.weight", n), blk + post)
    return b.add(x, y, f"{blk}x_{norm.removesuffix('_norm')}")
