"""Runs hand-made programs on the executors without a model file, with guard bands around everything.

Owns: tensors and files that live in memory, `Case` (a program with its inputs and one step), running it on a compiled
executor over any device (`CaseRun`), on the guarded processor (`run_cpu`) and through the numpy reference
(`run_reference`), and finding stray writes. No two items share memory; a byte that the commands have no right to write
must be the same afterwards.
Does not own: which cases there are (see `op_cases`) or how close results must be.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ie import native
from ie.devices import CompiledExecutor, CpuDevice
from ie.devices.base import MODEL, Binding, Job, Shape
from ie.devices.cpu import available_isas
from ie.devices.reference import ReferenceExecutor, quantize_q8
from ie.engine.kv import CHUNK
from ie.formats import Format
from ie.gguf import TensorSet
from ie.ops import OPS
from ie.program import Buffer, Cache, Command, Partials, Program, State, View
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


def memory_file(tensors: Iterable[MemoryTensor] = ()) -> TensorSet:
    """Tensors that no file holds."""
    return TensorSet("memory", {t.name: t for t in tensors})  # type: ignore[misc]


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
    file: TensorSet = field(default_factory=memory_file)
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
        """(sequence, position, token) of each row."""
        return [(run.seq, run.first + i, t) for run in self.runs for i, t in enumerate(run.tokens)]

    def step(self) -> StepInputs:
        out = StepInputs(max(1, self.n_rows + self.spare), len(self.tables), self.tables.shape[1])
        for seq, blocks in enumerate(self.tables.tolist()):
            out.set_blocks(seq, blocks)
        out.fill(self.runs, self.outs, skip=self.skip)
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
            seq, pos, token = self.positions()[i]
            rows, more = slice(i, i + 1), {"runs": [Run(seq, pos, [token])], "outs": []}
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


# ---- compiled executors ----


def row_bytes(buffer: Buffer) -> int:
    lib = native.lib()[1]
    return int(
        lib.ie_core_q8_row_bytes(buffer.cols) if buffer.dtype == "q8" else lib.ie_core_f32_row_bytes(buffer.cols)
    )


class GuardedRegion:
    """Zeroed memory between guard bands."""

    def __init__(self, nbytes: int) -> None:
        self.guard = Guarded(nbytes, np.uint8, align=256)
        self.array: Array = self.guard.array
        self.array.fill(0)
        self.address, self.nbytes = self.guard.address, nbytes


class GuardedDevice(CpuDevice):
    """The processor, with guard bands around all memory."""

    def __init__(self, threads: int, isa: str = "auto") -> None:
        super().__init__(threads, isa)
        self.regions: list[tuple[str, GuardedRegion]] = []

    def alloc(self, nbytes: int, what: str, hint: str = "", huge: bool = False) -> GuardedRegion:
        self.regions.append((what, GuardedRegion(max(1, nbytes))))
        return self.regions[-1][1]

    def check(self) -> None:
        """AssertionError when a byte beside any memory was written."""
        for what, region in self.regions:
            region.guard.check(what)

    def reset(self) -> None:
        """Forget all memory and programs."""
        self.regions, self._programs, self._kept = [], [], []


@functools.cache
def guarded(threads: int = 1, isa: str = "") -> GuardedDevice:
    """A device that is kept for the whole test process; one case at a time."""
    return GuardedDevice(threads, isa or "auto")


APART = 1024
"""Bytes between two items of a case."""


def job_of(case: Case) -> Job:
    """What an executor has to load for a case."""
    n_blocks = max((len(k) for k, _ in case.caches.values()), default=int(case.tables.max()) + 1)
    n_ctx = max(PARTIAL_SEGMENTS * native.constant("attn_segment"), BLOCK * case.tables.shape[1])
    rows, outs = (max(1, n + case.spare) for n in (case.n_rows, len(case.outs)))
    binding = Binding(MODEL, rows, outs)
    return Job(case.file, case.ropes, {MODEL: case.program}, [binding], Shape(n_ctx, n_blocks, len(case.tables)))


class CaseRun:
    """A case on a compiled executor: loaded, its inputs in place, then `run`.

    `memory`: every byte of the executor's regions before the run; buffers hold NaN where no input is.
    """

    def __init__(self, case: Case, executor: CompiledExecutor) -> None:
        self.case, self.executor = case, executor
        executor.load(job_of(case), lambda done, total: None)
        for b in executor.bound[0].offsets:
            raw = self.rows(b, self.capacity(b)).copy()
            if b.dtype == "f32":
                raw.view(np.float32).fill(np.nan)
            values = case.inputs.get(b)
            if values is not None:
                plain = np.ascontiguousarray(values, np.int32 if b.dtype == "i32" else np.float32)
                given = Q8.of(*quantize_q8(plain)).raw() if b.dtype == "q8" else plain.view(np.uint8)
                n = min(len(given), len(raw))
                raw[:n, : given.shape[1]] = given[:n]
            executor.put_rows(0, b, raw)
        whole = case.program.caches()
        for cache in whole:
            flat = executor.cache_bytes(cache).copy()
            chunks = executor.entries(cache, flat)
            pools = case.caches[cache.layer]["kv".index(cache.which)]
            chunks[...] = chunked(pools)
            region, at = executor.at[cache]
            executor.device.write(region, at, flat)
        for state, states in case.states.items():
            region, at = executor.at[state]
            executor.device.write(region, at, np.ascontiguousarray(states, np.float32).reshape(-1).view(np.uint8))
        self.before = self.memory()

    def memory(self) -> list[Array]:
        """All bytes of all regions, in the order in which they were taken."""
        return [self.executor.device.fetch(region, 0, region.nbytes).copy() for _, region in self.executor.taken]

    def capacity(self, buffer: Buffer) -> int:
        rows = {OUTS: len(self.case.outs), ROW: 1}.get(buffer.domain, self.case.n_rows)
        return max(1, rows + self.case.spare) if buffer.domain != ROW else 1

    def rows(self, buffer: Buffer, n: int) -> Array:
        """uint8 [n, bytes of a row]."""
        return self.executor.rows(0, buffer, n)

    def run(self, step: StepInputs | None = None) -> CaseRun:
        """AssertionError when a byte was written that the program has no right to."""
        step = step or self.case.step()
        step.check()
        self.executor.run(0, step)
        if isinstance(self.executor.device, GuardedDevice):
            self.executor.device.check()
        regions = zip(self.executor.taken, self.before, self.memory(), self._writable(), strict=True)
        for (purpose, _), before, after, allowed in regions:
            stray = (before != after) & ~allowed
            assert not stray.any(), f"{purpose}: stray write at byte {np.flatnonzero(stray)[0]}"
        for p in self.case.program.partials():
            region, at = self.executor.at[p]
            counters = native.lib()[1].ie_core_attn_parts_bytes(p.heads, p.dim, 0)
            zero = self.executor.device.fetch(region, at, counters)
            assert not zero.any(), "counters must be zero between steps"
        return self

    def _writable(self) -> list[Array]:
        """Which bytes of each region the program may write: bool [bytes]."""
        case, executor = self.case, self.executor
        masks = {id(region): np.zeros(region.nbytes, np.uint8) for _, region in executor.taken}
        arena, seqs = masks[id(executor.arena)], sorted({r.seq for r in case.runs})
        for command in case.program.commands:
            for arg, view in command.views():
                if "w" in arg.access:
                    stride, at = row_bytes(view.buffer), executor.bound[0].offsets[view.buffer]
                    rows = arena[at:][: case.live(view.buffer.domain) * stride].reshape(-1, stride)
                    if view.buffer.dtype == "q8":
                        rows[:, : used_bytes(view.buffer)] = 1
                    else:
                        rows[:, 4 * view.offset : 4 * (view.offset + view.cols)] = 1
            for arg in OPS[command.op].args:
                item = command.args.get(arg.name)
                if isinstance(item, Partials):
                    masks[id(executor.at[item][0])][:] = 1
                elif isinstance(item, State) and "w" in arg.access:
                    region, at = executor.at[item]  # which slots of them, the comparison tells
                    states = masks[id(region)][at:][: 4 * item.size * len(case.tables)]
                    states.reshape(len(case.tables), -1)[seqs] = 1
                elif isinstance(item, Cache) and "w" in arg.access:
                    region, at = executor.at[item]
                    entries = executor.entries(item, masks[id(region)][at:])
                    for seq, pos, _ in case.positions():
                        chunk, block = divmod(case.tables[seq, pos // BLOCK], CHUNK)
                        entries[chunk, block, pos % BLOCK] = np.array(0x0101, np.uint16).view(np.float16)
        return [masks[id(region)] != 0 for _, region in executor.taken]

    # ---- results ----

    def floats(self, view: View) -> Array:
        """float32 [live rows, columns] of an F32 view."""
        rows = self.rows(view.buffer, self.case.live(view.buffer.domain))
        return rows.view(np.float32)[:, view.offset : view.offset + view.cols].copy()

    def ids(self, view: View) -> Array:
        """int32 [live rows, columns] of an I32 view."""
        rows = self.rows(view.buffer, self.case.live(view.buffer.domain))
        return rows.view(np.int32)[:, view.offset : view.offset + view.cols].copy()

    def q8(self, view: View) -> Q8:
        return Q8.read(self.rows(view.buffer, self.case.live(view.buffer.domain)), view.buffer.cols)

    def cache(self, cache: Cache) -> Array:
        """float16 [blocks, 32, heads, dim]."""
        entries = self.executor.entries(cache, self.executor.cache_bytes(cache))
        return entries.reshape(-1, *entries.shape[2:])[: len(self.case.caches[cache.layer][0])].copy()

    def state(self, state: State) -> Array:
        """float32 [sequences, *shape]."""
        (region, at), n = self.executor.at[state], len(self.case.tables)
        raw = self.executor.device.fetch(region, at, 4 * n * state.size)
        return raw.view(np.float32).reshape(n, *state.shape).copy()

    def kept(self) -> dict[Cache | State, Array]:
        """Caches and states."""
        caches: dict[Cache | State, Array] = {c: self.cache(c) for c in self.case.program.caches()}
        return caches | {s: self.state(s) for s in self.case.states}

    def bits(self) -> dict[str, bytes]:
        """Every byte that means something, by name: buffers, caches, states."""
        out = {b.name: self.rows(b, self.capacity(b)).tobytes() for b in self.executor.bound[0].offsets}
        out |= {f"{c.layer}.{c.which}": self.cache(c).tobytes() for c in self.case.program.caches()}
        return out | {f"{s.layer}.{s.which}": self.state(s).tobytes() for s in self.case.states}


def chunked(pool: Array) -> Array:
    """[blocks, …] as [chunks, CHUNK, …]; blocks that fill up the last chunk are NaN, which nobody may read."""
    spare = np.full((-len(pool) % CHUNK, *pool.shape[1:]), np.nan, pool.dtype)
    return np.concatenate([pool, spare]).reshape(-1, CHUNK, *pool.shape[1:])


def on_cpu(case: Case, threads: int = 1, isa: str = "") -> CaseRun:
    """The case, ready to run, on the guarded device; everything of an earlier one there is gone."""
    device = guarded(threads, isa)
    device.reset()
    return CaseRun(case, CompiledExecutor(device, APART))


def run_cpu(
    case: Case, threads: int = 1, isa: str = "", skippable: bool = False, step: StepInputs | None = None
) -> CaseRun:
    """Run on the guarded device; AssertionError when a byte was written that the program has no right to.

    skippable: every command is. step: in place of the case's own.
    """
    if skippable:
        program = case.program
        commands = tuple(replace(c, skippable=True) for c in program.commands)
        case = replace(case, program=replace(program, commands=commands))
    run = on_cpu(case, threads, isa).run(step)
    run.executor.device.reset()  # type: ignore[attr-defined]
    return run


def run_in_arena(case: Case, threads: int, isa: str = "") -> dict[str, bytes]:
    """Run with all buffers in one planned arena, as outside tests; the rows of each output, by name."""
    device = GuardedDevice(threads, isa or "auto")
    executor = CompiledExecutor(device)
    executor.load(job_of(case), lambda done, total: None)
    executor.arena.array.view(np.float32).fill(np.nan)  # type: ignore[attr-defined]
    for buffer, values in case.inputs.items():
        raw = executor.rows(0, buffer, len(values))
        raw.view(np.float32)[:, : buffer.cols] = values
    executor.run(0, case.step())
    device.check()
    out = {}
    for name, view in case.program.outputs.items():
        out[name] = executor.read(0, view, case.live(view.buffer.domain)).tobytes()
    executor.close()
    return out


# ---- the reference ----


class Recorder(ReferenceExecutor):
    """The q8 reference, holding a case's inputs. `exact` evaluates in float64; `mode` float64 quantises nothing."""

    def __init__(self, case: Case, exact: bool = False, mode: str = "q8") -> None:
        super().__init__(mode)
        self.dtype = np.float64 if exact or mode == "float64" else np.float32
        self.load(job_of(case), lambda done, total: None)
        self.cache = {(i, w): x.copy() for i, kv in case.caches.items() for w, x in zip("kv", kv, strict=True)}
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
