"""Command line of the tiny models: `python -m tiny_models OUT.gguf --arch qwen3 --formats Q4_1,output*=Q8_0`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from typing import Any

from tiny_models.build import make_tiny
from tiny_models.shape import ARCHS, PARTS, Shape
from tiny_models.vocab import VOCABS

_FLAGS = ("tied", "fused_qkv", "fused_gate_up")
_TUPLES = ("recurrent_layers", "rope_sections")
_FLOATS = ("rope_base", "rope_factor", "eps", "softcap", "agreement")


def _formats(text: str) -> dict[str, str]:
    """`Q4_1,output*=Q8_0` -> {"*": "Q4_1", "output*": "Q8_0"}."""
    parts = [p.partition("=") for p in text.split(",")]
    return {(left if sep else "*"): (right if sep else left) for left, sep, right in parts}


def _biases(text: str) -> bool | tuple[str, ...]:
    return {"all": True, "none": False}.get(text, tuple(text.split(",")))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    return () if text == "none" else tuple(text.split(","))


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m tiny_models", description="Write a small random GGUF model.")
    p.add_argument("path", metavar="OUT.gguf")
    p.add_argument("--arch", choices=list(ARCHS), default="llama")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--formats", type=_formats, default={"*": "Q4_1"}, metavar="F[,PATTERN=F...]")
    p.add_argument("--tokenizer", choices=list(VOCABS), default="bpe")
    p.add_argument("--split", type=int, default=1, metavar="PARTS")
    p.add_argument("--part", choices=PARTS, default="all")
    for f in fields(Shape):
        flag = "--" + f.name.replace("_", "-")
        if f.name in _FLAGS:
            p.add_argument(flag, action="store_true")
        elif f.name == "rope":
            p.add_argument(flag, choices=["linear", "yarn", "llama3"])
        elif f.name == "biases":
            p.add_argument(flag, type=_biases, metavar="all|none|GROUP,...")
        elif f.name in _TUPLES:
            p.add_argument(flag, type=_numbers, metavar="N,N,...")
        elif f.name == "mtp_own":
            p.add_argument(flag, type=_names, default=f.default, metavar="none|NAME,...")
        elif f.name != "arch":
            p.add_argument(flag, type=float if f.name in _FLOATS else int, default=f.default)
    return p


def main(argv: list[str] | None = None) -> int:
    args: dict[str, Any] = vars(parser().parse_args(argv))
    try:
        print(make_tiny(args.pop("path"), **args))
    except (ValueError, OSError) as e:
        print(f"tiny_models: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
