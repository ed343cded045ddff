"""The qwen35 network in torch: Gated DeltaNet and full-attention layers, tied head, MTP block.

Owns: configuration, parameters (named and shaped as in the GGUF file), the training forward pass, and the MTP chain
as it is run when drafting. It does not own losses or schedules (`train.py`) or file layout (`export.py`).

Notation: B sequences of T tokens, n width, D linear-attention head size, d attention head size.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHUNK = 64


@dataclass(frozen=True)
class Config:
    """Sizes. The defaults are the trained model's; head sizes, ratios and rotary part are those of the real models."""

    n_vocab: int = 8192
    n: int = 256
    layers: int = 8
    ffn: int = 768
    heads: int = 4
    kv_heads: int = 2
    head: int = 256
    rot: int = 64
    rope_base: float = 1e5
    interval: int = 4
    linear_head: int = 128
    key_heads: int = 2
    value_heads: int = 4
    kernel: int = 4
    eps: float = 1e-6

    @property
    def channels(self) -> int:
        """Convolution channels: all q, k and v heads of a linear layer."""
        return (2 * self.key_heads + self.value_heads) * self.linear_head

    def is_full(self, layer: int) -> bool:
        return (layer + 1) % self.interval == 0

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """w · x / sqrt(mean(x²) + ε) over the last dimension, in float32, returned in x's type."""
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


def unit(x: Tensor, eps: float) -> Tensor:
    """x / sqrt(Σx² + ε): the epsilon is added to the sum."""
    y = x.float()
    return (y * torch.rsqrt(y.square().sum(-1, keepdim=True) + eps)).to(x.dtype)


class _UnitLowerInverse(torch.autograd.Function):
    """(I + A)⁻¹ for strictly lower A by forward substitution. Gradient: −Pᵀ G Pᵀ below the diagonal."""

    @staticmethod
    def forward(ctx, a: Tensor) -> Tensor:  # type: ignore[no-untyped-def, override]
        one = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
        p = torch.linalg.solve_triangular(a + one, one.expand_as(a), upper=False, unitriangular=True).contiguous()
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[no-untyped-def, override]
        (p,) = ctx.saved_tensors
        with torch.autocast(grad.device.type, enabled=False):
            return -(p.mT @ grad.float() @ p.mT).tril(-1)


def delta_rule_recurrent(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """The definition, token by token; for checks. q, k, v: [B, H, T, D], g = log decay and beta: [B, H, T]."""
    state = torch.zeros(*q.shape[:2], q.shape[-1], v.shape[-1], dtype=q.dtype, device=q.device)
    out = []
    for t in range(q.shape[2]):
        state = state * g[:, :, t, None, None].exp()
        delta = beta[:, :, t, None] * (v[:, :, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, :, t]))
        state = state + k[:, :, t, :, None] * delta[:, :, None, :]
        out.append(torch.einsum("bhkv,bhk->bhv", state, q[:, :, t]) / math.sqrt(q.shape[-1]))
    return torch.stack(out, 2)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """The same in chunks of 64 tokens: inside a chunk by matrix products, between chunks through the state.

    Ratios of decays are exponentials of differences of the running sum of g. T must be a multiple of the chunk.
    """
    batch, heads, tokens, size = q.shape
    kind = q.dtype
    shape = (batch, heads, tokens // CHUNK, CHUNK)
    q, k, v = (x.reshape(*shape, -1) for x in (q, k, v))
    total = g.float().reshape(shape).cumsum(-1)
    beta = beta.float().reshape(shape)
    keep = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).tril()
    ratio = (total[..., :, None] - total[..., None, :]).masked_fill(~keep, -math.inf).exp()
    a = (k @ k.mT).float() * ratio * beta[..., None]
    p = _UnitLowerInverse.apply(a.tril(-1)).to(kind)
    u = p @ (v * beta[..., None]).to(kind)
    w = p @ (k * (beta * total.exp())[..., None]).to(kind)
    m = ((q @ k.mT).float() * ratio).to(kind)
    q = (q * total.exp()[..., None]).to(kind)
    last = total[..., -1:]
    k = (k * (last - total).exp()[..., None]).to(kind)
    decay = last.exp()[..., None]
    state = torch.zeros(batch, heads, size, v.shape[-1], dtype=torch.float32, device=q.device)
    states = []
    for c in range(shape[2]):
        now = state.to(kind)
        states.append(now)
        state = state * decay[:, :, c] + (k[:, :, c].mT @ (u[:, :, c] - w[:, :, c] @ now)).float()
    before = torch.stack(states, 2)
    out = q @ before + m @ (u - w @ before)
    return out.reshape(batch, heads, tokens, -1) / math.sqrt(size)


