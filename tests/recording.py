"""Calls of the C library with all the memory that they touch, as a file that tests/cpu/replay.c runs elsewhere.

Owns: the file's layout, and finding the words that hold addresses. What a call left behind when it ran here is in the
file as well: another processor must leave the same bytes, guard bands included.

Layout, all integers int64: number of cases; for each its name (96 bytes), kind, number of regions, number of
addresses, 8 arguments; the regions: size, address modulo 256, whether the call changed it, the bytes before, and if it
did the bytes after; the addresses: region and offset of a word, region and offset of what it points to.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ie import native
from ie.devices import CompiledExecutor
from ie.formats import Layout
from ie.program import Table
from ie.program.step import StepInputs
from tests import rig
from tests.compare import Guarded
from tests.rig import Array, Case

Call = Callable[[], None]

PROGRAM, PASSES, REPACK = range(3)
COMMAND_HEAD = 16  # bytes before the arguments


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


def _addresses(memory: Sequence[Array], where: Sequence[tuple[int, range]]) -> list[tuple[int, int, int, int]]:
    """Words among the places given that lie in one of the regions: an integer that looks like one would have to be as
    large as an address."""
    spans = sorted((m.ctypes.data, m.size, i) for i, m in enumerate(memory))
    starts = [s[0] for s in spans]
    out = []
    for region, offsets in where:
        words = memory[region].view("<u8")
        for offset in offsets:
            value = int(words[offset // 8])
            at = bisect.bisect_right(starts, value) - 1
            if at >= 0 and value < spans[at][0] + spans[at][1]:
                out.append((region, offset, spans[at][2], value - spans[at][0]))
    return out


class Recording:
    """Cases in the order in which they ran."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._cases: list[bytes] = []

    def write(self, path: Path) -> Path:
        path.write_bytes(struct.pack("<q", len(self._cases)) + b"".join(self._cases))
        return path

    def _add(
        self,
        name: str,
        kind: int,
        memory: Sequence[Array],
        where: Sequence[tuple[int, range]],
        args: Sequence[int],
        call: Call,
    ) -> None:
        """memory: the regions as bytes; where: which words of which regions may be addresses."""
        assert len(memory) <= 64 and len(name.encode()) < 96
        addresses = _addresses(memory, where)
        before = [m.copy() for m in memory]
        call()
        head = name.encode().ljust(96, b"\0") + struct.pack("<3q", kind, len(memory), len(addresses))
        out = [head, struct.pack("<8q", *args, *[0] * (8 - len(args)))]
        for old, new in zip(before, memory, strict=True):
            changed = not np.array_equal(old, new)
            out += [struct.pack("<3q", new.size, new.ctypes.data % 256, changed), old.tobytes()]
            out += [new.tobytes()] if changed else []
        self.names.append(name)
        self._cases.append(b"".join(out + [struct.pack("<4q", *a) for a in addresses]))

    def _program(self, name: str, executor: CompiledExecutor, handle: int, step: StepInputs, run: Call) -> None:
        """A run of a program with all that the executor holds."""
        bound, device = executor.bound[handle], executor.device
        starts = np.asarray(bound.program.stage_starts(), np.int32)
        commands = bound.commands.copy()
        held = [region for _, region in executor.taken]
        tables = [executor.at[w][0] for w in bound.program.weights() if isinstance(w, Table)]
        more = [device.fetch(region, 0, region.nbytes) for region in (*held, *tables)]
        if isinstance(device, rig.GuardedDevice):
            more = [region.guard.whole for _, region in device.regions] + more[len(held) :]
        words = [o for o in range(0, commands.size, 8) if o % 256 >= COMMAND_HEAD]
        memory = [_bytes(commands), _bytes(starts), step.memory, *map(_bytes, more)]
        self._add(name, PROGRAM, memory, [(0, words)], (commands.size // 256, len(starts) - 1), run)  # type: ignore[list-item]

    def case(self, name: str, case: Case) -> None:
        """A case of the test rig, with its guard bands."""
        made, step = rig.on_cpu(case), case.step()
        self._program(name, made.executor, 0, step, lambda: made.executor.run(0, step))

    def step(self, name: str, executor: CompiledExecutor, handle: int, step: StepInputs, run: Call) -> None:
        """One step of a model: what the executor holds, before and after `run`, which runs it."""
        self._program(name, executor, handle, step, run)

    def passes(self, name: str, row: Array, largest: float, temp: float) -> None:
        """The sampler's passes over a block of logits (float32)."""
        lib = native.lib()[1]
        limits = np.array([largest, temp], np.float32)
        weights, sums = Guarded(row.size), Guarded(4, np.float64)
        sums.array.fill(0)
        pointers = [native.pointer(a, t) for a, t in ((row, "float *"), (weights.array, "float *"))]

        def call() -> None:
            lib.ie_logit_passes(
                lib.ie_isa_best(), pointers[0], row.size, largest, temp, pointers[1],
                native.pointer(sums.array, "double *"),
            )  # fmt: skip

        memory = [_bytes(row), _bytes(limits), _bytes(weights.array), _bytes(sums.array)]
        self._add(name, PASSES, memory, [], (row.size,), call)

    def repack(self, name: str, layout: Layout, rows: int, k: int, rng: np.random.Generator) -> None:
        """Random bytes as rows of a format, brought into its layout."""
        data = rng.integers(0, 256, rows * (k // layout.block) * layout.size_per_row_block, np.uint8)
        out = np.zeros(layout.nbytes(rows, k), np.uint8)
        source, target = native.pointer(data, "uint8_t *"), native.pointer(out, "uint8_t *")

        def call() -> None:
            assert native.lib()[1].ie_repack(rig.guarded().pool, layout.id, source, target, rows, k) >= 0

        unused = np.zeros(8, np.uint8)
        self._add(name, REPACK, [data, out, unused, unused.copy()], [], (layout.id, rows, k), call)
