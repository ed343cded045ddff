"""--diff: one program on two executors, command by command, with no drift between them.

Owns: `DiffExecutor`, which is an executor itself: it runs each command on A and on B, gives B what A reads (views,
cache entries, states) before each command, and compares what both wrote. The first output that lies further apart
than its op's tolerance class allows is raised as `Disagreement`, which names command, output, place and both values.
Does not own how close results must be: classes and judgements stand in `compare`, sums of |terms| in each op's file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .. import devices
from ..errors import DeviceError, OptionError
from ..native import ISAS
from ..ops import OPS
from ..ops.table import Arg
from ..program import Cache, Command, Program, State, View, narrow
from ..program.step import OUTS, StepInputs
from ..program.touch import left_out, live, rows_of
from . import Executor, ReferenceExecutor, compare
from .base import Binding, Data, Item, Job, Place, Progress, Q8Rows, Sizes
from .compare import Verdict

EPS16 = 2.0**-10
TINY16 = 2.0**-14
"""Precision of F16 and its smallest normal number: below it, what rounding loses no longer shrinks."""

MAX_CHANGED = 0.02
"""Share of the Q8 codes of an output that may fall on the other side of a half."""


@dataclass(frozen=True)
class Difference:
    """The first output that differs. values: of A and of B at `index` of the output."""

    command: int
    op: str
    layer: int
    output: str
    buffer: str
    step: int
    first_position: int
    rows: int
    index: tuple[int, ...]
    position: int
    values: tuple[str, str]
    detail: str


class Disagreement(DeviceError):
    """Two executors gave different results; `difference` says where."""

    def __init__(self, text: str, difference: Difference) -> None:
        super().__init__(text)
        self.difference = difference


def place_of(step: StepInputs, command: Command, item: Item, access: str) -> Place:
    """The part of `item` that one step reads (access "r") or writes ("w").

    A cache is read at every position up to a sequence's last row, and written at the rows' own.
    """
    rows = live(step, item.buffer.domain) if isinstance(item, View) else 0
    mine = rows_of(step, command)
    seqs, pos = step.seq[mine], step.pos[mine]
    distinct = np.unique(seqs)
    if access == "r":
        counts = [int(pos[seqs == s].max()) + 1 for s in distinct]
        seqs = np.repeat(distinct, counts)
        pos = np.concatenate([np.arange(n) for n in counts])
    blocks = step.tables[seqs, pos // 32] if isinstance(item, Cache) else np.empty(0, np.int32)
    return Place(rows, blocks, pos % 32, distinct)


def items(command: Command, access: str) -> Iterator[tuple[Arg, Item]]:
    """Arguments of a command that it reads ("r") or writes ("w"), weights and step inputs aside."""
    for arg in OPS[command.op].args:
        value = command.args.get(arg.name)
        if isinstance(value, View | Cache | State) and access in arg.access:
            yield arg, value


def name_of(item: Item | None) -> str:
    """What reports call it; None stands for the step inputs."""
    if item is None:
        return "step inputs"
    return item.buffer.name if isinstance(item, View) else f"blk.{item.layer}.{item.which}"


# ---- judging one output ----


class Judge:
    """Bounds for outputs that need not be bit-identical: the op's sum of |terms|, evaluated in float64.

    It holds A's inputs; `magnitude` must be asked before the command's next inputs come.
    """

    def __init__(self) -> None:
        self.env = ReferenceExecutor("float64")

    def prepare(self, step: StepInputs, command: Command) -> None:
        """Which step and command the next comparisons are about."""
        self.env.step, self.env.command = step, command

    def compare(self, name: str, command: Command, arg: Arg, a: Data, b: Data, as_class: str) -> Verdict:
        """A is what is expected. as_class: exact | elementwise | reduction | q8."""
        terms, c = None, 16.0
        if as_class in ("elementwise", "reduction"):
            magnitude = OPS[command.op].magnitude
            assert magnitude is not None, f"op {command.op} declares no magnitude"
            with np.errstate(all="ignore"):
                bound = magnitude(self.env, command.args, arg.name)
            as_class = "exact" if bound is None else as_class
            terms, c = bound or (None, c)
        if as_class == "exact":
            return _exact(name, a, b)
        if isinstance(a, Q8Rows):
            assert isinstance(b, Q8Rows)
            spread = 1.0 if terms is None else _spread(terms, a.scales)
            return compare.q8(
                name, b.codes, a.codes, b.scales, a.scales, d_eps=max(16.0, c * spread), max_changed=MAX_CHANGED
            )
        assert terms is not None and isinstance(b, np.ndarray)
        if a.dtype == np.float16:
            return compare.reduction(name, b, a, np.maximum(terms, TINY16), c, eps=EPS16)
        return compare.reduction(name, b, a, terms, c)


def _exact(name: str, a: Data, b: Data) -> Verdict:
    if isinstance(a, Q8Rows):
        assert isinstance(b, Q8Rows)
        return compare.exact(f"{name} codes", b.codes, a.codes) and compare.exact(f"{name} scales", b.scales, a.scales)
    assert isinstance(b, np.ndarray)
    return compare.exact(name, b, a)


def _spread(terms: np.ndarray, scales: np.ndarray) -> float:
    """How many times larger a block's terms are than its largest value: the scale's error grows by as much."""
    largest = terms.reshape(*scales.shape, 32).max(axis=-1)
    return float((largest / np.maximum(scales.astype(np.float64) * 127, 1e-30))[scales > 0].max(initial=1.0))


def class_for(a: Executor, b: Executor, tolerance: str) -> str:
    """How an output of an op of this class is compared between two executors.

    One arithmetic promises the same bits. Compiled executors share their scalar formulas, so element-wise ops agree
    exactly; numpy's are others, a few roundings apart.
    """
    if a.arithmetic == b.arithmetic or (tolerance == "elementwise" and a.compiled and b.compiled):
        return "exact"
    return tolerance


# ---- the executor ----


class DiffExecutor:
    """Runs on A and B and compares; results are A's. See the module docstring."""

    arithmetic, isa = "diff", ""
    compiled = False

    def __init__(self, a: Executor, b: Executor, names: tuple[str, str]) -> None:
        self.a, self.b, self.names = a, b, names
        self.name, self.threads = ",".join(names), max(a.threads, b.threads)
        self.judge = Judge()
        self.judged: tuple[Executor, ...] = (self.judge.env,) if a.arithmetic != b.arithmetic else ()
        self.steps = self.commands = self.outputs = 0
        self.worst, self.worst_at = 0.0, ""
        self._programs: list[Program] = []

    # ---- as an executor ----

    def plan(self, programs: Mapping[str, Program], bindings: Sequence[Binding]) -> Sizes:
        """Both, and one more where a third one judges."""
        sizes = [executor.plan(programs, bindings) for executor in (self.a, self.b, *self.judged)]
        return Sizes(sum(s.weights for s in sizes), sum(s.activations for s in sizes))

    def free_memory(self) -> int:
        return min(self.a.free_memory(), self.b.free_memory())

    def load(self, job: Job, progress: Progress) -> None:
        self._programs = [job.programs[b.program] for b in job.bindings]
        for executor in (self.a, self.b, *self.judged):
            executor.load(job, progress)

    def run(self, handle: int, step: StepInputs) -> None:
        """One step. Disagreement at the first command whose outputs differ."""
        for index in range(len(self._programs[handle].commands)):
            self.run_command(handle, step, index)
        self.steps += 1

    def run_command(self, handle: int, step: StepInputs, index: int) -> None:
        """One command on both, from A's inputs."""
        program = self._programs[handle]
        command = program.commands[index]
        if left_out(step, command):
            return
        for _, item in items(command, "r"):
            place = place_of(step, command, item, "r")
            data = self.a.peek(handle, item, place)
            self.b.poke(handle, item, place, data)
            for other in self.judged:
                other.poke(0, item, place, data)
        self._run_both(handle, step, program, index)
        self.judge.prepare(step, command)
        as_class = class_for(self.a, self.b, OPS[command.op].tolerance)
        for arg, item in items(command, "w"):
            place = place_of(step, command, item, "w")
            a, b = self.a.peek(handle, item, place), self.b.peek(handle, item, place)
            verdict = self.judge.compare(arg.name, command, arg, a, b, as_class)
            if not verdict:
                raise self._disagreement(step, program, index, arg.name, item, a, b, verdict)
            self.outputs += 1
            if verdict.worst > self.worst:
                self.worst, self.worst_at = verdict.worst, f"{narrow.describe(program, index)}, {arg.name}"
            if self.a.arithmetic == "float64":  # go on from what was handed over, not from more digits of it
                self.a.poke(handle, item, place, a)
        self.commands += 1

    def _run_both(self, handle: int, step: StepInputs, program: Program, index: int) -> None:
        """The skip flag stays as A left it, where a command writes it; B runs on what A ran on."""
        command, before = program.commands[index], step.skip
        self.a.run_command(handle, step, index)
        a, step.skip = np.array([step.skip]), before
        self.b.run_command(handle, step, index)
        b, step.skip = np.array([step.skip]), int(a[0])
        verdict = compare.exact("skip", b, a)
        if not verdict:
            assert OPS[command.op].skips
            raise self._disagreement(step, program, index, "skip", None, a, b, verdict)

    def run_timed(self, handle: int, step: StepInputs) -> np.ndarray:
        """A's times."""
        return self.a.run_timed(handle, step)

    def read(self, handle: int, view: View, rows: int) -> np.ndarray:
        return self.a.read(handle, view, rows)

    def peek(self, handle: int, item: Item, place: Place) -> Data:
        return self.a.peek(handle, item, place)

    def poke(self, handle: int, item: Item, place: Place, data: Data) -> None:
        self.a.poke(handle, item, place, data)

    def command_bytes(self, handle: int, rows: int, outs: int) -> int:
        return self.a.command_bytes(handle, rows, outs)

    def read_bandwidth(self) -> float:
        """Not known: a step that is compared says nothing of the speed of either."""
        return 0.0

    def memory(self) -> dict[str, int]:
        """Bytes of both."""
        both = [(name, e.memory()) for name, e in zip(self.names, (self.a, self.b), strict=True)]
        return {f"{name}: {what}": n for name, memory in both for what, n in memory.items()}

    def close(self) -> None:
        for executor in (self.a, self.b, *self.judged):
            executor.close()

    # ---- reports ----

    def _disagreement(
        self,
        step: StepInputs,
        program: Program,
        index: int,
        output: str,
        item: Item | None,
        a: Data,
        b: Data,
        verdict: Verdict,
    ) -> Disagreement:
        command = program.commands[index]
        at, values = _first(a, b, verdict)
        outs = isinstance(item, View) and item.buffer.domain == OUTS
        row = int(step.out_row[at[0]] if outs else rows_of(step, command)[0 if isinstance(item, State) else at[0]])
        position = -1 if isinstance(item, State) else int(step.pos[row])
        found = Difference(
            command=index,
            op=command.op,
            layer=command.layer,
            output=output,
            buffer=name_of(item),
            step=self.steps,
            first_position=int(step.pos[0]),
            rows=step.n_rows,
            index=at,
            position=position,
            values=values,
            detail=verdict.message,
        )
        return Disagreement("\n".join(report(found, self.names)), found)

    def summary(self) -> str:
        """One line for a run in which everything agreed."""
        line = (
            f"{self.names[0]} and {self.names[1]} agree: {self.steps} step{'s' * (self.steps != 1)}, "
            f"{self.commands:,} commands, {self.outputs:,} outputs"
        )
        if not self.judged:
            return line + ", every bit"
        return line + (f"; closest to its bound, at {self.worst:.2f} of it: {self.worst_at}" if self.worst else "")


