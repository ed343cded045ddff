"""How an answer is sampled: options, the file's own recommendations, and the tokenizer put together.

Owns: reading the words of the sampling options (--samplers, --logit-bias, --dry-sequence-breaker), the keys
general.sampling.*, and which of the two wins. Does not own the samplers (ie/sample).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import OptionError
from ..gguf import GgufFile
from ..sample import (
    DEFAULT_BREAKERS,
    NO_BREAKERS,
    Breakers,
    Sampler,
    SamplerParams,
    chain_from_letters,
    chain_from_names,
)
from .options import Options
from .session import SamplerLike

if TYPE_CHECKING:
    from ..tokenizer import Tokenizer

PREFIX = "general.sampling."
# Key of the file → option; numbers outside of what the option takes are brought to the nearest that it does.
_FILE_KEYS: dict[str, tuple[str, float, float]] = {
    "temp": ("temp", 0, math.inf),
    "top_k": ("top_k", 0, 2**31 - 1),
    "top_p": ("top_p", 0, 1),
    "min_p": ("min_p", 0, 1),
    "xtc_probability": ("xtc_probability", 0, 1),
    "xtc_threshold": ("xtc_threshold", 0, 1),
    "penalty_last_n": ("repeat_last_n", -1, 2**31 - 1),
    "penalty_repeat": ("repeat_penalty", 0, math.inf),
}
# Options that are parameters of the same name.
_SAME = (
    "temp", "top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold",
    "repeat_last_n", "repeat_penalty", "presence_penalty", "frequency_penalty",
    "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dynatemp_range", "dynatemp_exponent",
)  # fmt: skip
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}
_BIAS = re.compile(r"(\d{1,10})([+-])(inf|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)", re.ASCII)


@dataclass(frozen=True)
class FileSampling:
    """What a file recommends: values by the names of options, and what to say about it."""

    values: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def from_file(gguf: GgufFile) -> FileSampling:
    """The keys general.sampling.* of a file. GgufError for one of a wrong type."""
    values: dict[str, Any] = {}
    notes: list[str] = []
    for key, (name, low, high) in _FILE_KEYS.items():
        whole = isinstance(getattr(Options(), name), int)
        read: Callable[..., Any] = gguf.get_int if whole else gguf.get_float
        found = read(PREFIX + key, None)
        if found is not None:
            values[name] = type(found)(min(max(found, low), high))
    if values.get("repeat_penalty") == 0:
        notes.append(f"the file's {PREFIX}penalty_repeat is not above 0: not used")
        del values["repeat_penalty"]
    sequence = gguf.get_str(PREFIX + "sequence", None)
    if sequence is not None:
        try:
            values["samplers"] = ";".join(chain_from_names(sequence, PREFIX + "sequence"))
        except OptionError as error:
            notes.append(f"{error}. The file's order of samplers is not used")
    if gguf.get_int(PREFIX + "mirostat", 0):
        notes.append("the file recommends mirostat, which there is not: the other samplers are used")
    return FileSampling(values, tuple(notes))


def notes(chosen: Options, file: FileSampling) -> list[str]:
    """What -v says about the file's recommendations."""
    used = {name: value for name, value in file.values.items() if not _is_given(chosen, name)}
    told = ", ".join(f"{name.replace('_', '-')} {value}" for name, value in used.items())
    return [*([f"from the file: {told}"] if told else []), *file.notes]


def _is_given(chosen: Options, name: str) -> bool:
    return name in chosen.given or (name == "samplers" and "sampler_seq" in chosen.given)


def parameters(chosen: Options, file: FileSampling, seed: int, forbidden: Collection[int] = ()) -> SamplerParams:
    """The parameters: from the command line, else from the file, else the defaults. OptionError."""
    values = {name: getattr(chosen, name) for name in _SAME}
    values |= {name: value for name, value in file.values.items() if name in _SAME and not _is_given(chosen, name)}
    if chosen.samplers is not None and chosen.sampler_seq is not None:
        raise OptionError("--samplers and --sampler-seq both give an order: leave out one of them")
    if chosen.samplers is not None:
        values["samplers"] = chain_from_names(chosen.samplers, "--samplers")
    elif chosen.sampler_seq is not None:
        values["samplers"] = chain_from_letters(chosen.sampler_seq, "--sampler-seq")
    elif "samplers" in file.values:
        values["samplers"] = chain_from_names(file.values["samplers"], PREFIX + "sequence")
    biases = [parse_bias(word) for word in chosen.logit_bias] + [(token, -math.inf) for token in forbidden]
    return SamplerParams(seed=seed, logit_bias=tuple(biases), **values)


def check(chosen: Options, n_vocab: int | None = None) -> None:
    """OptionError for sampling options that are wrong whatever the file recommends: before it is loaded, and again
    when its vocabulary is known."""
    parameters(chosen, FileSampling(), 0)
    for token, _ in map(parse_bias, chosen.logit_bias):
        if n_vocab is not None and token >= n_vocab:
            raise OptionError(f"--logit-bias: token id {token} is outside the vocabulary of {n_vocab:,} tokens")


def parse_bias(word: str) -> tuple[int, float]:
    """TOKEN+BIAS or TOKEN-BIAS as a token id and a number; -inf forbids the token. OptionError."""
    found = _BIAS.fullmatch(word)
    if not found or found[2] + found[3] == "+inf":
        expected = "a token id, + or -, and a number, as 15043+1 or 15043-inf"
        raise OptionError(f"--logit-bias: expected {expected}, got '{word}'")
    return int(found[1]), float(found[2] + found[3])


def breaker_texts(chosen: Options) -> tuple[str, ...]:
    """The sequence breakers: the defaults, or what is given in their place; `none` stands for no breaker."""
    if not chosen.dry_sequence_breaker:
        return DEFAULT_BREAKERS
    texts = [text for text in chosen.dry_sequence_breaker if text != "none"]
    return tuple(re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), text) for text in texts)


class SamplerMaker:
    """Makes the samplers of a run; what takes time is done once."""

    def __init__(self, tokenizer: Tokenizer, n_vocab: int, file: FileSampling) -> None:
        self._tokenizer, self._n_vocab, self._file = tokenizer, n_vocab, file
        self._breakers: dict[tuple[str, ...], Breakers] = {}

    def __call__(self, chosen: Options, seed: int, forbidden: Collection[int]) -> SamplerLike:
        params = parameters(chosen, self._file, seed, forbidden)
        breakers = NO_BREAKERS
        if "dry" in params.active():
            texts = breaker_texts(chosen)
            if texts not in self._breakers:
                self._breakers[texts] = Breakers.from_texts(texts, self._tokenizer)
            breakers = self._breakers[texts]
        return Sampler(params, self._n_vocab, breakers)
