"""reference: the numpy executor, which defines what is right.

Two modes. `float64` checks the mathematics: everything in float64, nothing quantised. `q8` is what other
executors are compared with: float32, activations through Q8 where the program says so, F16 keys and values.
Each buffer has memory of its own, so it also shows what a wrong arena plan does to another executor.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..formats import dequantize, format_by_name
from ..machine import free_memory
from ..ops import OPS
from ..program import Buffer, Cache, Matrix, Program, RopeTable, State, Table, Vector, View, union
from ..program.step import OUTS, ROW, StepInputs
from . import weights
from .base import DTYPES, Binding, Data, Item, Job, Place, Progress, Q8Rows, Sizes

BLOCK = 32


class Segment(NamedTuple):
    """Rows [first, first + count) of sequence `seq`; see `step.STEP_FIELDS` for slot and keep."""

    seq: int
    first: int
    n_rows: int
    slot: int
    keep: int


def quantize_q8(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes int8 [rows, n], scales float32 [rows, n / 32] of x float32 [rows, n]; NaN scales where x is not finite."""
    blocks = np.ascontiguousarray(x, np.float32).reshape(x.shape[0], -1, BLOCK)
    amax = np.abs(blocks).max(axis=-1, keepdims=True)
    tiny = ~(amax > np.float32(4e-37))
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        d = np.where(tiny, np.float32(0), amax / np.float32(127))
        codes = np.nan_to_num(np.rint(blocks * np.where(tiny, np.float32(0), np.float32(127) / amax)))
    d = np.where(np.isfinite(blocks).all(axis=-1, keepdims=True), d, np.float32(np.nan))
    return codes.astype(np.int8).reshape(x.shape), d[..., 0].astype(np.float32)


