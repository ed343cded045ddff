"""Compiled executors: programs as packed commands on a device, whatever device it is.

Owns: what of a model lies where in a device's memory (weights, arena, KV pool, states, rotary tables, partial results),
the addresses that commands are packed with, and looking into it. All memory is taken in `load`; `run` is one call of
the device. Does not own memory itself, threads, or launching (`device`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .. import native
from ..errors import DeviceError
from ..ops import OPS
from ..ops.table import COMMAND_BYTES
from ..program import Buffer, Cache, Matrix, Partials, Program, RopeTable, State, Table, View, union
from ..program.pack import pack
from ..program.plan import plan_program
from ..program.step import OUTS, ROW, STEP_DTYPE, Limits, StepInputs
from . import weights
from .base import DTYPES, Binding, Data, Item, Job, Place, Progress, Q8Rows, Sizes
from .device import Device, Region

QUANTUM = 32  # values of a Q8 block
UNITS = ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1))
MATRIX_OPS = {name for name, op in OPS.items() if any(a.kind in ("matrix", "matrices") for a in op.args)}


@dataclass
class Bound:
    """A program bound to a capacity: where its buffers lie in the arena, its packed commands, the device's handle."""

    program: Program
    offsets: dict[Buffer, int]
    commands: np.ndarray
    limits: Limits
    handle: int


