"""Makes the golden results of qwen35 by llama.cpp: `python scripts/golden_qwen35.py --out tests/golden`.

A developer's tool like scripts/make_golden.py, whose token sequence it uses. For each of CASES it writes a tiny model,
runs llama.cpp on trunk and MTP block and stores logits and states of a few positions in `qwen35_llamacpp.npz`, the
recipe beside it. It does not judge anything: tests do.
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

from scripts.make_golden import SMALL, WIDE, tokens_for  # noqa: E402
from tiny_models import make_tiny  # noqa: E402

_Q35: dict[str, Any] = {**SMALL, "arch": "qwen35", "n_layer": 4, "n_mtp": 1}
_Q35_WIDE = {**_Q35, **WIDE, "d_state": 64, "n_ff_exp": 256, "n_ff_shexp": 256}
#: name -> arguments of make_tiny and number of tokens. Of each case the positions POSITIONS that it has.
CASES: dict[str, tuple[dict[str, Any], int]] = {
    "f32": ({**_Q35, "formats": "F32"}, 600),
    "f32_one_token": ({**_Q35, "formats": "F32"}, 1),
    "f32_every_fourth": ({**_Q35, "formats": "F32", "n_layer": 5, "full_attention_interval": 0, "n_mtp": 0}, 130),
    "f32_ratio3": ({**_Q35, "formats": "F32", "n_v_heads": 6, "mtp_own": []}, 600),
    "f32_ratio1": ({**_Q35, "formats": "F32", "n_v_heads": 2, "conv_kernel": 3, "tied": True}, 65),
    "f32_real_heads": (
        {**_Q35, "formats": "F32", "n_layer": 2, "head_dim": 256, "n_head": 2, "n_kv": 1, "d_state": 128},
        65,
    ),
    "f32_large_eps": ({**_Q35, "formats": "F32", "eps": 0.05, "mtp_own": ["norm", "embed", "head"]}, 65),
    "f32_listed_layers": ({**_Q35, "formats": "F32", "recurrent_layers": [1, 0, 0, 1]}, 65),
    "f32_fourth_axis": ({**_Q35, "formats": "F32", "head_dim": 32, "n_rot": 16, "rope_sections": [2, 1, 1, 1]}, 65),
    "f32_yarn_fused": (
        {**_Q35, "formats": "F32", "head_dim": 64, "n_rot": 32, "rope": "yarn", "fused_qkv": True, "biases": True},
        130,
    ),
    "moe_f32": ({**_Q35, "arch": "qwen35moe", "formats": "F32", "n_expert": 8, "n_expert_used": 3}, 600),
    "moe_f32_fused_tied": ({**_Q35, "arch": "qwen35moe", "formats": "F32", "fused_gate_up": True, "tied": True}, 65),
    "f16": ({**_Q35, "formats": "F16"}, 65),
    "q4_1": ({**_Q35, "formats": {"*": "Q4_1", "*ssm_alpha*": "F32", "*ssm_beta*": "F32", "output*": "Q8_0"}}, 600),
    "q8_0_tied": ({**_Q35, "formats": "Q8_0", "tied": True, "n_v_heads": 6}, 130),
    "q4_0_q5": ({**_Q35, "formats": {"*": "Q4_0", "*ssm_*": "Q5_1", "*attn_*": "Q5_0"}}, 65),
    "k": ({**_Q35_WIDE, "formats": {"*": "Q4_K", "*attn_*": "Q5_K", "*down*": "Q6_K", "*eh_proj*": "Q8_0"}}, 130),
    "moe_k": ({**_Q35_WIDE, "arch": "qwen35moe", "formats": {"*": "Q4_K", "*down*": "Q6_K", "*eh_proj*": "Q4_0"}}, 130),
}
POSITIONS, CHAIN = [0, 1, 5, 64, 129, 599], 3


def _load(path: Path) -> Any:
    import llama_cpp as lc

    lc.llama_backend_init()
    params = lc.llama_model_default_params()
    params.n_gpu_layers, params.load_mtp = 0, True
    model = lc.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        raise SystemExit(f"llama.cpp cannot load {path}")
    return model


def _context(model: Any, mtp_of: Any = None) -> Any:
    """A context; `mtp_of` is the trunk's context when this one shall run the model's MTP block."""
    import llama_cpp as lc

    cp = lc.llama_context_default_params()
    cp.n_ctx, cp.n_batch, cp.n_ubatch, cp.n_threads, cp.n_threads_batch = 1024, 1024, 1024, 2, 2
    cp.type_k = cp.type_v = lc.GGML_TYPE_F32
    cp.flash_attn_type = lc.LLAMA_FLASH_ATTN_TYPE_DISABLED
    if mtp_of:
        cp.ctx_type, cp.ctx_other = lc.LLAMA_CONTEXT_TYPE_MTP, mtp_of
    ctx = lc.llama_init_from_model(model, cp)
    if not ctx:
        raise SystemExit("llama.cpp cannot make a context")
    return ctx


class LlamaCppMtp:
    """llama.cpp with the hidden states of a trunk and, if the file has one, its MTP block, position by position.

    The functions for hidden states are exported under C++ names only. In an MTP context the "token embedding" of an
    entry that also has a token id is the hidden state it is paired with.
    """

    def __init__(self, trunk: Path, mtp: Path | None = None) -> None:
        import llama_cpp as lc

        self.lc = lc
        library = lc.llama_cpp._lib
        self._publish = library["_Z26llama_set_embeddings_nextnP13llama_contextbb"]
        self._publish.argtypes, self._publish.restype = [ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool], None
        self._state = library["_Z30llama_get_embeddings_nextn_ithP13llama_contexti"]
        self._state.argtypes, self._state.restype = [ctypes.c_void_p, ctypes.c_int], ctypes.POINTER(ctypes.c_float)
        self.models = [_load(trunk)]
        self.trunk = _context(self.models[0])
        self._publish(self.trunk, True, False)
        if mtp is not None:
            self.models.append(_load(mtp))
        self.n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(self.models[0]))
        self.n_embd = lc.llama_model_n_embd(self.models[0])
        self.block = None
        if lc.llama_model_n_layer_nextn(self.models[-1]):
            self.block = _context(self.models[-1], mtp_of=self.trunk)
            self._publish(self.block, True, True)

    def close(self) -> None:
        for ctx in filter(None, (self.block, self.trunk)):
            self.lc.llama_free(ctx)
        for model in self.models:
            self.lc.llama_model_free(model)

    def run(
        self, tokens: list[int], first: int = 0, paired: np.ndarray[Any, Any] | None = None
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Logits [T, V] and states [T, n] of tokens at positions first ...: of the trunk, or with `paired` of MTP."""
        ctx = self.trunk if paired is None else self.block
        lc, batch = self.lc, self.lc.llama_batch_ext_init(ctx)
        rows = None if paired is None else np.ascontiguousarray(paired, np.float32)
        for i, token in enumerate(tokens):
            ok = lc.llama_batch_ext_add_token(batch, 0, token) == i
            ok &= lc.llama_batch_ext_set_pos(batch, i, ctypes.byref(ctypes.c_int32(first + i)))
            ok &= lc.llama_batch_ext_set_output_logits(batch, i, True)
            if rows is not None:
                pointer = rows[i].ctypes.data_as(ctypes.POINTER(ctypes.c_float))
                ok &= lc.llama_batch_ext_set_embd_token(batch, i, lc.llama_embd(pointer, 1, self.n_embd))
            if not ok:
                raise SystemExit(f"llama.cpp does not accept entry {i} of a batch")
        if lc.llama_process(ctx, lc.LLAMA_PROCESS_TYPE_DECODE, batch):
            raise SystemExit("llama.cpp cannot process a batch")
        lc.llama_batch_ext_free(batch)

        def collect(get: Any, width: int) -> np.ndarray[Any, Any]:
            return np.stack([np.ctypeslib.as_array(get(ctx, i), (width,)).copy() for i in range(len(tokens))])

        return collect(lc.llama_get_logits_ith, self.n_vocab), collect(self._state, self.n_embd)


