"""Writes trained weights as a GGUF file of architecture `qwen35`, tokenizer and MTP block included.

Owns: tensor names, metadata, storage types. It does not own the weights' meaning (`model.py`) or the quantisers
(the `gguf` package).

    python -m tiny_models.train.export --run DIR/run --tokenizer DIR/tokenizer.json --out MODEL.gguf [--type F32]

Matrices get the wanted type; norms, convolution, `ssm_a` and `ssm_dt` stay F32. The network keeps norm weights as the
final multipliers and value heads in the tiled order already, so nothing is shifted or permuted here.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from tiny_models.train.model import Config, Model
from tiny_models.train.tokenizer import load, metadata
from tiny_models.train.train import restore

NAME = "qwen35-code-15m"
LICENSE = "apache-2.0"
CONTEXT = 4096
Array = np.ndarray[Any, np.dtype[np.float32]]


def model_metadata(c: Config) -> dict[str, int | float | list[int]]:
    """Keys below `qwen35.`."""
    pairs = c.rot // 2
    sections = [(pairs + 2) // 3, (pairs + 1) // 3, pairs // 3, 0]
    return {
        "block_count": c.layers + 1,
        "nextn_predict_layers": 1,
        "context_length": CONTEXT,
        "embedding_length": c.n,
        "feed_forward_length": c.ffn,
        "attention.head_count": c.heads,
        "attention.head_count_kv": c.kv_heads,
        "attention.key_length": c.head,
        "attention.value_length": c.head,
        "attention.layer_norm_rms_epsilon": c.eps,
        "rope.dimension_count": c.rot,
        "rope.dimension_sections": sections,
        "rope.freq_base": c.rope_base,
        "ssm.conv_kernel": c.kernel,
        "ssm.state_size": c.linear_head,
        "ssm.group_count": c.key_heads,
        "ssm.time_step_rank": c.value_heads,
        "ssm.inner_size": c.value_heads * c.linear_head,
        "full_attention_interval": c.interval,
    }


def tensors(model: Model) -> dict[str, Array]:
    """GGUF name → float32 values, rows first (the reverse of the dimension order in the file)."""
    out: dict[str, Array] = {}
    for name, value in model.state_dict().items():
        array = value.detach().float().cpu().numpy()
        name = name.replace(".mixer.", ".")
        if name.startswith("mtp."):
            part = name.removeprefix("mtp.")
            inner = ("eh_proj", "enorm", "hnorm", "shared_head_norm")
            name = f"blk.{model.c.layers}.{'nextn.' if part.startswith(inner) else ''}{part}"
        if name.endswith(".a_log"):
            name, array = name.replace(".a_log", ".ssm_a"), -np.exp(array)
        elif name.endswith(".ssm_dt"):
            name += ".bias"
        elif not name.endswith(".weight"):
            name += ".weight"
        out[name] = array
    return out


def _is_matrix(name: str, array: Array) -> bool:
    return array.ndim == 2 and "conv1d" not in name


def write(model: Model, tokenizer_path: Path, out: Path, kind: str) -> None:
    """The file; `kind` is the storage type of the matrices."""
    from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, quants

    writer = GGUFWriter(out, "qwen35")
    writer.add_name(NAME)
    writer.add_license(LICENSE)
    writer.add_description("Small code and prose model with a multi-token-prediction block, for tests and demos")
    writer.add_file_type({"Q8_0": LlamaFileType.MOSTLY_Q8_0, "F32": LlamaFileType.ALL_F32}[kind])
    writer.add_quantization_version(2)
    _add_all(writer, "qwen35.", model_metadata(model.c))
    _add_all(writer, "tokenizer.", metadata(load(tokenizer_path)))
    for name, array in tensors(model).items():
        if kind != "F32" and _is_matrix(name, array):
            stored = GGMLQuantizationType[kind]
            writer.add_tensor(name, quants.quantize(array, stored), raw_dtype=stored)
        else:
            writer.add_tensor(name, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_all(writer: Any, prefix: str, values: dict[str, Any]) -> None:
    add = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    for key, value in values.items():
        add[type(value)](prefix + key, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="folder that the training run wrote")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--type", choices=["Q8_0", "F32"], default="Q8_0")
    args = parser.parse_args()
    write(restore(args.run), args.tokenizer, args.out, args.type)
    print(f"{args.out}: {args.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
