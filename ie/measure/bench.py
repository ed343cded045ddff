"""How fast a model reads prompts and generates: the measurements of llama-bench.

Owns: which tests a command line asks for, what is inside and outside of the time, and the statistics. Works on anything
that has the engine's `new_sequence`, `forward` and `verify`. Does not own opening the engine or any wording of results.

A test of P prompt tokens and N generated ones after D tokens of depth: the depth is fed untimed; then P random ids are
fed, with logits for the last alone, and N times one random id, with its logits. Nothing is sampled or tokenised. The
rate of a repetition is (P + N) / time; reported are the mean of the rates and their sample standard deviation.

With drafts, generation needs a text, or there would be nothing to guess: TEXT, repeated to D tokens where D is not 0,
is fed untimed, and the model's own likeliest tokens continue it, N of them, whatever ends a text.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..engine.drafter import Drafter, DraftStats
from ..engine.generation import generate
from ..sample import Sampler, SamplerParams

if TYPE_CHECKING:
    from . import ppl

    class Model(ppl.Model, Protocol):
        """What is measured."""

        def verify(self, seq: Any, tokens: Sequence[int]) -> np.ndarray: ...


TEXT = """\
def read_table(path, separator=","):
    rows = []
    with open(path) as file:
        for line in file:
            line = line.strip()
            if line and not line.startswith("#"):
                rows.append([cell.strip() for cell in line.split(separator)])
    return rows


def column_sums(rows):
    sums = {}
    header, *body = rows
    for row in body:
        for name, cell in zip(header, row):
            sums[name] = sums.get(name, 0.0) + float(cell)
    return sums


"""
"""What is continued when drafts are measured."""

TEXT_ROOM = 512  # tokens of context that TEXT may take


@dataclass(frozen=True)
class Case:
    """One thing to measure."""

    n_prompt: int
    n_gen: int
    n_depth: int = 0

    @property
    def label(self) -> str:
        """pp512, tg128 or pp512+tg128, and after it the depth."""
        parts = [f"pp{self.n_prompt}"] * (self.n_prompt > 0) + [f"tg{self.n_gen}"] * (self.n_gen > 0)
        return "+".join(parts) + (f" @ d{self.n_depth}" if self.n_depth else "")

    @property
    def tokens(self) -> int:
        """Tokens of context that the test takes."""
        return self.n_prompt + self.n_gen + self.n_depth


def plan(
    prompts: Iterable[int], gens: Iterable[int], pairs: Iterable[tuple[int, int]], depths: Iterable[int]
) -> list[Case]:
    """At every depth: each prompt, each generation, each pair. What has no tokens to time is left out."""
    shapes = [*((p, 0) for p in prompts), *((0, n) for n in gens), *pairs]
    return [Case(p, n, depth) for depth in depths for p, n in shapes if p + n > 0]


@dataclass(frozen=True)
class Samples:
    """Times of the repetitions of one test, in ns."""

    test: Case
    ns: tuple[int, ...]
    drafts: DraftStats | None = None  # of all repetitions
    bandwidths: tuple[float, ...] = ()  # bytes/s read around each repetition; none where that is not known

    @property
    def rates(self) -> tuple[float, ...]:
        """Tokens per second of each repetition."""
        return tuple(1e9 * (self.test.n_prompt + self.test.n_gen) / ns for ns in self.ns)

    @property
    def rate(self) -> tuple[float, float]:
        """Mean of the rates and sample standard deviation."""
        return mean_and_deviation(self.rates)

    @property
    def duration(self) -> tuple[float, float]:
        """The same of the times, in ns."""
        return mean_and_deviation(self.ns)


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Arithmetic mean and sample standard deviation (n - 1); 0 for a single value."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, 0.0
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def bandwidth_share(samples: Samples, weight_bytes: int) -> float | None:
    """Rate of reading weights in generation over the bandwidth of the same moment, the median of the repetitions."""
    if not samples.bandwidths or weight_rate(samples, weight_bytes) is None:
        return None
    shares = (weight_bytes * rate / have for rate, have in zip(samples.rates, samples.bandwidths, strict=True))
    return statistics.median(shares)


def weight_rate(samples: Samples, weight_bytes: int) -> float | None:
    """Bytes of weights read in a second of generation; None where prompt tokens or drafts are part of the time."""
    return None if samples.test.n_prompt or samples.drafts else weight_bytes * samples.rate[0]


def measure(
    model: Model,
    test: Case,
    *,
    repetitions: int,
    warmup: bool = True,
    bos: int | None = None,
    seed: int = 0,
    clock: Callable[[], int] = time.perf_counter_ns,
    bandwidth: Callable[[], float] | None = None,
) -> Samples:
    """Times one test. `bos` begins prompt and generation where the model's texts begin with it; `clock` gives ns.

    `bandwidth` measures the memory, before and after each repetition."""
    rng = np.random.default_rng(seed)

    def ids(n: int) -> list[int]:
        found = [int(i) for i in rng.integers(0, model.n_vocab, n)]
        return [bos, *found[1:]] if found and bos is not None else found

    depth = ids(test.n_depth)
    seq = model.new_sequence()
    try:
        if warmup:
            _feed(model, seq, ids(test.n_prompt), ids(min(1, test.n_gen)))
        taken: list[int] = []
        read = [bandwidth() if bandwidth else 0.0]
        for _ in range(repetitions):
            _rewind(model, seq, depth)
            prompt, generated = ids(test.n_prompt), ids(test.n_gen)
            begin = clock()
            _feed(model, seq, prompt, generated)
            taken.append(max(1, clock() - begin))
            read.append(bandwidth() if bandwidth else 0.0)
        around = tuple((a + b) / 2 for a, b in itertools.pairwise(read)) if all(read) else ()
        return Samples(test, tuple(taken), bandwidths=around)
    finally:
        seq.close()


def measure_drafted(
    engine: Any,
    test: Case,
    text: Sequence[int],
    drafter: Drafter,
    *,
    repetitions: int,
    warmup: bool = True,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Samples:
    """Times generation with drafts: `test.n_gen` tokens after `text` (see the module docstring). One that warms up is
    not counted."""
    prompt = [text[i % len(text)] for i in range(test.n_depth or len(text))]
    sampler, stats = Sampler(SamplerParams(temp=0.0), engine.n_vocab), DraftStats()
    seq = engine.new_sequence()
    try:
        taken = []
        for i in range(repetitions + warmup):
            seq.truncate(0)
            one = DraftStats()
            tokens = generate(
                engine, seq, prompt, sampler, max_tokens=test.n_gen + 1, eog_ids=(), drafter=drafter, stats=one
            )
            next(tokens)  # the prompt's own time is not counted
            begin = clock()
            for _ in tokens:
                pass
            if i >= warmup:
                taken.append(max(1, clock() - begin))
                stats += one
        return Samples(test, tuple(taken), stats)
    finally:
        seq.close()


def _feed(model: Model, seq: Any, prompt: list[int], generated: list[int]) -> None:
    if prompt:
        model.forward(seq, prompt, "last")
    for token in generated:
        model.verify(seq, [token])  # as generation does it


def _rewind(model: Model, seq: Any, depth: list[int]) -> None:
    """Leave just the tokens of the depth in the cache. The last is fed anew: a model whose state cannot step back
    then makes it now, not inside the time."""
    if list(seq.tokens[: len(depth)]) != depth:
        seq.truncate(0)
        if depth:
            model.forward(seq, depth, "last")
        return
    seq.truncate(max(0, len(depth) - 1))
    if depth:
        model.forward(seq, depth[-1:], "last")
