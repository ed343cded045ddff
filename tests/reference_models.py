"""An independent forward pass in float64, the tests' second opinion on the mathematics of the models.

Owns: llama, qwen2, qwen3 and gemma3 from token ids to logits, whole sequence at once, written for clarity from the
architectures' formulas; qwen35 and qwen35moe extend it in tests/reference_qwen35.py. It reads files with the `gguf`
package's reader and dequantiser and knows nothing of `ie`, so an error would have to be made twice to stay unseen. It
does not quantise activations and has no KV cache.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

F64 = np.ndarray[Any, np.dtype[np.float64]]
NEOX = {"qwen2", "qwen3", "gemma3", "qwen35", "qwen35moe"}


def logits(path: str | os.PathLike[str], tokens: Sequence[int]) -> F64:
    """Logits [len(tokens), V] of the sequence `tokens`, positions 0 ... len - 1."""
    return open_model(path).logits(tokens)


def open_model(path: str | os.PathLike[str]) -> Model:
    """The file's model, of the class that knows its architecture."""
    from tests.reference_qwen35 import Qwen35

    arch = gguf.GGUFReader(_parts(Path(path))[0]).fields["general.architecture"].contents()
    return Qwen35(path) if str(arch).startswith("qwen35") else Model(path)


def _q1_0(data: np.ndarray[Any, Any]) -> F64:
    """128 elements in 18 bytes: +d where the bit is set, else -d (the package has no decoder for it)."""
    blocks = np.ascontiguousarray(data).reshape(-1, 18)
    d = blocks[:, :2].copy().view("<f2").astype(np.float64)
    bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little")
    return d * (2.0 * bits - 1.0)


def _parts(path: Path) -> list[Path]:
    match = re.fullmatch(r"(.*)-00001-of-(\d{5})\.gguf", path.name)
    if not match:
        return [path]
    return [path.with_name(f"{match[1]}-{i + 1:05d}-of-{match[2]}.gguf") for i in range(int(match[2]))]


def softmax(x: F64) -> F64:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    out: F64 = e / e.sum(axis=-1, keepdims=True)
    return out


