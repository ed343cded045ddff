"""Tensors and metadata keys of the architectures `qwen35` and `qwen35moe`.

Owns: Gated DeltaNet layers, gated attention, the two kinds of FFN, the MTP block. Spreads are chosen so that the
recurrence is felt: a head forgets half of its state in about 5 to 500 tokens, beta lies well inside 0 ... 1, and the
linear mixer adds as much to the residual stream as attention does. Value heads stand in the order of files, where
value head h belongs to key head h mod Hk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tiny_models.tensor import GAIN, LOGIT_STD, TensorSpec, bias, matrix, norm

if TYPE_CHECKING:
    from tiny_models.shape import Shape

#: Decay exponent g = ssm_a * softplus(alpha + ssm_dt): mean and standard deviation of the two stored vectors.
A_MEAN, A_STD = -1.0, 0.25
DT_MEAN, DT_STD = -3.5, 1.2
#: Gains of the decay's and the beta's projections.
ALPHA_GAIN, BETA_GAIN = 0.8, 1.3
#: The router and the shared expert's gate: the last expert chosen has little weight, so that a near tie with the next
#: one, which quantised activations decide anew, costs little.
ROUTER_GAIN = 3.0


def is_recurrent(s: Shape, layer: int) -> bool:
    """Whether a trunk layer is a Gated DeltaNet layer."""
    if s.recurrent_layers is not None:
        return bool(s.recurrent_layers[layer])
    return (layer + 1) % (s.full_attention_interval or 4) != 0


def mixer(s: Shape, layer: int) -> Iterator[TensorSpec]:
    """Norm and mixer of a trunk layer, of the kind that the layer's index asks for."""
    yield norm(f"blk.{layer}.attn_norm", s.n_embd)
    yield from delta_net(s, layer) if is_recurrent(s, layer) else gated_attention(s, layer)


def delta_net(s: Shape, layer: int) -> Iterator[TensorSpec]:
    p, e, values = f"blk.{layer}.", s.n_embd, s.n_v_heads * s.d_state
    channels = 2 * s.n_k_heads * s.d_state + values
    yield matrix(p + "attn_qkv", e, channels)
    yield matrix(p + "attn_gate", e, values)
    yield TensorSpec(p + "ssm_conv1d.weight", (s.conv_kernel, channels), 1.0 / math.sqrt(s.conv_kernel), f32=True)
    yield matrix(p + "ssm_beta", e, s.n_v_heads, BETA_GAIN)
    yield matrix(p + "ssm_alpha", e, s.n_v_heads, ALPHA_GAIN)
    yield TensorSpec(p + "ssm_dt.bias", (s.n_v_heads,), DT_STD, DT_MEAN)
    yield TensorSpec(p + "ssm_a", (s.n_v_heads,), A_STD, A_MEAN)
    yield norm(p + "ssm_norm", s.d_state)
    yield matrix(p + "ssm_out", values, e, 2 * GAIN)


def gated_attention(s: Shape, layer: int) -> Iterator[TensorSpec]:
    """Softmax attention whose query projection also holds a gate: per head, query rows and then gate rows."""
    p, e, q, kv = f"blk.{layer}.", s.n_embd, s.q_dim, s.kv_dim
    parts = [("attn_qkv", 2 * q + 2 * kv)] if s.fused_qkv else [("attn_q", 2 * q), ("attn_k", kv), ("attn_v", kv)]
    for name, rows in parts:
        yield matrix(p + name, e, rows)
        if "qkv" in s.bias_groups:
            yield bias(p + name, rows)
    yield norm(p + "attn_q_norm", s.d_head)
    yield norm(p + "attn_k_norm", s.d_head)
    yield matrix(p + "attn_output", q, e, 2 * GAIN)


def dense_ffn(s: Shape, layer: int) -> Iterator[TensorSpec]:
    p, e, f = f"blk.{layer}.", s.n_embd, s.n_ff
    yield norm(p + "post_attention_norm", e)
    yield matrix(p + "ffn_gate", e, f)
    yield matrix(p + "ffn_up", e, f)
    yield matrix(p + "ffn_down", f, e)


def moe_ffn(s: Shape, layer: int) -> Iterator[TensorSpec]:
    """Routed experts, stacked or with gate and up fused, and a shared expert behind a gate of one number."""
    p, e, f, n = f"blk.{layer}.", s.n_embd, s.n_ff_exp, s.n_expert
    yield norm(p + "post_attention_norm", e)
    yield TensorSpec(p + "ffn_gate_inp.weight", (e, n), ROUTER_GAIN / math.sqrt(e), f32=True)
    wide = [("ffn_gate_up_exps", 2 * f)] if s.fused_gate_up else [("ffn_gate_exps", f), ("ffn_up_exps", f)]
    for name, rows in wide:
        yield TensorSpec(f"{p}{name}.weight", (e, rows, n), GAIN / math.sqrt(e))
    yield TensorSpec(p + "ffn_down_exps.weight", (f, e, n), GAIN / math.sqrt(f))
    yield TensorSpec(p + "ffn_gate_inp_shexp.weight", (e,), ROUTER_GAIN / math.sqrt(e))
    yield matrix(p + "ffn_gate_shexp", e, s.n_ff_shexp)
    yield matrix(p + "ffn_up_shexp", e, s.n_ff_shexp)
    yield matrix(p + "ffn_down_shexp", s.n_ff_shexp, e)


