"""What the engine is asked for, and the pure functions that turn "auto" into a value.

Owns: the frozen settings of engine and drafting with their defaults. Does not own flags (`cli.options`): no file is
opened and no machine is looked at here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

EXECUTORS = ("cpu", "reference")
DRAFTERS = ("auto", "mtp", "mtp+lookup", "lookup")
AUTO_DEPTH = 7
"""Most drafts of the MTP block in a step when --draft is auto."""
CPU_ISAS = ("auto", "avx512", "avxvnni", "avx2", "i8mm", "neon", "portable")
MAX_AUTO_CONTEXT = 8192


@dataclass(frozen=True)
class DraftOptions:
    """How the MTP block drafts. None of it changes the output, only how fast it comes."""

    depth: int = 3  # most drafts of one chain
    p_min: float = 0.6  # a draft less likely than this ends the chain
    vocabulary: int = 131072  # first tokens that drafts are chosen from; 0: all
    q4_head: bool = True  # read drafts from a Q4_0 copy of the output matrix
    file: str | None = None  # a GGUF file that holds the block, when the model's own does not


@dataclass(frozen=True)
class EngineOptions:
    """What the engine needs to know: the part of the options that decides memory and executor."""

    n_ctx: int = 0  # tokens; 0: resolve_context()
    threads: int = 0  # 0: resolve_threads()
    chunk: int = 512  # most prompt tokens in one step
    executor: str = "cpu"
    cpu_isa: str = "auto"
    sequences: int = 1  # most that are open at a time, each with a context of its own


# -- what "auto" means -------------------------------------------------------------------------------------------------


def resolve_threads(requested: int, cores: int) -> int:
    """Threads to use: what was asked for, or one for each physical core."""
    return requested if requested > 0 else max(1, cores)


def bound_threads(requested: int, useful: int) -> int:
    """What was asked for, but no more threads than can run at once: others hold up those that do. 0 stays auto."""
    return min(requested, useful)


def resolve_context(requested: int, trained: int, fits: int) -> int:
    """Context length in tokens: what was asked for, or the smallest of the model's own, 8192 and what fits."""
    return requested if requested > 0 else max(1, min(trained, MAX_AUTO_CONTEXT, fits))


def resolve_seed(requested: int, fresh: Callable[[], int]) -> int:
    """The seed asked for, or a fresh one."""
    return requested if requested >= 0 else fresh()
