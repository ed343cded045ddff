"""How well a model predicts a text: perplexity, and the divergence of its distributions from another model's.

Owns: which windows a text is cut into, which predictions count, and every statistic. Works on anything that has the
engine's `new_sequence` and `forward`. Does not own the text, the file of another model's results (ie/ppl_file.py) or
any wording.

Of each prediction v = -ln softmax(logits)[next token]: exponentials in float32, sums in float64, as llama-perplexity
does. Perplexity is exp(mean v) over all predictions that count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..errors import ResourceError, SampleError
from .ppl_file import Reader

BLOCK_BYTES = 32 << 20
"""Bytes of logits computed at a time."""

MIN_PREDICTIONS = 100
"""Fewest predictions from which statistics of divergence mean something."""

LOWEST = np.float32(-16.0)
"""Tokens whose ln P is not above this are left out of the divergence: the file stores nothing finer."""


class Model(Protocol):
    """What measuring needs of an engine, here and in ie/measure/bench.py."""

    @property
    def n_vocab(self) -> int: ...
    def new_sequence(self) -> Any: ...
    def forward(self, seq: Any, tokens: Sequence[int], want: Any) -> np.ndarray: ...


# -- windows -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows:
    """Where windows begin in a text, how long they are, and the first position whose prediction counts."""

    starts: range
    size: int
    first: int
    bos: int | None = None  # put in place of the first token of each

    @property
    def predictions(self) -> int:
        """Predictions that count in one window: of positions first … size - 2."""
        return self.size - 1 - self.first

    def tokens(self, text: Sequence[int], index: int) -> list[int]:
        """The tokens of a window as they are fed."""
        start = self.starts[index]
        found = list(text[start : start + self.size])
        return found if self.bos is None else [self.bos, *found[1:]]

    def limited(self, most: int) -> Windows:
        """The first `most` of them; all when it is negative."""
        starts = self.starts if most < 0 else self.starts[:most]
        return Windows(starts, self.size, self.first, self.bos)


def disjoint(n_tokens: int, size: int, first: int | None = None, bos: int | None = None) -> Windows:
    """Windows side by side; the rest of the text is not used. ResourceError when there are not two."""
    begin = size // 2 if first is None else first
    _check(n_tokens, size, 0 <= begin <= size - 2, f"the first position that counts, {begin}")
    return Windows(range(0, n_tokens // size * size, size), size, begin, bos)


def strided(n_tokens: int, size: int, stride: int) -> Windows:
    """Windows of size + stride/2 tokens that begin `stride` tokens apart, each with its last `stride` predictions.

    No token is replaced at their beginnings. ResourceError when the text is shorter than two of them.
    """
    size += stride // 2
    _check(n_tokens, size, 1 <= stride < size, f"a stride of {stride}")
    count = -(-(n_tokens - size) // stride)
    return Windows(range(0, count * stride, stride), size, size - 1 - stride)


def _check(n_tokens: int, size: int, inside: bool, what: str) -> None:
    if not inside:
        raise ResourceError(f"{what} does not lie inside a window of {size} tokens: a longer window (-c) is needed")
    if n_tokens < 2 * size:
        raise ResourceError(
            f"the text is too short: {n_tokens:,} tokens, and two windows of {size:,} need {2 * size:,}. "
            "Give a longer text or a smaller -c"
        )


# -- perplexity --------------------------------------------------------------------------------------------------------


@dataclass
class Moments:
    """Count, mean and sum of squared distances from the mean, in float64; equal values have no variance at all.

    One infinite value makes mean and spread infinite."""

    count: int = 0
    mean: float = 0.0
    spread: float = 0.0

    def add(self, values: np.ndarray) -> None:
        """Merges with the moments of `values` (Chan, Golub and LeVeque 1979)."""
        wide = values.astype(np.float64)
        if math.isinf(self.mean) or np.isinf(wide).any():
            self.count += len(wide)
            self.mean = self.spread = math.inf
            return
        mean = float(wide[0] + (wide - wide[0]).mean())
        total = self.count + len(wide)
        apart = mean - self.mean if self.count else 0.0
        self.spread += float(((wide - mean) ** 2).sum()) + apart**2 * self.count * len(wide) / total
        self.mean = self.mean + apart * len(wide) / total if self.count else mean
        self.count = total

    @property
    def error(self) -> float:
        """Standard error of the mean, sqrt(population variance / (count - 1)); 0 for one value."""
        return math.sqrt(self.spread / self.count / (self.count - 1)) if self.count > 1 else 0.0


def _exp(x: float) -> float:
    """e^x, infinite where float64 holds no number so large."""
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


@dataclass
class Perplexity:
    """The predictions so far."""

    losses: Moments = field(default_factory=Moments)

    @property
    def value(self) -> float:
        """Infinite where float64 holds no number so large."""
        return _exp(self.losses.mean)

    @property
    def error(self) -> float:
        return self.value * self.losses.error if self.losses.error > 0 else 0.0


@dataclass(frozen=True)
class Scores:
    """One block of predictions."""

    logits: np.ndarray  # float32 [R, V]
    targets: np.ndarray  # int [R]
    total: np.ndarray  # float64 [R]: sum of exp(logit - largest)

    @property
    def losses(self) -> np.ndarray:
        """-ln p of the targets, float64 [R]."""
        chosen = np.take_along_axis(self.logits, self.targets[:, None], axis=1)[:, 0]
        with np.errstate(over="ignore"):  # logits further apart than float32 reaches: the loss is infinite
            below = (chosen - self.logits.max(axis=1)).astype(np.float64)
        losses: np.ndarray = np.log(self.total) - below
        return losses


def score(logits: np.ndarray, targets: Sequence[int]) -> Scores:
    """SampleError when a logit is NaN or +inf, or all of a row are -inf."""
    top = logits.max(axis=1, keepdims=True)
    if not np.isfinite(top).all():
        raise SampleError(
            "the model's logits are NaN or infinite: the file is damaged, or its numbers are too large for float32"
        )
    with np.errstate(over="ignore"):
        total = np.exp(logits - top).sum(axis=1, dtype=np.float64)
    return Scores(logits, np.asarray(targets, np.int64), total)


def predictions(model: Model, tokens: Sequence[int], first: int) -> Iterator[Scores]:
    """Feed one window from an empty cache; the predictions of positions first … len - 2, in blocks.

    Logits of earlier positions are not computed, and the last token, which predicts nothing that is known, is not fed.
    """
    block = max(1, BLOCK_BYTES // (4 * model.n_vocab))
    seq = model.new_sequence()
    try:
        if first > 0:
            model.forward(seq, tokens[:first], "last")
        for start in range(first, len(tokens) - 1, block):
            stop = min(start + block, len(tokens) - 1)
            yield score(model.forward(seq, tokens[start:stop], "all"), tokens[start + 1 : stop + 1])
    finally:
        seq.close()


def perplexity(
    model: Model, text: Sequence[int], windows: Windows, on_scores: Callable[[Scores], None] | None = None
) -> Iterator[Perplexity]:
    """The perplexity after each window: the same object, growing. `on_scores` sees every block."""
    found = Perplexity()
    for index in range(len(windows.starts)):
        for scores in predictions(model, windows.tokens(text, index), windows.first):
            found.losses.add(scores.losses)
            if on_scores is not None:
                on_scores(scores)
        yield found


# -- divergence --------------------------------------------------------------------------------------------------------

QUANTILES = (0.999, 0.99, 0.95, 0.9, 0.75, 0.5, 0.25, 0.1, 0.05, 0.01, 0.001)


@dataclass(frozen=True)
class Estimate:
    """A value and its standard error."""

    value: float
    error: float


@dataclass
class Divergence:
    """How a model's distributions Q differ from those P of a base model, over the predictions so far."""

    q: Perplexity = field(default_factory=Perplexity)
    base: Perplexity = field(default_factory=Perplexity)
    apart: Moments = field(default_factory=Moments)  # loss of q - loss of base
    same_top: int = 0
    kl: list[np.ndarray] = field(default_factory=list)  # nats, float32
    delta: list[np.ndarray] = field(default_factory=list)  # Q - P of the token that came, float32

    def add(self, scores: Scores, base: np.ndarray) -> None:
        """scores of the model, and the base's log-probabilities float32 [R, V] of the same predictions."""
        rows = np.arange(len(base))
        with np.errstate(over="ignore"):  # as in `losses`
            log_q = scores.logits - (scores.logits.max(axis=1) + np.log(scores.total).astype(np.float32))[:, None]
        losses, base_losses = scores.losses, -base[rows, scores.targets].astype(np.float64)
        p = np.where(base > LOWEST, np.exp(base), np.float32(0.0))
        with np.errstate(invalid="ignore", over="ignore"):  # Q of zero: the product is only looked at where P is not
            terms = np.where(p > 0, p * (base - log_q), np.float32(0.0))
        self.kl.append(terms.sum(axis=1, dtype=np.float64).astype(np.float32))
        self.delta.append((np.exp(-losses) - np.exp(-base_losses)).astype(np.float32))
        self.same_top += int((scores.logits.argmax(axis=1) == base.argmax(axis=1)).sum())
        self.q.losses.add(losses)
        self.base.losses.add(base_losses)
        self.apart.add(losses - base_losses)

    @property
    def count(self) -> int:
        return self.q.losses.count

    def _covariance(self) -> float:
        """Of the two mean losses, from var(a - b) = var(a) + var(b) - 2 cov(a, b)."""
        return (self.q.losses.error**2 + self.base.losses.error**2 - self.apart.error**2) / 2

    @property
    def log_ratio(self) -> Estimate:
        """ln(PPL(Q) / PPL(base)): the losses are of the same tokens, so much of their noise cancels."""
        return Estimate(self.apart.mean, self.apart.error)

    @property
    def ratio(self) -> Estimate:
        value = _exp(self.log_ratio.value)
        return Estimate(value, value * self.log_ratio.error)

    @property
    def difference(self) -> Estimate:
        """PPL(Q) - PPL(base)."""
        variance = self.q.error**2 + self.base.error**2 - 2 * self._covariance() * self.q.value * self.base.value
        return Estimate(self.q.value - self.base.value, math.sqrt(max(0.0, variance)))

    @property
    def correlation(self) -> float:
        """Of the two models' losses; NaN where one of them does not vary."""
        spread = self.q.losses.error * self.base.losses.error
        return self._covariance() / spread if spread > 0 else math.nan

    @property
    def kl_mean(self) -> Estimate:
        return _mean(self.kl_values())

    @property
    def delta_mean(self) -> Estimate:
        return _mean(self.delta_values())

    @property
    def delta_rms(self) -> Estimate:
        """Root of the mean square of the change of probability; its error by the rule for a root."""
        square = _mean(self.delta_values().astype(np.float64) ** 2)
        value = math.sqrt(square.value)
        return Estimate(value, 0.5 * square.error / value if value > 0 else 0.0)

    @property
    def same_top_share(self) -> Estimate:
        share = self.same_top / self.count
        return Estimate(share, math.sqrt(share * (1 - share) / (self.count - 1)) if self.count > 1 else 0.0)

    def kl_values(self) -> np.ndarray:
        """float32 [count], nats."""
        return np.concatenate(self.kl)

    def delta_values(self) -> np.ndarray:
        """float32 [count]."""
        return np.concatenate(self.delta)


