"""Engine: one model on one executor. Opens it, decides what fits, runs steps.

Owns: the order of opening (file, config, program, memory check, weights, KV), the capacities that programs are
bound to, cutting prompts into chunks, and the measured facts of a run (`Stats`). Does not own sampling, text
or the generation loop (`generation`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import devices
from ..devices import weights
from ..devices.base import Progress
from ..devices.cpu import read_bandwidth
from ..errors import IeError, ModelError, ResourceError
from ..gguf import GgufFile
from ..machine import free_memory, memory_limit, this_machine
from ..model import build as blocks
from ..model import mtp
from ..model.config import ModelConfig
from ..program import Program, union
from ..program.step import Run, StepInputs
from ..settings import DraftOptions, EngineOptions, resolve_threads
from .kv import BLOCK, BlockPool
from .kv import Sequence as KvSequence
from .memory import STATE_SLOTS, choose_context, choose_slots

DECODE_ROWS = (1, 2, 4, 8, 16)
"""Row capacities that decode programs are bound to."""

LOGITS_BYTES = 32 << 20
"""Most bytes of logits that one step produces when every position's are wanted: bounds the arena."""

MAX_BYTES = (1 << 31) - 64
"""Most bytes of what the fields of a command measure: int32, and rows are padded to 64."""


Edit = Callable[[Program], Program]
"""Turns a model's program into the one to run."""


@dataclass
class Stats:
    """Facts of an engine: what it chose, and the work of `forward` so far."""

    isa: str = ""
    threads: int = 0
    load_seconds: float = 0.0
    weight_bytes: int = 0  # read by a decode step of one row
    steps: int = 0
    rows: int = 0
    seconds: float = 0.0


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


def check_sizes(path: str, program: Program) -> None:
    """ModelError where a row of activations or an expert is larger than commands can say: their sizes are int32."""
    for buffer in program.buffers:
        if 4 * buffer.cols > MAX_BYTES:
            raise ModelError(
                f"{path}: {buffer.name} has {buffer.cols:,} values a row, expected at most {MAX_BYTES // 4:,}"
            )
    for command in program.commands:
        size = command.args.get("expert_bytes", 0)
        if size > MAX_BYTES:
            raise ModelError(
                f"{path}: {command.args['w'].names[0]}: an expert of {size:,} bytes, expected at most {MAX_BYTES:,}"
            )


