"""The float64 forward pass of qwen35 and qwen35moe, trunk and MTP block, and what drafting with them must give.

Owns: Gated DeltaNet as the plain recurrence, gated attention with interleaved rotary sections, routed experts, the MTP
block, greedy draft chains and the accepted counts that follow. Like tests/reference_models.py, whose `Model` it
extends, it knows nothing of `ie`; sequences are computed whole, without caches, so there is nothing to rewind.

Notation: token x_p at position p; h_p the trunk's hidden state after `output_norm`. The MTP block pairs x_p with
h_{p-1}, the zero vector at p = 0, and gives the distribution of x_{p+1} and its own state h'_p.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.reference_models import F64, Model, softmax


@dataclass(frozen=True)
class Draft:
    """A drafted token, its probability over the whole vocabulary, and the row of logits it was taken from."""

    token: int
    probability: float
    logits: F64


@dataclass(frozen=True)
class Step:
    """One draft-verify step: what was proposed, how much of it was accepted, what was put out (accepted + 1)."""

    drafts: tuple[int, ...]
    accepted: int
    output: tuple[int, ...]


def sigmoid(x: F64) -> F64:
    out: F64 = np.where(x >= 0, 1.0, np.exp(-np.abs(x))) / (1.0 + np.exp(-np.abs(x)))
    return out


def silu(x: F64) -> F64:
    return x * sigmoid(x)


def softplus(x: F64) -> F64:
    out: F64 = np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))
    return out


def shifted(hidden: F64) -> F64:
    """Rows h_0 ... h_{T-1} -> what tokens x_0 ... x_T are paired with: a row of zeros, then h_0 ... h_{T-1}."""
    return np.concatenate([np.zeros((1, hidden.shape[1])), hidden])


class Qwen35(Model):
    """One qwen35 or qwen35moe file: whole, trunk only or MTP only."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self.n_mtp = int(self.key("nextn_predict_layers", 0))
        self.n_layer -= self.n_mtp
        self.d_state = int(self.key("ssm.state_size"))
        self.n_k_heads = int(self.key("ssm.group_count"))
        self.n_v_heads = int(self.key("ssm.time_step_rank"))
        self.taps = int(self.key("ssm.conv_kernel"))

    def is_recurrent(self, layer: int) -> bool:
        listed = self.key("attention.recurrent_layers", False)
        if listed is not False:
            return bool(listed[layer])
        return (layer + 1) % int(self.key("full_attention_interval", 4)) != 0

    # ---- Gated DeltaNet ----

    def convolved(self, m: F64, taps: F64) -> F64:
        """Causal depth-wise convolution and SiLU of m [T, C] with taps [C, K], the last of which is the present."""
        past = np.concatenate([np.zeros((self.taps - 1, m.shape[1])), m])
        out = np.zeros_like(m)
        for i in range(self.taps):
            out += past[i : i + len(m)] * taps[:, i]
        return silu(out)

    def key_heads(self) -> np.ndarray[Any, Any]:
        """The key head that each value head uses."""
        return np.arange(self.n_v_heads) % self.n_k_heads

    def l2(self, x: F64) -> F64:
        out: F64 = x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + self.eps)
        return out

    def delta_net(self, u: F64, layer: int) -> F64:
        p, t, d, hk, hv = f"blk.{layer}.", len(u), self.d_state, self.n_k_heads, self.n_v_heads
        mixed = self.convolved(self.linear(u, p + "attn_qkv"), self.w[p + "ssm_conv1d.weight"])
        q, k, v = np.split(mixed, [hk * d, 2 * hk * d], axis=1)
        pair = self.key_heads()
        q = self.l2(q.reshape(t, hk, d))[:, pair]
        k = self.l2(k.reshape(t, hk, d))[:, pair]
        v = v.reshape(t, hv, d)
        beta = sigmoid(self.linear(u, p + "ssm_beta"))
        decay = np.exp(self.w[p + "ssm_a"] * softplus(self.linear(u, p + "ssm_alpha") + self.w[p + "ssm_dt.bias"]))
        state = np.zeros((hv, d, d))  # [head, key, value]
        out = np.empty((t, hv, d))
        for i in range(t):
            state = state * decay[i][:, None, None]
            predicted = np.einsum("hkv,hk->hv", state, k[i])
            delta = beta[i][:, None] * (v[i] - predicted)
            state = state + k[i][:, :, None] * delta[:, None, :]
            out[i] = np.einsum("hkv,hk->hv", state, q[i]) / np.sqrt(d)
        z = self.linear(u, p + "attn_gate").reshape(t, hv, d)
        return self.linear((self.norm(out, p + "ssm_norm") * silu(z)).reshape(t, hv * d), p + "ssm_out")

    # ---- gated attention ----

    def angles(self, layer: int, n_tokens: int) -> tuple[F64, float]:
        """Text tokens have the same position on the axes t, h, w, and 0 on the fourth, whose pairs do not turn."""
        theta, m = super().angles(layer, n_tokens)
        a, b, c, extra = (int(n) for n in self.key("rope.dimension_sections"))
        sector = np.arange(self.n_rot // 2) % (a + b + c + extra)
        limit = np.choose(sector % 3, [3 * a, 3 * b, 3 * c])
        return np.where(sector < limit, theta, 0.0), m

    def gated_attention(self, u: F64, layer: int) -> F64:
        p, t, d, heads, kv = f"blk.{layer}.", len(u), self.d_head, self.n_head, self.n_kv
        if p + "attn_q.weight" in self.w:
            both, k, v = (self.linear(u, p + name) for name in ("attn_q", "attn_k", "attn_v"))
        else:
            both, k, v = np.split(self.linear(u, p + "attn_qkv"), [2 * heads * d, (2 * heads + kv) * d], axis=1)
        q, gate = np.split(both.reshape(t, heads, 2 * d), 2, axis=2)
        theta, m = self.angles(layer, t)
        q = self.rotate(self.norm(q, p + "attn_q_norm"), theta, m)
        k = self.rotate(self.norm(k.reshape(t, kv, d), p + "attn_k_norm"), theta, m)
        v = v.reshape(t, kv, d)
        out = np.empty((t, heads, d))
        for h in range(heads):
            g = h * kv // heads
            score = np.where(np.tri(t, dtype=bool), q[:, h] @ k[:, g].T / np.sqrt(d), -np.inf)
            out[:, h] = softmax(score) @ v[:, g]
        return self.linear((out * sigmoid(gate)).reshape(t, heads * d), p + "attn_output")

    # ---- FFN ----

    def swiglu(self, x: F64, gate: F64, up: F64, down: F64) -> F64:
        """Weights [F, n], [F, n], [n, F]."""
        out: F64 = (silu(x @ gate.T) * (x @ up.T)) @ down.T
        return out

    def ffn(self, x: F64, layer: int) -> F64:
        p = f"blk.{layer}."
        if p + "ffn_gate_inp.weight" in self.w:
            return self.experts(x, p)
        return self.swiglu(x, *(self.w[f"{p}ffn_{part}.weight"] for part in ("gate", "up", "down")))

    def experts(self, x: F64, p: str) -> F64:
        if p + "ffn_gate_up_exps.weight" in self.w:
            gates, ups = np.split(self.w[p + "ffn_gate_up_exps.weight"], 2, axis=1)
        else:
            gates, ups = self.w[p + "ffn_gate_exps.weight"], self.w[p + "ffn_up_exps.weight"]
        downs = self.w[p + "ffn_down_exps.weight"]
        prob = softmax(self.linear(x, p + "ffn_gate_inp"))
        chosen = np.argsort(-prob, axis=1, kind="stable")[:, : int(self.key("expert_used_count"))]
        out = np.zeros_like(x)
        for row, ids in enumerate(chosen):
            weights = prob[row, ids] / max(float(prob[row, ids].sum()), 2.0**-14)
            for e, weight in zip(ids, weights, strict=True):
                out[row] += weight * self.swiglu(x[row], gates[e], ups[e], downs[e])
        shared = self.swiglu(x, *(self.w[f"{p}ffn_{part}_shexp.weight"] for part in ("gate", "up", "down")))
        return out + sigmoid(x @ self.w[p + "ffn_gate_inp_shexp.weight"].reshape(-1))[:, None] * shared

    # ---- trunk ----

    def layer(self, x: F64, layer: int) -> F64:
        p = f"blk.{layer}."
        mix = self.delta_net if layer < self.n_layer and self.is_recurrent(layer) else self.gated_attention
        y = x + mix(self.norm(x, p + "attn_norm"), layer)
        return y + self.ffn(self.norm(y, p + "post_attention_norm"), layer)

    def hidden(self, tokens: Sequence[int]) -> F64:
        """Hidden states h_0 ... h_{T-1} [T, n], after the final norm."""
        x = self.w["token_embd.weight"][np.asarray(tokens)]
        for layer in range(self.n_layer):
            x = self.layer(x, layer)
        return self.norm(x, "output_norm")

    def head(self) -> F64:
        return self.w.get("output.weight", self.w["token_embd.weight"])

    def logits(self, tokens: Sequence[int]) -> F64:
        out: F64 = self.hidden(tokens) @ self.head().T
        return out

    # ---- MTP ----

    def mtp(self, tokens: Sequence[int], hidden: F64) -> tuple[F64, F64]:
        """Logits [T, V] and states h' [T, n] of the MTP block; row p of `hidden` is what token p is paired with.

        All positions from 0 must be given: the block attends to those before.
        """
        if not self.n_mtp:
            raise ValueError("the file has no MTP block")
        p = f"blk.{self.n_layer}."
        table = self.w.get(p + "nextn.embed_tokens.weight", self.w["token_embd.weight"])
        e = self.norm(table[np.asarray(tokens)], p + "nextn.enorm")
        r = self.linear(np.concatenate([e, self.norm(hidden, p + "nextn.hnorm")], axis=1), p + "nextn.eh_proj")
        own = p + "nextn.shared_head_norm"
        state = self.norm(self.layer(r, self.n_layer), own if own + ".weight" in self.w else "output_norm")
        return state @ self.w.get(p + "nextn.shared_head_head.weight", self.head()).T, state


def _open(model: Qwen35 | str | os.PathLike[str]) -> Qwen35:
    return model if isinstance(model, Qwen35) else Qwen35(model)


def hidden_states(path: str | os.PathLike[str], tokens: Sequence[int]) -> F64:
    """Hidden states [T, n] of the trunk after its final norm."""
    return Qwen35(path).hidden(tokens)


def mtp(path: str | os.PathLike[str], tokens: Sequence[int], hidden: F64) -> tuple[F64, F64]:
    """`Qwen35.mtp` of a file that has the block, be it whole or MTP only."""
    return Qwen35(path).mtp(tokens, hidden)


def draft_chain(
    trunk: Qwen35 | str | os.PathLike[str],
    tokens: Sequence[int],
    n_draft: int,
    *,
    p_min: float = 0.0,
    drafter: Qwen35 | str | os.PathLike[str] | None = None,
) -> list[Draft]:
    """Greedy drafts for the positions after `tokens`, whose last one the trunk has not run yet.

    Positions of `tokens` are paired with the trunk's states, drafted ones with the block's own. The chain ends before
    a token of a probability below p_min. drafter: the file with the MTP block, if it is not the trunk's.
    """
    target = _open(trunk)
    block = _open(drafter) if drafter is not None else target
    ids = list(tokens)
    paired = shifted(target.hidden(ids[:-1])) if len(ids) > 1 else np.zeros((1, target.n_embd))
    out: list[Draft] = []
    while len(out) < n_draft:
        logits, state = block.mtp(ids, paired)
        token = int(logits[-1].argmax())
        probability = float(softmax(logits[-1])[token])
        if probability < p_min:
            break
        out.append(Draft(token, probability, logits[-1]))
        ids.append(token)
        paired = np.concatenate([paired, state[-1:]])
    return out


def greedy_steps(
    trunk: Qwen35 | str | os.PathLike[str],
    prompt: Sequence[int],
    n_new: int,
    n_draft: int,
    **chain: Any,
) -> list[Step]:
    """Greedy generation of n_new tokens after the prompt, in draft-verify steps; the last is cut to what is wanted.

    The first token comes from the prompt alone, as a step without drafts. `chain` goes to `draft_chain`.
    """
    model = _open(trunk)
    tokens = [*prompt, int(model.logits(prompt)[-1].argmax())]
    steps = [Step((), 0, (tokens[-1],))]
    while len(tokens) - len(prompt) < n_new:
        wanted = n_new - (len(tokens) - len(prompt))
        drafts = [d.token for d in draft_chain(model, tokens, min(n_draft, wanted - 1), **chain)]
        targets = model.logits([*tokens, *drafts])[len(tokens) - 1 :].argmax(axis=1).tolist()
        accepted = next((i for i, d in enumerate(drafts) if d != targets[i]), len(drafts))
        output = tuple(targets[: accepted + 1])
        steps.append(Step(tuple(drafts), accepted, output))
        tokens += output
    return steps
