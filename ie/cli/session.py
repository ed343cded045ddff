"""A loaded model as the commands see it.

Owns: what the commands need from the engine (two protocols, which tests implement without a model), loading it
with its tokenizer, and which tokens must never be drawn. Does not own the engine.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .options import Options

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer
    from .drafting import Drafting
    from .inspect import Inspection

Logits = NDArray[np.float32]


class SequenceLike(Protocol):
    """One text in the engine's memory."""

    @property
    def tokens(self) -> Sequence[int]: ...
    def __len__(self) -> int: ...
    def truncate(self, n: int) -> None: ...
    def close(self) -> None: ...


class EngineLike(Protocol):
    """What runs the model."""

    @property
    def n_vocab(self) -> int: ...
    @property
    def n_ctx(self) -> int: ...
    def new_sequence(self) -> Any: ...
    def forward(self, seq: Any, tokens: Sequence[int], want: Any) -> Logits: ...
    def verify(self, seq: Any, tokens: Sequence[int]) -> Logits: ...
    def close(self) -> None: ...


class SamplerLike(Protocol):
    def sample(self, logits: Logits, index: int, history: Sequence[int], length: int | None = None) -> int: ...


Generate = Callable[..., Generator[int, None, None]]


@dataclass
class Session:
    """An engine, its tokenizer, and how they came about."""

    engine: EngineLike
    tokenizer: Tokenizer
    generate: Generate
    make_sampler: Callable[[Options, int, Collection[int]], SamplerLike]  # options, seed, tokens never to be drawn
    load_seconds: float
    weight_bytes: int  # read for one generated token
    bandwidth: Callable[[], float]  # bytes/s that this machine reads now; 0: not known
    trained_context: int
    notes: tuple[str, ...] = ()  # for those who ask (-v)
    warnings: tuple[str, ...] = ()  # for everybody: where what runs is not what was asked for
    inspection: Inspection | None = None  # what --diff, --stop-after, --layers or --trace changed
    drafting: Drafting | None = None  # who guesses tokens ahead, with --draft


Loader = Callable[[Options], Session]


def forbidden_tokens(chosen: Options, tokenizer: Tokenizer, n_logits: int) -> frozenset[int]:
    """Tokens that must never be drawn: those the file suppresses, and with --ignore-eos those that end a text.

    Nor may those for which a padded embedding has a row, and so the model one of its n_logits, but the vocabulary no
    token.
    """
    ending = tokenizer.eog_ids if chosen.ignore_eos else frozenset[int]()
    return frozenset(tokenizer.suppress_ids) | ending | frozenset(range(tokenizer.n_vocab, n_logits))


def fresh_seed() -> int:
    """A seed from the system's random source, short enough to type."""
    return secrets.randbelow(2**32)
