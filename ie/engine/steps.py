"""Steps: rows of several sequences, run at once on an executor.

Owns: the step inputs with their block tables, which sequences there are, and what a step leaves behind in them, also
when it fails. Does not own what is fed in which order (`engine`), nor what logits are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..devices.base import MODEL, Executor
from ..errors import IeError, ResourceError
from ..program.step import Phase, Run, StepInputs
from .kv import BlockPool, KvSequence
from .opening import Opened


class Part(NamedTuple):
    """What one sequence does in a step: tokens that are appended to it, and of which of them logits are wanted (indices
    among the tokens, ascending)."""

    sequence: KvSequence
    tokens: Sequence[int]
    outs: Sequence[int] = ()


def token_ids(tokens: Iterable[object], n_vocab: int) -> list[int]:
    """The tokens as Python integers. IeError for one that is no whole number, or no id of the vocabulary."""
    ids: list[Any] = list(tokens)
    if set(map(type, ids)) - {int}:
        for token in ids:  # a bool is an int to Python, and a float would be cut to one
            if isinstance(token, bool) or not isinstance(token, int | np.integer):
                raise IeError(f"token id {token!r:.40} is no whole number")
        ids = [int(token) for token in ids]
    if ids and (min(ids) < 0 or max(ids) >= n_vocab):
        wrong = max(ids) if min(ids) >= 0 else min(ids)
        raise IeError(f"token id {wrong} is outside the vocabulary (0…{n_vocab - 1})")
    return ids


class Steps:
    """The executor's steps. Between calls every open sequence owns the blocks of its tokens, whatever happened."""

    def __init__(self, executor: Executor, opened: Opened) -> None:
        self.executor, self.opened = executor, opened
        self.pool = BlockPool(opened.n_blocks)
        rows = max(b.rows for b in opened.bindings)
        self.inputs = StepInputs(rows, opened.n_seqs, opened.n_blocks // opened.n_seqs)
        self._free = list(range(opened.n_seqs - 1, -1, -1))  # indices of sequences
        self._handles = {b.program: i for i, b in enumerate(opened.bindings)}
        self.count = self.rows = 0  # of steps so far

    def new_sequence(self) -> KvSequence:
        if not self._free:
            raise ResourceError("another sequence is open; close it first")
        o, index = self.opened, self._free.pop()
        return KvSequence(index, self.pool, o.n_ctx, o.state_slots, o.ring, self._free.append)

    def check(self, parts: Sequence[Part], phase: Phase) -> None:
        """IeError for parts that no step can be made of: closed or foreign sequences, too many rows, or none."""
        for seq, tokens, _ in parts:
            if seq.pool is not self.pool or not seq.open:
                raise IeError("the sequence is closed, or belongs to another engine")
            if not tokens:
                raise IeError("a step needs at least one token of each sequence")
        rows, most = sum(len(part.tokens) for part in parts), self.opened.bindings[phase].rows
        if not 0 < rows <= most or len({id(part.sequence) for part in parts}) != len(parts):
            raise IeError(f"{rows} tokens of {len(parts)} sequences in a step, expected 1 to {most} of different ones")

    def settle(self, seq: KvSequence) -> None:
        """Feed again what a sequence holds and its caches do not: each token in its own phase."""
        while seq.stored < len(seq):
            start = seq.stored
            phase = Phase(seq.phases[start])
            end = next((i for i in range(start, len(seq)) if seq.phases[i] != phase), len(seq))
            end = min(end, start + self.opened.most_rows(phase))
            self.run([Part(seq, seq.tokens[start:end])], phase)

    def _set_blocks(self, seq: KvSequence) -> None:
        self.inputs.set_blocks(seq.index, seq.blocks, seq.changed)
        seq.changed = len(seq.blocks)

    def run(self, parts: Sequence[Part], phase: Phase) -> list[np.ndarray]:
        """Run tokens that the sequences hold already, from `stored` on; each part's logits, float32 [len(outs),
        n_vocab]."""
        runs, outs, row = list[Run](), list[int](), 0
        for seq, tokens, wanted in parts:
            n = len(tokens)
            self._set_blocks(seq)
            runs.append(Run(seq.index, seq.stored, tokens, seq.state, seq.keep(n)))
            outs += [row + out for out in wanted]
            row += n
        self.inputs.fill(runs, outs, phase)
        try:
            self.executor.run(phase, self.inputs)
        except BaseException:
            for seq, tokens, _ in parts:
                seq.abandon(len(tokens))
            raise
        for seq, tokens, _ in parts:
            seq.advance(len(tokens))
        self.count += 1
        self.rows += row
        view = self.opened.programs[MODEL].outputs.get("logits")
        if view is None:  # a program cut short
            return [np.empty((len(part.outs), 0), np.float32) for part in parts]
        logits, at, each = self.executor.read(phase, view, len(outs)), 0, []
        for part in parts:
            each.append(logits[at : at + len(part.outs)])
            at += len(part.outs)
        return each

    def run_other(self, name: str, seq: KvSequence, ids: Sequence[int]) -> Callable[[str], np.ndarray]:
        """Run another program than the model's at the positions after a sequence, which keeps its tokens."""
        end, handle = seq.stored + len(ids), self._handles[name]
        seq.reserve(end)
        seq.touch(end)
        self._set_blocks(seq)
        self.inputs.fill([Run(seq.index, seq.stored, ids)], [], Phase.GENERATED)
        self.executor.run(handle, self.inputs)
        outputs = self.opened.programs[name].outputs
        return lambda output: self.executor.read(handle, outputs[output], 1)
