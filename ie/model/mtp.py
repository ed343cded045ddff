"""mtp: the block after the trunk that predicts the token after next (multi-token prediction, docs/models.md).

Position p of the block pairs token p with the trunk's hidden state of position p - 1, which a ring keeps by position.
Two uses: `emit_kv` stores the block's keys and values for rows that the trunk has run, and `build_chain` is a program
of its own that drafts a few tokens, each step feeding the next.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import ModelError
from ..formats import activation_of, format_by_name
from ..gguf import GgufFile, TensorSet
from ..program import Command, Matrix, Program, State, View, finish
from ..program.step import ROW
from . import attention, ffn
from .builder import Builder
from .config import ModelConfig


def hidden_ring(config: ModelConfig, size: int) -> State:
    """Hidden states of the last `size` positions, after the final norm."""
    return State(len(config.layers), "hidden", (size, config.n_embd))


def emit_input(b: Builder, ring: State, ids: View | None = None) -> View:
    """W_eh [norm(embedding of the token); norm(hidden state of the position before)]: the block's residual stream.

    ids: where the token ids stand, if not in the step inputs."""
    config, blk = b.config, f"blk.{len(b.config.layers)}."
    n = config.n_embd
    own = blk + "nextn.embed_tokens.weight"
    e = b.buffer(blk + "embd", n)
    table = b.table(own if b.has(own) else "token_embd.weight", config.n_vocab, n)
    b.emit("embed", y=e, table=table, scale=config.embed_scale, ids=ids)
    h = b.buffer(blk + "hidden", n)
    b.emit("ring_get", y=h, ring=ring, size=ring.shape[0])
    pair = b.buffer(blk + "pair", 2 * n)
    for i, (x, norm) in enumerate(((e, "enorm"), (h, "hnorm"))):
        w = b.vector(f"{blk}nextn.{norm}.weight", n)
        b.emit("rmsnorm", x=x, w=w, y=pair.slice(i * n, n), width=n, eps=config.eps)
    return b.linear(pair, blk + "nextn.eh_proj.weight", n)


def emit_kv(b: Builder, ring: State) -> None:
    """Keys and values of the block for the rows of the step, whose hidden states the ring already holds."""
    layer = b.layer = len(b.config.layers)
    r = emit_input(b, ring)
    norm = b.vector(f"blk.{layer}.attn_norm.weight", b.config.n_embd)
    attention.emit_kv(b, layer, b.rmsnorm(r, norm, f"blk.{layer}.attn_norm"))
    b.layer = -1


def draft_head(b: Builder, vocabulary: int, q4: bool) -> tuple[Matrix, int, int]:
    """The matrix that drafts are read from, and pick's (split, shift).

    `vocabulary` > 0 keeps that many first tokens and the last 512 (where special tokens stand); `q4`: as a Q4_0
    copy. Neither changes the output, which the full head decides.
    """
    n, v = b.config.n_embd, b.config.n_vocab
    own = f"blk.{len(b.config.layers)}.nextn.shared_head_head.weight"
    name = own if b.has(own) else "output.weight" if b.has("output.weight") else "token_embd.weight"
    tail = 512
    cut = -(-vocabulary // 32) * 32  # whatever group of rows a device keeps together, it is of one part
    parts = ((0, cut), (v - tail, tail)) if 0 < cut < v - tail else ()
    matrix = b.matrix(name, v, n, parts)
    q4_0, held = format_by_name("Q4_0"), format_by_name(matrix.format)
    if q4 and n % q4_0.block == 0 and held.size / held.block > q4_0.size / q4_0.block:
        matrix = replace(matrix, format=q4_0.name, activation=activation_of(q4_0))
    return matrix, (cut if parts else v), (v - tail - cut if parts else 0)


def build_chain(
    tensors: TensorSet, config: ModelConfig, ring_size: int, steps: int, p_min: float, vocabulary: int, q4_head: bool
) -> Program:
    """Up to `steps` drafts: step i runs on row i of the step inputs. Outputs `id.i` and `prob.i`.

    A step is left out when the one before found no token likelier than `p_min`, or the step inputs have no such row.
    """
    ring = hidden_ring(config, ring_size)
    commands: list[Command] = []
    outputs: dict[str, View] = {}
    for i in range(steps):
        b = Builder(tensors, config, prefix=f"draft.{i}.")
        b.domain, b.row, b.skippable, b.layer = ROW, i, i > 0, len(config.layers)
        blk = f"blk.{b.layer}."
        x = emit_input(b, ring, outputs[f"id.{i - 1}"] if i else None)
        for norm, emit in (("attn_norm", attention.emit), (config.arch.ffn_norm, ffn.emit)):
            w = b.vector(f"{blk}{norm}.weight", config.n_embd)
            x = b.add(x, emit(b, b.layer, b.rmsnorm(x, w, blk + norm)), f"{blk}x_{norm}")
        own = blk + "nextn.shared_head_norm.weight"
        h = b.rmsnorm(x, b.vector(own if b.has(own) else "output_norm.weight", config.n_embd), blk + "head_norm")
        b.emit("ring_put", x=h, ring=ring, size=ring_size)
        matrix, split, shift = draft_head(b, vocabulary, q4_head)
        logits = b.product(h, matrix, blk + "draft_logits")
        picked, prob = b.buffer(blk + "id", 1, "i32"), b.buffer(blk + "prob", 1)
        b.emit("pick", x=logits, id=picked, prob=prob, split=split, shift=shift, p_min=p_min)
        outputs[f"id.{i}"], outputs[f"prob.{i}"] = picked, prob
        commands += b.commands
    return finish(commands, outputs)


def adopt(tensors: TensorSet, config: ModelConfig, other: GgufFile) -> tuple[TensorSet, ModelConfig]:
    """Take the MTP block that another file of the same model holds; the tensors and the configuration with it.

    ModelError when that file holds none, or was made for another model.
    """
    theirs = ModelConfig.from_gguf(other)
    if theirs.mtp is None:
        raise ModelError(f"{other.path}: the file holds no MTP block (nextn_predict_layers is 0)")
    for what, a, b in (
        ("architecture", config.arch.name, theirs.arch.name),
        ("width", config.n_embd, theirs.n_embd),
        ("vocabulary", config.n_vocab, theirs.n_vocab),
        ("layers", len(config.layers), len(theirs.layers)),
        ("head size", config.head_dim, theirs.head_dim),
    ):
        if a != b:
            raise ModelError(f"{other.path}: made for another model: {what} {b}, {tensors.path} has {a}")
    return tensors.with_block(f"blk.{len(config.layers)}.", other), replace(config, mtp=theirs.mtp)
