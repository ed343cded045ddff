"""Engine: one model on one executor: opening it, and its steps as callers want them.

Owns: what happens to sequences when a step fails, cutting prompts into chunks, and the measured facts of a run
(`Stats`). Does not own the order of opening (`opening`), how rows get into a step (`steps`), sampling, text, or the
generation loop (`generation`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .. import devices
from ..devices.base import MODEL, Progress
from ..errors import IeError
from ..gguf import GgufFile
from ..machine import this_machine
from ..program import Program
from ..program.step import Phase
from ..settings import EngineOptions, resolve_threads
from . import opening
from .drafter import DraftModel
from .kv import KvSequence
from .opening import DECODE_ROWS, Edit
from .steps import Part, Steps, token_ids


@dataclass
class Stats:
    """Facts of an engine: what it chose, and the work of its steps so far."""

    isa: str = ""
    threads: int = 0
    load_seconds: float = 0.0
    weight_bytes: int = 0  # read by a decode step of one row
    steps: int = 0
    rows: int = 0
    seconds: float = 0.0


class Engine:
    """Steps of a model. Made by `Engine.open`; close it, or use it as a context manager. One thread at a time.

    A step that fails or is interrupted leaves the sequences as they were before it.
    """

    def __init__(
        self,
        gguf: GgufFile,
        executor: devices.Executor,
        options: EngineOptions,
        progress: Progress,
        edit: Edit,
        draft: DraftModel | None,
    ) -> None:
        begin = time.monotonic()
        self.gguf, self.executor, self.draft_model = gguf, executor, draft
        self._closed = False
        self.opened = opened = opening.load(gguf, executor, options, progress, edit, draft)
        self.config, self.programs, self.n_ctx, self.chunk = opened.config, opened.programs, opened.n_ctx, opened.chunk
        self.state_slots, self.n_vocab = opened.state_slots, opened.config.n_vocab
        self.steps = Steps(executor, opened)
        self.stats = Stats(
            isa=executor.isa,
            threads=executor.threads,
            weight_bytes=executor.command_bytes(Phase.GENERATED, 1, 1),
            load_seconds=time.monotonic() - begin,
        )

    @staticmethod
    def open(
        path: str,
        options: EngineOptions | None = None,
        executor: devices.Executor | None = None,
        progress: Progress | None = None,
        edit: Edit | None = None,
        gguf: GgufFile | None = None,
        draft: DraftModel | None = None,
    ) -> Engine:
        """Open a model file. `executor` overrides the one that the options name; progress(bytes done, in total).

        `edit` may shorten the program before anything is loaded (see `narrow`). `gguf`: the file, where it is open
        already. `draft`: programs that draft for the model. The engine closes both, also when opening fails.
        """
        chosen, report = options or EngineOptions(), progress or (lambda done, total: None)
        try:
            gguf = gguf or GgufFile.open(path)
            threads = resolve_threads(chosen.threads, this_machine().cores)
            executor = executor or devices.make(chosen.executor, threads, chosen.cpu_isa)
            return Engine(gguf, executor, chosen, report, edit or (lambda program: program), draft)
        except BaseException:
            for owned in (executor, gguf, draft):
                if owned is not None:
                    owned.close()
            raise

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the executor's memory and the files' mappings."""
        self._closed = True
        self.executor.close()
        self.gguf.close()
        if self.draft_model is not None:
            self.draft_model.close()

    @property
    def program(self) -> Program:
        """The model's own."""
        return self.programs[MODEL]

    def read_bandwidth(self) -> float:
        """Bytes per second with which the executor reads the weights now; 0 where that is not known."""
        return self.executor.read_bandwidth()

    def new_sequence(self) -> KvSequence:
        """A fresh sequence. ResourceError while as many are open as there is room for (`EngineOptions.sequences`)."""
        return self.steps.new_sequence()

    def step(self, parts: Sequence[Part], phase: Phase) -> list[np.ndarray]:
        """Append each part's tokens to its sequence, all in one step: for each part logits, float32 [len(outs),
        n_vocab], valid until the next step.

        ResourceError when they do not fit, IeError for what is no token or no open sequence of this engine; the
        sequences are then unchanged, and so they are when the step is interrupted. A sequence's logits and what it
        leaves behind do not depend on the others.
        """
        ready, begin = self._ready(parts, phase), time.monotonic()
        for part in ready:
            self.steps.settle(part.sequence)
        starts = [(part.sequence, len(part.sequence)) for part in ready]
        try:
            for seq, tokens, _ in ready:
                seq.extend(tokens, phase)
            logits = self.steps.run(ready, phase)
        except BaseException:
            for seq, start in starts:
                seq.truncate(start)
            raise
        stats = self.stats
        stats.seconds, stats.steps, stats.rows = (
            stats.seconds + time.monotonic() - begin,
            self.steps.count,
            self.steps.rows,
        )
        return logits

    def _ready(self, parts: Sequence[Part], phase: Phase) -> list[Part]:
        """The parts with their tokens as integers; IeError for what no step can be made of."""
        if self._closed:
            raise IeError("the engine is closed")
        ready = [Part(seq, token_ids(tokens, self.n_vocab), outs) for seq, tokens, outs in parts]
        self.steps.check(ready, phase)
        return ready

    def forward(
        self, seq: KvSequence, tokens: Sequence[int], want: str = "last", phase: Phase = Phase.PROMPT
    ) -> np.ndarray:
        """Append `tokens`, cut into chunks; logits of the last one, or want "all" of them, float32 [rows, n_vocab].

        ResourceError when they do not fit; the sequence is then unchanged. An interrupted call keeps whole chunks.
        """
        ids = token_ids(tokens, self.n_vocab)
        if not ids or want not in ("last", "all"):
            raise ValueError("forward needs tokens, and want 'last' or 'all'")
        self._ready([Part(seq, ids[:1])], phase)
        seq.require(len(ids))
        size = self.opened.most_rows(phase, every_logit=want == "all")
        out: np.ndarray | None = None
        for start in range(0, len(ids), size):
            piece = ids[start : start + size]
            ends = [len(piece) - 1] if start + size >= len(ids) else []
            (logits,) = self.step([Part(seq, piece, range(len(piece)) if want == "all" else ends)], phase)
            if want == "last":
                continue
            if out is None:
                out = np.empty((len(ids), logits.shape[1]), np.float32)
            out[start : start + len(piece)] = logits
        return logits.copy() if out is None else out

    def verify(self, seq: KvSequence, tokens: Sequence[int]) -> np.ndarray:
        """Append up to 16 generated tokens in one step: logits of each, float32 [len(tokens), n_vocab], valid until the
        next."""
        if not 0 < len(tokens) <= DECODE_ROWS:
            raise IeError(f"{len(tokens)} tokens to verify, expected 1 to {DECODE_ROWS}")
        return self.step([Part(seq, tokens, range(len(tokens)))], Phase.GENERATED)[0]

    def run(self, name: str, seq: KvSequence, tokens: Sequence[int]) -> Callable[[str], np.ndarray]:
        """Run another program of the job on rows at the positions after a sequence, which stays as it is; returns what
        gives the first row of an output by name, valid until the next step."""
        (part,) = self._ready([Part(seq, tokens)], Phase.GENERATED)
        self.steps.settle(seq)
        return self.steps.run_other(name, seq, part.tokens)
