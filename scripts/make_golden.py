"""Makes the committed golden results of llama.cpp: `python scripts/make_golden.py [--out FOLDER] [--models FOLDER]`.

A developer's tool: it needs the package llama-cpp-python, which nothing else here does. For each case of
`tests/golden/tiny_llamacpp.json` (made here, from the table CASES) it writes a tiny model, runs llama.cpp on it and
stores the logits of a few positions; with `--models` it stores what tests/model need of the real models instead, and
says where their texts are not those of greedy.json. It does not judge anything: tests do.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.golden_format import REAL, log_softmax, pack_top  # noqa: E402
from tiny_models import make_tiny  # noqa: E402

N_TOKENS, POSITIONS = 40, [0, 1, 5, 17, 30, 39]
SMALL = {"tokenizer": "none", "n_vocab": 96}
WIDE = {**SMALL, "n_embd": 256, "n_ff": 256, "n_head": 4, "n_kv": 2}
#: name -> arguments of make_tiny. F32 cases pin the mathematics, the others the formats.
CASES: dict[str, dict[str, Any]] = {
    "llama_f32": {**SMALL, "arch": "llama", "formats": "F32"},
    "llama_f32_linear": {**SMALL, "arch": "llama", "formats": "F32", "rope": "linear"},
    "llama_f32_yarn": {**SMALL, "arch": "llama", "formats": "F32", "rope": "yarn"},
    "llama_f32_llama3": {**SMALL, "arch": "llama", "formats": "F32", "rope": "llama3", "rope_factor": 8.0},
    "llama_f32_tied": {**SMALL, "arch": "llama", "formats": "F32", "tied": True},
    "llama_f32_biases": {**SMALL, "arch": "llama", "formats": "F32", "biases": True},
    "llama_f32_fused": {**SMALL, "arch": "llama", "formats": "F32", "fused_qkv": True, "n_kv": 1},
    "llama_f32_wide_heads": {**SMALL, "arch": "llama", "formats": "F32", "head_dim": 32, "n_kv": 4},
    "qwen2_f32": {**SMALL, "arch": "qwen2", "formats": "F32"},
    "qwen2_f32_tied": {**SMALL, "arch": "qwen2", "formats": "F32", "tied": True},
    "qwen2_f32_head_bias": {**SMALL, "arch": "qwen2", "formats": "F32", "biases": True},
    "qwen3_f32_yarn": {**SMALL, "arch": "qwen3", "formats": "F32", "head_dim": 32, "rope": "yarn"},
    "gemma3_f32": {**SMALL, "arch": "gemma3", "formats": "F32", "n_kv": 1, "tied": True},
    "gemma3_f32_linear_cap": {
        **SMALL,
        "arch": "gemma3",
        "formats": "F32",
        "head_dim": 32,
        "n_kv": 1,
        "n_layer": 7,
        "swa_pattern": 0,
        "rope": "linear",
        "rope_factor": 8.0,
        "softcap": 5.0,
    },
    "llama_q4_1": {**SMALL, "arch": "llama", "formats": {"*": "Q4_1", "output.weight": "Q8_0"}},
    "llama_q8_0_tied": {**SMALL, "arch": "llama", "formats": "Q8_0", "tied": True},
    "llama_f16": {**SMALL, "arch": "llama", "formats": "F16"},
    "llama_bf16": {**SMALL, "arch": "llama", "formats": "BF16"},
    "qwen2_q5": {**SMALL, "arch": "qwen2", "formats": {"*": "Q5_0", "*ffn*": "Q5_1", "token_embd*": "Q4_0"}},
    "qwen3_k": {**WIDE, "arch": "qwen3", "formats": {"*": "Q4_K", "*attn_*": "Q5_K", "*down*": "Q6_K"}},
    "gemma3_k": {**WIDE, "arch": "gemma3", "formats": {"*": "Q3_K", "*ffn*": "Q2_K", "*attn_*": "IQ4_XS"}},
}


def tokens_for(n_vocab: int, n: int = N_TOKENS) -> list[int]:
    """A fixed token sequence that visits the vocabulary without a short period."""
    return [(7 + 31 * i + i * i) % n_vocab for i in range(n)]


def llama_cpp_logits(path: Path, tokens: list[int], kv_f32: bool = True) -> np.ndarray[Any, Any]:
    """Logits [T, V] float32 by llama.cpp on the CPU in one batch; KV cache in F32 unless told otherwise."""
    import llama_cpp as lc

    lc.llama_backend_init()
    params = lc.llama_model_default_params()
    params.n_gpu_layers = 0
    model = lc.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        raise SystemExit(f"llama.cpp cannot load {path}")
    cp = lc.llama_context_default_params()
    cp.n_ctx, cp.n_batch, cp.n_ubatch, cp.n_threads, cp.n_threads_batch = 1024, 1024, 1024, 2, 2
    if kv_f32:
        cp.type_k = cp.type_v = lc.GGML_TYPE_F32
        cp.flash_attn_type = lc.LLAMA_FLASH_ATTN_TYPE_DISABLED
    ctx = lc.llama_init_from_model(model, cp)
    if not ctx:
        raise SystemExit(f"llama.cpp cannot make a context for {path}")
    n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    batch = lc.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
        batch.seq_id[i][0] = 0
    if lc.llama_decode(ctx, batch):
        raise SystemExit(f"llama.cpp cannot decode {path}")
    size = len(tokens) * n_vocab
    out = np.ctypeslib.as_array(ctypes.cast(lc.llama_get_logits(ctx), ctypes.POINTER(ctypes.c_float)), (size,))
    out = out.reshape(len(tokens), n_vocab).copy()
    lc.llama_batch_free(batch)
    lc.llama_free(ctx)
    lc.llama_model_free(model)
    return out


def make_tiny_golden(out: Path) -> None:
    recipe: dict[str, Any] = {"positions": POSITIONS, "cases": {}}
    arrays = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, args in CASES.items():
            path = make_tiny(Path(folder) / f"{name}.gguf", **args)
            tokens = tokens_for(args["n_vocab"])
            arrays[name] = llama_cpp_logits(path, tokens)[POSITIONS]
            recipe["cases"][name] = {"make_tiny": args, "tokens": tokens}
    (out / "tiny_llamacpp.json").write_text(json.dumps(recipe, indent=1) + "\n")
    np.savez_compressed(out / "tiny_llamacpp.npz", **arrays)


def make_model_golden(out: Path, model: Path, short: str, text: Path) -> None:
    """The first 512 positions of a text through a real model; see tests/golden_format.py for what is kept."""
    import llama_cpp as lc

    vocab = lc.Llama(str(model), vocab_only=True, verbose=False)
    begins = lc.llama_vocab_get_add_bos(lc.llama_model_get_vocab(vocab.model))
    tokens = vocab.tokenize(text.read_bytes(), add_bos=begins, special=False)[:512]
    kept = np.arange(0, 512, 2)
    packed = pack_top(llama_cpp_logits(model, tokens, kv_f32=False)[kept], kept)
    np.savez_compressed(out / f"{short}_persuasion.npz", tokens=np.asarray(tokens, np.int32), **packed)


def make_greedy_golden(out: Path, model: Path, short: str) -> None:
    """Greedy tokens after the recorded prompts, and at each of them the eight best log-probabilities.

    Flash attention is on, as it was when greedy.json was recorded: the texts are the same only then, see
    tests/model/test_real_models.py.
    """
    import llama_cpp as lc

    cases = json.loads((out / "greedy.json").read_text(encoding="utf-8"))["models"][model.stem]
    llm = lc.Llama(str(model), n_ctx=256, n_threads=2, verbose=False, logits_all=True, flash_attn=True)
    vocab = lc.llama_model_get_vocab(llm.model)
    tokens = np.full((len(cases), 40), -1, np.int32)
    id_type = np.uint16 if llm.n_vocab() <= 65536 else np.uint32
    top_ids, top_logp = np.zeros((len(cases), 40, 8), id_type), np.zeros((len(cases), 40, 8), np.float16)
    for row, case in enumerate(cases):
        llm.reset()
        prompt = llm.tokenize(case["prompt"].encode(), add_bos=lc.llama_vocab_get_add_bos(vocab), special=True)
        for i, token in enumerate(llm.generate(prompt, temp=0, reset=True)):
            logp = log_softmax(llm.scores[len(prompt) + i - 1])
            best = np.argsort(-logp, kind="stable")[:8]
            tokens[row, i], top_ids[row, i], top_logp[row, i] = token, best, logp[best]
            if i == 39 or lc.llama_vocab_is_eog(vocab, token):
                break
        text = llm.detokenize([t for t in tokens[row].tolist() if t >= 0]).decode("utf-8", errors="replace")
        if text.strip()[:40] != case["text"].strip()[:40]:
            print(f"{model.stem}: differs from greedy.json: {case['prompt']!r} {text!r}", file=sys.stderr)
    np.savez_compressed(out / f"{short}_greedy.npz", tokens=tokens, top_ids=top_ids, top_logp=top_logp)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--out", type=Path, default=ROOT / "tests" / "golden")
    p.add_argument("--models", type=Path, help="the folder of the real models (scripts/fetch_model.py)")
    p.add_argument("--only", choices=sorted(REAL.values()), help="one of them")
    args = p.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.models is None:
        make_tiny_golden(args.out)
        return 0
    for name, short in REAL.items():
        if args.only in (None, short):
            model = args.models / f"{name}.gguf"
            make_model_golden(args.out, model, short, args.out / "persuasion.txt")
            make_greedy_golden(args.out, model, short)
    return 0


if __name__ == "__main__":
    sys.exit(main())
