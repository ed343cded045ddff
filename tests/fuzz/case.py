"""What one case is like: genes, each with an ordinary value and odd ones that a file may legally have.

Owns: the list of genes and drawing them from a seed. A case is the genes whose value is not the ordinary one, so that a
finding is reduced by putting genes back one at a time. Does not own what a gene means to a file (model.py,
vocabularies.py) or to a run (checks.py).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from ie.devices.cpu import available_isas
from ie.formats import FORMATS
from ie.model.config import ARCHITECTURES
from tests.fuzz.vocabularies import ODDITIES, TEMPLATES, TEXTS

Case = dict[str, Any]

FORMAT_NAMES = tuple(f.name for f in FORMATS.values() if f.holds_weights)
POISONS = ("nan", "inf", "-inf", "denormal", "max", "zero")
HEAD_DIMS = (1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 96, 127, 128, 129, 160, 192, 255, 256, 257, 300)
EXTRA_COMMANDS = (
    "dump",
    "dump text",
    "diff",
    "diff float64",
    "stop",
    "layers",
    "trace",
    "bench",
    "reference",
    "kld",
    "raw",
)
SMALL_FLOATS = (1e-6, 1e-3, 0.5, 1.0, 1.5, 4.0, 40.0, 1e3, 1e6)

#: gene: (ordinary value, odd values). The ordinary case is a small model that every command can run.
GENES: Mapping[str, tuple[Any, tuple[Any, ...]]] = {
    # shape
    "arch": ("llama", tuple(ARCHITECTURES)),
    "n_layer": (2, (1, 1, 3, 3, 5, 8, 62)),  # gemma3 of 62 layers scales its scores in another way
    "n_embd": (64, (1, 2, 3, 16, 31, 32, 33, 96, 100, 256, 256, 256, 512)),
    "n_head": (4, (1, 2, 3, 5, 6, 8, 16)),
    "kv_share": (2, (1, 2, 3, 4, 5, 8, 16)),  # query heads of a KV head; the nearest divisor is taken
    "head_dim": (None, (*HEAD_DIMS, *HEAD_DIMS, 511, 512)),
    "n_ff": (96, (1, 2, 15, 31, 33, 64, 256, 256, 257, 512)),
    "n_vocab": (0, (1, 2, 3, 15, 16, 17, 33, 127, 128, 129, 600, 1000)),  # rows beyond the tokenizer's
    "n_ctx": (256, (1, 2, 3, 31, 32, 33, 64, 300, 1 << 20, 1 << 30)),
    "tied": (False, (True,)),
    "fused_qkv": (False, (True,)),
    "biases": (None, (True, False)),
    # rotation and attention
    "n_rot": (None, (0, 2, 4, 0.5, 1.0)),  # a number of coordinates, or a share of the head
    "rope": (None, ("none", "linear", "yarn", "longrope")),
    "rope_base": (10000.0, (1.0, 1.0001, 2.0, 1e6, 1e12)),
    "rope_factor": (1.0, (0.0, *SMALL_FLOATS)),
    "rope_old_factor": (None, SMALL_FLOATS),
    "orig_ctx": (None, (1, 2, 64, 4096, 1 << 30)),
    "attn_factor": (None, SMALL_FLOATS),
    "rope_tensor": (None, ("ones", "mixed", "tiny", "huge", "negative")),
    "eps": (1e-5, (1e-12, 1e-9, 1e-3, 0.1, 1.0)),
    "window": (16, (0, 1, 2, 3, 31, 32, 33, 100, 1 << 30)),
    "pattern": (2, (None, 1, 3, 512, "array")),
    "softcap": (None, (0.0, 1e-300, 1e-45, 1e-38, 1e-6, 0.5, 30.0, 1e6)),
    # gated delta nets, experts, the MTP block
    "d_state": (32, (16, 48, 64, 128, 256)),
    "n_k_heads": (2, (1, 3, 4)),
    "v_share": (2, (1, 3, 4)),
    "taps": (4, (1, 2, 3, 8)),
    "interval": (2, (1, 3, 4, 512)),
    "recurrent": (None, ("all", "none", "mixed")),
    "sections": (None, ((1, 0, 0, 0), (0, 1, 0), (0, 0, 5, 9), (1000, 1, 1, 1000), (1, 1, 1))),
    "mtp": (False, (True,)),
    "mtp_own": (("norm",), ((), ("embed",), ("head",), ("norm", "embed", "head"))),
    "n_expert": (4, (1, 2, 3, 8, 33, 64)),
    "used": (2, (1, 3, "all")),
    "n_ff_exp": (32, (1, 33, 64, 256)),
    "n_ff_shexp": (64, (1, 33, 256)),
    "fused_gate_up": (False, (True,)),
    # weights
    "format": ("Q4_1", FORMAT_NAMES),
    "mixed": (False, (True,)),  # each tensor has a format of its own
    "vector_format": ("F32", ("F16", "BF16", "mixed")),
    "weights": ("random", ("zero", "tiny", "large", "huge", "constant")),
    "poison": (None, POISONS),
    "poison_where": ("one", ("row", "all")),
    "poison_tensor": (0, tuple(range(1, 40))),
    # the container
    "alignment": (32, (1, 2, 8, 16, 64, 256, 4096, 65536)),
    "version": (3, (2,)),
    "split": (1, (2, 3, 5)),
    "number_types": ("usual", ("odd",)),
    "extra_keys": (None, ("huge", "many", "strange")),
    # the tokenizer
    "tokenizer": ("bpe", ("none", "no_vocab", "spm", "gemma4", "few bpe", "few spm")),
    "oddity": (None, ODDITIES),
    "oddity2": (None, ODDITIES),
    "template": (None, tuple(TEMPLATES)),
    # the run
    "prompt": (9, (1, 2, 3, 31, 32, 33, 40, 65, 290)),
    "predict": ("6", ("0", "1", "-1", "40")),
    "extra_command": (None, EXTRA_COMMANDS),
    "text": (0, tuple(range(1, len(TEXTS)))),
    "threads": (1, (2, 3)),
    "isa": ("auto", tuple(available_isas())),
    "chunk": (512, (1, 2, 7, 16, 17, 33)),
    "drafter": (None, ("lookup", "auto", "mtp", "mtp+lookup")),
    "draft": (7, (1, 2, 15, "auto")),
    "draft_more": (
        (),
        (("--draft-vocab", "0"), ("--draft-vocab", "1"), ("--draft-head", "full"), ("--draft-pmin", "0")),
    ),
    "temp": ("0", ("0.8", "1e-9", "1e-38", "1e-300", "1", "1e9", "1e308")),
    "top_k": ("40", ("0", "1", "2147483647")),
    "top_p": ("0.95", ("0", "1e-300", "1")),
    "min_p": ("0.05", ("0", "1e-300", "1")),
    "typical": (None, ("0", "1e-9", "0.5", "1")),
    "sigma": (None, ("0", "-1", "1e-30", "1", "1e300")),
    "xtc": (None, ("0 0.1", "1 0", "0.5 0.5", "1 1")),
    "penalties": (None, ("2e-30 1e38 -1e38", "1e38 0 0", "1 3e38 3e38", "1.1 -3e38 1", "2 0.5 0.5")),
    "last_n": (None, ("-1", "0", "1", "2147483647")),
    "dry": (None, ("1 1.75 2", "3e38 3e38 0", "1e-300 1 0", "1 0.5 2147483647")),
    "breaker": (None, ("none", "\\n", "a", "the old")),
    "dynatemp": (None, ("0.5 1", "1e308 0", "1 1e308", "1e-300 1e-300")),
    "bias": (None, ("0-inf", "0+1e38", "0-3e38", "0+1e-45", "every-inf")),
    "samplers": (None, ("", "temperature;top_k;temperature", "xtc;xtc;typ_p;top_p;min_p;top_k", "dry;penalties;dry")),
    "stop": (None, ("e", "\ufffd", "clock said")),
    "ignore_eos": (False, (True,)),
}

#: Genes that say what is wrong with numbers: most cases have none of them, so that results can be compared closely.
NUMBERS = ("weights", "poison")


def draw(seed: int) -> Case:
    """The case of a seed: a few odd genes, or many."""
    rng = random.Random(seed)
    share = rng.choice((0.05, 0.12, 0.25, 0.5))
    case: Case = {"seed": seed, "arch": rng.choice(GENES["arch"][1])}
    if rng.random() < 0.5:
        case["n_embd"] = 256  # whole blocks of every format
        case |= {"n_ff": 256} if rng.random() < 0.7 else {}
    for name in ("format", "text", "tokenizer"):
        if rng.random() < 0.6:
            case[name] = rng.choice(GENES[name][1])
    for name in ("drafter", "mtp", "poison", "mixed", "template", "oddity"):
        if rng.random() < 0.2:
            case[name] = rng.choice(GENES[name][1])
    if rng.random() < 0.1:
        case["weights"] = rng.choice(GENES["weights"][1])
    for name, (_, odd) in GENES.items():
        if name not in case and rng.random() < share * (0.3 if name in NUMBERS else 1.0):
            case[name] = rng.choice(odd)
    if "poison" in case:  # of the embedding, which is read as it is used, more often than of others
        case["poison_tensor"] = rng.choice((0, rng.randrange(40)))
        case["poison_where"] = rng.choice(("one", "row", "all"))
        case["tied"] = case["poison_tensor"] != 0 and case.get("tied", False)
    if ARCHITECTURES[case["arch"]].hybrid and rng.random() < 0.7:  # queries and gates are taken apart in 16 rows
        case["head_dim"] = rng.choice((16, 32, 48, 64, 128, 256))
    return {name: value for name, value in case.items() if name == "seed" or value != GENES[name][0]}


def gene(case: Case, name: str) -> Any:
    """The value of a gene, ordinary unless the case says otherwise."""
    return case.get(name, GENES[name][0])


def from_json(raw: Mapping[str, Any]) -> Case:
    """A case that was written as JSON, where tuples are lists."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in raw.items()}