def _first(a: Data, b: Data, verdict: Verdict) -> tuple[tuple[int, ...], tuple[str, str]]:
    """Index of the first value that the verdict is about, and both values there."""
    if isinstance(a, Q8Rows):
        assert isinstance(b, Q8Rows)
        at = verdict.place or (0, 0)
        of = (a.scales, b.scales) if " scales" in verdict.message else (a.codes, b.codes)
        kind = "scale" if " scales" in verdict.message else "code"
        return at, (f"{kind} {of[0][at]}", f"{kind} {of[1][at]}")
    at = verdict.place or (0,) * a.ndim
    assert isinstance(b, np.ndarray)
    return at, (f"{a[at]:.9g}", f"{b[at]:.9g}")


def report(found: Difference, names: tuple[str, str]) -> list[str]:
    """Lines that say where the two executors part."""
    layer = f", layer {found.layer}" if found.layer >= 0 else ""
    phase = f"{found.rows} row{'s' * (found.rows != 1)} from position {found.first_position}"
    place = f"row {found.index[0]}" + (f" (position {found.position})" if found.position >= 0 else "")
    return [
        f"{names[0]} and {names[1]} differ first at command {found.command} {found.op}{layer}: "
        f"output {found.output} ({found.buffer}) in step {found.step} ({phase})",
        f"  {place}, value {list(found.index[1:])}: {names[0]} {found.values[0]}, {names[1]} {found.values[1]}",
        f"  {found.detail}",
    ]


