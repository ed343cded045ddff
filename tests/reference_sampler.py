"""Every sampler once more, literally, over an array of candidates: what tests compare the compiled one with.

Owns: the definitions as docs/sampling.md gives them, in float64, step by step. Where a decision is closer than two
correct implementations may differ (their exponentials agree to some 1e-7), both outcomes are followed; where an order
is, the case is `Unclear`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ie.sample import SamplerParams, uniform

Floats = npt.NDArray[np.float64]
Breaker = tuple[int, tuple[int, ...]]

NEARLY = 1 - 1e-6
LARGEST = float(np.finfo(np.float32).max)


class Unclear(Exception):
    """Two candidates stand so close in an order that either may come first."""


@dataclass(frozen=True)
class State:
    """Candidates in their order; logits are float32 values."""

    ids: npt.NDArray[np.int64]
    logits: Floats

    def keep(self, places: npt.NDArray[np.intp]) -> State:
        return State(self.ids[places], self.logits[places])

    def by_logit(self) -> npt.NDArray[np.intp]:
        return np.lexsort((self.ids, -self.logits))

    def first_largest(self) -> int:
        return int(self.ids[self.logits == self.logits.max()].min())

    def edit(self, change: Callable[[int, float], float], tokens: Iterable[int]) -> State:
        """The logits of some tokens changed; never to +inf."""
        logits = self.logits.copy()
        for place in np.flatnonzero(np.isin(self.ids, list(tokens))):
            before = float(logits[place])
            logits[place] = edited(before, change(int(self.ids[place]), before))
        return State(self.ids, logits)

    def weights(self, temp: float = 1.0) -> Floats:
        """e^((logit - max) / temp), the argument in float32."""
        x = self.logits.astype(np.float32)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return np.exp(((x - x.max()) / np.float32(temp)).astype(np.float64))


def single(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def edited(before: float, after: float) -> float:
    return LARGEST if after > LARGEST and before <= LARGEST else single(after)


def last(history: Sequence[int], n: int) -> list[int]:
    return list(history) if n < 0 else list(history)[len(history) - min(n, len(history)) :]


def thresholds(values: Floats, limit: float, tol: float) -> Iterator[npt.NDArray[np.bool_]]:
    """Which values reach the limit; both ways where one is too close to tell."""
    seen = set()
    for slack in (0.0, tol, -tol):
        reach = values >= limit + slack
        if reach.tobytes() not in seen:
            seen.add(reach.tobytes())
            yield reach


def prefixes(weights: Floats, goal: float, tol: float, min_keep: int) -> set[int]:
    """Lengths at which a rising sum may first reach the goal, and at least min_keep."""
    sums = np.cumsum(weights)
    before = np.concatenate([[-math.inf], sums[:-1]])
    slack = tol * sums[-1]
    found = np.flatnonzero((sums >= goal - slack) & (before < goal + slack)) + 1
    lengths = [max(int(n), min_keep) for n in found] or [len(weights)]
    if sums[-1] < goal + slack:
        lengths.append(len(weights))
    return {min(n, len(weights)) for n in lengths}


class Reference:
    """One set of parameters."""

    def __init__(self, params: SamplerParams, breakers: Sequence[Breaker] = (), tol: float = 3e-6) -> None:
        self.p, self.breakers, self.tol = params, breakers, tol
        self.steps: dict[str, Callable[[State], list[State]]] = {
            "penalties": self.penalties,
            "dry": self.dry,
            "top_n_sigma": self.top_n_sigma,
            "top_k": self.top_k,
            "typ_p": self.typical,
            "top_p": self.top_p,
            "min_p": self.min_p,
            "xtc": self.xtc,
            "temperature": self.temperature,
        }

    def tokens(self, row: npt.NDArray[np.float32], index: int, history: Sequence[int]) -> set[int]:
        """The tokens that may be drawn; more than one only where a decision is too close to tell, none where all
        logits are -inf. Unclear."""
        self.index, self.history = index, history
        state = State(np.arange(len(row)), row.astype(np.float64) + 0.0)
        for token, bias in self.p.logit_bias:
            state = state.edit(lambda _, x, bias=bias: x + bias, [token])
        states = [state]
        greedy = self.p.temp == 0
        chain = [name for name in self.p.samplers if not self.is_off(name)]
        for place, name in enumerate(chain):
            if name == "temperature" and place == len(chain) - 1 and not greedy:
                return {t for state in states for temp in self.temps(state) for t in self.draw(state, temp)}
            states = [after for state in states for after in self.steps[name](state)]
            if any(state.logits.max() == -math.inf for state in states):
                return set()
        return {t for state in states for t in self.draw(state, 0.0 if greedy else 1.0)}

    def is_off(self, name: str) -> bool:
        p = self.p
        return {
            "penalties": p.repeat_last_n == 0
            or (p.repeat_penalty == 1 and p.presence_penalty == 0 and p.frequency_penalty == 0),
            "dry": p.dry_multiplier == 0 or p.dry_base < 1 or p.dry_penalty_last_n == 0,
            "top_n_sigma": p.top_n_sigma <= 0,
            "top_k": p.top_k <= 0,
            "typ_p": p.typical_p >= 1,
            "top_p": p.top_p >= 1,
            "min_p": p.min_p <= 0,
            "xtc": p.xtc_probability <= 0 or p.xtc_threshold > 0.5,
            "temperature": p.temp == 1 and p.dynatemp_range <= 0,
        }[name]

    # -- changing logits -----------------------------------------------------------------------------------------------

    def penalties(self, s: State) -> list[State]:
        counts = Counter(last(self.history, self.p.repeat_last_n))

        def change(token: int, x: float) -> float:
            scaled = x * self.p.repeat_penalty if x <= 0 else x / self.p.repeat_penalty
            return scaled - counts[token] * self.p.frequency_penalty - self.p.presence_penalty

        return [s.edit(change, counts)]

    def since_breaker(self, x: list[int]) -> int:
        for at in reversed(range(len(x))):
            tails = sorted((tail for head, tail in self.breakers if head == x[at]), key=len, reverse=True)
            for tail in tails:
                if tuple(x[at + 1 : at + 1 + len(tail)]) == tail:
                    return len(x) - 1 - at - len(tail)
        return len(x)

    def dry(self, s: State) -> list[State]:
        p = self.p
        x = last(self.history, p.dry_penalty_last_n)
        n, allowed = len(x), p.dry_allowed_length
        reach = self.since_breaker(x)
        if n <= allowed or reach < allowed:
            return [s]
        longest: dict[int, int] = {}
        for j in range(1, n):
            common = 0
            while common < j and x[j - 1 - common] == x[n - 1 - common]:
                common += 1
            common = min(reach, common)
            if common >= allowed:
                longest[x[j]] = max(longest.get(x[j], 0), common)
        alone = {head for head, tail in self.breakers if not tail}
        cap = math.floor(88.7228391 / math.log(p.dry_base)) if p.dry_base > 1.000001 else n

        def change(token: int, x: float) -> float:
            return x - p.dry_multiplier * p.dry_base ** min(longest[token] - allowed, cap)

        return [s.edit(change, set(longest) - alone)]

    # -- leaving out ---------------------------------------------------------------------------------------------------

    def top_n_sigma(self, s: State) -> list[State]:
        x = s.logits
        finite = x[np.isfinite(x)]
        bound = finite.max() - self.p.top_n_sigma * finite.std()
        tol = 1e-6 * max(1.0, abs(bound))
        masks = [reach | (x == finite.max()) for reach in thresholds(x, bound, tol)]
        return [State(s.ids, np.where(mask, x, -math.inf)) for mask in masks]

    def top_k(self, s: State) -> list[State]:
        return [s.keep(s.by_logit()[: self.p.top_k]) if self.p.top_k < len(s.ids) else s]

    def typical(self, s: State) -> list[State]:
        w = s.weights()
        total = w.sum()
        x = s.logits
        with np.errstate(invalid="ignore"):
            surprise = x.max() - x + math.log(total)
        mean = float((w[w > 0] / total * surprise[w > 0]).sum())
        distance = np.abs(surprise - mean)
        order = np.lexsort((s.ids, distance))
        near, far = order[:-1], order[1:]
        with np.errstate(invalid="ignore"):
            close = distance[far] - distance[near] < 4e-7 * np.maximum(1, np.maximum(distance[far], abs(mean)))
        if np.any(close & (x[near] != x[far]) & (w[near] + w[far] > 0)):
            raise Unclear
        goal = self.p.typical_p * total / NEARLY
        return [s.keep(order[:n]) for n in prefixes(w[order], goal, self.tol, self.p.min_keep)]

    def top_p(self, s: State) -> list[State]:
        order = s.by_logit()
        w = s.weights()[order]
        goal = self.p.top_p * w.sum() * NEARLY
        return [s.keep(order[:n]) for n in prefixes(w, goal, self.tol, self.p.min_keep)]

    def min_p(self, s: State) -> list[State]:
        x = s.logits
        kept = np.flatnonzero(x >= x.max() + math.log(self.p.min_p) - 1e-6)
        few = min(self.p.min_keep, len(x))
        if len(kept) < few:
            return [s.keep(s.by_logit()[:few]) if few < len(x) else s]
        return [s.keep(kept)]

    def xtc(self, s: State) -> list[State]:
        if len(s.ids) < 2 or uniform(self.p.seed, self.index, 1) > self.p.xtc_probability:
            return [s]
        w = s.weights()
        out = []
        for reach in thresholds(w / w.sum(), self.p.xtc_threshold * NEARLY, self.tol * self.p.xtc_threshold):
            order = s.by_logit()
            likely = order[reach[order]]
            stays = likely[s.logits[likely] > -math.inf][-1:]
            kept = np.flatnonzero(~reach | np.isin(np.arange(len(reach)), stays))
            out.append(s if len(likely) < 2 or len(kept) < self.p.min_keep else s.keep(kept))
        return out

    # -- temperature and draw ------------------------------------------------------------------------------------------

    def temps(self, s: State) -> list[float]:
        p, n = self.p, len(s.ids)
        if p.dynatemp_range <= 0 or n < 2:
            return [p.temp]
        share = s.weights()
        share = share[share > 0] / share.sum()
        entropy = -float((share * np.log(share)).sum())
        even = min(1.0, max(0.0, entropy / math.log(n)))
        low, high = max(0.0, p.temp - p.dynatemp_range), p.temp + p.dynatemp_range
        return [low + (high - low) * even**p.dynatemp_exponent]

    def temperature(self, s: State) -> list[State]:
        out = []
        for temp in [0.0] if self.p.temp == 0 else self.temps(s):
            with np.errstate(all="ignore"):
                quotient = s.logits.astype(np.float32) / np.float32(temp)
            if not np.isfinite(quotient[s.logits == s.logits.max()]).all():
                quotient = np.where(s.ids == s.first_largest(), s.logits, -math.inf)
            out.append(State(s.ids, quotient.astype(np.float64)))
        return out

    def draw(self, s: State, temp: float) -> set[int]:
        if not single(temp):
            return {s.first_largest()}
        w = s.weights(temp)
        places = np.flatnonzero(w > 1e-37)
        w = w[places]
        goal = uniform(self.p.seed, self.index) * w.sum()
        return {int(s.ids[places[n - 1]]) for n in prefixes(w, goal, self.tol, 1)}
