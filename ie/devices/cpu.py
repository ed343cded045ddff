"""cpu: the C executor. Walks the command list on its own thread pool.

Owns: device memory of weights, arena, KV pool and rotary tables, and the addresses that commands are packed
with. All of it is taken in `load` and `bind`; `run` is one call into C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import native, weights
from ..config import ModelConfig, rope_table
from ..errors import DeviceError, ResourceError
from ..gguf import GgufFile
from ..plan import plan_program
from ..program import Buffer, Cache, Matrix, Program, RopeTable, Table, Vector, View, pack
from ..step import OUTS, StepInputs
from .base import Progress


@dataclass
class Bound:
    """A program bound to a capacity: packed commands, stage starts, the C struct, buffer offsets."""

    commands: np.ndarray
    stage_starts: np.ndarray
    struct: Any
    offsets: dict[Buffer, int]
    arena: int


class CpuExecutor:
    """See the module docstring. `threads`: workers, the caller included; `isa`: a name of native.ISAS."""

    name = "cpu"

    def __init__(self, threads: int, isa: str = "auto") -> None:
        self.ffi, self.lib = native.lib()
        which = self.lib.ie_isa_best() if isa == "auto" else native.ISAS.index(isa)
        if not self.lib.ie_isa_available(which):
            raise DeviceError(
                f"this processor or build has no {native.ISAS[which]}; available: {', '.join(available_isas())}"
            )
        self.isa, self.threads = native.ISAS[which], threads
        self.pool = self.lib.ie_pool_create(threads, which)
        if self.pool == self.ffi.NULL:
            raise ResourceError(f"cannot start {threads} threads; ask for fewer with -t")
        self.bound: list[Bound] = []
        self.arena: native.Memory | None = None
        self._memory: dict[str, native.Memory] = {}

    # ---- loading ----

    def load(
        self, gguf: GgufFile, config: ModelConfig, program: Program, n_ctx: int, n_blocks: int, progress: Progress
    ) -> None:
        self.gguf, self.program = gguf, program
        used = program.weights()
        self._memory["weights"] = native.Memory(weights.place(used).total, "weights")
        offsets = weights.load(gguf, used, self._memory["weights"].array, self.pool, progress)
        self.weight_address = {w: self._memory["weights"].address + o for w, o in offsets.items()}
        self._load_ropes(config, n_ctx)
        self._make_cache(config, n_blocks)

    def _load_ropes(self, config: ModelConfig, n_ctx: int) -> None:
        tables = []
        for rope in config.ropes:
            factors = (
                weights.vector_values(self.gguf, Vector((rope.factors,), rope.n_rot // 2)) if rope.factors else None
            )
            tables.append(rope_table(rope, n_ctx, factors))
        self._ropes = tables  # keeps them alive: commands hold their addresses
        self.rope_address = [t.ctypes.data for t in tables]

    def _make_cache(self, config: ModelConfig, n_blocks: int) -> None:
        sizes = [2 * n_blocks * self.lib.ie_core_kv_block_elems(layer.n_kv, config.head_dim) for layer in config.layers]
        memory = self._memory["KV cache"] = native.Memory(2 * sum(sizes), "the KV cache")
        self.cache_address: dict[tuple[int, str], int] = {}
        pos = memory.address
        for i, size in enumerate(sizes):
            for which in ("k", "v"):
                self.cache_address[i, which] = pos
                pos += size

    # ---- binding ----

    def row_bytes(self, buffer: Buffer) -> int:
        fn = self.lib.ie_core_q8_row_bytes if buffer.dtype == "q8" else self.lib.ie_core_f32_row_bytes
        return int(fn(buffer.cols))

    def bind(self, rows: int, outs: int) -> int:
        def size_of(buffer: Buffer) -> int:
            return self.row_bytes(buffer) * (outs if buffer.domain == OUTS else rows)

        offsets, arena = plan_program(self.program, size_of)
        if self.arena is None or arena > self.arena.nbytes:
            self.arena = native.Memory(arena, "activations")
            for bound in self.bound:  # the arena moved: pack the others again
                self._pack(bound)
        starts = np.asarray(self.program.stage_starts(), np.int32)
        bound = Bound(np.empty(0, np.uint8), starts, self.ffi.new("ie_program *"), offsets, arena)
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
            raise AssertionError(f"no address for {value!r}")

        bound.commands = np.frombuffer(pack(self.program, resolve), np.uint8)
        bound.struct.cmds = bound.commands.ctypes.data
        bound.struct.stage_start = bound.stage_starts.ctypes.data
        bound.struct.n_cmds = len(self.program.commands)
        bound.struct.n_stages = len(bound.stage_starts) - 1

    # ---- running ----

    def run(self, handle: int, step: StepInputs) -> None:
        if self.lib.ie_run(self.pool, self.bound[handle].struct, step.address) != 0:
            raise DeviceError("cpu: the program was refused")

    def read(self, handle: int, view: View, rows: int) -> np.ndarray:
        assert self.arena is not None and view.buffer.dtype == "f32"
        stride = self.row_bytes(view.buffer)
        start = self.bound[handle].offsets[view.buffer]
        raw = self.arena.array[start : start + rows * stride].view(np.float32).reshape(rows, stride // 4)
        return raw[:, view.offset : view.offset + view.cols]

    def command_bytes(self, handle: int, rows: int, outs: int) -> int:
        """Weight bytes that one step of the bound program reads."""
        total, base = 0, self.ffi.cast("char *", self.bound[handle].struct.cmds)
        for i, c in enumerate(self.program.commands):
            if c.op == "matmul":
                total += self.lib.ie_core_command_bytes(base + 256 * i, outs if c.domain == OUTS else rows)
        return total

    def memory(self) -> dict[str, int]:
        out = {name: m.nbytes for name, m in self._memory.items()}
        out["rotary tables"] = sum(t.nbytes for t in self._ropes)
        out["activations"] = self.arena.nbytes if self.arena else 0
        return out

    def close(self) -> None:
        if self.pool is not None:
            self.lib.ie_pool_destroy(self.pool)
            self.pool = None
        for memory in [*self._memory.values(), *([self.arena] if self.arena else [])]:
            memory.close()
        self._memory, self.arena, self.bound = {}, None, []


def available_isas() -> list[str]:
    """Instruction sets that this processor and build can run, best first."""
    _, library = native.lib()
    return [name for i, name in reversed(list(enumerate(native.ISAS))) if library.ie_isa_available(i)]


def read_bandwidth(threads: int, nbytes: int = 256 << 20, rounds: int = 5) -> float:
    """Bytes per second that `threads` threads read from memory together: best of `rounds` over `nbytes`."""
    ffi, library = native.lib()
    pool = library.ie_pool_create(threads, library.ie_isa_best())
    if pool == ffi.NULL:
        raise ResourceError(f"cannot start {threads} threads; ask for fewer with -t")
    try:
        rate = float(library.ie_read_bandwidth(pool, nbytes, rounds))
    finally:
        library.ie_pool_destroy(pool)
    if rate <= 0:
        raise ResourceError(f"cannot allocate {nbytes >> 20} MB to measure the read bandwidth")
    return rate