class Linear(nn.Module):
    """Gated DeltaNet mixer; value head h pairs with key head h mod Hk."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        values = c.value_heads * c.linear_head
        self.attn_qkv = nn.Linear(c.n, c.channels, bias=False)
        self.attn_gate = nn.Linear(c.n, values, bias=False)
        self.ssm_alpha = nn.Linear(c.n, c.value_heads, bias=False)
        self.ssm_beta = nn.Linear(c.n, c.value_heads, bias=False)
        self.ssm_conv1d = nn.Parameter(torch.randn(c.channels, c.kernel) / math.sqrt(c.kernel))
        self.a_log = nn.Parameter(torch.empty(c.value_heads).uniform_(1, 16).log())
        step = torch.empty(c.value_heads).uniform_(math.log(1e-3), math.log(0.1)).exp()
        self.ssm_dt = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.ssm_norm = nn.Parameter(torch.ones(c.linear_head))
        self.ssm_out = nn.Linear(values, c.n, bias=False)

    def forward(self, u: Tensor) -> Tensor:
        c = self.c
        batch, tokens, _ = u.shape
        mixed = self.attn_qkv(u)
        padded = F.pad(mixed, (0, 0, c.kernel - 1, 0))
        taps = self.ssm_conv1d.to(mixed.dtype)
        s = F.silu(sum(padded[:, i : i + tokens] * taps[:, i] for i in range(c.kernel)))
        keys = c.key_heads * c.linear_head
        q, k, v = s.split([keys, keys, c.value_heads * c.linear_head], -1)
        q, k, v = (x.reshape(batch, tokens, -1, c.linear_head).transpose(1, 2) for x in (q, k, v))
        repeat = (1, c.value_heads // c.key_heads, 1, 1)
        q, k = unit(q, c.eps).repeat(repeat), unit(k, c.eps).repeat(repeat)
        beta = torch.sigmoid(self.ssm_beta(u).float()).transpose(1, 2)
        g = (-self.a_log.exp() * F.softplus(self.ssm_alpha(u).float() + self.ssm_dt)).transpose(1, 2)
        o = delta_rule(q, k, v, g, beta).transpose(1, 2)
        z = self.attn_gate(u).reshape(batch, tokens, c.value_heads, c.linear_head)
        y = rms_norm(o, self.ssm_norm, c.eps) * F.silu(z)
        return self.ssm_out(y.reshape(batch, tokens, -1).to(u.dtype))


def rotary(c: Config, tokens: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin of positions 0 … T−1: [T, rot/2] each."""
    power = torch.arange(0, c.rot, 2, device=device, dtype=torch.float32) / c.rot
    angle = torch.arange(tokens, device=device, dtype=torch.float32)[:, None] * c.rope_base**-power
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates pairs (i, i + rot/2) of the leading dimensions of x [B, H, T, d]; the rest passes."""
    half = cos.shape[-1]
    a, b, rest = x[..., :half].float(), x[..., half : 2 * half].float(), x[..., 2 * half :]
    return torch.cat([(a * cos - b * sin).to(x.dtype), (b * cos + a * sin).to(x.dtype), rest], -1)


class Attention(nn.Module):
    """Full attention with normed, partly rotated q and k and an output gate; query head h uses KV head ⌊hG/H⌋."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        self.attn_q = nn.Linear(c.n, 2 * c.heads * c.head, bias=False)
        self.attn_k = nn.Linear(c.n, c.kv_heads * c.head, bias=False)
        self.attn_v = nn.Linear(c.n, c.kv_heads * c.head, bias=False)
        self.attn_q_norm = nn.Parameter(torch.ones(c.head))
        self.attn_k_norm = nn.Parameter(torch.ones(c.head))
        self.attn_output = nn.Linear(c.heads * c.head, c.n, bias=False)

    def project(self, u: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q, k, v as [B, heads, T, d] (k and v repeated to the query heads) and the gate [B, T, H, d]."""
        c = self.c
        batch, tokens, _ = u.shape
        q, gate = self.attn_q(u).reshape(batch, tokens, c.heads, 2, c.head).unbind(3)
        k = self.attn_k(u).reshape(batch, tokens, c.kv_heads, c.head)
        v = self.attn_v(u).reshape(batch, tokens, c.kv_heads, c.head).transpose(1, 2)
        q = rotate(rms_norm(q, self.attn_q_norm, c.eps).transpose(1, 2), cos, sin)
        k = rotate(rms_norm(k, self.attn_k_norm, c.eps).transpose(1, 2), cos, sin)
        group = c.heads // c.kv_heads
        return q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), gate

    def finish(self, o: Tensor, gate: Tensor) -> Tensor:
        o = o.transpose(1, 2) * torch.sigmoid(gate)
        return self.attn_output(o.reshape(*o.shape[:2], -1))

    def forward(self, u: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v, gate = self.project(u, cos, sin)
        return self.finish(F.scaled_dot_product_attention(q, k, v, is_causal=True), gate)

    def chained(
        self, u: Tensor, cos: Tensor, sin: Tensor, cache: list[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Attention of chain step s = len(cache) + 1 at every position at once, as drafting would see it.

        Position p attends to the true entries (cache[0]) up to p − s + 1, then to the entry that each earlier step
        made at p − s + 2 … p − 1, and to its own. Returns the layer output and this step's (k, v).
        """
        q, k, v, gate = self.project(u, cos, sin)
        steps = len(cache)
        tokens = q.shape[2]
        true_k, true_v = cache[0]
        seen = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).tril(-steps)
        scores = [(q @ true_k.mT).float().masked_fill(~seen, -math.inf)]
        values = []
        for j, (kj, vj) in enumerate([*cache[1:], (k, v)], start=1):
            back = steps - j
            kj, vj = (F.pad(x, (0, 0, back, 0))[:, :, :tokens] for x in (kj, vj))
            scores.append((q * kj).float().sum(-1, keepdim=True))
            values.append(vj)
        weight = torch.softmax(torch.cat(scores, -1) / math.sqrt(self.c.head), -1).to(v.dtype)
        o = weight[..., :tokens] @ true_v
        for j, vj in enumerate(values):
            o = o + weight[..., tokens + j : tokens + j + 1] * vj
        return self.finish(o, gate), (k, v)