def _mean(values: np.ndarray) -> Estimate:
    moments = Moments()
    moments.add(values)
    return Estimate(moments.mean, moments.error)


def quantiles(values: np.ndarray, fractions: Sequence[float]) -> list[float]:
    """Linear interpolation at fraction * (count - 1) of the ordered values."""
    return [float(v) for v in np.quantile(values.astype(np.float64), fractions)]


def divergence(model: Model, base: Reader, bos: int | None, limit: int = -1) -> Iterator[Divergence]:
    """Compare with a base file after each of its windows, at most `limit` of them: the same object, growing.

    ResourceError when the vocabularies differ in size or there are fewer than MIN_PREDICTIONS predictions.
    """
    shape = base.shape
    if shape.n_vocab != model.n_vocab:
        raise ResourceError(
            f"{base.path}: written by a model with a vocabulary of {shape.n_vocab:,} tokens, and this one has "
            f"{model.n_vocab:,}: only models with the same vocabulary can be compared"
        )
    windows = Windows(range(0, shape.chunks * shape.n, shape.n), shape.n, shape.n // 2, bos).limited(limit)
    if len(windows.starts) * windows.predictions < MIN_PREDICTIONS:
        few = len(windows.starts) * windows.predictions
        raise ResourceError(f"{base.path}: {few} predictions to compare, at least {MIN_PREDICTIONS} are needed")
    found = Divergence()
    text = base.tokens.reshape(-1).tolist()
    for index in range(len(windows.starts)):
        for scores in predictions(model, windows.tokens(text, index), windows.first):
            found.add(scores, base.rows(len(scores.targets)))
        yield found