# ---- executors by name ----


def make(text: str, threads: int, isa: str) -> Executor:
    """The executor that a part of --diff names: `cpu`, `reference`, `reference-float64`, `cpu:avx2`, `cpu:threads=1`,
    `cpu:portable:threads=3`. `threads` and `isa` are what a name without them means. OptionError."""
    name, *variants = text.split(":")
    if name not in ("cpu", "reference", "reference-float64"):
        raise OptionError(f"--diff: unknown executor '{name}'; there are cpu, reference and reference-float64")
    for variant in variants:
        key, equals, value = variant.partition("=")
        if name == "cpu" and variant in ISAS:
            isa = variant
        elif (
            name == "cpu"
            and key == "threads"
            and equals
            and value.isascii()
            and value.isdigit()
            and 0 < int(value) <= 1024
        ):
            threads = int(value)
        else:
            raise OptionError(f"--diff: {text}: expected {', '.join(ISAS)} or threads=N after 'cpu:', got '{variant}'")
    return devices.make(name, threads, isa)


def make_pair(text: str, threads: int, isa: str) -> DiffExecutor:
    """The executor for `--diff A,B`. OptionError."""
    names = tuple(part.strip() for part in text.split(","))
    if len(names) != 2 or not all(names):
        raise OptionError(f"--diff: expected two executors, A,B, got '{text}'")
    a = make(names[0], threads, isa)
    try:
        return DiffExecutor(a, make(names[1], threads, isa), (names[0], names[1]))
    except BaseException:
        a.close()
        raise
