"""A case's file: tensors of the architecture, weights in any format, bad numbers among them, metadata of legal types.

Owns: the meaning of a case's genes for the file, and its bytes. Does not own which tensors an architecture has
(tiny_models/shape.py) or its vocabulary (vocabularies.py).
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ie.formats import format_by_name
from ie.model.config import ARCHITECTURES
from tests import gguf_bytes as w
from tests.fuzz import vocabularies
from tests.fuzz.case import FORMAT_NAMES, Case, gene
from tiny_models.shape import Shape, metadata, tensors
from tiny_models.tensor import TensorSpec
from tiny_models.weights import encode

#: Where blocks hold F16 numbers: byte offsets. F32, F16, BF16 and F64 hold elements; the rest is in `_poisoned`.
HALVES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ2_XXS": (0,), "IQ2_XS": (0,), "IQ2_S": (0,), "IQ3_XXS": (0,),
    "IQ3_S": (0,), "IQ1_S": (0,), "IQ4_NL": (0,), "IQ4_XS": (0,), "TQ1_0": (52,), "TQ2_0": (64,), "Q1_0": (0,),
    "Q2_0": (0,),
}  # fmt: skip


def block_of(fmt: str) -> tuple[int, int, int]:
    """(type id, elements, bytes) of a format's block."""
    found = format_by_name(fmt)
    return found.id, found.block, found.size


PLAIN = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8"}
_EXTREME = {"F32": 3.4e38, "F64": 3.4e38, "F16": 65504.0}
_SMALLEST = {"F32": 1e-45, "F64": 1e-320, "F16": 6e-8}


