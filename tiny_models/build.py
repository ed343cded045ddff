"""Puts shape, weights and vocabulary together and writes the GGUF file or its split parts.

Owns: `make_tiny`, the choice of a stored format for each tensor, and the file layout. The same arguments give the
same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from tiny_models.shape import PARTS, Shape, metadata, tensors
from tiny_models.tensor import TensorSpec
from tiny_models.vocab import VOCABS
from tiny_models.weights import block_of, encode


def make_tiny(
    path: str | os.PathLike[str],
    arch: str = "llama",
    *,
    seed: int = 0,
    formats: str | Mapping[str, str] = "Q4_1",
    tokenizer: str = "bpe",
    split: int = 1,
    part: str = "all",
    shape: Shape | None = None,
    **options: Any,
) -> Path:
    """Write a random model and return the path to open (the first part when `split` > 1).

    formats: one format for all matrices, or {tensor-name pattern: format}; the longest matching pattern wins, "*" is
        the rest (Q4_1 if not given). Vectors, convolution taps and routers are always F32.
    tokenizer: "bpe", "spm" or "none" (token ids only).
    split: number of parts; parts are named like `x-00001-of-00003.gguf` for path `x.gguf`.
    part: "all", or one of two files that together are the same model: "trunk" (no trace of the MTP block) and "mtp"
        (that block, embedding and head, and the metadata of the whole).
    options: fields of `Shape` (n_layer, n_embd, n_head, n_kv, head_dim, n_ff, n_vocab, n_ctx, tied, rope, biases, ...),
        or give a whole `shape`.

    Raises ValueError, naming the parameter or tensor, for a combination that no valid file has.
    """
    if shape is None:
        unknown = set(options) - {f.name for f in fields(Shape)}
        if unknown:
            raise ValueError(f"unknown options {sorted(unknown)}: expected {', '.join(f.name for f in fields(Shape))}")
        shape = Shape(arch=arch, **options)
    elif options:
        raise ValueError("give either a shape or single options, not both")
    shape.check()
    if tokenizer not in VOCABS:
        raise ValueError(f"tokenizer={tokenizer!r}: expected one of {', '.join(VOCABS)}")
    patterns = {"*": formats} if isinstance(formats, str) else {"*": "Q4_1", **formats}
    if part not in PARTS or (part == "mtp" and not shape.n_mtp):
        raise ValueError(f"part={part!r}: expected one of {', '.join(PARTS)}, and n_mtp=1 for 'mtp'")
    if part == "trunk":
        shape = replace(shape, n_mtp=0)
    specs = list(tensors(shape, part))
    if not 1 <= split <= len(specs):
        raise ValueError(f"split={split}: expected 1 ... {len(specs)}, the number of tensors")
    return _write(Path(path), shape, specs, patterns, seed, tokenizer, split)


def _format_for(spec: TensorSpec, patterns: Mapping[str, str]) -> str:
    if len(spec.shape) == 1 or spec.f32:
        return "F32"
    matching = [p for p in patterns if fnmatchcase(spec.name, p)]
    return patterns[max(matching, key=len)]


def _stored(spec: TensorSpec, fmt: str, seed: int) -> np.ndarray[Any, Any]:
    if spec.values is not None:
        return np.asarray(spec.values, np.float32)
    rows = int(np.prod(spec.shape[1:], dtype=np.int64))
    data = encode(seed, spec.name, rows, spec.shape[0], fmt, spec.mean, spec.std, spec.diag)
    return data[0] if len(spec.shape) == 1 else data


def _part_path(path: Path, part: int, count: int) -> Path:
    return path if count == 1 else path.with_name(f"{path.stem}-{part + 1:05d}-of-{count:05d}.gguf")


def _write(
    path: Path,
    shape: Shape,
    specs: list[TensorSpec],
    patterns: Mapping[str, str],
    seed: int,
    tokenizer: str,
    split: int,
) -> Path:
    from gguf import GGUFWriter

    bounds = [len(specs) * part // split for part in range(split + 1)]
    for part in range(split):
        target = _part_path(path, part, split)
        writer = GGUFWriter(target, shape.arch)
        try:
            if part == 0:
                _add_metadata(writer, shape, tokenizer)
            if split > 1:
                writer.add_uint16("split.no", part)
                writer.add_uint16("split.count", split)
                writer.add_int32("split.tensors.count", len(specs))
            for spec in specs[bounds[part] : bounds[part + 1]]:
                fmt = _format_for(spec, patterns)
                _add_tensor(writer, spec, fmt, _stored(spec, fmt, seed))
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        finally:
            writer.close()
    return _part_path(path, 0, split)


def _add_tensor(writer: Any, spec: TensorSpec, fmt: str, data: np.ndarray[Any, Any]) -> None:
    """Declares the tensor with its type id, known to the package or not, and hands over its bytes."""
    shape = tuple(reversed(spec.shape))
    writer.add_tensor_info(spec.name, shape, np.dtype(np.float32), data.nbytes, raw_dtype=block_of(fmt)[0])
    writer.tensors[-1][spec.name].tensor = np.ascontiguousarray(data)


def _add_metadata(writer: Any, shape: Shape, tokenizer: str) -> None:
    writer.add_string("general.name", f"tiny random {shape.arch}")
    writer.add_uint32("general.quantization_version", 2)
    for key, value in metadata(shape).items():
        _add_value(writer, f"{shape.arch}.{key}", value)
    vocab = VOCABS[tokenizer](shape.n_vocab)
    if tokenizer == "bpe":
        vocab["pre"] = shape.row.pre
    for key, value in vocab.items():
        prefix = "tokenizer." if key == "chat_template" else "tokenizer.ggml."
        _add_value(writer, prefix + key, value)


def _add_value(writer: Any, key: str, value: object) -> None:
    if isinstance(value, list):
        if value:
            writer.add_array(key, value)
        return
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    kinds[type(value)](key, value)