class CompiledExecutor:
    """See the module docstring. It owns the device.

    apart: for tests, bytes (whole KiB) that are left behind every weight, buffer, state and layer's cache; no two
    buffers then share memory. 0: none, and buffers share what they can.
    """

    compiled = True

    def __init__(self, device: Device, apart: int = 0) -> None:
        self.device, self.apart = device, apart
        self.name, self.arithmetic = device.facts.name, device.facts.arithmetic
        self.isa, self.threads = device.facts.isa, device.facts.threads
        self.lib = native.lib()[1]
        self.bound: list[Bound] = []
        self.at: dict[Any, tuple[Region, int]] = {}
        """Where each weight, cache, state, rope table and room for partial results begins: region and byte."""
        self.taken: list[tuple[str, Region]] = []
        """All memory of its own, with its purpose."""
        self._views: dict[tuple[int, Buffer, int, int], np.ndarray] = {}  # what `read` made before
        self._planned: tuple[list[Program], list[Binding], list[tuple[dict[Buffer, int], int]]] = ([], [], [])

    # ---- planning ----

    def row_bytes(self, buffer: Buffer) -> int:
        fn = self.lib.ie_core_q8_row_bytes if buffer.dtype == "q8" else self.lib.ie_core_f32_row_bytes
        return int(fn(buffer.cols))

    def plan(self, programs: Mapping[str, Program], bindings: Sequence[Binding]) -> Sizes:
        used = union(list(programs.values())).weights()
        size = weights.place(used, self.device.layout, self.apart).total
        return Sizes(size, max(arena for _, arena in self._plans(programs, bindings)))

    def _plans(
        self, programs: Mapping[str, Program], bindings: Sequence[Binding]
    ) -> list[tuple[dict[Buffer, int], int]]:
        """Offsets and arena of each binding, kept: `load` asks again for what `plan` was asked."""
        chosen = [programs[b.program] for b in bindings]
        before, capacities, plans = self._planned
        same = len(before) == len(chosen) and all(a is b for a, b in zip(before, chosen, strict=True))
        if not same or capacities != list(bindings):
            plans = [self._plan_one(program, b) for program, b in zip(chosen, bindings, strict=True)]
            self._planned = chosen, list(bindings), plans
        return plans

    def _plan_one(self, program: Program, binding: Binding) -> tuple[dict[Buffer, int], int]:
        def size_of(buffer: Buffer) -> int:
            return self.row_bytes(buffer) * {OUTS: binding.outs, ROW: 1}.get(buffer.domain, binding.rows)

        return plan_program(program, size_of, self.apart)

    def free_memory(self) -> int:
        return self.device.free_memory()

    # ---- loading ----

    def load(self, job: Job, progress: Progress) -> None:
        whole, device = job.whole(), self.device
        placement = weights.place(whole.weights(), device.layout, self.apart)
        region = self._alloc("weights", placement.total, "weights", "a smaller model or quantisation needs less", True)
        self.weights = region
        weights.load(job.tensors, placement, device, region, progress)
        self.at |= {w: (region, offset) for w, offset in placement.offsets.items()}
        self._tables = {w: job.tensors[w.name] for w in whole.weights() if isinstance(w, Table)}
        for table, info in self._tables.items():
            self.at[table] = device.resident(info.data(), "the embedding"), 0
        self._make_ropes(job.ropes)
        self._make_cache(whole.caches(), job.shape.n_blocks)
        self._make_states(whole.states(), job.shape.n_seqs)
        self.segments = key_segments(job.shape.n_ctx)
        for p in whole.partials():
            size = partials_bytes(p.heads, p.dim, job.shape.n_ctx)
            self.at[p] = self._alloc("partial results", size, "partial results"), 0
        plans = self._plans(job.programs, job.bindings)
        self.arena = self._alloc("activations", max(n for _, n in plans), "activations", "a smaller --chunk needs less")
        for binding, (offsets, _), limits in zip(job.bindings, plans, job.limits(), strict=True):
            self.bound.append(self.bind(job.programs[binding.program], offsets, limits))

    def bind(self, program: Program, offsets: dict[Buffer, int], limits: Limits) -> Bound:
        """Pack a program with the addresses that everything has, and give it to the device."""
        commands = np.frombuffer(pack(program, partial(self._resolve, offsets)), np.uint8)
        handle = self.device.load(commands, np.asarray(program.stage_starts(), np.int32), limits)
        return Bound(program, offsets, commands, limits, handle)

    def _alloc(self, purpose: str, nbytes: int, what: str, hint: str = "", huge: bool = False) -> Region:
        region = self.device.alloc(nbytes, what, hint, huge)
        self.taken.append((purpose, region))
        return region

    def _make_ropes(self, tables: Sequence[np.ndarray]) -> None:
        for i, table in enumerate(tables):
            region = self._alloc("rotary tables", table.nbytes, "a rotary table")
            self.device.write(region, 0, table.reshape(-1).view(np.uint8))
            self.at[RopeTable(i)] = region, 0

    def _make_cache(self, caches: Sequence[Cache], n_blocks: int) -> None:
        """Chunks of blocks, each with the keys and values of all layers. Only chunks that are used take memory."""
        sizes = [2 * self.lib.ie_core_kv_chunk_elems(c.heads, c.dim) + self.apart for c in caches]
        self.cache_stride, self.n_chunks = sum(sizes), -(-n_blocks // native.constant("kv_chunk"))
        region = self._alloc("KV cache", self.n_chunks * sum(sizes), "the KV cache", huge=True)
        self.at |= {c: (region, sum(sizes[:i])) for i, c in enumerate(caches)}

    def _make_states(self, states: Sequence[State], n_seqs: int) -> None:
        """Recurrent state and the like: `shape` floats for each sequence, one after the other."""
        if not states:
            return
        sizes = [-(-4 * n_seqs * s.size // 256) * 256 + self.apart for s in states]
        region = self._alloc("state", sum(sizes), "the recurrent state", "a smaller model needs less")
        self.at |= {s: (region, sum(sizes[:i])) for i, s in enumerate(states)}

    def _address(self, item: Any) -> int:
        region, offset = self.at[item]
        return region.address + offset

    def _resolve(self, offsets: Mapping[Buffer, int], value: Any) -> tuple[Any, ...]:
        """The fields of an argument's C struct."""
        match value:
            case View(buffer, offset, cols):
                return self.arena.address + offsets[buffer] + 4 * offset, self.row_bytes(buffer), cols
            case Matrix():
                layout = self.device.layout(value.format)
                fields = self._address(value), layout.id, layout.size, value.k // layout.block, layout.rows
                return (*fields, layout.nbytes(value.rows[0], value.k), 0) if value.separate else fields
            case Table(_, cols):
                fmt = self._tables[value].format
                return self._address(value), fmt.id, fmt.row_bytes(cols)
            case Cache():
                return self._address(value), self.cache_stride // 1024, 0
            case Partials():
                return self._address(value), self.segments, 0
        return (self._address(value),)

    # ---- running ----

    def run(self, handle: int, step: StepInputs) -> None:
        bound = self.bound[handle]
        if not self.device.run(bound.handle, step):
            self._refuse(bound, step)

    def run_command(self, handle: int, step: StepInputs, index: int) -> None:
        if self.device.run_each(self.bound[handle].handle, step, range(index, index + 1)) is None:
            self._refuse(self.bound[handle], step)

    def run_timed(self, handle: int, step: StepInputs) -> np.ndarray:
        bound = self.bound[handle]
        times = self.device.run_each(bound.handle, step, range(len(bound.program.commands)))
        if times is None:
            self._refuse(bound, step)
        return np.asarray(times)

    def _refuse(self, bound: Bound, step: StepInputs) -> None:
        step.refuse(bound.limits)
        raise DeviceError(f"{self.name}: the program was refused")

    # ---- exchange ----

    def rows(self, handle: int, buffer: Buffer, rows: int) -> np.ndarray:
        """uint8 [rows, bytes of a row] of a buffer, as the device has it: a view where fetching gives views."""
        stride, start = self.row_bytes(buffer), self.bound[handle].offsets[buffer]
        return self.device.fetch(self.arena, start, rows * stride).reshape(rows, stride)

    def put_rows(self, handle: int, buffer: Buffer, raw: np.ndarray) -> None:
        """Write uint8 [rows, bytes of a row] to the first rows of a buffer."""
        self.device.write(self.arena, self.bound[handle].offsets[buffer], raw.reshape(-1))

    def _q8_fields(self, raw: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Views of codes, scales, scale times sum, and sums of half blocks in raw Q8 rows of k values."""
        d, dsum, sums = (int(f(k)) for f in (
            self.lib.ie_core_q8_scale_offset, self.lib.ie_core_q8_dsum_offset, self.lib.ie_core_q8_sums_offset
        ))  # fmt: skip
        n = -(-k // QUANTUM)
        floats = [raw[:, at : at + 4 * n].view(np.float32) for at in (d, dsum)]
        return raw[:, :k].view(np.int8), floats[0], floats[1], raw[:, sums : sums + 8 * n].view(np.int32)

    def entries(self, cache: Cache, flat: np.ndarray) -> np.ndarray:
        """A layer's keys or values as float16 [chunks, blocks, 32, heads, dim], given the bytes of the cache from the
        layer's first one on: a view of them."""
        per_chunk, stride, lib = native.constant("kv_chunk"), self.cache_stride // 2, self.lib
        heads, dim, places = cache.heads, cache.dim, ((per_chunk, 0, 0, 0), *UNITS)
        if cache.which == "k":
            strides = [2 * lib.ie_core_k_index(stride, b, dim, h, d, s) for b, s, h, d in places]
        else:
            strides = [2 * lib.ie_core_v_index(stride, b, dim, h, s, d) for b, s, h, d in places]
        shape = (self.n_chunks, per_chunk, native.constant("kv_block"), heads, dim)
        return np.lib.stride_tricks.as_strided(flat[: flat.size // 2 * 2].view(np.float16), shape, strides)

    def cache_bytes(self, cache: Cache) -> np.ndarray:
        """uint8: the KV cache from a layer's first byte on."""
        region, start = self.at[cache]
        return self.device.fetch(region, start, region.nbytes - start)

    def _state(self, state: State, place: Place) -> np.ndarray:
        """float32 [sequences, *shape] up to the last sequence of the place."""
        (region, start), n = self.at[state], int(place.seqs.max()) + 1
        return self.device.fetch(region, start, 4 * n * state.size).view(np.float32).reshape(n, *state.shape)

    def _at(self, place: Place) -> tuple[Any, ...]:
        """Index of a place in `entries`."""
        per_chunk = native.constant("kv_chunk")
        return place.blocks // per_chunk, place.blocks % per_chunk, place.slots

    def peek(self, handle: int, item: Item, place: Place) -> Data:
        match item:
            case View(buffer, _, cols) if buffer.dtype == "q8":
                codes, d, _, _ = self._q8_fields(self.rows(handle, buffer, place.rows), cols)
                return Q8Rows(codes.copy(), d.copy())
            case View():
                return self.read(handle, item, place.rows).copy()
            case Cache():
                return np.ascontiguousarray(self.entries(item, self.cache_bytes(item))[self._at(place)])
            case State():
                return np.asarray(self._state(item, place)[place.seqs])

    def poke(self, handle: int, item: Item, place: Place, data: Data) -> None:
        """What is there is fetched, changed and written back, so that all else stays as it is."""
        if isinstance(item, View):
            raw = self.rows(handle, item.buffer, place.rows)
            if isinstance(data, Q8Rows):
                codes, d, dsum, sums = self._q8_fields(raw, item.cols)
                codes[:], d[:] = data.codes, data.scales
                half = codes.reshape(len(codes), -1, QUANTUM // 2).sum(axis=-1, dtype=np.int32)
                sums[:] = -half
                dsum[:] = d * (half[:, ::2] + half[:, 1::2]).astype(np.float32)
            else:
                raw.view(DTYPES[item.buffer.dtype])[:, item.offset : item.offset + item.cols] = data
            self.put_rows(handle, item.buffer, raw)
            return
        assert isinstance(data, np.ndarray)
        region, start = self.at[item]
        if isinstance(item, Cache):
            flat = self.cache_bytes(item)
            self.entries(item, flat)[self._at(place)] = data
            self.device.write(region, start, flat)
        else:
            states = self._state(item, place)
            states[place.seqs] = data
            self.device.write(region, start, states.reshape(-1).view(np.uint8))

    def read(self, handle: int, view: View, rows: int) -> np.ndarray:
        key = handle, view.buffer, view.offset, view.cols
        found = self._views.get(key)
        if found is None or not self.device.views:
            stride, start = self.row_bytes(view.buffer), self.bound[handle].offsets[view.buffer]
            most = (self.arena.nbytes - start) // stride if self.device.views else rows
            raw = self.device.fetch(self.arena, start, most * stride).view(DTYPES[view.buffer.dtype])
            raw = raw.reshape(most, stride // 4)
            found = self._views[key] = raw[:, view.offset : view.offset + view.cols]
        return found[:rows]

    # ---- facts ----

    def command_bytes(self, handle: int, rows: int, outs: int) -> int:
        """Weight bytes that one step of the bound program reads; of experts those that its rows use."""
        total, bound = 0, self.bound[handle]
        base = native.pointer(bound.commands, "char *")
        step = np.zeros(1, STEP_DTYPE)  # what reads a matrix looks at the number of its rows alone
        step["n_rows"], step["n_outs"] = rows, outs
        for i, c in enumerate(bound.program.commands):
            if c.op in MATRIX_OPS:
                total += self.lib.ie_core_command_bytes(base + COMMAND_BYTES * i, step.ctypes.data)
        return total

    def read_bandwidth(self) -> float:
        return self.device.read_bandwidth(self.weights)

    def memory(self) -> dict[str, int]:
        out: dict[str, int] = {}
        for purpose, region in self.taken:
            out[purpose] = out.get(purpose, 0) + region.nbytes
        return out

    def close(self) -> None:
        self._views, self.at, self.taken, self.bound = {}, {}, [], []
        self.device.close()


def key_segments(n_ctx: int) -> int:
    """Segments of keys that a context has."""
    return -(-n_ctx // native.constant("attn_segment"))


def partials_bytes(heads: int, dim: int, n_ctx: int) -> int:
    """Bytes where attention's results of single segments are kept (ie_attn_parts_bytes in core_laws/ie_core.h)."""
    return int(native.lib()[1].ie_core_attn_parts_bytes(heads, dim, key_segments(n_ctx)))