class ReferenceExecutor:
    """See the module docstring. `mode` is "q8" or "float64"."""

    compiled, isa, threads = False, "", 1

    def __init__(self, mode: str = "q8") -> None:
        assert mode in ("q8", "float64")
        self.mode, self.name = mode, "reference" if mode == "q8" else "reference-float64"
        self.dtype: Any = np.float32 if mode == "q8" else np.float64
        self.arithmetic = "numpy" if mode == "q8" else mode
        self.buffers: dict[Buffer, np.ndarray] = {}
        self.q8: dict[Buffer, Q8Rows] = {}  # codes and scales of what buffers hold as values
        self._weights: dict[Any, np.ndarray] = {}
        self._peaks: dict[Matrix, np.ndarray] = {}

    def plan(self, programs: Mapping[str, Program], bindings: Sequence[Binding]) -> Sizes:
        """Weights as numpy keeps them; buffers grow as steps need them, and are not counted."""
        used = union(list(programs.values())).weights()
        values = sum(w.m * w.k if isinstance(w, Matrix) else w.n for w in used if not isinstance(w, Table))
        return Sizes(np.dtype(self.dtype).itemsize * values, 0)

    def free_memory(self) -> int:
        return free_memory()

    def load(self, job: Job, progress: Progress) -> None:
        self.tensors, self.programs = job.tensors, [job.programs[b.program] for b in job.bindings]
        whole, shape = job.whole(), job.shape
        weights.check(job.tensors, whole.weights())
        store = np.float16 if self.mode == "q8" else np.float64
        self.cache = {
            (c.layer, c.which): np.zeros((shape.n_blocks, BLOCK, c.heads, c.dim), store) for c in whole.caches()
        }
        self.states = {s: np.zeros((shape.n_seqs, *s.shape), self.dtype) for s in whole.states()}
        self.ropes = [table.astype(self.dtype) for table in job.ropes]
        self.limits = job.limits()
        progress(1, 1)

    def run(self, handle: int, step: StepInputs) -> None:
        for index in range(len(self.programs[handle].commands)):
            self.run_command(handle, step, index)

    def run_command(self, handle: int, step: StepInputs, index: int) -> None:
        step.refuse(self.limits[handle])
        self.step = step
        command = self.command = self.programs[handle].commands[index]
        skipped = command.skippable and step.skip
        if not skipped and (command.domain != OUTS or step.n_outs):
            with np.errstate(all="ignore"):  # what overflows is what C makes of it, and no business of stderr
                OPS[command.op].reference(self, command.args)

    def run_timed(self, handle: int, step: StepInputs) -> np.ndarray:
        clock = [time.monotonic_ns()]
        for index in range(len(self.programs[handle].commands)):
            self.run_command(handle, step, index)
            clock.append(time.monotonic_ns())
        return np.diff(clock)

    def read(self, handle: int, view: View, rows: int) -> np.ndarray:
        if rows == 0:  # a step without output rows never wrote it
            return np.empty((0, view.cols), DTYPES[view.buffer.dtype])
        values = self.buffers[view.buffer][:rows, view.offset : view.offset + view.cols]
        with np.errstate(over="ignore"):
            return np.asarray(values, DTYPES[view.buffer.dtype])

    def command_bytes(self, handle: int, rows: int, outs: int) -> int:
        """Weight bytes that a step would read in the formats of the program; all experts are counted as read."""
        used = (w for w in self.programs[handle].weights() if isinstance(w, Matrix))
        return sum(w.m * format_by_name(w.format).row_bytes(w.k) for w in used)

    def read_bandwidth(self) -> float:
        return 0.0

    def memory(self) -> dict[str, int]:
        kv = sum(c.nbytes for c in self.cache.values())
        return {"weights": sum(w.nbytes for w in self._weights.values()), "KV cache": kv}

    def close(self) -> None:
        self.buffers, self.q8, self._weights, self._peaks, self.cache = {}, {}, {}, {}, {}

    # ---- exchange ----

    @np.errstate(over="ignore", invalid="ignore")
    def peek(self, handle: int, item: Item, place: Place) -> Data:
        match item:
            case View(buffer, offset, cols):
                values = self.buffers[buffer][: place.rows, offset : offset + cols]
                if buffer.dtype != "q8":
                    return values.astype(np.int32 if buffer.dtype == "i32" else np.float32)
                if self.mode == "q8":
                    return Q8Rows(self.q8[buffer].codes[: place.rows], self.q8[buffer].scales[: place.rows])
                return Q8Rows(*quantize_q8(values))
            case Cache(layer, which):
                return np.asarray(self.cache[layer, which][place.blocks, place.slots], np.float16)
            case State():
                return np.asarray(self.states[item][place.seqs], np.float32)

    @np.errstate(over="ignore", invalid="ignore")
    def poke(self, handle: int, item: Item, place: Place, data: Data) -> None:
        if isinstance(data, Q8Rows):
            assert isinstance(item, View)
            self._store_q8(item, data)
        elif isinstance(item, View):
            self._store(item, data.astype(self._dtype(item.buffer)))
        elif isinstance(item, Cache):
            self.cache[item.layer, item.which][place.blocks, place.slots] = data
        else:
            self.states[item][place.seqs] = data

    # ---- what op references use ----

    def scalar(self, value: float) -> Any:
        return self.dtype(value)

    def get(self, view: View) -> np.ndarray:
        """Live rows of a view, as the executor's float type; a Q8 buffer gives code times scale."""
        rows = {OUTS: self.step.n_outs, ROW: 1}.get(view.buffer.domain, self.step.n_rows)
        return self.buffers[view.buffer][:rows, view.offset : view.offset + view.cols]

    def put(self, view: View, values: np.ndarray) -> None:
        values = values.astype(self._dtype(view.buffer), copy=False)
        if view.buffer.dtype == "q8" and self.mode == "q8":
            self._store_q8(view, Q8Rows(*quantize_q8(values)))
        else:
            self._store(view, values)

    def _store_q8(self, view: View, rows: Q8Rows) -> None:
        self.q8[view.buffer] = rows
        self._store(view, rows.codes.astype(self.dtype) * np.repeat(rows.scales, BLOCK, axis=-1).astype(self.dtype))

    def _dtype(self, buffer: Buffer) -> Any:
        return np.int32 if buffer.dtype == "i32" else self.dtype

    def _store(self, view: View, values: np.ndarray) -> None:
        whole = self.buffers.get(view.buffer)
        if whole is None or whole.shape[0] < values.shape[0]:
            grown = np.zeros((values.shape[0], view.buffer.cols), self._dtype(view.buffer))
            if whole is not None:
                grown[: whole.shape[0]] = whole
            whole = self.buffers[view.buffer] = grown
        whole[: values.shape[0], view.offset : view.offset + view.cols] = values

    def matrix(self, weight: Matrix) -> np.ndarray:
        if weight not in self._weights:
            self._weights[weight] = weights.matrix_values(self.tensors, weight).astype(self.dtype)
        return self._weights[weight]

    def matrix_peaks(self, weight: Matrix) -> np.ndarray:
        """[m, runs of 32]: the largest magnitude of each 32 weights of a row."""
        if weight not in self._peaks:
            values = np.abs(weights.matrix_values(self.tensors, weight))
            values = np.pad(values, ((0, 0), (0, -weight.k % BLOCK)))
            self._peaks[weight] = values.reshape(weight.m, -1, BLOCK).max(axis=-1).astype(self.dtype)
        return self._peaks[weight]

    def vector(self, weight: Vector) -> np.ndarray:
        if weight not in self._weights:
            self._weights[weight] = weights.vector_values(self.tensors, weight).astype(self.dtype)
        return self._weights[weight]

    def table_rows(self, table: Table, rows: np.ndarray) -> np.ndarray:
        info = self.tensors[table.name]
        raw = info.data().reshape(-1, info.format.row_bytes(table.cols))[rows]
        return np.asarray(dequantize(info.format, raw), self.dtype)

    def rope_rows(self, rope: RopeTable) -> np.ndarray:
        return np.asarray(self.ropes[rope.index][self.step.pos[self._live()]])

    def tokens(self) -> np.ndarray:
        return self.step.token[self._live()]

    def out_rows(self) -> np.ndarray:
        return self.step.out_row[: self.step.n_outs]

    def positions(self) -> list[tuple[int, int]]:
        rows = self._live()
        return list(zip(self.step.pos[rows].tolist(), self.step.seq[rows].tolist(), strict=True))

    def _live(self) -> slice:
        """Rows of the step inputs that the running command is about."""
        row = self.command.row
        return slice(row, row + 1) if self.command.domain == ROW else slice(0, self.step.n_rows)

    def end_chain_unless(self, goes_on: bool) -> None:
        """Set the skip flag (see `ops.pick`), also when the step has no further row."""
        if not goes_on or self.command.row + 1 >= self.step.n_rows:
            self.step.skip = 1

    def position(self, row: int) -> int:
        return int(self.step.pos[row])

    def segments(self) -> list[Segment]:
        step = self.step
        return [Segment(int(step.seq[f]), int(f), int(n), int(s), int(k)) for f, n, s, k in step.seg[: step.n_segs]]

    def state(self, state: State) -> np.ndarray:
        """[sequences, *shape], to be changed in place."""
        return self.states[state]

    def cache_write(self, k_cache: Cache, v_cache: Cache, k: np.ndarray, v: np.ndarray) -> None:
        for r, (pos, seq) in enumerate(self.positions()):
            block, slot = self.step.tables[seq, pos // BLOCK], pos % BLOCK
            self.cache[k_cache.layer, "k"][block, slot] = self._stored(k[r])
            self.cache[v_cache.layer, "v"][block, slot] = self._stored(v[r])

    def _stored(self, x: np.ndarray) -> np.ndarray:
        """What the cache keeps: in q8 mode the nearest finite F16, and 0 for NaN."""
        return x if self.mode == "float64" else np.clip(np.nan_to_num(x, nan=0.0), -65504, 65504)

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
