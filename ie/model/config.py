"""Metadata to a frozen model description; which block kinds each architecture is made of.

Owns: `ModelConfig` and the table of architectures. All metadata is untrusted: every number is range-checked
here, so that later stages may divide by it. Does not own: tensors (see `blocks`) nor the tokenizer.
Formulas: docs/models.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import GgufError, ModelError
from ..gguf import GgufFile

MAX_LAYERS = 512
MAX_DIM = 1 << 20
MAX_HEAD_DIM = 512  # IE_MAX_HEAD_DIM in kernels_c/cpu/cpu.h
MAX_DELTA_DIM = 256  # MAX_DIM in kernels_c/cpu/deltanet.c
MAX_EXPERTS = 1024  # MAX_EXPERTS in kernels_c/cpu/route.c
MAX_TAPS = 8  # IE_MAX_CONV in core_laws/ie_core.h
CONV_RING = 32  # IE_CONV_RING there
TABLE_PIECE = 4096  # positions of a rotary table that are computed at a time


@dataclass(frozen=True)
class Architecture:
    """What distinguishes one architecture from another, as switches of the shared blocks."""

    name: str
    neox: bool  # rotary pairs (i, i + n_rot/2) instead of (2i, 2i+1)
    rope_factors: bool = False  # may hold rope_freqs / rope_factors_* tensors
    qk_norm: bool = False  # RMS norm of each query and key head before the rotation
    post_norms: bool = False  # norms on the outputs of the mixer and of the feed-forward layer
    full_width_heads: bool = False  # heads times head size must be the model's width
    sliding: bool = False  # most layers see a window of keys only, with a rotary base of their own
    scaled_embedding: bool = False  # embedding times sqrt(width)
    hybrid: bool = (
        False  # most layers are gated delta nets; attention has an output gate, and there may be an MTP block
    )
    moe: bool = False  # feed-forward layers are mixtures of experts with a shared expert
    ffn_norm: str = "ffn_norm"  # name of the norm before the feed-forward layer
    act: str = "silu"


ARCHITECTURES: Mapping[str, Architecture] = {
    a.name: a
    for a in (
        Architecture("llama", neox=False, rope_factors=True),
        Architecture("qwen2", neox=True, full_width_heads=True),
        Architecture("qwen3", neox=True, qk_norm=True),
        Architecture(
            "gemma3",
            neox=True,
            qk_norm=True,
            post_norms=True,
            sliding=True,
            scaled_embedding=True,
            act="gelu",
        ),
        Architecture("qwen35moe", neox=True, qk_norm=True, hybrid=True, moe=True, ffn_norm="post_attention_norm"),
        Architecture("qwen35", neox=True, qk_norm=True, hybrid=True, ffn_norm="post_attention_norm"),
    )
}


@dataclass(frozen=True)
class RopeConfig:
    """One rotary table. `scaling`: none, linear or yarn; `factors`: a tensor that divides the angles, or None."""

    n_rot: int
    base: float
    neox: bool
    scaling: str = "none"
    factor: float = 1.0
    original_context: int = 0
    magnitude: float = 1.0
    factors: str | None = None
    still: tuple[int, ...] = ()  # pairs that text does not turn (the fourth axis of multimodal positions)


@dataclass(frozen=True)
class LayerConfig:
    """One layer: attention heads, KV heads, feed-forward width, sliding window (0: none), index of its rotary table.

    `delta`: the mixer is a gated delta net instead of attention."""

    n_head: int
    n_kv: int
    n_ff: int
    window: int = 0
    rope: int = 0
    delta: bool = False


@dataclass(frozen=True)
class DeltaConfig:
    """Shape of the gated delta nets: key heads, value heads, head size of both, taps of the convolution."""

    key_heads: int
    value_heads: int
    dim: int
    taps: int

    @property
    def channels(self) -> int:
        return (2 * self.key_heads + self.value_heads) * self.dim


@dataclass(frozen=True)
class MoeConfig:
    """Mixture of experts: how many, how many a row uses, width of an expert and of the shared one."""

    n_expert: int
    n_used: int
    n_ff: int
    n_ff_shared: int


@dataclass(frozen=True)
class ModelConfig:
    """Everything about a model but its weights and its vocabulary's text."""

    arch: Architecture
    name: str
    n_vocab: int
    n_embd: int
    n_ctx_train: int
    head_dim: int
    eps: float
    attn_scale: float
    layers: tuple[LayerConfig, ...]  # of the trunk
    ropes: tuple[RopeConfig, ...]
    delta: DeltaConfig | None = None
    moe: MoeConfig | None = None
    mtp: LayerConfig | None = None  # the block after the trunk that predicts the token after next
    embed_scale: float = 1.0
    softcap: float = 0.0  # logits become c tanh(logits / c); 0: off

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of F16 keys and values that one position takes."""
        layers = (*self.layers, self.mtp) if self.mtp else self.layers
        return sum(2 * 2 * layer.n_kv * self.head_dim for layer in layers if not layer.delta)

    def state_bytes(self, slots: int) -> int:
        """Bytes of recurrent state of one sequence with `slots` snapshots, the convolutions' inputs included."""
        if self.delta is None:
            return 0
        d = self.delta
        one = 4 * (slots * d.value_heads * d.dim * d.dim + CONV_RING * d.channels)
        return sum(one for layer in self.layers if layer.delta)

    @staticmethod
    def from_gguf(gguf: GgufFile) -> ModelConfig:
        """Read the metadata of `gguf`. ModelError or GgufError names the key at fault."""
        name = gguf.get_str("general.architecture")
        arch = ARCHITECTURES.get(name)
        if arch is None:
            known = ", ".join(ARCHITECTURES)
            raise ModelError(f"{gguf.path}: architecture {name!r} is not supported; supported: {known}")
        return _Reader(gguf, arch).read()


