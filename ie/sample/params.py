"""The samplers: their names, their order, their parameters.

Owns: names and letters of the samplers, the limits and defaults of their parameters, and which samplers of a chain do
anything. Does not own what they compute (docs/sampling.md, kernels_c/sample/sample.c) nor the command line.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass

from ..errors import OptionError

SAMPLERS: dict[str, str] = {
    "penalties": "e",
    "dry": "d",
    "top_n_sigma": "s",
    "top_k": "k",
    "typ_p": "y",
    "top_p": "p",
    "min_p": "m",
    "xtc": "x",
    "temperature": "t",
}
"""Name → letter, in the default order."""
MAX_CHAIN = 64
_ALIASES = {"typ": "typ_p", "typical": "typ_p", "typical_p": "typ_p", "nucleus": "top_p", "temp": "temperature"}
# Without the separators, as people write them: topk, top-k, top_k.
_SPELLINGS = {name.replace("_", ""): target for name, target in [*((n, n) for n in SAMPLERS), *_ALIASES.items()]}
# These keep the likeliest candidate: before a greedy choice they change nothing.
_KEEP_LARGEST = frozenset({"top_n_sigma", "top_k", "top_p", "min_p"})
_LARGEST_FLOAT = (2 - 2.0**-23) * 2.0**127
_INT_MAX = 2**31 - 1


def chain_from_names(text: str, where: str) -> tuple[str, ...]:
    """Sampler names separated by ; or , as a chain. OptionError naming `where` and the nearest name for a wrong one."""
    chain = []
    for word in re.split(r"[;,]", text) if text.strip() else []:
        plain = re.sub(r"[-_ ]", "", word).lower()
        if plain not in _SPELLINGS:
            near = difflib.get_close_matches(plain, _SPELLINGS, 1, 0.5)
            hint = f"Did you mean {_SPELLINGS[near[0]]}?" if near else f"There are: {', '.join(SAMPLERS)}"
            raise OptionError(f"{where}: unknown sampler '{word.strip()[:40]}'. {hint}")
        chain.append(_SPELLINGS[plain])
    return _bounded(chain, where)


def chain_from_letters(text: str, where: str) -> tuple[str, ...]:
    """A chain from one letter for each sampler. OptionError naming `where` for a letter that stands for none."""
    names = {letter: name for name, letter in SAMPLERS.items()}
    for letter in text:
        if letter not in names:
            known = ", ".join(f"{key} {name}" for key, name in names.items())
            raise OptionError(f"{where}: unknown sampler '{letter}'. There are: {known}")
    return _bounded([names[letter] for letter in text], where)


def _bounded(chain: list[str], where: str) -> tuple[str, ...]:
    if len(chain) > MAX_CHAIN:
        raise OptionError(f"{where}: {len(chain)} samplers, expected at most {MAX_CHAIN}")
    return tuple(chain)


@dataclass(frozen=True)
class SamplerParams:
    """What the chain does; every value is checked, OptionError names the one that is wrong.

    The defaults leave penalties, DRY, top-n-sigma, typical and XTC off. Windows are in tokens, -1 for the whole
    history; `logit_bias` are pairs of token id and what is added to its logit, -inf to forbid it.
    """

    temp: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    seed: int = 0
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    min_keep: int = 0
    samplers: tuple[str, ...] = tuple(SAMPLERS)
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        for name in ("top_p", "min_p", "typical_p", "xtc_probability", "xtc_threshold"):
            self._check(name, 0, 1, "a number from 0 to 1")
        for name in ("temp", "dynatemp_range", "dynatemp_exponent"):
            self._check(name, 0, math.inf, "a finite number of at least 0")
        for name in ("dry_multiplier", "dry_base"):
            self._check(name, 0, _LARGEST_FLOAT, "a finite number of at least 0")
        for name in ("presence_penalty", "frequency_penalty"):
            self._check(name, -_LARGEST_FLOAT, _LARGEST_FLOAT, "a finite number")
        self._check("top_n_sigma", -math.inf, math.inf, "a finite number")
        self._check("repeat_penalty", 2.0**-126, _LARGEST_FLOAT, "a finite number above 0")
        for name in ("top_k", "dry_allowed_length", "min_keep"):
            self._check(name, 0, _INT_MAX, "0 or a positive 32-bit number")
        for name in ("repeat_last_n", "dry_penalty_last_n"):
            self._check(name, -1, _INT_MAX, "-1 (the whole history), 0 (off) or a positive 32-bit number")
        self._check("seed", 0, 2**64 - 1, "0 or a positive 64-bit number")
        for sampler in self.samplers:
            if sampler not in SAMPLERS:
                raise OptionError(f"samplers has '{sampler}': expected names of {', '.join(SAMPLERS)}")
        _bounded(list(self.samplers), "samplers")
        for token, bias in self.logit_bias:
            if token < 0 or math.isnan(bias) or bias > _LARGEST_FLOAT or -math.inf < bias < -_LARGEST_FLOAT:
                raise OptionError(f"logit_bias has {token}: {bias}: expected a token id and a finite number or -inf")

    def _check(self, name: str, low: float, high: float, expected: str) -> None:
        value = getattr(self, name)
        if not (math.isfinite(value) and low <= value <= high):
            raise OptionError(f"{name} is {value}: expected {expected}")

    def active(self) -> tuple[str, ...]:
        """The samplers that do something, in order: what is off is left out, and what a greedy choice makes void."""
        on = {
            "penalties": self.repeat_last_n != 0
            and (self.repeat_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0),
            "dry": self.dry_multiplier > 0 and self.dry_base >= 1 and self.dry_penalty_last_n != 0,
            "top_n_sigma": self.top_n_sigma > 0,
            "top_k": self.top_k > 0,
            "typ_p": self.typical_p < 1,
            "top_p": self.top_p < 1,
            "min_p": self.min_p > 0,
            "xtc": self.xtc_probability > 0 and self.xtc_threshold <= 0.5,
            "temperature": self.temp != 1 or self.dynatemp_range > 0,
        }
        chain = [sampler for sampler in self.samplers if on[sampler]]
        if self.temp == 0:
            # Temperature 0 leaves one candidate, so nothing behind it matters.
            chain = chain[: chain.index("temperature")] if "temperature" in chain else chain
            while chain and chain[-1] in _KEEP_LARGEST:
                chain.pop()
        return tuple(chain)

    def window(self) -> int:
        """How many tokens of the history the chain looks at; -1: all of them."""
        chain = self.active()
        windows = [self.repeat_last_n] * ("penalties" in chain) + [self.dry_penalty_last_n] * ("dry" in chain)
        return -1 if -1 in windows else max(windows, default=0)