class Engine:
    """See the module docstring. Made by `Engine.open`; close it, or use it as a context manager."""

    def __init__(
        self, gguf: GgufFile, executor: devices.Executor, options: EngineOptions, progress: Progress, edit: Edit
    ) -> None:
        begin = time.monotonic()
        self.gguf, self.executor = gguf, executor
        self.config = ModelConfig.from_gguf(gguf)
        self.chunk = max(1, options.chunk)
        self._mtp_file: GgufFile | None = None
        self._closed = False
        self._adopt_mtp(options.draft)
        draft = edit(blocks.build(gguf, self.config, STATE_SLOTS, self.ring))
        check_sizes(gguf.path, draft)
        self.all_rows = max(1, min(self.chunk, LOGITS_BYTES // (4 * self.config.n_vocab)))
        self.chain = self._chain_program(gguf, options.draft)
        more = (self.chain,) if self.chain else ()
        for program in more:
            check_sizes(gguf.path, program)
        weight_bytes = weights.place(union((draft, *more)).weights()).total
        # The arena's exact size follows from the plan; for this decision a bound is enough.
        widest = max(b.cols for b in draft.buffers if b.cols != self.config.n_vocab)
        work = 4 * (8 * widest * self.chunk + max(16, self.all_rows) * self.config.n_vocab)
        work += 4 * self.ring * self.config.n_embd
        free = free_memory()
        self.n_ctx = choose_context(gguf.path, options.n_ctx, self.config, weight_bytes, work, free, memory_limit())
        self.state_slots = choose_slots(self.config, weight_bytes, work, free, self.n_ctx)
        few = self.state_slots not in (0, STATE_SLOTS)
        self.program = edit(blocks.build(gguf, self.config, self.state_slots, self.ring)) if few else draft
        n_blocks = -(-self.n_ctx // BLOCK)
        self.pool = BlockPool(n_blocks)
        self.step_inputs = StepInputs(max(self.chunk, DECODE_ROWS[-1]), 1, n_blocks)
        self._slots = [0]
        executor.load(gguf, self.config, self.program, self.n_ctx, n_blocks, progress, more=more)
        self._handles: dict[tuple[int, int], int] = {}
        self._handle(self.chunk, 1)  # the widest arena first: later ones fit into it
        self._chain_handle = executor.bind(1, 1, self.chain) if self.chain else -1
        self.stats = Stats(
            isa=getattr(executor, "isa", ""),
            threads=getattr(executor, "threads", 1),
            weight_bytes=executor.command_bytes(self._handle(1, 1), 1, 1),
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
    ) -> Engine:
        """Open a model file. `executor` overrides the one that the options name; progress(bytes done, in total).

        `edit` may shorten the program before anything is loaded (see `narrow`). `gguf`: the file, where it is open
        already; the engine closes it, also when opening fails.
        """
        chosen = options or EngineOptions()
        gguf = gguf or GgufFile.open(path)
        try:
            threads = resolve_threads(chosen.threads, this_machine().cores)
            runs = executor or devices.make(chosen.executor, threads, chosen.cpu_isa)
            try:
                return Engine(
                    gguf, runs, chosen, progress or (lambda done, total: None), edit or (lambda program: program)
                )
            except BaseException:
                runs.close()
                raise
        except BaseException:
            gguf.close()
            raise

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the executor's memory and the file's mapping."""
        self._closed = True
        self.executor.close()
        self.gguf.close()
        if self._mtp_file is not None:
            self._mtp_file.close()

    @property
    def n_vocab(self) -> int:
        return self.config.n_vocab

    def read_bandwidth(self) -> float:
        """Bytes per second with which the executor's threads read the weights now; 0 where that is not known."""
        return self.executor.read_bandwidth()

    # ---- sequences ----

    def new_sequence(self) -> KvSequence:
        """A fresh sequence. ResourceError while another one is open: there is room for one."""
        if not self._slots:
            raise ResourceError("another sequence is open; close it first")
        return _Sequence(
            self._slots.pop(), self.pool, self.step_inputs, self.n_ctx, self.state_slots, self.ring, owner=self._slots
        )

    # ---- steps ----

    def forward(self, seq: KvSequence, tokens: Sequence[int], want: str = "last") -> np.ndarray:
        """Append `tokens` to the sequence and return logits, float32 [1 or len(tokens), n_vocab].

        want "last": of the last token. want "all": of every token.
        ResourceError when they do not fit; the sequence is then unchanged. An interrupted call keeps the
        tokens of whole chunks.
        """
        ids = token_ids(tokens, self.n_vocab)
        if not ids or want not in ("last", "all"):
            raise ValueError("forward needs tokens, and want 'last' or 'all'")
        self._check_open(seq)
        start = len(seq)
        seq.extend(ids)
        done = 0
        begin = time.monotonic()
        out = np.empty((len(ids), self.n_vocab), np.float32) if want == "all" else None
        try:
            # Recurrent state that could not step back far enough is made anew from the kept tokens.
            for piece in self._pieces(seq.tokens[seq.stored : start], "last"):
                self._step(seq, piece, [])
            for piece in self._pieces(ids, want):
                n = len(piece)
                outs = range(n) if out is not None else [n - 1] if done + n == len(ids) else []
                logits = self._step(seq, piece, outs)
                if out is not None:
                    out[done : done + len(piece)] = logits
                done += len(piece)
        except BaseException:
            seq.truncate(start + done)
            raise
        self.stats.seconds += time.monotonic() - begin
        return logits.copy() if out is None else out

    def prepare_verify(self) -> None:
        """Bind what steps of 1 to 16 rows run, so that none of them does it when it is timed."""
        for rows in DECODE_ROWS:
            self._handle(rows, 1)
            self._handle(rows, rows)

    def verify(self, seq: KvSequence, tokens: Sequence[int]) -> np.ndarray:
        """Append up to 16 tokens in one step: logits of each, float32 [len(tokens), n_vocab], valid until the next."""
        ids = token_ids(tokens, self.n_vocab)
        if not 0 < len(ids) <= DECODE_ROWS[-1]:
            raise IeError(f"{len(ids)} tokens to verify, expected 1 to {DECODE_ROWS[-1]}")
        self._check_open(seq)
        assert seq.stored == len(seq)
        begin, start = time.monotonic(), len(seq)
        seq.extend(ids)
        try:
            logits = self._step(seq, ids, range(len(ids)))
        except BaseException:
            seq.truncate(start)
            raise
        self.stats.seconds += time.monotonic() - begin
        return logits

    def draft(self, seq: KvSequence, token: int, n: int) -> list[tuple[int, float]]:
        """Up to `n` drafts after `token`, which follows the sequence but has not run: (token, probability) each.

        The last one may be below the chain's p_min. Needs `chain`. The sequence is not changed.
        """
        (token,) = token_ids([token], self.n_vocab)
        self._check_open(seq)
        assert self.chain is not None and seq.stored == len(seq)
        n = min(n, len(self.chain.outputs) // 2, self.n_ctx - seq.stored)
        if n < 1:
            return []
        seq.reserve(seq.stored + n)
        seq.touch(seq.stored + n)
        self.step_inputs.fill([Run(seq.slot, seq.stored, [token] + [0] * (n - 1))], [])
        self.executor.run(self._chain_handle, self.step_inputs)
        out: list[tuple[int, float]] = []
        for i in range(n):
            token, prob = (
                self.executor.read(self._chain_handle, self.chain.outputs[f"{what}.{i}"], 1).item()
                for what in ("id", "prob")
            )
            out.append((token, prob))
            if not prob >= self.p_min:
                break
        return out

    def _chain_program(self, gguf: GgufFile, draft: DraftOptions | None) -> Program | None:
        """The drafting program, when the model has an MTP block and drafting is wanted."""
        if draft is None or self.config.mtp is None:
            return None
        self.p_min = draft.p_min
        return mtp.build_chain(gguf, self.config, self.ring, draft.depth, draft.p_min, draft.vocabulary, draft.q4_head)

    def _adopt_mtp(self, draft: DraftOptions | None) -> None:
        """Take the MTP block out of its own file, if one is named; decide how many hidden states are kept."""
        if draft is not None and draft.file is not None:
            self._mtp_file = GgufFile.open(draft.file)
            self.config = mtp.adopt(self.gguf, self.config, self._mtp_file)
        wanted = draft is not None and self.config.mtp is not None
        most = max(self.chunk, DECODE_ROWS[-1])
        self.ring = 1 << (most + 1).bit_length() if wanted else 0

    def _check_open(self, seq: KvSequence) -> None:
        """IeError for a sequence without a place in the cache: it is closed, or of another engine."""
        if self._closed or seq.step is not self.step_inputs or not getattr(seq, "open", True):
            what = "the engine is closed" if self._closed else "the sequence is closed, or belongs to another engine"
            raise IeError(what)

    def _pieces(self, ids: list[int], want: str) -> Iterable[list[int]]:
        size = self.all_rows if want == "all" else self.chunk
        return (ids[i : i + size] for i in range(0, len(ids), size))

    def _step(self, seq: KvSequence, tokens: list[int], outs: Sequence[int]) -> np.ndarray:
        """Run tokens at positions seq.stored and on; logits of the rows `outs`, valid until the next step."""
        n = len(tokens)
        self.step_inputs.fill([Run(seq.slot, seq.stored, tokens, seq.state, seq.keep(n))], outs)
        handle = self._handle(n, max(1, len(outs)))
        try:
            self.executor.run(handle, self.step_inputs)
            seq.advance(n)
        except BaseException:
            seq.abandon(n)
            raise
        self.stats.steps += 1
        self.stats.rows += n
        if "logits" not in self.program.outputs:  # a program cut short
            return np.empty((len(outs), 0), np.float32)
        return self.executor.read(handle, self.program.outputs["logits"], len(outs))

    def _handle(self, rows: int, outs: int) -> int:
        """The binding for a step of `rows` rows: the smallest decode capacity that holds them, or the prompt's."""
        capacity = next((c for c in DECODE_ROWS if rows <= c), max(self.chunk, DECODE_ROWS[-1]))
        key = (capacity, 1 if outs == 1 else capacity if capacity <= DECODE_ROWS[-1] else self.all_rows)
        if key not in self._handles:
            self._handles[key] = self.executor.bind(*key)
        return self._handles[key]


class _Sequence(KvSequence):
    """A sequence that gives its slot back when closed."""

    def __init__(self, *args: object, owner: list[int]) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._owner: list[int] | None = owner

    @property
    def open(self) -> bool:
        return self._owner is not None

    def close(self) -> None:
        super().close()
        if self._owner is not None:
            self._owner.append(self.slot)
            self._owner = None


def measured_bandwidth(threads: int | None = None) -> float:
    """Bytes per second that this machine now reads from memory with `threads` threads (default: one a core)."""
    return read_bandwidth(resolve_threads(threads or 0, this_machine().cores))
