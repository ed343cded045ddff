"""What a tiny model looks like: its dimensions and options, and one table row per architecture.

Owns: the parameters of `make_tiny`, their checks, and the table `ARCHS` that says which tensors and metadata keys
an architecture has. A new architecture is a new row (and, if it has a new kind of block, one more function that
lists that block's tensors; those of qwen35 are in qwen35.py). It does not own the spreads of values (tensor.py), the
values (weights.py), vocabularies (vocab.py) or files (build.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tiny_models import qwen35
from tiny_models.tensor import LOGIT_STD, TensorSpec, bias, matrix, norm

#: Which of a model's tensors a file holds: everything, no MTP block, or the MTP block and what it shares.
PARTS = ("all", "trunk", "mtp")


@dataclass(frozen=True)
class Shape:
    """Dimensions and options of one tiny model. `None` means: as the architecture's table row says.

    Tensor shapes follow the GGUF order (fastest axis first). `biases` is True (all the architecture allows), False
    (none) or a tuple of the groups "qkv", "out", "ffn", "head". `rope_factor` f divides positions (linear, yarn) or
    low frequencies (llama3); `rope_orig_ctx` C is the original context length of yarn and llama3 (default n_ctx / 4).
    `swa_pattern` p makes every p-th layer global and the others local; 0 leaves the key out of the file.

    qwen35, qwen35moe: `n_layer` counts trunk layers, `n_mtp` (0 or 1) the MTP block behind them, which has those of
    its own "norm", "embed", "head" that `mtp_own` names. Every `full_attention_interval`-th layer has softmax
    attention (0: no key, so every fourth), unless `recurrent_layers` (1 = Gated DeltaNet) says which. Their Gated
    DeltaNet has `n_k_heads` key heads and `n_v_heads` value heads of `d_state`, and `conv_kernel` taps. `n_rot` of a
    head's coordinates turn (default a quarter), `rope_sections` are the four pair counts. qwen35moe: `n_expert`
    experts of width `n_ff_exp`, `n_expert_used` of them per token, and a shared one of `n_ff_shexp`. A positive
    `agreement` makes both trunk and MTP block follow the last token's embedding, so that drafts are accepted now and
    then; 0 leaves them unrelated.
    """

    arch: str = "llama"
    n_layer: int = 2
    n_embd: int = 64
    n_head: int = 4
    n_kv: int = 2
    head_dim: int | None = None
    n_ff: int = 96
    n_vocab: int = 288
    n_ctx: int = 256
    tied: bool = False
    rope: str | None = None
    rope_base: float | None = None
    rope_factor: float = 4.0
    rope_orig_ctx: int | None = None
    biases: bool | tuple[str, ...] | None = None
    fused_qkv: bool = False
    eps: float = 1e-5
    sliding_window: int | None = None
    swa_pattern: int | None = None
    softcap: float | None = None
    n_mtp: int = 0
    mtp_own: tuple[str, ...] = ("norm",)
    full_attention_interval: int = 2
    recurrent_layers: tuple[int, ...] | None = None
    d_state: int = 32
    n_k_heads: int = 2
    n_v_heads: int = 4
    conv_kernel: int = 4
    n_rot: int | None = None
    rope_sections: tuple[int, ...] | None = None
    n_expert: int = 4
    n_expert_used: int = 2
    n_ff_exp: int = 32
    n_ff_shexp: int = 64
    fused_gate_up: bool = False
    agreement: float = 0.0

    @property
    def row(self) -> Arch:
        return ARCHS[self.arch]

    @property
    def d_head(self) -> int:
        return self.head_dim if self.head_dim is not None else self.n_embd // self.n_head

    @property
    def q_dim(self) -> int:
        return self.n_head * self.d_head

    @property
    def kv_dim(self) -> int:
        return self.n_kv * self.d_head

    @property
    def rot_dim(self) -> int:
        """Coordinates of a head that turn: all, but by default a quarter where the architecture turns a part."""
        if not self.row.partial_rope:
            return self.d_head
        return self.n_rot if self.n_rot is not None else max(2, self.d_head // 8 * 2)

    @property
    def orig_ctx(self) -> int:
        return self.rope_orig_ctx if self.rope_orig_ctx is not None else max(1, self.n_ctx // 4)

    @property
    def bias_groups(self) -> tuple[str, ...]:
        if self.biases is None:
            return self.row.default_biases
        if self.biases is True:
            return self.row.all_biases
        return self.biases or ()

    def check(self) -> None:
        """Raise ValueError, naming the parameter, when no valid model of this shape exists."""
        if self.arch not in ARCHS:
            raise ValueError(f"arch={self.arch!r}: expected one of {', '.join(ARCHS)}")
        row = self.row
        for name in ("n_layer", "n_embd", "n_head", "n_kv", "n_ff", "n_vocab", "n_ctx"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: expected at least 1")
        if self.n_head % self.n_kv:
            raise ValueError(f"n_head={self.n_head} is not a multiple of n_kv={self.n_kv}")
        if self.head_dim is None and self.n_embd % self.n_head:
            raise ValueError(f"n_embd={self.n_embd} is not a multiple of n_head={self.n_head}: give head_dim")
        if self.d_head % 2:
            raise ValueError(f"head_dim={self.d_head} is odd, but RoPE turns pairs")
        if self.n_rot is not None and not row.partial_rope:
            raise ValueError(f"n_rot={self.n_rot}: arch {self.arch} turns whole heads")
        if self.rot_dim % 2 or not 2 <= self.rot_dim <= self.d_head:
            raise ValueError(f"n_rot={self.rot_dim}: expected an even number from 2 to head_dim={self.d_head}")
        if self.n_mtp not in (0, 1) or (self.n_mtp and not row.mtp):
            raise ValueError(f"n_mtp={self.n_mtp}: expected 0{' or 1' if row.mtp else ', arch has no MTP block'}")
        if row.square_q and self.q_dim != self.n_embd:
            raise ValueError(f"arch {self.arch} needs n_head * head_dim = n_embd, got {self.q_dim} and {self.n_embd}")
        if self.rope not in (None, *row.rope_kinds):
            raise ValueError(f"rope={self.rope!r}: arch {self.arch} has {', '.join(row.rope_kinds)} or None")
        unknown = set(self.bias_groups) - set(row.all_biases)
        if unknown:
            raise ValueError(f"biases={sorted(unknown)}: arch {self.arch} has {', '.join(row.all_biases) or 'none'}")
        row.extra_check(self)


def attention(s: Shape, layer: int) -> Iterator[TensorSpec]:
    """Softmax attention: norm, projections (separate or fused), optional biases, q/k norms and post norm."""
    p, e, q, kv = f"blk.{layer}.", s.n_embd, s.q_dim, s.kv_dim
    yield norm(p + "attn_norm", e)
    parts = [("attn_qkv", q + 2 * kv)] if s.fused_qkv else [("attn_q", q), ("attn_k", kv), ("attn_v", kv)]
    for name, rows in parts:
        yield matrix(p + name, e, rows)
        if "qkv" in s.bias_groups:
            yield bias(p + name, rows)
    if s.row.qk_norm:
        yield norm(p + "attn_q_norm", s.d_head)
        yield norm(p + "attn_k_norm", s.d_head)
    yield matrix(p + "attn_output", q, e)
    if "out" in s.bias_groups:
        yield bias(p + "attn_output", e)
    if s.row.post_norms:
        yield norm(p + "post_attention_norm", e)


def dense_ffn(s: Shape, layer: int) -> Iterator[TensorSpec]:
    """Gated FFN: norm, gate, up, down, optional biases and post norm."""
    p, e, f = f"blk.{layer}.", s.n_embd, s.n_ff
    yield norm(p + "ffn_norm", e)
    for name, n_in, n_out in (("ffn_gate", e, f), ("ffn_up", e, f), ("ffn_down", f, e)):
        yield matrix(p + name, n_in, n_out)
        if "ffn" in s.bias_groups:
            yield bias(p + name, n_out)
    if s.row.post_norms:
        yield norm(p + "post_ffw_norm", e)


def _gemma3_keys(s: Shape) -> dict[str, object]:
    keys: dict[str, object] = {
        "attention.sliding_window": s.sliding_window if s.sliding_window is not None else 16,
        "rope.freq_base_swa": 10000.0,
    }
    pattern = 2 if s.swa_pattern is None else s.swa_pattern
    if pattern:
        keys["attention.sliding_window_pattern"] = pattern
    if s.softcap:
        keys["final_logit_softcapping"] = float(s.softcap)
    return keys


def _no_keys(s: Shape) -> dict[str, object]:
    return {}


def _no_check(s: Shape) -> None:
    pass


BlockTensors = Callable[[Shape, int], Iterator[TensorSpec]]


@dataclass(frozen=True)
class Arch:
    """What is particular to one architecture; everything not said here is common to all of them."""

    blocks: tuple[BlockTensors, ...] = (attention, dense_ffn)
    rope_kinds: tuple[str, ...] = ("linear", "yarn")
    rope_base: float = 10000.0
    square_q: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    embed_scaled: bool = False
    default_biases: tuple[str, ...] = ()
    all_biases: tuple[str, ...] = ()
    partial_rope: bool = False
    mtp: bool = False
    pre: str = "smollm"
    extra_keys: Callable[[Shape], dict[str, object]] = _no_keys
    extra_check: Callable[[Shape], None] = _no_check


_QWEN35: dict[str, Any] = {
    "all_biases": ("qkv",),
    "rope_base": 1e7,
    "partial_rope": True,
    "mtp": True,
    "pre": "qwen35",
    "extra_check": qwen35.check,
}

ARCHS: dict[str, Arch] = {
    "llama": Arch(rope_kinds=("linear", "yarn", "llama3"), all_biases=("qkv", "out", "ffn")),
    "qwen2": Arch(square_q=True, default_biases=("qkv",), all_biases=("qkv", "head"), rope_base=1e6),
    "qwen3": Arch(qk_norm=True, all_biases=("qkv",), rope_base=1e6),
    "gemma3": Arch(
        qk_norm=True,
        post_norms=True,
        embed_scaled=True,
        rope_kinds=("linear",),
        rope_base=1e6,
        extra_keys=_gemma3_keys,
    ),
    "qwen35": Arch(blocks=(qwen35.mixer, qwen35.dense_ffn), extra_keys=qwen35.keys, **_QWEN35),
    "qwen35moe": Arch(blocks=(qwen35.mixer, qwen35.moe_ffn), extra_keys=qwen35.moe_keys, **_QWEN35),
}


def llama3_factors(s: Shape) -> tuple[float, ...]:
    """Frequency divisors of the "llama3" scaling, one per pair: 1 for short wavelengths, f for long ones, between
    them an interpolation in the wavelength's reciprocal (low and high factors 1 and 4)."""
    base = s.rope_base if s.rope_base is not None else s.row.rope_base
    low, high, f, c = 1.0, 4.0, s.rope_factor, float(s.orig_ctx)
    out = []
    for i in range(s.d_head // 2):
        wavelength = 2 * math.pi * base ** (2 * i / s.d_head)
        u = min(1.0, max(0.0, (c / wavelength - low) / (high - low)))
        out.append(1.0 / ((1.0 - u) / f + u))
    return tuple(out)


def tensors(s: Shape, part: str = "all") -> Iterator[TensorSpec]:
    """The tensors of a whole model, of its trunk or of its MTP block with what that shares, in file order.

    With a tied head the embedding is small and the final norm large, so that logits have the usual spread without
    every token predicting itself.
    """
    e = s.n_embd
    stream = 2.0 / math.sqrt(e) if s.tied else 1.0 + s.agreement
    embed_std = stream / math.sqrt(e) if s.row.embed_scaled else stream
    head_mean = LOGIT_STD / (embed_std * math.sqrt(e)) if s.tied else 1.0
    yield TensorSpec("token_embd.weight", (e, s.n_vocab), embed_std)
    if part != "mtp":
        if s.rope == "llama3":
            yield TensorSpec("rope_freqs.weight", (s.d_head // 2,), 0.0, values=llama3_factors(s))
        for layer in range(s.n_layer):
            for block in s.row.blocks:
                yield from block(s, layer)
    if part != "trunk" and s.n_mtp:
        yield from qwen35.mtp_block(s, s.n_layer, embed_std, head_mean)
    yield norm("output_norm", e, head_mean)
    if not s.tied:
        yield matrix("output", e, s.n_vocab, LOGIT_STD)
    if "head" in s.bias_groups:
        yield bias("output", s.n_vocab)


def metadata(s: Shape) -> dict[str, object]:
    """Architecture keys without their prefix. Python int, float, bool, str stand for u32, f32, bool, string."""
    keys: dict[str, object] = {
        "context_length": s.n_ctx,
        "embedding_length": s.n_embd,
        "block_count": s.n_layer + s.n_mtp,
        "feed_forward_length": s.n_ff,
        "attention.head_count": s.n_head,
        "attention.head_count_kv": s.n_kv,
        "attention.layer_norm_rms_epsilon": s.eps,
        "rope.freq_base": float(s.rope_base if s.rope_base is not None else s.row.rope_base),
        "rope.dimension_count": s.rot_dim,
        "vocab_size": s.n_vocab,
    }
    if s.d_head * s.n_head != s.n_embd or s.head_dim is not None:
        keys |= {"attention.key_length": s.d_head, "attention.value_length": s.d_head}
    if s.rope in ("linear", "yarn"):
        keys |= {"rope.scaling.type": s.rope, "rope.scaling.factor": float(s.rope_factor)}
    if s.rope == "yarn":
        keys["rope.scaling.original_context_length"] = s.orig_ctx
    return keys | s.row.extra_keys(s)
