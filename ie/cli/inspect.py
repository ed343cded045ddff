"""Looking into a run: --diff, --stop-after, --layers and --trace.

Owns: what they change in the way a model is opened, and what they print. Results go to stdout in place of the text:
the differences between two executors, or the statistics of a command's output. Does not own which options go together
(see task), the comparison (ie/devices/diff.py), the shortened programs (ie/program/narrow.py) or the columns of a trace
(ie/devices/trace.py).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from .. import devices
from ..devices import Executor, diff
from ..devices.base import Job, Progress, Q8Rows
from ..devices.trace import TraceExecutor
from ..devices.wrap import WrappedExecutor
from ..errors import ResourceError
from ..machine import this_machine
from ..program import Program, narrow
from ..program.step import StepInputs
from ..program.touch import left_out
from ..settings import resolve_threads
from .console import FAILED, OK, Console
from .dump import AtomicFile
from .options import Options
from .session import Session

DECODE_STEPS = 4
"""Tokens that --diff generates after the prompt when -n does not say."""

SHOWN = 8
"""Values of an output that statistics show."""


@dataclass
class Inspection:
    """How a model is opened. `executor`: in place of the one that the options name; `edit`: of its program; `lines`:
    statistics as they come; `notes`: what stderr should say."""

    executor: Executor | None = None
    edit: Callable[[Program], Program] | None = None
    pair: diff.DiffExecutor | None = None
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def prepare(chosen: Options) -> Inspection:
    """From the options; nothing is changed when they ask for nothing here."""
    found = Inspection()
    threads = resolve_threads(max(0, chosen.threads), this_machine().cores)
    if chosen.layers or chosen.stop_after is not None:
        found.edit = lambda program: _edit(program, chosen, found)
    if chosen.diff is not None:
        found.executor = found.pair = diff.make_pair(chosen.diff, threads, chosen.cpu_isa)
    if chosen.stop_after is not None:
        inner = found.executor or devices.make(chosen.executor, threads, chosen.cpu_isa)
        found.executor = Statistics(inner, found.lines)
    if chosen.trace is not None:
        inner = found.executor or devices.make(chosen.executor, threads, chosen.cpu_isa)
        found.executor = _TraceFile(inner, chosen.trace)
    return found


def _edit(program: Program, chosen: Options, found: Inspection) -> Program:
    found.notes.clear()
    if chosen.layers:
        total = 1 + max(c.layer for c in program.commands)
        program = narrow.keep_layers(program, chosen.layers)
        found.notes.append(f"note: {chosen.layers} of {total} layers run: the results are those of a shortened model")
    if chosen.stop_after is not None:
        index = narrow.find(program, chosen.stop_after)
        found.notes.append(
            f"note: the program ends after {narrow.describe(program, index)}, of {len(program.commands)} commands"
        )
        program = narrow.stop_after(program, index)
    return program


# ---- statistics of one output ----


def statistics(values: np.ndarray) -> str:
    """Shape, extremes, mean and root mean square of the numbers, how many are none, and the first values."""
    x = values.astype(np.float64)
    good = x[~np.isnan(x)]
    if not good.size:
        text = "no numbers"
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            rms = float(np.sqrt(np.mean(good * good)))
            text = f"min {good.min():.6g}, max {good.max():.6g}, mean {good.mean():.6g}, rms {rms:.6g}"
    first = ", ".join(f"{v:.6g}" for v in x.reshape(-1)[:SHOWN])
    return f"{list(values.shape)}, {text}, {x.size - good.size} NaN; first {first}"


class Statistics(WrappedExecutor):
    """Adds lines about the outputs of a shortened program's last command after each step."""

    def __init__(self, inner: Executor, lines: list[str]) -> None:
        super().__init__(inner)
        self.lines = lines

    def run(self, handle: int, step: StepInputs) -> None:
        super().run(handle, step)
        self.lines += self._about(handle, step)

    def _about(self, handle: int, step: StepInputs) -> Iterator[str]:
        program = self.bound[handle]
        index, command = len(program.commands) - 1, program.commands[-1]
        last = int(step.pos[step.n_rows - 1])
        title = f"{narrow.describe(program, index)}, positions {int(step.pos[0])} to {last}"
        if left_out(step, command):
            yield f"{title}: not run, the step has no output rows"
            return
        yield title + ":"
        for arg, item in diff.items(command, "w"):
            data = self.peek(handle, item, diff.place_of(step, command, item, "w"))
            values = data.codes * np.repeat(data.scales, 32, axis=-1) if isinstance(data, Q8Rows) else data
            yield f"  {arg.name} ({diff.name_of(item)}) {statistics(values)}"


# ---- the trace's file ----


class _TraceFile(TraceExecutor):
    """A trace in a file that is begun when a model is loaded, and appears when the executor is closed after a step."""

    def __init__(self, inner: Executor, path: str) -> None:
        super().__init__(inner, self._row)
        self._path = path
        self._target: AtomicFile | None = None
        self._whole = True

    def _row(self, values: Sequence[object]) -> None:
        try:
            self._writer.writerow(values)
        except OSError as error:
            self._whole = False  # what could not be written is gone: a later flush may well succeed
            raise ResourceError(f"{self._path}: {error.strerror}") from error

    def load(self, job: Job, progress: Progress) -> None:
        self._target = AtomicFile(self._path)
        self._text = io.TextIOWrapper(self._target.file, encoding="utf8", newline="")
        self._writer = csv.writer(self._text, lineterminator="\n")
        super().load(job, progress)

    def close(self) -> None:
        super().close()
        if self._target is None:
            return
        with self._target as target:
            self._text.flush()
            if self.steps and self._whole:
                target.commit()
        self._target = None


# ---- the run ----


def examine(console: Console, session: Session, ids: Sequence[int], chosen: Options) -> int:
    """The prompt and, with --diff, some tokens after it; prints what was found. Exit status 1 for a difference."""
    found, engine = session.inspection or Inspection(), session.engine
    seq = engine.new_sequence()
    steps = 0 if chosen.stop_after is not None else DECODE_STEPS if chosen.n_predict < 0 else chosen.n_predict
    try:
        logits = engine.forward(seq, list(ids), "last")
        for _ in range(min(steps, engine.n_ctx - len(seq))):
            logits = engine.verify(seq, [int(np.argmax(logits[-1]))])
    except diff.Disagreement as found_difference:
        _print(console, [*found.lines, *str(found_difference).splitlines()])
        return FAILED
    _print(console, [*found.lines, *([found.pair.summary()] if found.pair is not None else [])])
    return OK


def _print(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.text(line + "\n")
