"""Drafting as the commands see it: which options go together, the drafter of a run, and what is said about it.

Owns: the rules of --draft and its companions (a pure function), and `Drafting`, which gives `generate` its drafter and
keeps count over the answers of a run. Does not own the drafters (ie/draft) nor the loop that verifies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..draft.choose import make
from ..engine import Engine
from ..engine.drafter import Drafter, DraftStats
from ..engine.memory import FEW_STATE_SLOTS, STATE_SLOTS
from ..errors import OptionError
from .options import Options

# Options that mean nothing without --draft, and those that mean nothing without the MTP block.
_COMPANIONS = {
    "drafter": "--drafter", "draft_pmin": "--draft-pmin", "mtp": "--mtp", "draft_head": "--draft-head",
    "draft_vocab": "--draft-vocab", "spec_trace": "--spec-trace",
}  # fmt: skip
_OF_MTP = ("draft_pmin", "mtp", "draft_head", "draft_vocab")


def check(chosen: Options) -> None:
    """OptionError for combinations in which an option would have to be ignored."""
    given = [name for name in _COMPANIONS if name in chosen.given]
    if chosen.draft == "0":
        if given:
            raise OptionError(f"{_COMPANIONS[given[0]]} is for drafting: add --draft 7, or --draft auto")
        return
    if chosen.dump_logits is not None:
        raise OptionError("--dump-logits writes rows of the text alone, but drafts have rows too: leave out --draft")
    if chosen.diff is not None or chosen.stop_after is not None or chosen.layers:
        flag = "--diff" if chosen.diff is not None else "--stop-after" if chosen.stop_after is not None else "--layers"
        raise OptionError(f"{flag} looks at the model without drafts: leave out --draft")
    of_mtp = [name for name in given if name in _OF_MTP]
    if chosen.drafter == "lookup" and of_mtp:
        raise OptionError(f"{_COMPANIONS[of_mtp[0]]} is about the MTP block: leave it out, or --drafter lookup")


class Drafting:
    """The drafter of a run. `notes`: what stderr should say about it; `show`: gets a line for each step if set."""

    def __init__(self, drafter: Drafter, state_slots: int = 0) -> None:
        self.drafter = drafter
        self.total, self.last = DraftStats(), DraftStats()
        self.show: Callable[[str], None] | None = None
        self.notes: tuple[str, ...] = ()
        if state_slots == FEW_STATE_SLOTS:
            self.notes = (
                f"note: memory is short: {FEW_STATE_SLOTS} copies of the recurrent state instead of {STATE_SLOTS},"
                f" so a step checks at most {FEW_STATE_SLOTS - 1} drafts",
            )

    def begin(self) -> Mapping[str, Any]:
        """Arguments of `generate` for the next answer, whose count is then in `last`."""
        self.last = DraftStats()
        return {"drafter": self.drafter, "stats": self.last, "trace": self._trace if self.show else None}

    def end(self) -> None:
        """The answer is complete: it counts in the total."""
        self.total += self.last

    def _trace(self, first: int, drafts: list[int], out: list[int], accepted: int) -> None:
        assert self.show is not None
        guesses = f"{self.drafter.source} {drafts}" if drafts else "no drafts"
        self.show(f"position {first}: {guesses}, model {out}, {accepted} accepted")


def prepare(chosen: Options, engine: Engine) -> Drafting | None:
    """What the options ask for; None without drafting. OptionError when the model cannot draft in that way."""
    drafter = make(chosen.drafter, engine, chosen.draft_depth, measured=chosen.draft == "auto")
    return Drafting(drafter, engine.state_slots) if drafter is not None else None
