"""cpu: the C executor. Walks the command list on its own thread pool.

Owns: device memory of weights, arena, KV pool and rotary tables, and the addresses that commands are packed
with. All of it is taken in `load` and `bind`; `run` is one call into C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from .. import native
from ..errors import DeviceError, ResourceError
from ..gguf import GgufFile
from ..machine import stack_limit
from ..model.config import ModelConfig, rope_table
from ..ops import OPS
from ..ops.table import COMMAND_BYTES
from ..program import Buffer, Cache, Matrix, Partials, Program, RopeTable, State, Table, Vector, View, union
from ..program.pack import pack
from ..program.plan import plan_program
from ..program.step import OUTS, ROW, STEP_DTYPE, Limits, StepInputs
from . import weights
from .base import DTYPES, Data, Item, Place, Progress, Q8Rows, base_limits, bound_limits

QUANTUM = 32  # values of a Q8 block
CACHED = 64 << 20  # bytes that caches may hold
SAMPLE = 256 << 20  # bytes whose reading tells the bandwidth
NO_THREADS = "cannot start {} threads; ask for fewer with -t, or raise what limits them (ulimit -u, ulimit -v)"
UNITS = ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1))


@dataclass
class Bound:
    """A program bound to a capacity: packed commands, stage starts, the C struct, buffer offsets."""

    commands: np.ndarray
    stage_starts: np.ndarray
    struct: Any
    limits: Any  # ie_limits
    offsets: dict[Buffer, int]
    arena: int
    program: Program


class CpuExecutor:
    """See the module docstring. `threads`: workers, the caller included; `isa`: a name of native.ISAS."""

    name = "cpu"
    arithmetic = "cpu"
    compiled = True

    def __init__(self, threads: int, isa: str = "auto") -> None:
        self.ffi, self.lib = native.lib()
        which = self.lib.ie_isa_best() if isa == "auto" else native.ISAS.index(isa)
        if not self.lib.ie_isa_available(which):
            raise DeviceError(
                f"this processor or build has no {native.ISAS[which]}; available: {', '.join(available_isas())}"
            )
        stack, wanted = stack_limit(), self.lib.ie_stack_bytes()
        if stack < wanted:
            raise ResourceError(
                f"the stack is limited to {stack >> 10} KB, the kernels are to have {wanted >> 10}: raise the limit,"
                " `ulimit -s 8192`, in a new shell if this one refuses"
            )
        self.isa, self.threads = native.ISAS[which], threads
        self.pool = self.lib.ie_pool_create(threads, which)
        if self.pool == self.ffi.NULL:
            raise ResourceError(NO_THREADS.format(threads))
        self.bound: list[Bound] = []
        self.arena: native.Memory | None = None
        self._memory: dict[str, native.Memory] = {}
        self._partials: dict[Partials, native.Memory] = {}
        self._views: dict[tuple[int, Buffer, int, int], np.ndarray] = {}  # what `read` made before

    # ---- loading ----

    def load(
        self,
        gguf: GgufFile,
        config: ModelConfig,
        program: Program,
        n_ctx: int,
        n_blocks: int,
        progress: Progress,
        n_seqs: int = 1,
        more: Sequence[Program] = (),
    ) -> None:
        self.gguf, self.program = gguf, program
        self._all = union((program, *more))
        self.limits = base_limits(gguf, self._all, n_ctx, n_blocks, n_seqs)
        used = self._all.weights()
        self._memory["weights"] = native.Memory(
            weights.place(used).total, "weights", "a smaller model or quantisation needs less", huge=True
        )
        offsets = weights.load(gguf, used, self._memory["weights"].array, self.pool, progress)
        self.weight_address = {w: self._memory["weights"].address + o for w, o in offsets.items()}
        self._load_ropes(config, n_ctx)
        self._make_cache(n_blocks)
        self._make_states(n_seqs)
        self._make_partials(n_ctx)

    def _load_ropes(self, config: ModelConfig, n_ctx: int) -> None:
        tables = []
        for rope in config.ropes:
            factors = (
                weights.vector_values(self.gguf, Vector((rope.factors,), rope.n_rot // 2)) if rope.factors else None
            )
            tables.append(rope_table(rope, n_ctx, factors))
        self._ropes = tables  # keeps them alive: commands hold their addresses
        self.rope_address = [t.ctypes.data for t in tables]

    def _make_cache(self, n_blocks: int) -> None:
        """Chunks of blocks, each with the keys and values of all layers. Only chunks that are used take memory."""
        caches, per_chunk = self._all.caches(), native.constant("kv_chunk")
        sizes = [2 * self.lib.ie_core_kv_chunk_elems(c.heads, c.dim) for c in caches]
        self.kv_chunk, self.n_chunks = sum(sizes) // 1024, -(-n_blocks // per_chunk)
        memory = self._memory["KV cache"] = native.Memory(self.n_chunks * sum(sizes), "the KV cache", huge=True)
        starts = [memory.address + sum(sizes[:i]) for i in range(len(sizes))]
        self.cache_address = {(c.layer, c.which): at for c, at in zip(caches, starts, strict=True)}

    def _make_states(self, n_seqs: int) -> None:
        """Recurrent state and the like: `shape` floats for each sequence, one after the other."""
        sizes = [-(-4 * n_seqs * s.size // 256) * 256 for s in self._all.states()]
        self.state_address: dict[State, int] = {}
        if not sizes:
            return
        memory = self._memory["state"] = native.Memory(sum(sizes), "the recurrent state", "a smaller model needs less")
        pos = memory.address
        for state, size in zip(self._all.states(), sizes, strict=True):
            self.state_address[state] = pos
            pos += size

    def _make_partials(self, n_ctx: int) -> None:
        self.segments = key_segments(n_ctx)
        self._partials = {
            p: native.Memory(partials_bytes(p.heads, p.dim, n_ctx), "partial results") for p in self._all.partials()
        }

    # ---- binding ----

    def row_bytes(self, buffer: Buffer) -> int:
        fn = self.lib.ie_core_q8_row_bytes if buffer.dtype == "q8" else self.lib.ie_core_f32_row_bytes
        return int(fn(buffer.cols))

    def bind(self, rows: int, outs: int, program: Program | None = None) -> int:
        chosen = program or self.program

        def size_of(buffer: Buffer) -> int:
            return self.row_bytes(buffer) * {OUTS: outs, ROW: 1}.get(buffer.domain, rows)

        offsets, arena = plan_program(chosen, size_of)
        if self.arena is None or arena > self.arena.nbytes:
            self.arena = native.Memory(arena, "activations", "a smaller --chunk needs less")
            self._views.clear()
            for bound in self.bound:  # the arena moved: pack the others again
                self._pack(bound)
        starts = np.asarray(chosen.stage_starts(), np.int32)
        struct = self.ffi.new("ie_program *")
        limits = self.ffi.new("ie_limits *", bound_limits(self.limits, chosen, rows, outs)._asdict())
        bound = Bound(np.empty(0, np.uint8), starts, struct, limits, offsets, arena, chosen)
        self._pack(bound)
        self.bound.append(bound)
        return len(self.bound) - 1

    def _pack(self, bound: Bound) -> None:
        assert self.arena is not None
        base = self.arena.address

        def resolve(value: Any) -> tuple[Any, ...]:
            match value:
                case View(buffer, offset, cols):
                    return base + bound.offsets[buffer] + 4 * offset, self.row_bytes(buffer), cols
                case Matrix(_, _, k, layout):
                    return self.weight_address[value], layout.id, layout.size, k // layout.block, layout.rows
                case Vector():
                    return (self.weight_address[value],)
                case Table(name, cols):
                    info = self.gguf.tensors[name]
                    return info.data().ctypes.data, info.format.id, info.format.row_bytes(cols)
                case RopeTable(index):
                    return (self.rope_address[index],)
                case Cache(layer, which):
                    return (self.cache_address[layer, which],)
                case State():
                    return (self.state_address[value],)
                case Partials():
                    return self._partials[value].address, self.segments, 0
            raise AssertionError(f"no address for {value!r}")

        bound.commands = np.frombuffer(pack(bound.program, resolve), np.uint8)
        bound.struct.limits = int(self.ffi.cast("uintptr_t", bound.limits))
        bound.struct.cmds = bound.commands.ctypes.data
        bound.struct.stage_start = bound.stage_starts.ctypes.data
        bound.struct.n_cmds = len(bound.program.commands)
        bound.struct.n_stages = len(bound.stage_starts) - 1

    # ---- running ----

    def run(self, handle: int, step: StepInputs) -> None:
        step.set_chunk(self.kv_chunk)
        if self.lib.ie_run(self.pool, self.bound[handle].struct, step.address) != 0:
            self._refused(handle, step)

    def run_command(self, handle: int, step: StepInputs, index: int) -> None:
        one, starts = self.ffi.new("ie_program *"), np.array([0, 1], np.int32)
        one.cmds = self.bound[handle].struct.cmds + COMMAND_BYTES * index
        one.stage_start, one.n_cmds, one.n_stages = starts.ctypes.data, 1, 1
        one.limits = self.bound[handle].struct.limits
        step.set_chunk(self.kv_chunk)
        if self.lib.ie_run(self.pool, one, step.address) != 0:
            self._refused(handle, step)

    def run_timed(self, handle: int, step: StepInputs) -> np.ndarray:
        n = len(self.bound[handle].program.commands)
        starts, clock = np.arange(n + 1, dtype=np.int32), np.empty(n + 1, np.int64)
        serial = self.ffi.new("ie_program *")
        serial.cmds, serial.stage_start = self.bound[handle].struct.cmds, starts.ctypes.data
        serial.n_cmds = serial.n_stages = n
        serial.limits = self.bound[handle].struct.limits
        step.set_chunk(self.kv_chunk)
        if self.lib.ie_run_timed(self.pool, serial, step.address, native.pointer(clock, "int64_t *")) != 0:
            self._refused(handle, step)
        return np.diff(clock)

    def _refused(self, handle: int, step: StepInputs) -> NoReturn:
        step.refuse(Limits(*(getattr(self.bound[handle].limits, name) for name in Limits._fields)))
        raise DeviceError("cpu: the program was refused")

    # ---- exchange ----

    def _rows(self, handle: int, buffer: Buffer, rows: int) -> np.ndarray:
        """uint8 [rows, bytes of a row] of a buffer: a view of the arena."""
        assert self.arena is not None
        stride, start = self.row_bytes(buffer), self.bound[handle].offsets[buffer]
        return self.arena.array[start : start + rows * stride].reshape(rows, stride)

    def _q8_fields(self, raw: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Views of codes, scales, scale times sum, and sums of half blocks in raw Q8 rows of k values."""
        d, dsum, sums = (int(f(k)) for f in (
            self.lib.ie_core_q8_scale_offset, self.lib.ie_core_q8_dsum_offset, self.lib.ie_core_q8_sums_offset
        ))  # fmt: skip
        n = -(-k // QUANTUM)
        floats = [raw[:, at : at + 4 * n].view(np.float32) for at in (d, dsum)]
        return raw[:, :k].view(np.int8), floats[0], floats[1], raw[:, sums : sums + 8 * n].view(np.int32)

    def _entries(self, cache: Cache, place: Place) -> tuple[np.ndarray, tuple[Any, ...]]:
        """A layer's keys or values as float16 [chunks, blocks, 32, heads, dim], and the index of the place in them."""
        memory, heads, dim = self._memory["KV cache"], cache.heads, cache.dim
        per_chunk, chunk, lib = native.constant("kv_chunk"), 512 * self.kv_chunk, self.lib
        if cache.which == "k":
            strides = [2 * lib.ie_core_k_index(chunk, b, dim, h, d, s) for b, s, h, d in ((per_chunk, 0, 0, 0), *UNITS)]
        else:
            strides = [2 * lib.ie_core_v_index(chunk, b, dim, h, s, d) for b, s, h, d in ((per_chunk, 0, 0, 0), *UNITS)]
        start = self.cache_address[cache.layer, cache.which] - memory.address
        flat = memory.array[start : memory.nbytes // 2 * 2].view(np.float16)
        shape = (self.n_chunks, per_chunk, native.constant("kv_block"), heads, dim)
        at = (place.blocks // per_chunk, place.blocks % per_chunk, place.slots)
        return np.lib.stride_tricks.as_strided(flat, shape, strides), at

    def _state(self, state: State, place: Place) -> np.ndarray:
        """float32 [sequences, *shape] up to the last sequence of the place: a view."""
        memory, n = self._memory["state"], int(place.seqs.max()) + 1
        start = self.state_address[state] - memory.address
        return memory.array[start : start + 4 * n * state.size].view(np.float32).reshape(n, *state.shape)

    def peek(self, handle: int, item: Item, place: Place) -> Data:
        match item:
            case View(buffer, _, cols) if buffer.dtype == "q8":
                codes, d, _, _ = self._q8_fields(self._rows(handle, buffer, place.rows), cols)
                return Q8Rows(codes.copy(), d.copy())
            case View():
                return self.read(handle, item, place.rows).copy()
            case Cache():
                pool, index = self._entries(item, place)
                return np.ascontiguousarray(pool[index])
            case State():
                return np.asarray(self._state(item, place)[place.seqs])

    def poke(self, handle: int, item: Item, place: Place, data: Data) -> None:
        if isinstance(data, Q8Rows):
            assert isinstance(item, View)
            codes, d, dsum, sums = self._q8_fields(self._rows(handle, item.buffer, place.rows), item.cols)
            codes[:], d[:] = data.codes, data.scales
            half = codes.reshape(len(codes), -1, QUANTUM // 2).sum(axis=-1, dtype=np.int32)
            sums[:] = -half
            dsum[:] = d * (half[:, ::2] + half[:, 1::2]).astype(np.float32)
        elif isinstance(item, View):
            self.read(handle, item, place.rows)[:] = data
        elif isinstance(item, Cache):
            pool, index = self._entries(item, place)
            pool[index] = data
        else:
            self._state(item, place)[place.seqs] = data

    def read(self, handle: int, view: View, rows: int) -> np.ndarray:
        key = handle, view.buffer, view.offset, view.cols
        found = self._views.get(key)
        if found is None:
            assert self.arena is not None
            stride = self.row_bytes(view.buffer)
            start = self.bound[handle].offsets[view.buffer]
            most = (self.arena.nbytes - start) // stride
            raw = self.arena.array[start : start + most * stride].view(DTYPES[view.buffer.dtype])
            raw = raw.reshape(most, stride // 4)
            found = self._views[key] = raw[:, view.offset : view.offset + view.cols]
        return found[:rows]

    def command_bytes(self, handle: int, rows: int, outs: int) -> int:
        """Weight bytes that one step of the bound program reads; of experts those that its rows use."""
        total, base = 0, self.ffi.cast("char *", self.bound[handle].struct.cmds)
        step = np.zeros(1, STEP_DTYPE)  # what reads a matrix looks at the number of its rows alone
        step["n_rows"], step["n_outs"] = rows, outs
        for i, c in enumerate(self.bound[handle].program.commands):
            if any(arg.kind == "matrix" for arg in OPS[c.op].args):
                total += self.lib.ie_core_command_bytes(base + COMMAND_BYTES * i, step.ctypes.data)
        return total

    def read_bandwidth(self) -> float:
        """Bytes per second with which the threads read the weights, SAMPLE bytes of them at most, doing nothing else:
        better of two readings.

        0 for weights that caches might hold. A machine that others use too gives more or less from second to second,
        so a share of the bandwidth means something only beside a reading of the same moment."""
        weights = self._memory["weights"]
        if weights.nbytes < CACHED:
            return 0.0
        at, n = self.ffi.cast("void *", weights.address), min(weights.nbytes, SAMPLE)
        return n / min(float(self.lib.ie_read_seconds(self.pool, at, n)) for _ in range(2))

    def memory(self) -> dict[str, int]:
        out = {name: m.nbytes for name, m in self._memory.items()}
        out["partial results"] = sum(m.nbytes for m in self._partials.values())
        out["rotary tables"] = sum(t.nbytes for t in self._ropes)
        out["activations"] = self.arena.nbytes if self.arena else 0
        return out

    def close(self) -> None:
        if self.pool is not None:
            self.lib.ie_pool_destroy(self.pool)
            self.pool = None
        for memory in [*self._memory.values(), *self._partials.values(), *([self.arena] if self.arena else [])]:
            memory.close()
        self._memory, self._views, self.arena, self.bound = {}, {}, None, []


def available_isas() -> list[str]:
    """Instruction sets that this processor and build can run, best first."""
    _, library = native.lib()
    return [name for i, name in reversed(list(enumerate(native.ISAS))) if library.ie_isa_available(i)]


def key_segments(n_ctx: int) -> int:
    """Segments of keys that a context has."""
    return -(-n_ctx // native.constant("attn_segment"))


def partials_bytes(heads: int, dim: int, n_ctx: int) -> int:
    """Bytes where attention's results of single segments are kept (ie_attn_parts_bytes in core_laws/ie_core.h)."""
    return int(native.lib()[1].ie_core_attn_parts_bytes(heads, dim, key_segments(n_ctx)))


def read_bandwidth(threads: int, nbytes: int = SAMPLE, rounds: int = 5) -> float:
    """Bytes per second that `threads` threads read from memory together: best of `rounds` over `nbytes`."""
    ffi, library = native.lib()
    pool = library.ie_pool_create(threads, library.ie_isa_best())
    if pool == ffi.NULL:
        raise ResourceError(NO_THREADS.format(threads))
    try:
        rate = float(library.ie_read_bandwidth(pool, nbytes, rounds))
    finally:
        library.ie_pool_destroy(pool)
    if rate <= 0:
        raise ResourceError(f"cannot allocate {nbytes >> 20} MB to measure the read bandwidth")
    return rate