def make(out: Path) -> None:
    """Per case: logits of some positions; with an MTP block also its logits and states there, each token paired with
    llama.cpp's own hidden state before it, and the CHAIN tokens that it drafts after the last token."""
    tokens = tokens_for(_Q35["n_vocab"], max(POSITIONS) + 1)
    recipe: dict[str, Any] = {"cases": {}}
    arrays = {"tokens": np.asarray(tokens, np.uint16)}
    with tempfile.TemporaryDirectory() as folder:
        for name, (args, n) in CASES.items():
            at = [p for p in POSITIONS if p < n]
            llama = LlamaCppMtp(make_tiny(Path(folder) / f"{name}.gguf", **args))
            logits, hidden = llama.run(tokens[:n])
            arrays[name] = logits[at]
            recipe["cases"][name] = {"make_tiny": args, "n_tokens": n, "positions": at}
            if llama.block:
                paired = np.concatenate([np.zeros_like(hidden[:1]), hidden[:-1]])
                logits, states = llama.run(tokens[:n], paired=paired)
                arrays[f"{name}.mtp"], arrays[f"{name}.state"] = logits[at], states[at]
                chain = []
                for i in range(CHAIN):
                    chain.append(int(logits[-1].argmax()))
                    logits, states = llama.run(chain[-1:], n + i, states[-1:])
                arrays[f"{name}.after"] = logits
                recipe["cases"][name]["chain"] = chain
            llama.close()
    (out / "qwen35_llamacpp.json").write_text(json.dumps(recipe, indent=1) + "\n")
    np.savez_compressed(out / "qwen35_llamacpp.npz", **arrays)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--out", type=Path, default=ROOT / "tests" / "golden")
    args = p.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    make(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