class _Reader:
    """Reads the keys of one architecture."""

    def __init__(self, gguf: GgufFile, arch: Architecture) -> None:
        self.gguf, self.arch, self.prefix = gguf, arch, arch.name

    def key(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def integer(self, name: str, default: int | None = None, lo: int = 1, hi: int = MAX_DIM) -> int:
        if default is None:
            return self.gguf.get_int(self.key(name), lo=lo, hi=hi)
        return self.gguf.get_int(self.key(name), default, lo=lo, hi=hi)

    def number(self, name: str, default: float | None, lo: float, hi: float) -> float:
        """A finite number in [lo, hi], a limit as float32 holds it being inside: files hold little else."""
        lo, hi = min(lo, float(np.float32(lo))), max(hi, float(np.float32(hi)))
        if default is None:
            return self.gguf.get_float(self.key(name), lo=lo, hi=hi)
        return self.gguf.get_float(self.key(name), default, lo=lo, hi=hi)

    def per_layer(self, name: str, n_layer: int, default: Sequence[int] | None, hi: int) -> tuple[int, ...]:
        """A scalar for all layers or an array of n_layer integers."""
        key = self.key(name)
        value = self.gguf.get(key)
        if value is None:
            if default is None:
                raise GgufError(f"{self.gguf.path}: metadata key {key} is missing")
            return tuple(default)
        if isinstance(value, int) and not isinstance(value, bool):
            return (self.gguf.get_int(key, lo=1, hi=hi),) * n_layer
        values = np.asarray(self.gguf.get_array(key).numpy())
        if values.shape != (n_layer,) or values.dtype.kind not in "iu":
            raise ModelError(
                f"{self.gguf.path}: {key} has {len(values)} values, expected {n_layer} integers, one a layer"
            )
        if any(not 1 <= int(v) <= hi for v in values):
            raise ModelError(f"{self.gguf.path}: {key} holds a value outside 1…{hi}")
        return tuple(int(v) for v in values)

    def fail(self, text: str) -> ModelError:
        return ModelError(f"{self.gguf.path}: {text}")

    def read(self) -> ModelConfig:
        gguf = self.gguf
        if not self.arch.moe and gguf.get_int(self.key("expert_count"), 0, lo=0, hi=MAX_DIM) > 0:
            raise self.fail(f"{self.key('expert_count')}: mixture-of-experts models are not supported yet")
        n_layer = self.integer("block_count", hi=MAX_LAYERS)
        n_mtp = self.integer("nextn_predict_layers", 0, lo=0, hi=MAX_LAYERS) if self.arch.hybrid else 0
        if n_mtp > 1 or n_mtp >= n_layer:
            raise self.fail(f"{self.key('nextn_predict_layers')} is {n_mtp} of {n_layer} blocks; supported: 0 or 1")
        n_embd = self.integer("embedding_length")
        heads = self.per_layer("attention.head_count", n_layer, None, 4096)
        kv = self.per_layer("attention.head_count_kv", n_layer, heads, 4096)
        ff = self.per_layer("feed_forward_length", n_layer, (1,) * n_layer if self.arch.moe else None, MAX_DIM)
        head_dim = self.integer("attention.key_length", n_embd // heads[0] or None, hi=MAX_HEAD_DIM)
        if self.integer("attention.value_length", head_dim, hi=MAX_HEAD_DIM) != head_dim:
            raise self.fail(f"{self.key('attention.value_length')} differs from key_length {head_dim}")
        for i, (h, k) in enumerate(zip(heads, kv, strict=True)):
            if h % k:
                raise self.fail(f"layer {i}: {h} query heads are not a multiple of {k} KV heads")
        if self.arch.full_width_heads and any(h * head_dim != n_embd for h in heads):
            raise self.fail(f"{heads[0]} heads of {head_dim} values do not make up the width {n_embd}")
        windows = self.windows(n_layer)
        recurrent = self.recurrent(n_layer, n_mtp)
        ropes = [self.rope(head_dim)]
        if any(windows):  # windowed layers turn by a base of their own, without scaling
            local = self.number("rope.freq_base_swa", 10000.0, 1.0, 1e12)
            ropes.append(RopeConfig(ropes[0].n_rot, local, self.arch.neox))
        layers = tuple(
            LayerConfig(h, k, f, w, 1 if w else 0, r)
            for h, k, f, w, r in zip(heads, kv, ff, windows, recurrent, strict=True)
        )
        return ModelConfig(
            arch=self.arch,
            name=gguf.get_str("general.name", ""),
            n_vocab=self.vocabulary(n_embd),
            n_embd=n_embd,
            n_ctx_train=self.integer("context_length", hi=1 << 30),
            head_dim=head_dim,
            eps=self.number("attention.layer_norm_rms_epsilon", None, 1e-12, 1.0),
            attn_scale=self.attention_scale(n_layer, n_embd, heads[0], head_dim),
            layers=layers[: n_layer - n_mtp],
            ropes=tuple(ropes),
            delta=self.delta_shape() if any(recurrent) else None,
            moe=self.experts(n_layer, ff[0]) if self.arch.moe else None,
            mtp=layers[-1] if n_mtp else None,
            embed_scale=float(np.float32(np.sqrt(n_embd))) if self.arch.scaled_embedding else 1.0,
            softcap=self.number("final_logit_softcapping", 0.0, 0.0, 1e6) if self.arch.sliding else 0.0,
        )

    def attention_scale(self, n_layer: int, n_embd: int, n_head: int, head_dim: int) -> float:
        """1 / sqrt(head size); the 62-layer model of the gemma3 family divides by sqrt(width / heads) instead."""
        wide = self.arch.sliding and n_layer == 62
        return float(1.0 / np.sqrt(n_embd / n_head if wide else head_dim))

    def windows(self, n_layer: int) -> tuple[int, ...]:
        """Sliding window of each layer, 0 for layers that see everything."""
        window = self.integer("attention.sliding_window", 0, lo=0, hi=1 << 30) if self.arch.sliding else 0
        if window == 0:
            return (0,) * n_layer
        key = self.key("attention.sliding_window_pattern")
        value = self.gguf.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            period = self.gguf.get_int(key, 6, lo=1, hi=MAX_LAYERS)
            return tuple(window if i % period < period - 1 else 0 for i in range(n_layer))
        local = np.asarray(self.gguf.get_array(key).numpy())
        if local.shape != (n_layer,):
            raise self.fail(f"{key} has {len(local)} values, expected {n_layer}, one a layer")
        return tuple(window if flag else 0 for flag in local.tolist())

    def recurrent(self, n_layer: int, n_mtp: int) -> tuple[bool, ...]:
        """Which layers are gated delta nets: all but every interval-th of the trunk, or what the file says."""
        if not self.arch.hybrid:
            return (False,) * n_layer
        key = self.key("attention.recurrent_layers")
        if self.gguf.get(key) is not None:
            flags = np.asarray(self.gguf.get_array(key).numpy())
            if flags.shape != (n_layer,) or flags.dtype.kind not in "biu":
                raise self.fail(f"{key} has {len(flags)} values, expected {n_layer} flags, one a layer")
            if n_mtp and flags[-1]:
                raise self.fail(f"{key}: the MTP block cannot be recurrent")
            return tuple(bool(f) for f in flags.tolist())
        interval = self.integer("full_attention_interval", 4, hi=MAX_LAYERS)
        return tuple((i + 1) % interval != 0 and i < n_layer - n_mtp for i in range(n_layer))

    def experts(self, n_layer: int, n_ff: int) -> MoeConfig:
        count = self.integer("expert_count", hi=MAX_EXPERTS)
        used = self.per_layer("expert_used_count", n_layer, None, count)
        if len(set(used)) > 1:
            raise self.fail(f"{self.key('expert_used_count')} differs from layer to layer, which is not supported")
        width = self.integer("expert_feed_forward_length", max(1, n_ff // used[0]))
        return MoeConfig(count, used[0], width, self.integer("expert_shared_feed_forward_length", n_ff))

    def delta_shape(self) -> DeltaConfig:
        shape = DeltaConfig(
            key_heads=self.integer("ssm.group_count", hi=4096),
            value_heads=self.integer("ssm.time_step_rank", hi=4096),
            dim=self.integer("ssm.state_size", hi=MAX_DELTA_DIM),
            taps=self.integer("ssm.conv_kernel", hi=MAX_TAPS),
        )
        if shape.value_heads % shape.key_heads:
            raise self.fail(f"{shape.value_heads} value heads are not a multiple of {shape.key_heads} key heads")
        if shape.dim % 16:
            raise self.fail(f"{self.key('ssm.state_size')} {shape.dim} is not a multiple of 16")
        inner = self.integer("ssm.inner_size", shape.value_heads * shape.dim)
        if inner != shape.value_heads * shape.dim:
            raise self.fail(f"{self.key('ssm.inner_size')} is {inner}, expected {shape.value_heads * shape.dim}")
        return shape

    def vocabulary(self, n_embd: int) -> int:
        """Rows of the embedding, which must cover the tokens of the vocabulary."""
        info = self.gguf.tensors.get("token_embd.weight")
        if info is None:
            raise self.fail("tensor token_embd.weight is missing: the file holds no complete model")
        if len(info.shape) != 2 or info.shape[0] != n_embd:
            raise self.fail(f"tensor token_embd.weight has shape {list(info.shape)}, expected [{n_embd}, vocabulary]")
        tokens = self.gguf.get("tokenizer.ggml.tokens")
        n = len(tokens) if hasattr(tokens, "__len__") else info.shape[1]
        if n > info.shape[1]:
            raise self.fail(f"the vocabulary has {n} tokens, but token_embd.weight only {info.shape[1]} rows")
        return info.shape[1]

    def rope(self, head_dim: int) -> RopeConfig:
        n_rot = self.integer("rope.dimension_count", head_dim, lo=0, hi=head_dim)
        if n_rot % 2:
            raise self.fail(f"{self.key('rope.dimension_count')} is odd: {n_rot}")
        base = self.number("rope.freq_base", 10000.0, 1.0, 1e12)
        scaling = self.gguf.get_str(self.key("rope.scaling.type"), "linear")
        if scaling not in ("none", "linear", "yarn", "longrope"):
            raise self.fail(
                f"{self.key('rope.scaling.type')} {scaling!r} is unknown; known: none, linear, yarn, longrope"
            )
        old = self.number("rope.scale_linear", 1.0, 0.0, 1e6)
        factor = self.number("rope.scaling.factor", old, 0.0, 1e6) or 1.0
        if factor < float(np.float32(1e-6)):
            raise self.fail(f"{self.key('rope.scaling.factor')} is {factor:g}, expected 0 or 1e-06 to 1e+06")
        if scaling == "yarn" and base <= 1.0:
            raise self.fail(f"{self.key('rope.freq_base')} is {base:g}, expected more than 1 with yarn scaling")
        original = self.integer(
            "rope.scaling.original_context_length", self.integer("context_length", hi=1 << 30), hi=1 << 30
        )
        magnitude = self.number("rope.scaling.attn_factor", 1.0, 1e-6, 1e6)
        if scaling == "none":
            factor = 1.0
        if scaling == "yarn" and factor > 1.0:
            magnitude *= 1.0 + 0.1 * float(np.log(factor))
        factors = None
        if self.arch.rope_factors:
            names = ("rope_freqs.weight", "rope_factors_long.weight")
            factors = next((n for n in names if n in self.gguf.tensors), None)
        still = self.still_pairs(n_rot) if self.arch.hybrid else ()
        return RopeConfig(n_rot, base, self.arch.neox, scaling, factor, original, magnitude, factors, still)

    def still_pairs(self, n_rot: int) -> tuple[int, ...]:
        """Pairs whose axis is none of the three that text advances (interleaved multimodal sections)."""
        key = self.key("rope.dimension_sections")
        if self.gguf.get(key) is None:
            raise self.fail(f"metadata key {key} is missing")
        values = np.asarray(self.gguf.get_array(key).numpy())
        if len(values) not in (3, 4) or values.dtype.kind not in "iu" or (values < 0).any() or not values[:3].any():
            raise self.fail(f"{key} is {values.tolist()}, expected 3 or 4 sizes, not all zero")
        a, b, c = (int(v) for v in values[:3])
        total = int(values.sum())
        moves = [
            (s % 3 == 1 and s < 3 * b) or (s % 3 == 2 and s < 3 * c) or (s % 3 == 0 and s < 3 * a)
            for s in (i % total for i in range(n_rot // 2))
        ]
        return tuple(i for i, move in enumerate(moves) if not move)


def rope_table(rope: RopeConfig, n_ctx: int, factors: np.ndarray | None) -> np.ndarray:
    """cos and sin of every position: float32 [n_ctx, n_rot / 2, 2], magnitude included, computed in float64.

    Angle of pair i at position p: p * base^(-2i / n_rot) / factor_i, times 1 / s for linear scaling; YaRN blends the
    scaled and the unscaled angle by a ramp over the pairs (Peng et al., "YaRN", 2023; beta_fast 32, beta_slow 1).
    """
    if rope.n_rot == 0:
        return np.zeros((n_ctx, 0, 2), np.float32)
    pairs = np.arange(rope.n_rot // 2, dtype=np.float64)
    freq = rope.base ** (-2.0 * pairs / rope.n_rot)
    if factors is not None:
        if not (np.abs(factors) > 1e-6).all():
            raise ModelError(f"tensor {rope.factors}: expected factors of at least 1e-06, found {factors.min():g}")
        freq = freq / factors.astype(np.float64)
    scaled = freq / rope.factor
    if rope.scaling == "yarn":

        def corner(beta: float) -> float:
            return float(rope.n_rot * np.log(rope.original_context / (2 * np.pi * beta)) / (2 * np.log(rope.base)))

        low = max(0.0, np.floor(corner(32.0)))
        high = min(rope.n_rot - 1.0, np.ceil(corner(1.0)))
        keep = 1.0 - np.clip((pairs - low) / max(0.001, high - low), 0.0, 1.0)
        freq = scaled * (1.0 - keep) + freq * keep
    else:
        freq = scaled
    freq[list(rope.still)] = 0.0
    table = np.empty((n_ctx, len(freq), 2), np.float32)
    for start in range(0, n_ctx, TABLE_PIECE):  # a long context's angles in float64 take several times the table
        piece = table[start : start + TABLE_PIECE]
        angle = np.arange(start, start + len(piece), dtype=np.float64)[:, None] * freq[None, :]
        piece[..., 0] = np.cos(angle) * rope.magnitude
        piece[..., 1] = np.sin(angle) * rope.magnitude
    return table
