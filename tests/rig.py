"""Runs hand-made programs on the executors without a model file, with guard bands around everything.

Owns: tensors and files that live in memory, `Case` (a program with its inputs and one step), running it through the C
walker (`run_cpu`) and through the numpy reference (`run_reference`), and finding stray writes. Each buffer stands in
memory of its own between sentinels; a byte that the commands have no right to write must be the same afterwards.
Does not own: which cases there are (see `op_cases`) or how close results must be.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from ie import native
from ie.devices import weights
from ie.devices.cpu import available_isas
from ie.devices.reference import ReferenceExecutor, quantize_q8
from ie.engine.kv import CHUNK
from ie.formats import Format
from ie.program import Buffer, Cache, Command, Matrix, Partials, Program, RopeTable, State, Table, Vector, View
from ie.program.pack import pack
from ie.program.plan import plan_program
from ie.program.step import OUTS, ROW, ROWS, SEGS, Run, StepInputs
from tests.compare import Guarded

Array = np.ndarray[Any, Any]
BLOCK = 32
ISAS = available_isas()
PARTIAL_SEGMENTS = 3  # of 256 keys: what the cases' tables hold


@dataclass(frozen=True)
class MemoryTensor:
    """A tensor as `ie.gguf` would give it: shape in GGUF order, `raw` uint8 bytes."""

    name: str
    shape: tuple[int, ...]
    format: Format
    raw: Array

    @property
    def nbytes(self) -> int:
        return int(self.raw.size)

    def data(self) -> Array:
        return self.raw

    def release(self) -> None:
        """Nothing is mapped."""


class MemoryFile:
    """Stands in for a GgufFile where only tensors are asked for."""

    path = "memory"

    def __init__(self, tensors: Iterable[MemoryTensor] = ()) -> None:
        self.tensors = {t.name: t for t in tensors}


@dataclass
class Case:
    """A program, what its buffers hold before it runs, and one step.

    inputs: float32 (int32 of I32 buffers) [rows of the buffer's domain, columns]; Q8 buffers are quantised from it.
    caches: for each layer keys and values, float16 [blocks, 32, heads, dim]. ropes: float32 [positions, pairs, 2].
    tables: int32 [sequences, blocks]. states: for each float32 [sequences, *shape]. spare: rows of capacity beyond the
    live ones, which nobody may touch.
    """

    program: Program
    inputs: Mapping[Buffer, Array]
    runs: Sequence[Run]
    outs: Sequence[int] = ()
    file: MemoryFile = field(default_factory=MemoryFile)
    caches: Mapping[int, tuple[Array, Array]] = field(default_factory=dict)
    states: Mapping[State, Array] = field(default_factory=dict)
    ropes: Sequence[Array] = ()
    tables: Array = field(default_factory=lambda: np.zeros((1, 1), np.int32))
    spare: int = 0
    skip: bool = False

    @property
    def n_rows(self) -> int:
        return sum(len(run.tokens) for run in self.runs)

    def live(self, domain: int) -> int:
        return {ROWS: self.n_rows, OUTS: len(self.outs), SEGS: len(self.runs), ROW: 1}[domain]

    def positions(self) -> list[tuple[int, int, int]]:
        """(slot, position, token) of each row."""
        return [(run.slot, run.first + i, t) for run in self.runs for i, t in enumerate(run.tokens)]

    def step(self) -> StepInputs:
        out = StepInputs(max(1, self.n_rows + self.spare), len(self.tables), self.tables.shape[1])
        out.tables[:] = self.tables
        out.fill(self.runs, self.outs, self.skip)
        return out

    def single(self, i: int) -> tuple[Case, slice]:
        """The same one-command case with only row (or segment) i of the command's domain; and which rows it is."""
        (command,) = self.program.commands
        if command.domain == OUTS:
            rows, more = slice(i, i + 1), {"outs": [self.outs[i]]}
        elif command.domain == SEGS:
            first = sum(len(run.tokens) for run in self.runs[:i])
            rows, more = slice(first, first + len(self.runs[i].tokens)), {"runs": [self.runs[i]], "outs": []}
        else:
            slot, pos, token = self.positions()[i]
            rows, more = slice(i, i + 1), {"runs": [Run(slot, pos, [token])], "outs": []}
        domain = ROWS if command.domain == SEGS else command.domain
        inputs = {b: v[rows] if b.domain == domain else v for b, v in self.inputs.items()}
        return replace(self, inputs=inputs, **more), rows  # type: ignore[arg-type]


@functools.cache
def pool(threads: int = 1, isa: str = "") -> Any:
    """A thread pool of the library, kept for the whole test process."""
    ffi, lib = native.lib()
    which = native.ISAS.index(isa) if isa else lib.ie_isa_best()
    made = lib.ie_pool_create(threads, which)
    assert made != ffi.NULL
    return made


# ---- Q8 rows as bytes ----


@dataclass(frozen=True)
class Q8:
    """Q8 rows by their fields: codes int8 [rows, k], scales d and d * sum float32 [rows, blocks], sums of the two
    halves of each block int32 [rows, blocks, 2]."""

    codes: Array
    d: Array
    dsum: Array
    sums: Array

    @staticmethod
    def of(codes: Array, d: Array) -> Q8:
        """The derived fields as ie_core.h defines them."""
        sums = codes.reshape(*d.shape, 2, BLOCK // 2).astype(np.int32).sum(axis=-1, dtype=np.int32)
        return Q8(codes, d, d * sums.sum(axis=-1, dtype=np.int32).astype(np.float32), -sums)

    @staticmethod
    def read(raw: Array, k: int) -> Q8:
        """From uint8 [rows, bytes of a row]."""
        ends = np.cumsum([k, k // 8, k // 8, k // 4])
        codes, d, dsum, sums = (
            np.ascontiguousarray(raw[:, lo:hi]) for lo, hi in zip([0, *ends[:-1]], ends, strict=True)
        )
        return Q8(codes.view("i1"), d.view("<f4"), dsum.view("<f4"), sums.view("<i4").reshape(len(raw), -1, 2))

    def raw(self) -> Array:
        rows = len(self.codes)
        parts = (self.codes, self.d, self.dsum, self.sums.reshape(rows, -1))
        return np.concatenate([np.ascontiguousarray(p).view(np.uint8) for p in parts], axis=1)


def used_bytes(buffer: Buffer) -> int:
    """Bytes of a row that mean something; the rest is padding."""
    return buffer.cols + 16 * (buffer.cols // BLOCK) if buffer.dtype == "q8" else 4 * buffer.cols


# ---- the CPU ----


def row_bytes(buffer: Buffer) -> int:
    lib = native.lib()[1]
    return int(
        lib.ie_core_q8_row_bytes(buffer.cols) if buffer.dtype == "q8" else lib.ie_core_f32_row_bytes(buffer.cols)
    )


def chunked(pool: Array) -> Array:
    """[blocks, …] as [chunks, CHUNK, …]; blocks that fill up the last chunk are NaN, which nobody may read."""
    spare = np.full((-len(pool) % CHUNK, *pool.shape[1:]), np.nan, pool.dtype)
    return np.concatenate([pool, spare]).reshape(-1, CHUNK, *pool.shape[1:])


class CpuRun:
    """Memory of a case as the C walker sees it: a buffer is uint8 [capacity, row bytes], a cache its pool."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.guards: dict[Any, Guarded] = {}
        for b in case.program.buffers:
            guard = Guarded((case.live(b.domain) + case.spare, row_bytes(b)), np.uint8)
            if b.dtype == "f32":
                guard.array.view(np.float32).fill(np.nan)
            values = case.inputs.get(b)
            if values is not None:
                plain = np.ascontiguousarray(values, np.int32 if b.dtype == "i32" else np.float32)
                raw = Q8.of(*quantize_q8(plain)).raw() if b.dtype == "q8" else plain.view(np.uint8)
                n = min(len(raw), len(guard.array))
                guard.array[:n, : raw.shape[1]] = raw[:n]
            self.guards[b] = guard
        for layer, (k, v) in case.caches.items():
            self.guards[layer, "k"] = Guarded.copy_of(np.ascontiguousarray(chunked(k).transpose(0, 3, 1, 4, 2)))
            self.guards[layer, "v"] = Guarded.copy_of(np.ascontiguousarray(chunked(v).transpose(0, 3, 1, 2, 4)))
        for state, values in case.states.items():
            self.guards[state] = Guarded.copy_of(values)

    def address(self, key: Any) -> int:
        return self.guards[key].address

    def floats(self, view: View) -> Array:
        """float32 [live rows, columns] of an F32 view."""
        rows = self.guards[view.buffer].array[: self.case.live(view.buffer.domain)]
        return rows.view(np.float32)[:, view.offset : view.offset + view.cols].copy()

    def ids(self, view: View) -> Array:
        """int32 [live rows, columns] of an I32 view."""
        rows = self.guards[view.buffer].array[: self.case.live(view.buffer.domain)]
        return rows.view(np.int32)[:, view.offset : view.offset + view.cols].copy()

    def q8(self, view: View) -> Q8:
        return Q8.read(self.guards[view.buffer].array[: self.case.live(view.buffer.domain)], view.buffer.cols)

    def keys(self, layer: int) -> Array:
        """float16 [blocks, 32, heads, dim]."""
        return self._whole(self.guards[layer, "k"].array.transpose(0, 2, 4, 1, 3), layer)

    def values(self, layer: int) -> Array:
        return self._whole(self.guards[layer, "v"].array.transpose(0, 2, 3, 1, 4), layer)

    def _whole(self, chunks: Array, layer: int) -> Array:
        return chunks.reshape(-1, *chunks.shape[2:])[: len(self.case.caches[layer][0])]

    def state(self, state: State) -> Array:
        return self.guards[state].array

    def bits(self) -> dict[str, bytes]:
        """Every byte of memory, by name."""
        return {str(getattr(k, "name", k)): g.array.tobytes() for k, g in self.guards.items()}


def _writable(case: Case, run: CpuRun, key: Any) -> Array:
    """Which elements of a buffer (bytes), cache or state (values) the program may write."""
    mask = np.zeros(run.guards[key].array.shape, bool)
    if isinstance(key, State):
        mask[[r.slot for r in case.runs]] = True  # which slots of them, the comparison tells
    for command in case.program.commands:
        for arg, view in command.views():
            if view.buffer == key and "w" in arg.access:
                rows = slice(0, case.live(view.buffer.domain))
                if view.buffer.dtype == "q8":
                    mask[rows, : used_bytes(view.buffer)] = True
                else:
                    mask[rows, 4 * view.offset : 4 * (view.offset + view.cols)] = True
        if isinstance(key, tuple) and command.op == "rope" and command.args["k_cache"].layer == key[0]:
            for slot, pos, _ in case.positions():
                chunk, block = divmod(case.tables[slot, pos // BLOCK], CHUNK)
                if key[1] == "k":
                    mask[chunk, :, block, :, pos % BLOCK] = True
                else:
                    mask[chunk, :, block, pos % BLOCK] = True
    return mask


def run_cpu(
    case: Case, threads: int = 1, isa: str = "", flags: int | None = None, step: StepInputs | None = None
) -> CpuRun:
    """Run through ie_run; AssertionError when a byte was written that the program has no right to.

    flags: in place of those of every command. step: in place of the case's own.
    """
    run = CpuRun(case)
    before = {k: g.array.copy() for k, g in run.guards.items()}
    prepare(case, run.address, flags, step).run(pool(threads, isa))
    for key, guard in run.guards.items():
        name = getattr(key, "name", str(key))
        guard.check(name)
        same = before[key].view(f"u{before[key].itemsize}") == guard.array.view(f"u{guard.array.itemsize}")
        stray = ~same & ~_writable(case, run, key)
        assert not stray.any(), f"{name}: stray write at {np.argwhere(stray)[0].tolist()}"
    return run


def run_in_arena(case: Case, threads: int, isa: str = "") -> dict[str, bytes]:
    """Run with all buffers in one planned arena, as the executors do; the rows of each output, by name."""
    sizes = {b: row_bytes(b) * max(1, case.live(b.domain) + case.spare) for b in case.program.buffers}
    offsets, size = plan_program(case.program, sizes.__getitem__)
    arena = Guarded(size, np.uint8, align=256)
    arena.array.view(np.float32).fill(np.nan)
    prepare(case, lambda key: arena.address + offsets[key]).run(pool(threads, isa))
    arena.check("arena")
    out = {}
    for name, view in case.program.outputs.items():
        at, n = offsets[view.buffer], case.live(view.buffer.domain)
        rows = arena.array[at : at + n * row_bytes(view.buffer)].view(np.float32).reshape(n, -1)
        out[name] = rows[:, view.offset : view.offset + view.cols].tobytes()
    return out


@dataclass(frozen=True)
class Prepared:
    """What one ie_run takes: packed commands, stage starts, step, and the weights between guard bands."""

    commands: Array
    starts: Array
    step: StepInputs
    weights: Guarded
    rooms: Mapping[Partials, Guarded]  # for partial results of attention

    def run(self, pool: Any) -> None:
        """AssertionError when the program is refused, or a weight was written."""
        ffi, lib = native.lib()
        struct = ffi.new("ie_program *")
        struct.cmds, struct.stage_start = self.commands.ctypes.data, self.starts.ctypes.data
        struct.n_cmds, struct.n_stages = self.commands.size // 256, len(self.starts) - 1
        held = self.weights.array.copy()
        assert lib.ie_run(pool, struct, self.step.address) == 0
        self.weights.check("weights")
        for partials, room in self.rooms.items():
            room.check("partial results")
            counters = lib.ie_core_attn_parts_bytes(partials.heads, partials.dim, 0)
            assert not room.array[:counters].any(), "counters must be zero between steps"
        assert np.array_equal(held, self.weights.array), "weights were written"


def prepare(
    case: Case, address: Callable[[Any], int], flags: int | None = None, step: StepInputs | None = None
) -> Prepared:
    """A case with its buffers, caches and states at the addresses given, ready to run."""
    lib, used = native.lib()[1], case.program.weights()
    block = Guarded(max(1, weights.place(used).total), np.uint8, align=256)
    block.array.fill(0)
    offsets = weights.load(case.file, used, block.array, pool(), lambda done, total: None)  # type: ignore[arg-type]
    rooms = {
        p: Guarded(lib.ie_core_attn_parts_bytes(p.heads, p.dim, PARTIAL_SEGMENTS), np.uint8, align=64)
        for p in case.program.partials()
    }
    for room in rooms.values():
        room.array.fill(0)

    def resolve(value: Any) -> tuple[Any, ...]:
        match value:
            case View(buffer, offset, cols):
                return address(buffer) + 4 * offset, row_bytes(buffer), cols
            case Matrix(_, _, k, layout):
                return block.address + offsets[value], layout.id, layout.size, k // layout.block, layout.rows
            case Vector():
                return (block.address + offsets[value],)
            case Table(name, cols):
                t = case.file.tensors[name]
                return t.raw.ctypes.data, t.format.id, t.format.row_bytes(cols)
            case RopeTable(index):
                return (case.ropes[index].ctypes.data,)
            case Cache(layer, which):
                return (address((layer, which)),)
            case State():
                return (address(value),)
            case Partials():
                return rooms[value].address, PARTIAL_SEGMENTS, 0
        raise AssertionError(f"no address for {value!r}")

    commands = np.frombuffer(pack(case.program, resolve), np.uint8).copy()
    if flags is not None:
        commands.reshape(-1, 256)[:, 8:12].view("<u4")[:] = flags
    step = step or case.step()
    step.check()
    shapes = {k.shape[2:] for k, _ in case.caches.values()}
    assert len(shapes) <= 1, "one step has one distance between chunks"
    step.set_chunk(sum(2 * native.lib()[1].ie_core_kv_chunk_elems(*shape) // 1024 for shape in shapes))
    return Prepared(commands, np.asarray(case.program.stage_starts(), np.int32), step, block, rooms)


# ---- the reference ----


class Recorder(ReferenceExecutor):
    """The q8 reference, holding a case's inputs. `exact` evaluates in float64; `mode` float64 quantises nothing."""

    def __init__(self, case: Case, exact: bool = False, mode: str = "q8") -> None:
        super().__init__(mode)
        self.dtype = np.float64 if exact or mode == "float64" else np.float32
        nothing: Any = SimpleNamespace(ropes=())
        self.load(case.file, nothing, case.program, 1, 1, lambda done, total: None)  # type: ignore[arg-type]
        self.cache = {(i, w): x.copy() for i, kv in case.caches.items() for w, x in zip("kv", kv, strict=True)}
        n_blocks = max((len(k) for k, _ in case.caches.values()), default=1 << 20)
        self.limits = self.limits._replace(seqs=len(case.tables), n_ctx=1 << 20, n_blocks=n_blocks, slots=0)
        self.states = {state: values.astype(self.dtype) for state, values in case.states.items()}
        self.ropes = [r.astype(self.dtype) for r in case.ropes]
        self.step, self.command = case.step(), case.program.commands[0]
        for b, v in case.inputs.items():
            self.put(View.of(b), v)


def run_reference(case: Case, exact: bool = False) -> Recorder:
    out = Recorder(case, exact)
    out.run(0, case.step())
    return out


def one_command(op: str, args: Mapping[str, Any], domain: int = ROWS) -> Program:
    """A program of one checked command."""
    command = Command(op, {k: v for k, v in args.items() if v is not None}, 0, domain)
    command.check()
    return Program((command,), (0,))
