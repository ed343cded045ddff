"""What a tiny model looks like: its dimensions and options, and one table row per architecture.

Owns: the parameters of `make_tiny`, their checks, and the table `ARCHS` that says which tensors and metadata keys
an architecture has. A new architecture is a new row (and, if it has a new kind of block, one more function that
lists that block's tensors). It does not own values (weights.py), vocabularies (vocab.py) or files (build.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

#: Standard deviation of logits that the output head aims at: the best token then leads by about 0.7, far more than
#: activation quantisation moves it.
LOGIT_STD = 2.5
#: Gain of every other matrix: std = GAIN / sqrt(fan-in) keeps attention scores at a standard deviation near 1.7.
GAIN = 1.3
BIAS_STD = 0.3
NORM_STD = 0.15


@dataclass(frozen=True)
class Shape:
    """Dimensions and options of one tiny model. `None` means: as the architecture's table row says.

    Tensor shapes follow the GGUF order (fastest axis first). `biases` is True (all the architecture allows), False
    (none) or a tuple of the groups "qkv", "out", "ffn", "head". `rope_factor` f divides positions (linear, yarn) or
    low frequencies (llama3); `rope_orig_ctx` C is the original context length of yarn and llama3 (default n_ctx / 4).
    `swa_pattern` p makes every p-th layer global and the others local; 0 leaves the key out of the file.
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
        if row.square_q and self.q_dim != self.n_embd:
            raise ValueError(f"arch {self.arch} needs n_head * head_dim = n_embd, got {self.q_dim} and {self.n_embd}")
        if self.rope not in (None, *row.rope_kinds):
            raise ValueError(f"rope={self.rope!r}: arch {self.arch} has {', '.join(row.rope_kinds)} or None")
        unknown = set(self.bias_groups) - set(row.all_biases)
        if unknown:
            raise ValueError(f"biases={sorted(unknown)}: arch {self.arch} has {', '.join(row.all_biases) or 'none'}")


@dataclass(frozen=True)
class TensorSpec:
    """One tensor to make: GGUF name and shape (fastest first), mean and standard deviation of its elements.

    `values`, when given, are the exact F32 elements (RoPE factors); the tensor is then not random.
    """

    name: str
    shape: tuple[int, ...]
    std: float
    mean: float = 0.0
    values: tuple[float, ...] | None = None


def _matrix(name: str, n_in: int, n_out: int, gain: float = GAIN) -> TensorSpec:
    return TensorSpec(f"{name}.weight", (n_in, n_out), gain / math.sqrt(n_in))


def _norm(name: str, n: int, mean: float = 1.0) -> TensorSpec:
    return TensorSpec(f"{name}.weight", (n,), NORM_STD * mean, mean)


def _bias(name: str, n: int) -> TensorSpec:
    return TensorSpec(f"{name}.bias", (n,), BIAS_STD)


def attention(s: Shape, layer: int) -> Iterator[TensorSpec]:
    """Softmax attention: norm, projections (separate or fused), optional biases, q/k norms and post norm."""
    p, e, q, kv = f"blk.{layer}.", s.n_embd, s.q_dim, s.kv_dim
    yield _norm(p + "attn_norm", e)
    parts = [("attn_qkv", q + 2 * kv)] if s.fused_qkv else [("attn_q", q), ("attn_k", kv), ("attn_v", kv)]
    for name, rows in parts:
        yield _matrix(p + name, e, rows)
        if "qkv" in s.bias_groups:
            yield _bias(p + name, rows)
    if s.row.qk_norm:
        yield _norm(p + "attn_q_norm", s.d_head)
        yield _norm(p + "attn_k_norm", s.d_head)
    yield _matrix(p + "attn_output", q, e)
    if "out" in s.bias_groups:
        yield _bias(p + "attn_output", e)
    if s.row.post_norms:
        yield _norm(p + "post_attention_norm", e)


def dense_ffn(s: Shape, layer: int) -> Iterator[TensorSpec]:
    """Gated FFN: norm, gate, up, down, optional biases and post norm."""
    p, e, f = f"blk.{layer}.", s.n_embd, s.n_ff
    yield _norm(p + "ffn_norm", e)
    for name, n_in, n_out in (("ffn_gate", e, f), ("ffn_up", e, f), ("ffn_down", f, e)):
        yield _matrix(p + name, n_in, n_out)
        if "ffn" in s.bias_groups:
            yield _bias(p + name, n_out)
    if s.row.post_norms:
        yield _norm(p + "post_ffw_norm", e)


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
    extra_keys: Callable[[Shape], dict[str, object]] = _no_keys


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


def tensors(s: Shape) -> Iterator[TensorSpec]:
    """All tensors of the model, in file order.

    With a tied head the embedding is small and the final norm large, so that logits have the usual spread without
    every token predicting itself.
    """
    e = s.n_embd
    stream = 2.0 / math.sqrt(e) if s.tied else 1.0
    embed_std = stream / math.sqrt(e) if s.row.embed_scaled else stream
    yield TensorSpec("token_embd.weight", (e, s.n_vocab), embed_std)
    if s.rope == "llama3":
        yield TensorSpec("rope_freqs.weight", (s.d_head // 2,), 0.0, values=llama3_factors(s))
    for layer in range(s.n_layer):
        for block in s.row.blocks:
            yield from block(s, layer)
    yield _norm("output_norm", e, LOGIT_STD / (embed_std * math.sqrt(e)) if s.tied else 1.0)
    if not s.tied:
        yield _matrix("output", e, s.n_vocab, LOGIT_STD)
    if "head" in s.bias_groups:
        yield _bias("output", s.n_vocab)


def metadata(s: Shape) -> dict[str, object]:
    """Architecture keys without their prefix. Python int, float, bool, str stand for u32, f32, bool, string."""
    keys: dict[str, object] = {
        "context_length": s.n_ctx,
        "embedding_length": s.n_embd,
        "block_count": s.n_layer,
        "feed_forward_length": s.n_ff,
        "attention.head_count": s.n_head,
        "attention.head_count_kv": s.n_kv,
        "attention.layer_norm_rms_epsilon": s.eps,
        "rope.freq_base": float(s.rope_base if s.rope_base is not None else s.row.rope_base),
        "rope.dimension_count": s.d_head,
        "vocab_size": s.n_vocab,
    }
    if s.d_head * s.n_head != s.n_embd or s.head_dim is not None:
        keys |= {"attention.key_length": s.d_head, "attention.value_length": s.d_head}
    if s.rope in ("linear", "yarn"):
        keys |= {"rope.scaling.type": s.rope, "rope.scaling.factor": float(s.rope_factor)}
    if s.rope == "yarn":
        keys["rope.scaling.original_context_length"] = s.orig_ctx
    return keys | s.row.extra_keys(s)
