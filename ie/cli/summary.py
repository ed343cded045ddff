"""The closing line of a run: how long loading, prompt and generation took, and how near that is to the machine's limit.

Owns: `Timing` and the wording of numbers. Measures nothing itself.
"""

from __future__ import annotations

from dataclasses import dataclass

ENOUGH_STEPS = 32
"""Steps of generation from which a share of the bandwidth is worth printing: fewer are over in so short a time that the
bandwidth, read after them, may be that of another moment."""


@dataclass(frozen=True)
class Timing:
    """What one answer, or several added up, took."""

    prompt_tokens: int = 0  # computed; tokens kept from an earlier turn do not count
    prompt_seconds: float = 0.0  # from the start to the first generated token
    generated: int = 0
    decode_steps: int = 0  # steps after the one that ended the prompt
    decode_seconds: float = 0.0
    decode_tokens: int = 0  # of these steps; more than there are steps where drafts were accepted

    def __add__(self, other: Timing) -> Timing:
        return Timing(
            self.prompt_tokens + other.prompt_tokens,
            self.prompt_seconds + other.prompt_seconds,
            self.generated + other.generated,
            self.decode_steps + other.decode_steps,
            self.decode_seconds + other.decode_seconds,
            self.decode_tokens + other.decode_tokens,
        )


def number(value: float) -> str:
    """About three significant digits: 1,160 and 241 and 33.1 and 0.31."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def rate(count: int, seconds: float) -> str:
    """`, 241 tok/s`, or nothing where there is nothing to divide by."""
    return f", {number(count / seconds)} tok/s" if count > 0 and seconds > 0 else ""


def weight_rate(timing: Timing, weight_bytes: int) -> float:
    """Bytes of weights read in a second of generation; 0 when no step was timed."""
    if timing.decode_steps < 1 or timing.decode_seconds <= 0:
        return 0.0
    return weight_bytes * timing.decode_steps / timing.decode_seconds


def enough(timing: Timing) -> bool:
    """Whether so much was generated that a share of the bandwidth means something."""
    return timing.decode_steps >= ENOUGH_STEPS


def summary(load_seconds: float, timing: Timing, weight_bytes: int, bandwidth: float, extra: str = "") -> str:
    """The line. bandwidth in bytes/s, 0 when it is not known; `extra` says why a text ended where that matters.

    No share is printed after too few steps, nor one above 100 %: the bandwidth was then read at a worse moment."""
    parts = [
        f"load {number(load_seconds)} s",
        f"prompt {timing.prompt_tokens:,} tok{rate(timing.prompt_tokens, timing.prompt_seconds)}",
        f"{timing.generated:,} tok generated{rate(timing.decode_tokens, timing.decode_seconds)}",
    ]
    read = weight_rate(timing, weight_bytes)
    if read > 0:
        part = f"{number(read / 1e9)} GB/s of weights"
        if enough(timing) and bandwidth >= read:
            part += f" = {100 * read / bandwidth:.0f} % of this machine's {number(bandwidth / 1e9)} GB/s"
        parts.append(part)
    return " · ".join(parts + ([extra] if extra else []))