def mtp_block(s: Shape, layer: int, embed_std: float, head_mean: float) -> Iterator[TensorSpec]:
    """The MTP block behind the trunk: an attention layer that joins a token's embedding with a hidden state.

    head_mean: mean of the final norm's weights, which the block's own final norm shares.
    """
    p, e = f"blk.{layer}.", s.n_embd
    yield norm(p + "attn_norm", e)
    yield from gated_attention(s, layer)
    yield from s.row.blocks[1](s, layer)
    yield TensorSpec(p + "nextn.eh_proj.weight", (2 * e, e), GAIN / math.sqrt(2 * e), diag=s.agreement)
    yield norm(p + "nextn.enorm", e)
    yield norm(p + "nextn.hnorm", e)
    if "norm" in s.mtp_own:
        yield norm(p + "nextn.shared_head_norm", e, head_mean)
    if "embed" in s.mtp_own:
        yield TensorSpec(p + "nextn.embed_tokens.weight", (e, s.n_vocab), embed_std)
    if "head" in s.mtp_own:
        yield matrix(p + "nextn.shared_head_head", e, s.n_vocab, LOGIT_STD / head_mean)


def sections(s: Shape) -> tuple[int, ...]:
    """Pair counts of the rotary axes: as given, or shared out so that text and image axes take every third pair."""
    if s.rope_sections is not None:
        return s.rope_sections
    pairs = s.rot_dim // 2
    return ((pairs + 2) // 3, (pairs + 1) // 3, pairs // 3, 0)


def keys(s: Shape) -> dict[str, object]:
    out: dict[str, object] = {
        "ssm.conv_kernel": s.conv_kernel,
        "ssm.state_size": s.d_state,
        "ssm.group_count": s.n_k_heads,
        "ssm.time_step_rank": s.n_v_heads,
        "ssm.inner_size": s.n_v_heads * s.d_state,
        "rope.dimension_sections": list(sections(s)),
    }
    if s.full_attention_interval:
        out["full_attention_interval"] = s.full_attention_interval
    if s.recurrent_layers is not None:
        out["attention.recurrent_layers"] = [bool(x) for x in s.recurrent_layers] + [False] * s.n_mtp
    if s.n_mtp:
        out["nextn_predict_layers"] = s.n_mtp
    return out


def moe_keys(s: Shape) -> dict[str, object]:
    return keys(s) | {
        "expert_count": s.n_expert,
        "expert_used_count": s.n_expert_used,
        "expert_feed_forward_length": s.n_ff_exp,
        "expert_shared_feed_forward_length": s.n_ff_shexp,
    }


def check(s: Shape) -> None:
    """Raise ValueError, naming the parameter, for a shape that these architectures do not have."""
    for name in ("d_state", "n_k_heads", "n_v_heads", "conv_kernel", "n_expert", "n_ff_exp", "n_ff_shexp"):
        if getattr(s, name) < 1:
            raise ValueError(f"{name}={getattr(s, name)}: expected at least 1")
    if s.n_v_heads % s.n_k_heads:
        raise ValueError(f"n_v_heads={s.n_v_heads} is not a multiple of n_k_heads={s.n_k_heads}")
    if s.full_attention_interval < 0:
        raise ValueError(f"full_attention_interval={s.full_attention_interval}: expected at least 1, or 0 for no key")
    if s.recurrent_layers is not None and len(s.recurrent_layers) != s.n_layer:
        raise ValueError(f"recurrent_layers has {len(s.recurrent_layers)} entries, expected n_layer={s.n_layer}")
    four = sections(s)
    if len(four) != 4 or min(four) < 0 or not any(four):
        raise ValueError(f"rope_sections={list(four)}: expected 4 numbers, not all zero")
    if not 1 <= s.n_expert_used <= s.n_expert:
        raise ValueError(f"n_expert_used={s.n_expert_used}: expected 1 ... n_expert={s.n_expert}")
    if s.agreement < 0 or (s.agreement and s.tied):
        raise ValueError(f"agreement={s.agreement}: expected at least 0, and a head that is not tied")
    unknown = set(s.mtp_own) - {"norm", "embed", "head"}
    if unknown:
        raise ValueError(f"mtp_own={sorted(unknown)}: expected norm, embed, head")
