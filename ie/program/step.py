"""Step inputs: everything that changes from one step to the next, as one block of memory.

Owns: the layout of the C struct `ie_step` and its arrays, and writing them; nobody else does, but for the skip flag,
which a kernel may set. Commands are constant; kernels read rows, segments, output rows and block tables from here. The
header says where each array begins counted from the block's own first byte, so one copy of `memory` moves a step to
another address space. Does not own which blocks a sequence has (see `kv`), nor what a step means (see `engine`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from .. import native
from ..errors import IeError

ROWS, OUTS, SEGS, ROW = 0, 1, 2, 3
"""Domains: a command runs over all live rows of the step, its output rows, its segments, or one given row."""


class Phase(IntEnum):
    """What the tokens of a step are. It, not their number, chooses the kernels; a token keeps its phase for life."""

    PROMPT = 0
    GENERATED = 1


STEP_FIELDS: tuple[tuple[str, str, str], ...] = (
    ("n_rows", "int32_t", "live rows"),
    ("n_outs", "int32_t", "output rows: rows that need logits"),
    ("n_segs", "int32_t", "segments: runs of rows of one sequence"),
    ("skip", "int32_t", "commands flagged IE_CMD_SKIPPABLE are left out when nonzero"),
    ("max_blocks", "int32_t", "entries of one block table"),
    ("phase", "int32_t", "IE_PHASE_PROMPT or IE_PHASE_GENERATED, of all rows"),
    ("token", "uint64_t", "int32 [rows]; this and what follows: bytes from the start of the step inputs"),
    ("pos", "uint64_t", "int32 [rows], absolute position"),
    ("seq", "uint64_t", "int32 [rows], index of the block table"),
    ("out_row", "uint64_t", "int32 [outs], ascending row indices"),
    ("seg", "uint64_t", "int32 [segs][4]: first row, count, state slot in (-1: zero), states to keep"),
    ("tables", "uint64_t", "int32 [sequences][max_blocks], KV block of each 32 positions"),
)

FEW = 16  # rows of a decode step

_NUMPY = {"int32_t": "<i4", "uint64_t": "<u8"}
STEP_DTYPE = np.dtype([(name, _NUMPY[ctype]) for name, ctype, _ in STEP_FIELDS])


class Limits(NamedTuple):
    """What the numbers in step inputs must stay below: rows and output rows of the binding, block tables, token ids,
    positions, KV blocks, slots of recurrent state (0: none). `ie_limits` of kernels_c/host/host.h."""

    rows: int
    outs: int
    seqs: int
    n_vocab: int
    n_ctx: int
    n_blocks: int
    slots: int


_RULES = (
    "",
    "{at} rows, expected 1 to {rows}",
    "{at} output rows, expected at most {outs}",
    "row {at}: there is no sequence {seq}, only {seqs}",
    "row {at}: position {pos} is outside the context of {n_ctx} tokens",
    "row {at}: token id {token} is outside the vocabulary of {n_vocab} tokens",
    "segment {at} {seg} does not fit the rows",
    "segment {at} {seg}: a slot of recurrent state beyond the {slots} that there are",
    "segment {at} {seg}: its block table lacks a block, or names one beyond the {n_blocks} that there are",
    "output {at} names a row that does not exist, or not in ascending order",
)
"""Words for IE_STEP_ROWS and on."""


class Run(NamedTuple):
    """Consecutive tokens of one sequence: index of the sequence, position of the first, tokens, recurrent state to
    start from (a slot of the ring; -1: zero), and how many of the last rows leave a state behind."""

    seq: int
    first: int
    tokens: Sequence[int]
    state: int = -1
    keep: int = 1


class StepInputs:
    """The step block of one engine: header, arrays and block tables in one allocation.

    Capacity: `rows` rows, `seqs` sequences, block tables of `max_blocks` entries (-1: no block).
    """

    def __init__(self, rows: int, seqs: int, max_blocks: int) -> None:
        self.rows, self.seqs, self.max_blocks = rows, seqs, max_blocks
        sizes = {"token": rows, "pos": rows, "seq": rows, "out_row": rows, "seg": 4 * seqs, "tables": seqs * max_blocks}
        header = (STEP_DTYPE.itemsize + 63) // 64 * 64
        total = header + sum((4 * n + 63) // 64 * 64 for n in sizes.values())
        raw = np.zeros(total + 64, np.uint8)
        shift = -raw.ctypes.data % 64  # cache-line alignment, so that rows of neighbours do not share lines
        self.memory = raw[shift : shift + total]
        self.header = self.memory[: STEP_DTYPE.itemsize].view(STEP_DTYPE)
        self.arrays: dict[str, np.ndarray] = {}
        pos = header
        for name, n in sizes.items():
            self.header[name] = pos
            self.arrays[name] = self.memory[pos : pos + 4 * n].view("<i4")
            pos += (4 * n + 63) // 64 * 64
        self.token, self.pos, self.seq = (self.arrays[n] for n in ("token", "pos", "seq"))
        self.out_row = self.arrays["out_row"]
        self.seg = self.arrays["seg"].reshape(seqs, 4)
        self.tables = self.arrays["tables"].reshape(seqs, max_blocks)
        self.tables[:] = -1
        self.header["max_blocks"] = max_blocks
        self.n_rows = self.n_outs = self.n_segs = 0
        self.address = int(self.memory.ctypes.data)
        self._entries = [0] * seqs  # of each block table that hold a block
        # A few numbers at a time, as in decode, are written some ten times faster like this than through numpy.
        self._few = {name: array.data for name, array in self.arrays.items()}
        self._head = self.memory[:24].view("<i4").data  # n_rows, n_outs, n_segs, skip, max_blocks, phase

    @property
    def phase(self) -> Phase:
        return Phase(self._head[5])

    @property
    def skip(self) -> int:
        return int(self._head[3])

    @skip.setter
    def skip(self, value: int) -> None:
        self._head[3] = value

    def set_blocks(self, seq: int, blocks: Sequence[int], first: int = 0) -> None:
        """The block table of sequence `seq`; entries before `first` are as they were set last."""
        n, held = len(blocks), self._entries[seq]
        if first < n:
            self.tables[seq, first:n] = blocks[first:]
        if n < held:
            self.tables[seq, n:held] = -1
        self._entries[seq] = n

    def fill(self, runs: Sequence[Run], outs: Sequence[int], phase: Phase = Phase.PROMPT, skip: bool = False) -> None:
        """Describe one step: runs in row order; `outs` row indices."""
        if sum(len(run.tokens) for run in runs) > self.rows or len(runs) > self.seqs or len(outs) > self.rows:
            raise ValueError(f"a step has room for {self.rows} rows of {self.seqs} sequences")
        row, few = 0, self._few
        for i, run in enumerate(runs):
            seq, first, tokens, state, keep = run
            n = len(tokens)
            if n <= FEW:
                for r, token in enumerate(tokens, row):
                    few["token"][r], few["pos"][r], few["seq"][r] = token, first + r - row, seq
            else:
                self.token[row : row + n] = tokens
                self.pos[row : row + n] = np.arange(first, first + n)
                self.seq[row : row + n] = seq
            for j, value in enumerate((row, n, state, keep)):
                few["seg"][4 * i + j] = value
            row += n
        n_outs = len(outs)
        if n_outs <= FEW:
            for o, out in enumerate(outs):
                few["out_row"][o] = out
        else:
            self.out_row[:n_outs] = outs
        self.n_rows, self.n_outs, self.n_segs = row, n_outs, len(runs)
        head = self._head
        head[0], head[1], head[2], head[3], head[5] = row, n_outs, len(runs), int(skip), int(phase)

    def refuse(self, limits: Limits) -> None:
        """IeError naming the first thing in the step that breaks a limit; nothing when kernels may run it."""
        ffi, library = native.lib()
        at = ffi.new("int64_t *")
        rule = library.ie_step_check(self.address, ffi.new("ie_limits *", limits._asdict()), at)
        if rule:
            raise IeError(f"the step is refused: {self._words(_RULES[rule], at[0], limits)}")

    def _words(self, text: str, at: int, limits: Limits) -> str:
        row = at if 0 <= at < self.rows else 0
        seg = self.seg[at].tolist() if 0 <= at < self.seqs else []
        token, pos, seq = (int(a[row]) for a in (self.token, self.pos, self.seq))
        return text.format(at=at, token=token, pos=pos, seq=seq, seg=seg, **limits._asdict())

    def check(self) -> None:
        """Invariants that kernels rely on; raises AssertionError."""
        n = self.n_rows
        assert 0 <= n <= self.rows and 0 <= self.n_outs <= n and self.n_segs <= self.seqs
        assert ((self.seq[:n] >= 0) & (self.seq[:n] < self.seqs)).all()
        assert (self.pos[:n] >= 0).all()
        for r in range(n):
            assert self.tables[self.seq[r], self.pos[r] >> 5] >= 0, "position without a KV block"
        outs = self.out_row[: self.n_outs]
        assert ((outs >= 0) & (outs < n)).all() and (np.diff(outs) > 0).all()
