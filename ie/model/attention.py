"""attention: the commands of one softmax-attention mixer, from the residual stream to its output projection."""

from __future__ import annotations

from ..ops.glu import SIGMOID
from ..program import Cache, Partials, RopeTable, View
from .builder import Builder


def emit(b: Builder, layer: int, u: View) -> View:
    """Mixer of layer `layer` on the normed input u [rows, n_embd]; returns W_o attention(u), before the residual."""
    cfg, spec = b.config, b.spec(layer)
    dim, blk = cfg.head_dim, f"blk.{layer}."
    q_rows, kv_rows = spec.n_head * dim, spec.n_kv * dim
    gate = None
    if b.has(blk + "attn_qkv.weight") and cfg.arch.hybrid:
        q, gate, k, v = gated_qkv(b, blk, u, spec.n_head, kv_rows)
    elif b.has(blk + "attn_qkv.weight"):
        qkv = b.linear(u, blk + "attn_qkv.weight", q_rows + 2 * kv_rows, blk + "attn_qkv.bias")
        q, k, v = qkv.slice(0, q_rows), qkv.slice(q_rows, kv_rows), qkv.slice(q_rows + kv_rows, kv_rows)
    else:
        if cfg.arch.hybrid:
            q, gate = gated_query(b, blk, u, spec.n_head)
        else:
            q = b.linear(u, blk + "attn_q.weight", q_rows, blk + "attn_q.bias")
        k, v = key_value(b, blk, u, kv_rows)
    if cfg.arch.qk_norm:
        q = b.rmsnorm(q, b.vector(blk + "attn_q_norm.weight", dim), blk + "q_norm")
    keys, values = store(b, layer, q, k, v)
    y = b.buffer(blk + "attn", q_rows)
    b.emit(
        "attention", q=q, k_cache=keys, v_cache=values, y=y, parts=Partials(spec.n_head, dim),
        head_dim=dim, heads=spec.n_head, kv_heads=spec.n_kv, window=spec.window, scale=cfg.attn_scale,
    )  # fmt: skip
    if gate is not None:
        gated = b.buffer(blk + "attn_gated", q_rows)
        b.emit("glu", gate=gate, up=y, y=gated, act=SIGMOID)
        y = gated
    return b.linear(y, blk + "attn_output.weight", cfg.n_embd, blk + "attn_output.bias")


def emit_kv(b: Builder, layer: int, u: View) -> None:
    """Only keys and values of the layer, for rows whose output nobody needs."""
    blk, rows, heads = f"blk.{layer}.", b.spec(layer).n_kv * b.config.head_dim, b.spec(layer).n_head
    if b.has(blk + "attn_qkv.weight"):
        first, name = 2 * heads * b.config.head_dim, blk + "attn_qkv.weight"
        total, bias = first + 2 * rows, blk + "attn_qkv.bias"
        k, v = (b.linear(u, name, total, bias, ((first + i * rows, rows),)) for i in range(2))
    else:
        k, v = key_value(b, blk, u, rows)
    store(b, layer, None, k, v)


def key_value(b: Builder, blk: str, u: View, rows: int) -> tuple[View, View]:
    k = b.linear(u, blk + "attn_k.weight", rows, blk + "attn_k.bias")
    return k, b.linear(u, blk + "attn_v.weight", rows, blk + "attn_v.bias")


def store(b: Builder, layer: int, q: View | None, k: View, v: View) -> tuple[Cache, Cache]:
    """Norm of the keys where the model has one, rotation of queries and keys, keys and values into the cache."""
    cfg, spec, blk = b.config, b.spec(layer), f"blk.{layer}."
    dim, rope = cfg.head_dim, cfg.ropes[spec.rope]
    if cfg.arch.qk_norm:
        k = b.rmsnorm(k, b.vector(blk + "attn_k_norm.weight", dim), blk + "k_norm")
    keys, values = (Cache(layer, which, spec.n_kv, dim) for which in ("k", "v"))
    b.emit(
        "rope", q=q, k=k, v=v, rope=RopeTable(spec.rope) if rope.n_rot else None, k_cache=keys, v_cache=values,
        head_dim=dim, n_rot=rope.n_rot, neox=int(rope.neox),
    )  # fmt: skip
    return keys, values


def gated_query(b: Builder, blk: str, u: View, heads: int) -> tuple[View, View]:
    """Queries and output gates of attn_q, whose rows alternate head by head: first a head's query, then its gate."""
    dim, total = b.config.head_dim, 2 * heads * b.config.head_dim
    name = blk + "attn_q.weight"
    queries, gates = head_rows(heads, dim)
    bias = blk + "attn_q.bias"
    return b.linear(u, name, total, bias, queries), b.linear(u, name, total, bias, gates)


def gated_qkv(b: Builder, blk: str, u: View, heads: int, kv_rows: int) -> tuple[View, View, View, View]:
    """The same of a fused attn_qkv: rows of queries and gates, then of keys, then of values."""
    dim, name = b.config.head_dim, blk + "attn_qkv.weight"
    first = 2 * heads * dim
    parts = (*head_rows(heads, dim), ((first, kv_rows),), ((first + kv_rows, kv_rows),))
    q, gate, k, v = (b.linear(u, name, first + 2 * kv_rows, blk + "attn_qkv.bias", p) for p in parts)
    return q, gate, k, v


def head_rows(heads: int, dim: int) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """(first row, rows) of each head's query and of its gate."""
    return tuple((2 * dim * h, dim) for h in range(heads)), tuple((2 * dim * h + dim, dim) for h in range(heads))
