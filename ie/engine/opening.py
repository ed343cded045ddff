"""Opening: from a model file to an executor that holds it.

Owns: the order of it (file, configuration, programs, what fits, weights), and which capacities programs are bound to.
Does not own any step (`engine`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..devices import Executor
from ..devices.base import MODEL, Binding, Job, Progress, Shape
from ..devices.weights import vector_values
from ..errors import ModelError
from ..formats import format_by_name
from ..gguf import GgufFile, TensorSet
from ..machine import memory_limit
from ..model.build import build
from ..model.config import ModelConfig, rope_table
from ..program import Matrix, Program, Vector, union
from ..program.step import Phase
from ..settings import EngineOptions
from .drafter import DraftModel
from .kv import BLOCK
from .memory import STATE_SLOTS, Demand, choose_context, choose_slots

DECODE_ROWS = 16
"""Most rows of one sequence in a step of generated tokens."""

LOGITS_BYTES = 32 << 20
"""Most bytes of logits that one step produces when every position's are wanted: bounds the arena."""

MAX_BYTES = (1 << 31) - 64
"""Most bytes of what the fields of a command measure: int32, and rows are padded to 64."""

Edit = Callable[[Program], Program]
"""Turns a model's program into the one to run."""


@dataclass(frozen=True)
class Opened:
    """A model on an executor. bindings: of the model by phase (see `Phase`), then of other programs. chunk: most prompt
    tokens of a step; n_ctx: most tokens of a sequence; all_rows: rows of a step that wants all logits; ring: positions
    whose hidden states are kept for drafting; state_slots: copies of recurrent state."""

    config: ModelConfig
    tensors: TensorSet
    programs: Mapping[str, Program]
    bindings: Sequence[Binding]
    chunk: int
    n_ctx: int
    n_seqs: int
    n_blocks: int
    all_rows: int
    ring: int
    state_slots: int

    def most_rows(self, phase: Phase, every_logit: bool = False) -> int:
        """Tokens of one sequence that a step takes."""
        most = self.chunk if phase is Phase.PROMPT else DECODE_ROWS
        return min(most, self.all_rows) if every_logit and phase is Phase.PROMPT else most


def check_sizes(path: str, program: Program) -> None:
    """ModelError where a row of activations or an expert is larger than commands can say: their sizes are int32."""
    for buffer in program.buffers:
        if 4 * buffer.cols > MAX_BYTES:
            raise ModelError(
                f"{path}: {buffer.name} has {buffer.cols:,} values a row, expected at most {MAX_BYTES // 4:,}"
            )
    for w in program.weights():
        if isinstance(w, Matrix) and w.separate:  # rows are padded to whole groups, of 64 at most
            size = -(-w.rows[0] // 64) * 64 * format_by_name(w.format).row_bytes(w.k)
            if size > MAX_BYTES:
                raise ModelError(f"{path}: {w.names[0]}: an expert of {size:,} bytes, expected at most {MAX_BYTES:,}")


def load(
    gguf: GgufFile,
    executor: Executor,
    options: EngineOptions,
    progress: Progress,
    edit: Edit,
    draft: DraftModel | None,
) -> Opened:
    """Everything that is done once. ModelError, FormatError for a model that cannot be run, ResourceError for one that
    does not fit."""
    config, tensors, seqs = ModelConfig.from_gguf(gguf), TensorSet.of(gguf), options.sequences
    if draft is not None:
        tensors, config = draft.adopt(tensors, config)
    chunk = max(1, options.chunk)
    ring = 1 << (max(chunk, DECODE_ROWS) + 1).bit_length() if draft is not None and draft.taps(config) else 0
    programs = {MODEL: edit(build(tensors, config, STATE_SLOTS, ring))}
    if draft is not None:
        programs |= draft.programs(tensors, config, ring)
    for program in programs.values():
        check_sizes(gguf.path, program)
    all_rows = max(1, min(chunk, LOGITS_BYTES // (4 * config.n_vocab)))
    few = DECODE_ROWS * seqs
    # In the order of Phase: a prompt's chunks, then generated tokens of all sequences with their drafts.
    bindings = [Binding(MODEL, max(chunk, DECODE_ROWS), max(all_rows, seqs)), Binding(MODEL, few, few)]
    bindings += [Binding(name, 1, 1) for name in programs if name != MODEL]
    ropes = [2 * (r.n_rot // 2) for r in config.ropes]
    demand = Demand(union(list(programs.values())), executor.plan(programs, bindings), ropes, seqs)
    free = executor.free_memory()
    n_ctx = choose_context(gguf.path, options.n_ctx, config.n_ctx_train, demand, free, memory_limit())
    slots = choose_slots(demand, free, n_ctx)
    if slots not in (0, STATE_SLOTS):
        programs[MODEL] = edit(build(tensors, config, slots, ring))
    n_blocks = -(-n_ctx // BLOCK) * seqs
    tables = [rope_table(r, n_ctx, _factors(tensors, r.factors, r.n_rot // 2)) for r in config.ropes]
    executor.load(Job(tensors, tables, programs, bindings, Shape(n_ctx, n_blocks, seqs)), progress)
    return Opened(config, tensors, programs, bindings, chunk, n_ctx, seqs, n_blocks, all_rows, ring, slots)


def _factors(tensors: TensorSet, name: str | None, n: int) -> np.ndarray | None:
    return vector_values(tensors, Vector((name,), n)) if name else None
