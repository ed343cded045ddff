"""A model of a few kilobytes, made on the spot, on which an executor can show that it works.

Owns: writing that file (one layer of the llama architecture, Q8_0, Q4_1 and F32 tensors, fixed numbers) and the
comparison of its logits. It is the whole way from file to logits, so a kernel, layout or loader that does not work on
this machine is seen here. Needs no package beyond those of the core.
"""

from __future__ import annotations

import os
import struct
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..engine import Engine
from ..formats import format_by_name
from ..settings import EngineOptions

N_EMBD, N_HEAD, N_KV, N_FF, N_VOCAB, N_CTX = 64, 4, 2, 96, 80, 64
TOKENS = tuple((7 * i + 3) % N_VOCAB for i in range(37))
# Executors order their sums differently; what that may change is far below this, and an error in a kernel far above.
TOLERANCE = 1e-3
_GGUF_U32, _GGUF_F32, _GGUF_STRING = 4, 6, 8


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _metadata() -> list[bytes]:
    pairs: dict[str, str | int | float] = {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.context_length": N_CTX,
        "llama.embedding_length": N_EMBD,
        "llama.feed_forward_length": N_FF,
        "llama.attention.head_count": N_HEAD,
        "llama.attention.head_count_kv": N_KV,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
    }
    out = []
    for key, value in pairs.items():
        if isinstance(value, str):
            packed = struct.pack("<I", _GGUF_STRING) + _string(value)
        elif isinstance(value, int):
            packed = struct.pack("<II", _GGUF_U32, value)
        else:
            packed = struct.pack("<If", _GGUF_F32, value)
        out.append(_string(key) + packed)
    return out


def _tensor(rng: np.random.Generator, format_name: str, shape: tuple[int, ...]) -> bytes:
    """Random values of about unit size in a format; shape in GGUF order, fastest dimension first."""
    n = int(np.prod(shape))
    if format_name == "F32":
        return rng.uniform(0.5, 1.5, n).astype("<f4").tobytes()
    block = format_by_name(format_name).block
    scale = rng.uniform(0.0005, 0.002, n // block).astype("<f2").view(np.uint8).reshape(-1, 2)
    if format_name == "Q8_0":
        return np.hstack([scale, rng.integers(0, 256, (n // block, block), np.uint8)]).tobytes()
    assert format_name == "Q4_1"
    # sixteen steps from the minimum up: around zero
    scale = rng.uniform(0.005, 0.03, n // block).astype("<f2")
    least = (scale.astype(np.float32) * -7.5).astype("<f2")
    nibbles = rng.integers(0, 256, (n // block, block // 2), np.uint8)
    return np.hstack([scale.view(np.uint8).reshape(-1, 2), least.view(np.uint8).reshape(-1, 2), nibbles]).tobytes()


def model_bytes() -> bytes:
    """The GGUF file. The same bytes on every machine."""
    rng = np.random.default_rng(20)
    kv_dim = N_KV * N_EMBD // N_HEAD
    tensors = {
        "token_embd.weight": ("Q8_0", (N_EMBD, N_VOCAB)),
        "blk.0.attn_norm.weight": ("F32", (N_EMBD,)),
        "blk.0.attn_q.weight": ("Q4_1", (N_EMBD, N_EMBD)),
        "blk.0.attn_k.weight": ("Q4_1", (N_EMBD, kv_dim)),
        "blk.0.attn_v.weight": ("Q8_0", (N_EMBD, kv_dim)),
        "blk.0.attn_output.weight": ("Q4_1", (N_EMBD, N_EMBD)),
        "blk.0.ffn_norm.weight": ("F32", (N_EMBD,)),
        "blk.0.ffn_gate.weight": ("Q4_1", (N_EMBD, N_FF)),
        "blk.0.ffn_up.weight": ("Q4_1", (N_EMBD, N_FF)),
        "blk.0.ffn_down.weight": ("Q8_0", (N_FF, N_EMBD)),
        "output_norm.weight": ("F32", (N_EMBD,)),
    }
    metadata = _metadata()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(metadata)
    body = b""
    for name, (format_name, shape) in tensors.items():
        head += _string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", format_by_name(format_name).id, len(body))
        body += _tensor(rng, format_name, shape)
        body += bytes(-len(body) % 32)
    return head + bytes(-len(head) % 32) + body


def logits(path: str, options: EngineOptions) -> NDArray[np.float32]:
    """float32 [len(TOKENS), N_VOCAB] of the model: a prompt, then a few tokens one at a time."""
    prompt = len(TOKENS) - 4
    with Engine.open(path, options) as engine:
        seq = engine.new_sequence()
        rows = [np.array(engine.forward(seq, TOKENS[:prompt], "all"))]
        rows += [np.array(engine.verify(seq, [token])) for token in TOKENS[prompt:]]
    return np.concatenate(rows)


class SelfTest:
    """The model as a file, for as long as the `with` block lasts, and what the reference says about it."""

    def __enter__(self) -> SelfTest:
        # In memory: no folder needs to be writable, and nothing is left behind however the process ends.
        self._file = open(os.memfd_create("selftest.gguf"), "wb")
        self._file.write(model_bytes())
        self._file.flush()
        self.path = f"/proc/self/fd/{self._file.fileno()}"
        self._options = EngineOptions(n_ctx=N_CTX, threads=2)
        self.expected = logits(self.path, replace(self._options, executor="reference"))
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def cpu(self, isa: str) -> NDArray[np.float32]:
        """Logits by the cpu executor with one instruction set."""
        return logits(self.path, replace(self._options, executor="cpu", cpu_isa=isa))

    def fault(self, got: NDArray[np.float32]) -> str:
        """What is wrong with logits; empty when they agree with the reference."""
        if got.shape != self.expected.shape:
            return f"{got.shape} logits, expected {self.expected.shape}"
        error = float(np.max(np.abs(got - self.expected)) / np.max(np.abs(self.expected)))
        return "" if error <= TOLERANCE else f"differs from the reference by {error:.2g} of the largest logit"