class Model:
    """One file: metadata, tensors in float64 (matrices as [out, in]) and the forward pass."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        readers = [gguf.GGUFReader(part) for part in _parts(Path(path))]
        self.meta = {key: field.contents() for key, field in readers[0].fields.items()}
        self.w: dict[str, F64] = {t.name: self._decode(t) for reader in readers for t in reader.tensors}
        self.arch = str(self.meta["general.architecture"])
        self.n_embd = int(self.key("embedding_length"))
        self.n_layer = int(self.key("block_count"))
        self.n_head = int(self.key("attention.head_count"))
        self.n_kv = int(self.key("attention.head_count_kv", self.n_head))
        self.d_head = int(self.key("attention.key_length", self.n_embd // self.n_head))
        self.n_rot = int(self.key("rope.dimension_count", self.d_head))
        self.eps = float(self.key("attention.layer_norm_rms_epsilon"))

    @staticmethod
    def _decode(t: Any) -> F64:
        shape = tuple(int(n) for n in reversed(t.shape))
        if t.tensor_type == gguf.GGMLQuantizationType.Q1_0:
            return _q1_0(t.data).reshape(shape)
        return gguf.dequantize(t.data, t.tensor_type).astype(np.float64).reshape(shape)

    def key(self, name: str, default: Any = None) -> Any:
        value = self.meta.get(f"{self.arch}.{name}", default)
        if value is None:
            raise KeyError(f"{self.arch}.{name}")
        return value

    # ---- pieces ----

    def norm(self, x: F64, name: str) -> F64:
        out: F64 = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.eps) * self.w[name + ".weight"]
        return out

    def linear(self, x: F64, name: str) -> F64:
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def is_local(self, layer: int) -> bool:
        """gemma3: whether the layer attends to a window only; all but every p-th layer do."""
        if self.arch != "gemma3" or self.meta.get("gemma3.attention.sliding_window") is None:
            return False
        pattern = self.key("attention.sliding_window_pattern", 6)
        if isinstance(pattern, list):
            return bool(pattern[layer])
        return layer % int(pattern) < int(pattern) - 1

    def angles(self, layer: int, n_tokens: int) -> tuple[F64, float]:
        """Rotation angles [T, n_rot / 2] and the magnitude factor m."""
        i = np.arange(self.n_rot // 2)
        position = np.arange(n_tokens, dtype=np.float64)[:, None]
        if self.is_local(layer):
            return position * float(self.key("rope.freq_base_swa", 10000.0)) ** (-2.0 * i / self.n_rot), 1.0
        base = float(self.key("rope.freq_base", 10000.0))
        theta = position * base ** (-2.0 * i / self.n_rot)
        if "rope_freqs.weight" in self.w:
            theta = theta / self.w["rope_freqs.weight"]
        kind = self.key("rope.scaling.type", "linear")
        factor = float(self.key("rope.scaling.factor", self.key("rope.scale_linear", 1.0)))
        if kind == "none":
            return theta, 1.0
        if kind == "linear":
            return theta / factor, 1.0
        if kind != "yarn":
            raise ValueError(f"rope scaling {kind!r} is not covered here")
        original = float(self.key("rope.scaling.original_context_length", self.key("context_length")))

        def turns(beta: float) -> float:
            return self.n_rot * math.log(original / (2 * math.pi * beta)) / (2 * math.log(base))

        low = max(0.0, math.floor(turns(32.0)))
        high = min(self.n_rot - 1.0, math.ceil(turns(1.0)))
        keep = 1.0 - np.clip((i - low) / max(0.001, high - low), 0.0, 1.0)
        magnitude = 1.0 + 0.1 * math.log(factor) if factor > 1 else 1.0
        magnitude *= float(self.key("rope.scaling.attn_factor", 1.0))
        return theta / factor * (1 - keep) + theta * keep, magnitude

    def rotate(self, x: F64, theta: F64, m: float) -> F64:
        """x [T, heads, D] with its first n_rot coordinates turned: neighbours pairwise, or first with second half."""
        out, half = x.copy(), self.n_rot // 2
        if self.arch in NEOX:
            first, second = slice(0, half), slice(half, self.n_rot)
        else:
            first, second = slice(0, self.n_rot, 2), slice(1, self.n_rot, 2)
        c, s = m * np.cos(theta)[:, None, :], m * np.sin(theta)[:, None, :]
        a, b = x[..., first], x[..., second]
        out[..., first], out[..., second] = a * c - b * s, a * s + b * c
        return out

    # ---- layers ----

    def attention(self, x: F64, layer: int) -> F64:
        p, t, d = f"blk.{layer}.", len(x), self.d_head
        if p + "attn_qkv.weight" in self.w:
            joined = self.linear(x, p + "attn_qkv")
            q, k, v = np.split(joined, [self.n_head * d, (self.n_head + self.n_kv) * d], axis=1)
        else:
            q, k, v = (self.linear(x, p + name) for name in ("attn_q", "attn_k", "attn_v"))
        q, k, v = q.reshape(t, self.n_head, d), k.reshape(t, self.n_kv, d), v.reshape(t, self.n_kv, d)
        if p + "attn_q_norm.weight" in self.w:
            q, k = self.norm(q, p + "attn_q_norm"), self.norm(k, p + "attn_k_norm")
        theta, m = self.angles(layer, t)
        q, k = self.rotate(q, theta, m), self.rotate(k, theta, m)
        distance = np.arange(t)[:, None] - np.arange(t)[None, :]
        visible = distance >= 0
        if self.is_local(layer):
            visible &= distance < int(self.key("attention.sliding_window"))
        scale = d**-0.5
        if self.arch == "gemma3" and self.n_layer == 62:
            scale = (self.n_embd / self.n_head) ** -0.5
        out = np.empty_like(q)
        for h in range(self.n_head):
            kv = h // (self.n_head // self.n_kv)
            score = np.where(visible, scale * (q[:, h] @ k[:, kv].T), -np.inf)
            out[:, h] = softmax(score) @ v[:, kv]
        return self.linear(out.reshape(t, -1), p + "attn_output")

    def ffn(self, x: F64, layer: int) -> F64:
        p = f"blk.{layer}."
        gate = self.linear(x, p + "ffn_gate")
        if self.arch == "gemma3":
            act = 0.5 * gate * (1 + np.tanh(0.7978845608028654 * gate * (1 + 0.044715 * gate * gate)))
        else:
            act = gate / (1 + np.exp(-gate))
        return self.linear(act * self.linear(x, p + "ffn_up"), p + "ffn_down")

    def logits(self, tokens: Sequence[int]) -> F64:
        x = self.w["token_embd.weight"][np.asarray(tokens)]
        if self.arch == "gemma3":
            x = x * math.sqrt(self.n_embd)
        for layer in range(self.n_layer):
            p = f"blk.{layer}."
            a = self.attention(self.norm(x, p + "attn_norm"), layer)
            x = x + (self.norm(a, p + "post_attention_norm") if self.arch == "gemma3" else a)
            f = self.ffn(self.norm(x, p + "ffn_norm"), layer)
            x = x + (self.norm(f, p + "post_ffw_norm") if self.arch == "gemma3" else f)
        x = self.norm(x, "output_norm")
        if "output.weight" in self.w:
            out = self.linear(x, "output")
        else:
            out = x @ self.w["token_embd.weight"].T
            out = out + self.w["output.bias"] if "output.bias" in self.w else out
        cap = float(self.key("final_logit_softcapping", 0.0))
        return cap * np.tanh(out / cap) if cap else out
