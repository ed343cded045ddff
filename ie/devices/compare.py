"""Judges whether two executors computed the same thing; used by `--diff` and by every test that compares numbers.

Owns: one judgement for each tolerance class of the op table (exact, Q8, reduction) and one for logits. A judgement
never raises for a difference and never passes by accident: it fails for a different shape or type, for any NaN or
infinity, and for nothing to compare; each decision is written `not (err <= tol)`. It does not run anything and does
not know ops; which class an output has, and its sum of |terms|, is the op's knowledge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

EPS32 = float(np.finfo(np.float32).eps)
#: Smallest normal F32: results below it may be flushed, so reductions may always differ by this much.
TINY32 = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Verdict:
    """Outcome of one comparison. `worst` is the largest error as a multiple of what is allowed (0 for exact classes
    that agree, infinity where no multiple makes sense); `message` says what and where when `ok` is False; `place` is
    the index of the first value at fault, where there is one."""

    ok: bool
    worst: float = 0.0
    message: str = ""
    place: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return self.ok


def _fail(name: str, what: str, worst: float = float("inf")) -> Verdict:
    return Verdict(False, worst, f"{name}: {what}")


def _index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(flat, shape))


def _place(flat: int, shape: tuple[int, ...]) -> str:
    return str(list(_index(flat, shape)))


def _comparable(name: str, got: Array, want: Array, same_type: bool) -> Verdict | None:
    """The failures that precede any arithmetic, or None."""
    if got.shape != want.shape:
        return _fail(name, f"shape {got.shape}, expected {want.shape}")
    if got.size == 0:
        return _fail(name, "nothing to compare (0 elements)")
    if same_type and got.dtype != want.dtype:
        return _fail(name, f"type {got.dtype}, expected {want.dtype}")
    for array, which in ((want, "expected value"), (got, "value")):
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            bad = int(np.flatnonzero(~np.isfinite(array))[0])
            text = f"{name}: {which} {array.flat[bad]} at {_place(bad, array.shape)}"
            return Verdict(False, float("inf"), text, _index(bad, array.shape))
    return None


def _first(bad: Array) -> tuple[int, ...]:
    return _index(int(np.flatnonzero(bad)[0]), bad.shape)


def _describe(name: str, got: Array, want: Array, bad: Array, extra: str = "") -> str:
    first = int(np.flatnonzero(bad)[0])
    count = int(np.count_nonzero(bad))
    place = f"first at {_place(first, got.shape)}: {got.flat[first]}, expected {want.flat[first]}"
    return f"{name}: {count} of {bad.size} differ, {place}{extra}"


def exact(name: str, got: Array, want: Array) -> Verdict:
    """Integers, copies and element-wise results: the same bits (so -0.0 is not 0.0)."""
    early = _comparable(name, got, want, same_type=True)
    if early is not None:
        return early
    words = f"V{got.dtype.itemsize}"
    bad = np.ascontiguousarray(got).view(words) != np.ascontiguousarray(want).view(words)
    if bad.any():
        return Verdict(False, float("inf"), _describe(name, got, want, bad), _first(bad))
    return Verdict(True)


def q8(
    name: str,
    got: Array,
    want: Array,
    got_d: Array,
    want_d: Array,
    *,
    d_eps: float = 16.0,
    max_changed: float = 0.02,
) -> Verdict:
    """Q8 activations: codes int8 [..., n * 32] within one step, scales float32 [..., n] within d_eps * eps relatively.

    A rounding on the other side of a half changes a code now and then, never all of them: at most the share
    `max_changed` of the codes, but always one code, may differ.
    """
    for part, a, b in (("codes", got, want), ("scales", got_d, want_d)):
        early = _comparable(f"{name} {part}", a, b, same_type=True)
        if early is not None:
            return early
    if got.dtype != np.int8 or got_d.dtype != np.float32:
        return _fail(name, f"Q8 has int8 codes and float32 scales, not {got.dtype} and {got_d.dtype}")
    scales = reduction(f"{name} scales", got_d, want_d, np.abs(want_d.astype(np.float64)), d_eps)
    if not scales:
        return scales
    step = np.abs(got.astype(np.int16) - want.astype(np.int16))
    if not (int(step.max()) <= 1):
        return Verdict(False, float(step.max()), _describe(f"{name} codes", got, want, step > 1), _first(step > 1))
    allowed = max(1, int(max_changed * step.size))
    changed = int(np.count_nonzero(step))
    if not (changed <= allowed):
        text = _describe(f"{name} codes", got, want, step > 0, f" (allowed {allowed})")
        return Verdict(False, changed / allowed, text, _first(step > 0))
    return Verdict(True, max(scales.worst, changed / allowed))


def reduction(name: str, got: Array, want: Array, terms: Array, c: float, *, eps: float = EPS32) -> Verdict:
    """Sums in another order: |got - want| <= c * eps * sum|terms| + TINY32, element by element.

    `terms` has the results' shape: for each the sum of the absolute values of what was added up. c grows with the
    number of roundings in the longest chain; 0 < c. The error is bounded by theory (the standard forward bound of
    floating-point summation), so c need not be tuned to data.
    """
    for early in (_comparable(name, got, want, False), _comparable(f"{name} (terms)", terms, want, False)):
        if early is not None:
            return early
    if not (c > 0 and (terms >= 0).all()):
        return _fail(name, f"c={c} must be positive and sums of |terms| not negative")
    err = np.abs(got.astype(np.float64) - want.astype(np.float64))
    tol = c * eps * terms.astype(np.float64) + TINY32
    ratio = err / tol
    if not (float(ratio.max()) <= 1.0):
        at = int(ratio.argmax())
        text = _describe(name, got, want, ~(ratio <= 1.0), f"; worst at {_place(at, got.shape)}, ")
        text += f"{err.flat[at]:.3e} where {tol.flat[at]:.3e} is allowed"
        return Verdict(False, float(ratio.max()), text, _first(~(ratio <= 1.0)))
    return Verdict(True, float(ratio.max()))


def log_softmax(logits: Array) -> Array:
    """Row-wise natural log-probabilities in float64."""
    x = logits.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    out: Array = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
    return out


def kl_divergence(got: Array, want: Array) -> Array:
    """KL(want || got) in nats for each row of logits [T, V]."""
    p, q = log_softmax(want), log_softmax(got)
    kl: Array = (np.exp(p) * (p - q)).sum(axis=-1)
    return kl


def logits(
    name: str,
    got: Array,
    want: Array,
    *,
    max_kl: float,
    max_abs: float,
    tie: float | None = None,
) -> Verdict:
    """Logits [T, V]: mean KL(want || got) <= max_kl, every |difference| <= max_abs, and the same best token in every
    row, unless the expected top two lie closer together than `tie` (default 2 * max_abs, what the differences permit
    to swap). A row whose best token differs within that distance is a near tie and is accepted only if the token
    chosen is itself that close to the best."""
    early = _comparable(name, got, want, same_type=False)
    if early is not None:
        return early
    if got.ndim != 2:
        return _fail(name, f"logits have shape [T, V], not {got.shape}")
    err = np.abs(got.astype(np.float64) - want.astype(np.float64))
    if not (float(err.max()) <= max_abs):
        at = _place(int(err.argmax()), err.shape)
        return _fail(
            name, f"difference {err.max():.3e} at {at}, at most {max_abs:.3e} allowed", float(err.max() / max_abs)
        )
    kl = float(kl_divergence(got, want).mean())
    if not (kl <= max_kl):
        return _fail(name, f"mean KL divergence {kl:.3e}, at most {max_kl:.3e} allowed", kl / max_kl)
    limit = 2 * max_abs if tie is None else tie
    rows = np.arange(len(want))
    chosen, best = got.argmax(axis=1), want.argmax(axis=1)
    lost = want[rows, best].astype(np.float64) - want[rows, chosen].astype(np.float64)
    wrong = (chosen != best) & ~(lost <= limit)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        return _fail(name, f"row {row}: best token {chosen[row]}, expected {best[row]} which leads by {lost[row]:.3e}")
    return Verdict(True, max(float(err.max() / max_abs), kl / max_kl if max_kl else 0.0))