class Block(nn.Module):
    """Mixer and SwiGLU network, each with its norm and residual."""

    def __init__(self, c: Config, full: bool) -> None:
        super().__init__()
        self.eps = c.eps
        self.full = full
        self.attn_norm = nn.Parameter(torch.ones(c.n))
        self.mixer = Attention(c) if full else Linear(c)
        self.post_attention_norm = nn.Parameter(torch.ones(c.n))
        self.ffn_gate = nn.Linear(c.n, c.ffn, bias=False)
        self.ffn_up = nn.Linear(c.n, c.ffn, bias=False)
        self.ffn_down = nn.Linear(c.ffn, c.n, bias=False)

    def network(self, y: Tensor) -> Tensor:
        v = rms_norm(y, self.post_attention_norm, self.eps)
        return y + self.ffn_down(F.silu(self.ffn_gate(v)) * self.ffn_up(v))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        u = rms_norm(x, self.attn_norm, self.eps)
        return self.network(x + (self.mixer(u, cos, sin) if self.full else self.mixer(u)))


class MtpBlock(Block):
    """One full-attention block on [norm(embedding of the token); norm(hidden state before it)]."""

    def __init__(self, c: Config) -> None:
        super().__init__(c, full=True)
        self.eh_proj = nn.Linear(2 * c.n, c.n, bias=False)
        self.enorm = nn.Parameter(torch.ones(c.n))
        self.hnorm = nn.Parameter(torch.ones(c.n))
        self.shared_head_norm = nn.Parameter(torch.ones(c.n))

    def step(
        self, e: Tensor, hidden: Tensor, cos: Tensor, sin: Tensor, cache: list[tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Chain step len(cache) + 1 at all positions: embeddings and the hidden states *of the position before*,
        both [B, T, n]. Returns the new hidden states (normed, as the head takes them) and this step's (k, v)."""
        r = self.eh_proj(torch.cat([rms_norm(e, self.enorm, self.eps), rms_norm(hidden, self.hnorm, self.eps)], -1))
        u = rms_norm(r, self.attn_norm, self.eps)
        if cache:
            a, own = self.mixer.chained(u, cos, sin, cache)
        else:
            q, k, v, gate = self.mixer.project(u, cos, sin)
            a = self.mixer.finish(F.scaled_dot_product_attention(q, k, v, is_causal=True), gate)
            own = (k, v)
        return rms_norm(self.network(r + a), self.shared_head_norm, self.eps), own


class Model(nn.Module):
    """The whole model; `forward` gives the trunk's hidden states, `drafts` those of the MTP chain."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.c = c
        self.token_embd = nn.Embedding(c.n_vocab, c.n)
        self.blk = nn.ModuleList(Block(c, c.is_full(i)) for i in range(c.layers))
        self.output_norm = nn.Parameter(torch.ones(c.n))
        self.mtp = MtpBlock(c)
        self._initialise()

    def _initialise(self) -> None:
        for name, p in self.named_parameters():
            if p.ndim == 2 and "conv" not in name:
                std = 0.02 if "embd" in name else 1 / math.sqrt(p.shape[1])
                if name.endswith(("ffn_down.weight", "attn_output.weight", "ssm_out.weight")):
                    std /= math.sqrt(2 * self.c.layers)
                nn.init.normal_(p, std=std)

    def forward(self, ids: Tensor) -> Tensor:
        """Hidden states after `output_norm` [B, T, n]; T must be a multiple of the chunk size."""
        cos, sin = rotary(self.c, ids.shape[1], ids.device)
        x = self.embed(ids)
        for block in self.blk:
            x = block(x, cos, sin)
        return rms_norm(x, self.output_norm, self.c.eps)

    def embed(self, ids: Tensor) -> Tensor:
        x = self.token_embd(ids)
        return x.to(torch.get_autocast_dtype(ids.device.type)) if torch.is_autocast_enabled(ids.device.type) else x

    def head(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.token_embd.weight)

    def drafts(self, ids: Tensor, hidden: Tensor, depth: int) -> list[Tensor]:
        """Hidden states of chain steps 1 … depth. Step s at position p has consumed the true tokens up to p and trunk
        states up to p − s; its head predicts token p + 1. A draft chain whose guesses are right computes the same."""
        cos, sin = rotary(self.c, ids.shape[1], ids.device)
        e = self.embed(ids)
        cache: list[tuple[Tensor, Tensor]] = []
        out = []
        for _ in range(depth):
            hidden, own = self.mtp.step(e, F.pad(hidden, (0, 0, 1, 0))[:, :-1], cos, sin, cache)
            cache.append(own)
            out.append(hidden)
        return out


def parameter_count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
