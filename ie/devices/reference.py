"""reference: the numpy executor, which defines what is right.

Two modes. `float64` checks the mathematics: everything in float64, nothing quantised. `q8` is what other
executors are compared with: float32, activations through Q8 where the program says so, F16 keys and values.
Each buffer has memory of its own, so it also shows what a wrong arena plan does to another executor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import weights
from ..config import ModelConfig, rope_table
from ..formats import dequantize
from ..gguf import GgufFile
from ..ops import OPS
from ..program import Buffer, Cache, Matrix, Program, RopeTable, Table, Vector, View
from ..step import OUTS, StepInputs
from .base import Progress

BLOCK = 32


def quantize_q8(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes int8 [rows, n] and scales float32 [rows, n / 32] of x float32 [rows, n]."""
    blocks = np.ascontiguousarray(x, np.float32).reshape(x.shape[0], -1, BLOCK)
    amax = np.abs(blocks).max(axis=-1, keepdims=True)
    tiny = ~(amax > np.float32(4e-37))
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        d = np.where(tiny, np.float32(0), amax / np.float32(127))
        codes = np.rint(blocks * np.where(tiny, np.float32(0), np.float32(127) / amax))
    return codes.astype(np.int8).reshape(x.shape), d[..., 0].astype(np.float32)


class ReferenceExecutor:
    """See the module docstring. `mode` is "q8" or "float64"."""

    def __init__(self, mode: str = "q8") -> None:
        assert mode in ("q8", "float64")
        self.mode, self.name = mode, "reference" if mode == "q8" else "reference-float64"
        self.dtype: Any = np.float32 if mode == "q8" else np.float64
        self.buffers: dict[Buffer, np.ndarray] = {}
        self._weights: dict[Any, np.ndarray] = {}

    def load(
        self, gguf: GgufFile, config: ModelConfig, program: Program, n_ctx: int, n_blocks: int, progress: Progress
    ) -> None:
        self.gguf, self.program = gguf, program
        store = np.float16 if self.mode == "q8" else np.float64
        self.cache = {
            (i, which): np.zeros((n_blocks, BLOCK, layer.n_kv, config.head_dim), store)
            for i, layer in enumerate(config.layers)
            for which in ("k", "v")
        }
        self.ropes = []
        for rope in config.ropes:
            factors = weights.vector_values(gguf, Vector((rope.factors,), rope.n_rot // 2)) if rope.factors else None
            self.ropes.append(rope_table(rope, n_ctx, factors).astype(self.dtype))
        progress(1, 1)

    def bind(self, rows: int, outs: int) -> int:
        return 0

    def run(self, handle: int, step: StepInputs) -> None:
        self.step = step
        for command in self.program.commands:
            self.domain_outs = command.domain == OUTS
            if not self.domain_outs or step.n_outs:
                OPS[command.op].reference(self, command.args)

    def read(self, handle: int, view: View, rows: int) -> np.ndarray:
        return np.asarray(self.buffers[view.buffer][:rows, view.offset : view.offset + view.cols], np.float32)

    def command_bytes(self, handle: int, rows: int, outs: int) -> int:
        """Weight bytes that a step reads in the file's formats."""
        return sum(weights.nbytes(w) for w in self.program.weights() if isinstance(w, Matrix))

    def memory(self) -> dict[str, int]:
        kv = sum(c.nbytes for c in self.cache.values())
        return {"weights": sum(w.nbytes for w in self._weights.values()), "KV cache": kv}

    def close(self) -> None:
        self.buffers, self._weights, self.cache = {}, {}, {}

    # ---- what op references use ----

    def scalar(self, value: float) -> Any:
        return self.dtype(value)

    def get(self, view: View) -> np.ndarray:
        """Live rows of a view, as the executor's float type; a Q8 buffer gives code times scale."""
        rows = self.step.n_outs if view.buffer.domain == OUTS else self.step.n_rows
        return self.buffers[view.buffer][:rows, view.offset : view.offset + view.cols]

    def put(self, view: View, values: np.ndarray) -> None:
        values = values.astype(self.dtype, copy=False)
        if view.buffer.dtype == "q8" and self.mode == "q8":
            codes, d = quantize_q8(values)
            values = codes.astype(np.float32) * np.repeat(d, BLOCK, axis=-1)
        whole = self.buffers.get(view.buffer)
        if whole is None or whole.shape[0] < values.shape[0]:
            grown = np.zeros((values.shape[0], view.buffer.cols), self.dtype)
            if whole is not None:
                grown[: whole.shape[0]] = whole
            whole = self.buffers[view.buffer] = grown
        whole[: values.shape[0], view.offset : view.offset + view.cols] = values

    def matrix(self, weight: Matrix) -> np.ndarray:
        if weight not in self._weights:
            self._weights[weight] = weights.matrix_values(self.gguf, weight).astype(self.dtype)
        return self._weights[weight]

    def vector(self, weight: Vector) -> np.ndarray:
        if weight not in self._weights:
            self._weights[weight] = weights.vector_values(self.gguf, weight).astype(self.dtype)
        return self._weights[weight]

    def table_rows(self, table: Table, rows: np.ndarray) -> np.ndarray:
        info = self.gguf.tensors[table.name]
        raw = info.data().reshape(-1, info.format.row_bytes(table.cols))[rows]
        return np.asarray(dequantize(info.format, raw), self.dtype)

    def rope_rows(self, rope: RopeTable) -> np.ndarray:
        return np.asarray(self.ropes[rope.index][self.step.pos[: self.step.n_rows]])

    def tokens(self) -> np.ndarray:
        return self.step.token[: self.step.n_rows]

    def out_rows(self) -> np.ndarray:
        return self.step.out_row[: self.step.n_outs]

    def positions(self) -> list[tuple[int, int]]:
        n = self.step.n_rows
        return list(zip(self.step.pos[:n].tolist(), self.step.seq[:n].tolist(), strict=True))

    def cache_write(self, k_cache: Cache, v_cache: Cache, k: np.ndarray, v: np.ndarray) -> None:
        for r, (pos, seq) in enumerate(self.positions()):
            block, slot = self.step.tables[seq, pos // BLOCK], pos % BLOCK
            with np.errstate(over="ignore"):
                self.cache[k_cache.layer, "k"][block, slot] = k[r]
                self.cache[v_cache.layer, "v"][block, slot] = v[r]

    def cache_read(self, k_cache: Cache, v_cache: Cache, seq: int, lo: int, hi: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values of positions [lo, hi): [n, heads, dim] each."""
        first = lo // BLOCK
        blocks = self.step.tables[seq, first : -(-hi // BLOCK)]
        out = []
        for cache in (k_cache, v_cache):
            data = self.cache[cache.layer, cache.which][blocks]
            data = data.reshape(-1, cache.heads, cache.dim)[lo - first * BLOCK : hi - first * BLOCK]
            out.append(data.astype(self.dtype))
        return out[0], out[1]