def shape_of(case: Case) -> Shape:
    """The shape that the genes ask for, brought to what can exist: KV heads divide heads, whole-width heads are."""
    arch = gene(case, "arch")
    heads, dim, n_embd = gene(case, "n_head"), gene(case, "head_dim"), gene(case, "n_embd")
    if arch == "qwen2":
        heads = max(h for h in range(1, heads + 1) if n_embd % h == 0)
        dim = None
    elif dim is None and n_embd % heads:
        dim = max(1, n_embd // heads)
    share = gene(case, "kv_share")
    kv = heads // max(s for s in range(1, share + 1) if heads % s == 0)
    layers, hybrid = gene(case, "n_layer"), ARCHITECTURES[arch].hybrid
    if layers > 8 and arch != "gemma3":  # to others so many are nothing but work
        layers = 4
    n_rot = _n_rot(case, dim if dim is not None else n_embd // heads)
    recurrent = {None: None, "all": (1,) * layers, "none": (0,) * layers, "mixed": tuple(i % 2 for i in range(layers))}
    window, pattern = gene(case, "window"), gene(case, "pattern")
    n_expert, used = gene(case, "n_expert"), gene(case, "used")
    biases = gene(case, "biases")
    shape = Shape(
        arch=arch, n_layer=layers, n_embd=n_embd, n_head=heads, n_kv=kv, head_dim=dim, n_ff=gene(case, "n_ff"),
        n_vocab=n_rows(case), n_ctx=gene(case, "n_ctx"), tied=gene(case, "tied"), fused_qkv=gene(case, "fused_qkv"),
        biases=biases, eps=gene(case, "eps"), sliding_window=window, swa_pattern=0 if pattern == "array" else pattern,
        softcap=gene(case, "softcap"), d_state=gene(case, "d_state"), n_k_heads=gene(case, "n_k_heads"),
        n_v_heads=gene(case, "n_k_heads") * gene(case, "v_share"), conv_kernel=gene(case, "taps"),
        full_attention_interval=gene(case, "interval"), recurrent_layers=recurrent[gene(case, "recurrent")],
        n_mtp=int(gene(case, "mtp") and hybrid), mtp_own=gene(case, "mtp_own"), n_rot=n_rot if hybrid else None,
        rope_sections=gene(case, "sections"), n_expert=n_expert,
        n_expert_used=n_expert if used == "all" else min(used, n_expert),
        n_ff_exp=gene(case, "n_ff_exp"), n_ff_shexp=gene(case, "n_ff_shexp"), fused_gate_up=gene(case, "fused_gate_up"),
        rope_base=gene(case, "rope_base"),
    )  # fmt: skip
    return replace(shape, rope_sections=shape.rope_sections or ((n_rot // 2 or 1), 0, 0, 0)) if hybrid else shape


def _n_rot(case: Case, dim: int) -> int:
    wanted = gene(case, "n_rot")
    if wanted is None:
        wanted = 1.0
    return min(wanted if isinstance(wanted, int) else int(dim * wanted), dim) // 2 * 2


def _vocabulary(case: Case) -> dict[str, Any]:
    oddities = tuple(o for o in (gene(case, "oddity"), gene(case, "oddity2")) if o is not None)
    return vocabularies.keys(gene(case, "tokenizer"), oddities, gene(case, "template"), _rng(case, "vocabulary"))


def _rng(case: Case, what: str) -> random.Random:
    return random.Random(f"{case['seed']} {what}")


def n_rows(case: Case) -> int:
    """Rows of the embedding: what the vocabulary has, and those that the gene adds."""
    return max(1, len(_vocabulary(case).get("tokens", ())) + gene(case, "n_vocab"))


# ---- tensors ----


def specs_of(case: Case, shape: Shape) -> Iterator[TensorSpec]:
    dim = shape.d_head
    yield from tensors(shape)
    kind = gene(case, "rope_tensor")
    pairs = _n_rot(case, dim) // 2
    if kind is not None and shape.arch == "llama" and pairs:
        mixed = tuple(1.0 + i % 7 for i in range(pairs))
        values = {
            "ones": (1.0,) * pairs, "mixed": mixed, "tiny": (2e-6,) * pairs, "huge": (3e38,) * pairs,
            "negative": tuple(-v for v in mixed),
        }[kind]  # fmt: skip
        yield TensorSpec("rope_freqs.weight", (pairs,), 0.0, values=values)


def format_of(case: Case, spec: TensorSpec, index: int) -> str:
    """The tensor's format: the case's where whole blocks fill its rows, else the widest kind that do."""
    if len(spec.shape) == 1 or spec.name.endswith("ssm_conv1d.weight"):
        kind = gene(case, "vector_format")
        return str(_rng(case, spec.name).choice(("F32", "F16", "BF16"))) if kind == "mixed" else str(kind)
    fits = [f for f in FORMAT_NAMES if spec.shape[0] % block_of(f)[1] == 0]
    if gene(case, "mixed"):
        return str(_rng(case, f"{spec.name} {index}").choice(fits))
    wanted = str(gene(case, "format"))
    return wanted if wanted in fits else next((f for f in ("Q8_0", "F16") if f in fits), "F32")


def stored(case: Case, spec: TensorSpec, fmt: str) -> np.ndarray:
    """uint8 [rows, bytes of a row]."""
    cols, rows = spec.shape[0], math.prod(spec.shape[1:])
    if spec.values is not None:
        data = np.asarray(spec.values, np.float32).astype({"F16": np.float16}.get(fmt, np.float32))
        fmt_bytes = data if fmt != "BF16" else (data.view(np.uint32) >> 16).astype(np.uint16)
        return fmt_bytes.reshape(1, -1).view(np.uint8)
    kind = gene(case, "weights")
    factor = {"tiny": 1e-30, "large": 50.0, "huge": 1e4}.get(kind, 1.0)
    mean, std = spec.mean * (factor if kind == "huge" else 1.0), spec.std * factor
    if kind in ("zero", "constant"):
        mean, std = (0.0, 0.0) if kind == "zero" else (spec.mean or spec.std, 0.0)
    with np.errstate(all="ignore"):
        if fmt == "F64":
            values: Any = encode(case["seed"], spec.name, rows, cols, "F32", mean, std).astype(np.float64)
        elif std == 0.0 and fmt not in PLAIN:
            values = np.zeros((rows, cols // block_of(fmt)[1] * block_of(fmt)[2]), np.uint8)
        else:
            values = encode(case["seed"], spec.name, rows, cols, fmt, mean, std)
    return np.ascontiguousarray(values).reshape(rows, -1).view(np.uint8)


def poison(data: np.ndarray, fmt: str, kind: str, where: str, rng: random.Random) -> None:
    """Put bad numbers into rows of a tensor: into one block, the blocks of a row, or all."""
    size = block_of(fmt)[2]
    blocks = data.reshape(data.shape[0], -1, size)
    row = rng.randrange(len(blocks))
    block = rng.randrange(blocks.shape[1])
    part = (
        blocks[row : row + 1, block : block + 1]
        if where == "one"
        else blocks[row : row + 1]
        if where == "row"
        else blocks
    )
    for at, raw in _poisoned(fmt, kind):
        part[..., at : at + len(raw)] = np.frombuffer(raw, np.uint8)


def _poisoned(fmt: str, kind: str) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of each field that holds numbers of their own."""
    if fmt in HALVES:
        yield from ((at, _number("F16", kind)) for at in HALVES[fmt])
    elif fmt in PLAIN:
        yield 0, _number(fmt, kind)
    elif fmt == "MXFP4":
        yield 0, bytes([{"nan": 255, "inf": 254, "-inf": 253, "max": 252, "denormal": 1, "zero": 0}[kind]])
    elif fmt == "NVFP4":
        yield 0, bytes([{"nan": 0x7F, "inf": 0xFF, "-inf": 0xFE, "max": 0x7E, "denormal": 1, "zero": 0}[kind]] * 4)
    elif fmt == "IQ1_M":
        bits = struct.unpack("<H", _number("F16", kind))[0]
        yield from ((49 + 2 * t, bytes([(bits >> 4 * t & 15) << 4 | 5])) for t in range(4))


def _number(fmt: str, kind: str) -> bytes:
    if fmt == "BF16":
        return _number("F32", kind)[2:] if kind not in ("denormal",) else b"\x01\x00"
    code = {"F16": "<e", "F32": "<f", "F64": "<d"}[fmt]
    values = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "zero": 0.0}
    return struct.pack(code, values.get(kind, _SMALLEST[fmt] if kind == "denormal" else _EXTREME[fmt]))


# ---- metadata ----

_INTEGERS = {w.U8: (0, 255), w.I8: (-128, 127), w.U16: (0, 65535), w.I16: (-(2**15), 2**15 - 1), w.U32: (0, 2**32 - 1),
             w.I32: (-(2**31), 2**31 - 1), w.U64: (0, 2**64 - 1), w.I64: (-(2**63), 2**63 - 1)}  # fmt: skip


def record(key: str, value: Any, rng: random.Random | None) -> bytes:
    """A metadata record; with `rng` its type is any that holds the number."""
    if isinstance(value, bool):
        return w.record(key, w.BOOL, int(value))
    if isinstance(value, str | bytes):
        return w.record(key, w.STRING, value)
    if isinstance(value, int):
        fitting = [t for t, (lo, hi) in _INTEGERS.items() if lo <= value <= hi]
        return w.record(key, rng.choice(fitting) if rng else w.U32 if w.U32 in fitting else fitting[-1], value)
    if isinstance(value, float):
        exact = float(np.float32(value)) == value and abs(value) < 3e38
        return w.record(
            key, w.F64 if (rng and rng.random() < 0.5) or not exact and abs(value) < 1e-37 else w.F32, value
        )
    first = value[0] if len(value) else "" if key.endswith("merges") else 0
    if isinstance(first, str | bytes):
        return w.array(key, w.STRING, value)
    if isinstance(first, bool):
        return w.array(key, w.BOOL, [int(v) for v in value])
    if isinstance(first, float):
        if any(abs(v) < np.inf and abs(v) > 3.4e38 for v in value) or (rng and rng.random() < 0.5):
            return w.array(key, w.F64, value)
        return w.array(key, w.F32, value)
    lo, hi = min(value, default=0), max(value, default=0)
    fitting = [t for t, (a, b) in _INTEGERS.items() if a <= lo and hi <= b]
    return w.array(key, rng.choice(fitting) if rng else w.I32, value)


def keys_of(case: Case, shape: Shape) -> dict[str, Any]:
    """All metadata but what the container itself needs."""
    arch = shape.arch
    with_rot = shape if ARCHITECTURES[arch].hybrid else replace(shape, n_rot=None)
    keys: dict[str, Any] = {f"{arch}.{k}": v for k, v in metadata(with_rot).items()}
    keys[f"{arch}.attention.key_length"] = keys[f"{arch}.attention.value_length"] = shape.d_head
    keys[f"{arch}.rope.dimension_count"] = _n_rot(case, shape.d_head)
    for name, key in (
        ("rope", "rope.scaling.type"), ("rope_old_factor", "rope.scale_linear"),
        ("attn_factor", "rope.scaling.attn_factor"),
        ("orig_ctx", "rope.scaling.original_context_length"), ("rope_base", "rope.freq_base"),
    ):  # fmt: skip
        if gene(case, name) is not None:
            keys[f"{arch}.{key}"] = gene(case, name)
    if "rope_factor" in case:
        keys[f"{arch}.rope.scaling.factor"] = gene(case, "rope_factor")
    if ARCHITECTURES[arch].sliding:
        if gene(case, "pattern") == "array":
            keys[f"{arch}.attention.sliding_window_pattern"] = [i % 3 == 0 for i in range(shape.n_layer)]
        if gene(case, "softcap") is not None:
            keys[f"{arch}.final_logit_softcapping"] = float(gene(case, "softcap"))
    for key, value in _vocabulary(case).items():
        keys[("tokenizer." if key == "chat_template" else "tokenizer.ggml.") + key] = value
    return keys


def _extra(case: Case) -> Iterator[bytes]:
    kind = gene(case, "extra_keys")
    if kind == "huge":
        yield w.array("extra.numbers", w.U8, list(range(256)) * 4000)
        yield w.record("extra.text", w.STRING, "x" * (1 << 20))
        yield w.array("extra.strings", w.STRING, ["", "\0", "y" * 1000] * 500)
    elif kind == "many":
        yield from (w.record(f"extra.{i}", w.I16, -i) for i in range(3000))
    elif kind == "strange":
        yield w.record("extra.\u6f22\u5b57", w.STRING, "\x1b[31m\n\r")
        yield w.record("general.name", w.STRING, b"\xff\xfe\x1b]0;t\x07")
        yield w.array("extra.empty", w.STRING, [])
        yield w.record("extra.nan", w.F64, math.nan)
        yield w.record("general.sampling.temp", w.F64, 1e300)
        yield w.record("general.sampling.penalty_repeat", w.F32, 0.0)
        yield w.record("general.sampling.sequence", w.STRING, "nothing;top_k")


# ---- the file ----


def write(case: Case, folder: Path) -> Path:
    """The file of a case, or its parts; returns the path to open."""
    shape = shape_of(case)
    specs = list(specs_of(case, shape))
    encoded: list[tuple[TensorSpec, str, bytes]] = []
    target = gene(case, "poison_tensor") % len(specs)
    for index, spec in enumerate(specs):
        fmt = format_of(case, spec, index)
        data = stored(case, spec, fmt)
        if gene(case, "poison") is not None and index == target:
            data = data.copy()
            poison(data, fmt, gene(case, "poison"), gene(case, "poison_where"), _rng(case, "poison"))
        encoded.append((spec, fmt, data.tobytes()))
    parts = min(gene(case, "split"), len(encoded))
    paths = []
    for part in range(parts):
        name = "m.gguf" if parts == 1 else f"m-{part + 1:05d}-of-{parts:05d}.gguf"
        mine = encoded[len(encoded) * part // parts : len(encoded) * (part + 1) // parts]
        (folder / name).write_bytes(_part(case, shape, mine, part, parts, len(encoded)))
        paths.append(folder / name)
    return paths[0]


def _part(
    case: Case, shape: Shape, mine: list[tuple[TensorSpec, str, bytes]], part: int, parts: int, total: int
) -> bytes:
    alignment = gene(case, "alignment")
    rng = _rng(case, "types") if gene(case, "number_types") == "odd" else None
    records = [w.record("general.alignment", w.U32, alignment)] if alignment != 32 else []
    if part == 0:
        records.append(w.record("general.architecture", w.STRING, shape.arch))
        records += [record(key, value, rng) for key, value in keys_of(case, shape).items()]
        records += _extra(case)
    if parts > 1:
        records += [record(f"split.{k}", v, rng) for k, v in (("no", part), ("count", parts), ("tensors.count", total))]
    tensor_records, data = [], bytearray()
    for spec, fmt, raw in mine:
        data += bytes(-len(data) % alignment)
        tensor_records.append(w.tensor(spec.name, spec.shape, block_of(fmt)[0], len(data)))
        data += raw
    return w.gguf(records, tensor_records, bytes(data), version=gene(case, "version"), alignment=alignment)
