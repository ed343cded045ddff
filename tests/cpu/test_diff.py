"""--diff: equal executors agree on every model, and a wrong one is caught at the command, output and place it is wrong.

The wrong executors here are right ones that spoil what one command wrote, in every way that a class of outputs has.
Shortened programs and the timed walk are tested here too: they are how a difference is narrowed down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ie.devices import CpuExecutor, ReferenceExecutor, diff
from ie.devices.base import MODEL, Data, Item, Job, Progress, Q8Rows
from ie.devices.trace import COLUMNS, TraceExecutor
from ie.draft.mtp import Mtp
from ie.engine import Engine
from ie.errors import OptionError
from ie.formats import format_by_name, layout_for
from ie.ops import OPS
from ie.program import Command, State, View, narrow
from ie.program.step import Phase, StepInputs
from ie.settings import DraftOptions, EngineOptions
from tests.drafters import chain
from tests.rig import ISAS
from tests.variants import NAMES, make, tokens

PROMPT, DECODE, CHUNK = 41, 3, 16  # chunks of 16, 16 and 9 rows; positions beyond a KV block
PAIRS = ["cpu,cpu:threads=3", "cpu,reference", "reference,cpu", "cpu,reference-float64", "reference-float64,cpu"]


class Models:
    """Tiny models made once for this module; gemma3 with a cap, so that its program holds that op too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, arch: str, fmt: str = "Q4_1", **options: Any) -> str:
        more = {"softcap": 5.0} if arch == "gemma3" else {}
        name = "-".join([arch, fmt, *(f"{k}{v}" for k, v in options.items())])
        path = self.folder / f"{name}.gguf"
        return str(path) if path.exists() else make(path, arch=arch, formats=fmt, n_ctx=64, **more, **options)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("models"))


def feed(path: str, executor: Any, edit: Any = None, decode: int = DECODE) -> Any:
    """A prompt of many rows in chunks, then single rows, teacher-forced; returns the last logits."""
    ids = tokens(PROMPT + decode)
    with Engine.open(path, EngineOptions(chunk=CHUNK, n_ctx=64), executor=executor, edit=edit) as engine:
        seq = engine.new_sequence()
        logits = engine.forward(seq, ids[:PROMPT])
        for token in ids[PROMPT:]:
            logits = engine.verify(seq, [token])
        return logits.copy()


# ---- agreement ----


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("arch", NAMES)
def test_right_executors_agree(models: Models, arch: str, pair: str) -> None:
    executor = diff.make_pair(pair, 2, "auto")
    logits = feed(models.path(arch), executor)
    assert executor.steps == 3 + DECODE and executor.outputs >= executor.commands > 10 * executor.steps
    plain = pair.split(",")[0]
    if plain == "cpu":  # what it returns is A's
        assert np.array_equal(logits, feed(models.path(arch), CpuExecutor(1)))
    assert executor.worst < 0.8  # bounds are not only just wide enough
    assert ("every bit" in executor.summary()) == (pair == "cpu,cpu:threads=3")


@pytest.mark.parametrize("fmt", ["F32", "F16", "BF16", "Q4_0", "Q5_1", "Q8_0", "Q4_K", "Q6_K", "IQ3_S"])
def test_formats_agree(models: Models, fmt: str) -> None:
    widths = {"n_embd": 256, "n_ff": 256} if fmt in ("Q4_K", "Q6_K", "IQ3_S") else {}
    executor = diff.make_pair("cpu,reference", 2, "auto")
    assert np.isfinite(feed(models.path("llama", fmt, **widths), executor)).all()  # a difference is an exception
    assert executor.outputs >= executor.commands > 10 * executor.steps > 0


@pytest.mark.parametrize("isa", ISAS)
def test_instruction_sets_agree(models: Models, isa: str) -> None:
    executor = diff.make_pair(f"cpu:{isa}:threads=1,cpu", 2, "auto")
    assert np.isfinite(feed(models.path("qwen3"), executor)).all()
    assert executor.outputs >= executor.commands > 10 * executor.steps > 0


@pytest.mark.parametrize("pair", ["cpu,cpu:threads=3", "cpu,reference", "reference,cpu"])
def test_drafting_agrees(models: Models, pair: str) -> None:
    """The chain that drafts: commands on single rows, one of which writes the step inputs."""
    executor = diff.make_pair(pair, 2, "auto")
    drafts = []
    options = EngineOptions(chunk=CHUNK, n_ctx=64)
    for runs in (executor, CpuExecutor(1)):
        with Engine.open(
            models.path("qwen35", n_mtp=1), options, executor=runs, draft=Mtp(DraftOptions(p_min=0.0))
        ) as engine:
            seq = engine.new_sequence()
            engine.forward(seq, tokens(PROMPT))
            before = executor.commands
            drafts.append([token for token, _ in chain(engine, seq, 7, 3)])
            assert runs is not executor or executor.commands > before + len(drafts[0])
    assert len(drafts[0]) == 3 and drafts[0] == drafts[1]


def test_a_wrong_draft_is_found(models: Models) -> None:
    class Wrong(CpuExecutor):
        """Ends a chain that should go on."""

        def run_command(self, handle: int, step: StepInputs, index: int) -> None:
            super().run_command(handle, step, index)
            if self.bound[handle].program.commands[index].op == "pick":
                step.skip = 1

    executor = diff.DiffExecutor(CpuExecutor(1), Wrong(1), ("cpu", "wrong"))
    options = EngineOptions(chunk=CHUNK, n_ctx=64)
    with Engine.open(
        models.path("qwen35", n_mtp=1), options, executor=executor, draft=Mtp(DraftOptions(p_min=0.0))
    ) as engine:
        seq = engine.new_sequence()
        engine.forward(seq, tokens(PROMPT))
        with pytest.raises(diff.Disagreement) as caught:
            chain(engine, seq, 7, 3)
    found = caught.value.difference
    assert (found.op, found.output, found.index) == ("pick", "skip", (0,)) and "step inputs" in str(caught.value)


# ---- wrong executors ----

Spoil = Callable[[Data], tuple[Data, tuple[int, ...]]]
"""Data → wrong data and the index of the first value that is."""


def some(shape: tuple[int, ...]) -> tuple[int, ...]:
    """An index in the middle."""
    return tuple(n // 2 for n in shape)


def nudge(data: Data) -> tuple[Data, tuple[int, ...]]:
    """One value wrong by a thousandth of the usual size of its kind; a code by two, where one may be rounding."""
    if isinstance(data, Q8Rows):
        codes = data.codes.copy()
        at = some(codes.shape)
        codes[at] += 2 if codes[at] < 100 else -2
        return Q8Rows(codes, data.scales), at
    wrong = data.copy()
    at = some(wrong.shape)
    size = np.sqrt(np.mean(data.astype(np.float64) ** 2))
    wrong[at] += max(1e-3, 2.0**-6 if data.dtype == np.float16 else 0) * max(float(size), abs(float(data[at])))
    return wrong, at


def scale(data: Data) -> tuple[Data, tuple[int, ...]]:
    """A scale wrong by a ten-thousandth; elsewhere as `nudge`."""
    if not isinstance(data, Q8Rows):
        return nudge(data)
    scales = data.scales.copy()
    at = tuple(int(i) for i in np.argwhere(scales)[len(np.argwhere(scales)) // 2])
    scales[at] *= np.float32(1.0001)
    return Q8Rows(data.codes, scales), at


def nan(data: Data) -> tuple[Data, tuple[int, ...]]:
    wrong = (data.scales if isinstance(data, Q8Rows) else data).copy()
    at = some(wrong.shape)
    wrong[at] = np.nan
    return (Q8Rows(data.codes, wrong) if isinstance(data, Q8Rows) else wrong), at


def last_bit(data: Data) -> tuple[Data, tuple[int, ...]]:
    """One unit in the last place: what executors of one arithmetic must not be apart."""
    if isinstance(data, Q8Rows):
        codes = data.codes.copy()
        at = some(codes.shape)
        codes[at] ^= 1
        return Q8Rows(codes, data.scales), at
    wrong = data.copy()
    at = some(wrong.shape)
    wrong.view(f"u{wrong.itemsize}")[at] ^= 1
    return wrong, at


class Fault:
    """Spoils output `arg` of command `index` in step `step`, on whatever executor it is mixed into."""

    def __init__(self, index: int, arg: str, spoil: Spoil, step: int) -> None:
        self.index, self.arg, self.spoil, self.step = index, arg, spoil, step
        self.seen, self.at = -1, ()

    def apply(self, executor: Any, handle: int, step: StepInputs, command: Command, index: int) -> None:
        self.seen += index == 0
        if index != self.index or self.seen != self.step:
            return
        for arg, item in diff.items(command, "w"):
            if arg.name == self.arg:
                place = diff.place_of(step, command, item, "w")
                wrong, self.at = self.spoil(executor.peek(handle, item, place))
                executor.poke(handle, item, place, wrong)


def wrong(kind: str, fault: Fault) -> Any:
    """An executor of a kind with a fault."""
    base: Any = CpuExecutor if kind == "cpu" else ReferenceExecutor

    class Wrong(base):  # type: ignore[misc]
        def load(self, job: Job, progress: Progress) -> None:
            self.commands = job.programs[MODEL].commands
            super().load(job, progress)

        def run_command(self, handle: int, step: StepInputs, index: int) -> None:
            super().run_command(handle, step, index)
            fault.apply(self, handle, step, self.commands[index], index)

    return Wrong(1) if kind == "cpu" else Wrong("q8")


def outputs() -> Iterator[tuple[str, str, str]]:
    """(architecture, op, output) of every output that a command of a tiny model writes, the first model for each."""
    seen = set()
    for arch in NAMES:
        for command in commands_of(arch):
            for arg, _ in diff.items(command, "w"):
                if (command.op, arg.name) not in seen:
                    seen.add((command.op, arg.name))
                    yield arch, command.op, arg.name


_PROGRAMS: dict[str, tuple[Command, ...]] = {}


def commands_of(arch: str) -> tuple[Command, ...]:
    """Of the model that `Models` makes."""
    if arch not in _PROGRAMS:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            with Engine.open(Models(Path(folder)).path(arch), EngineOptions(n_ctx=64)) as engine:
                _PROGRAMS[arch] = engine.program.commands
    return _PROGRAMS[arch]


OUTPUTS = list(outputs())
SPOILS = {"cpu": [last_bit, nan], "reference": [nudge, scale, nan]}
FAULTS = [(*o, kind, spoil) for o in OUTPUTS for kind, spoils in SPOILS.items() for spoil in spoils]


@pytest.mark.parametrize(("arch", "op", "output", "kind", "spoil"), FAULTS)
def test_a_wrong_output_is_found(models: Models, arch: str, op: str, output: str, kind: str, spoil: Spoil) -> None:
    commands = commands_of(arch)
    having = [i for i, c in enumerate(commands) if c.op == op and c.args.get(output) is not None]
    index = having[-1]
    fault = Fault(index, output, spoil, step=2)  # the last chunk of the prompt: there are output rows
    pair = diff.DiffExecutor(CpuExecutor(2), wrong(kind, fault), ("cpu", "wrong"))
    with pytest.raises(diff.Disagreement) as caught:
        feed(models.path(arch), pair)
    found = caught.value.difference
    item = commands[index].args[output]
    assert (found.command, found.op, found.layer, found.output) == (index, op, commands[index].layer, output)
    assert (found.step, found.rows, found.first_position) == (2, PROMPT - 2 * CHUNK, 2 * CHUNK)
    assert found.index == fault.at
    assert found.position == position(item, found.index)
    text = str(caught.value)
    assert f"command {index} {op}" in text and f"cpu {found.values[0]}, wrong {found.values[1]}" in text
    assert found.values[0] != found.values[1]


def position(item: Item, index: tuple[int, ...]) -> int:
    if isinstance(item, State):
        return -1
    outs = isinstance(item, View) and item.buffer.domain == 1
    return PROMPT - 1 if outs else 2 * CHUNK + index[0]


def test_every_class_of_outputs_was_spoiled() -> None:
    assert {OPS[op].tolerance for _, op, _ in OUTPUTS} == {op.tolerance for op in OPS.values()}
    kinds = {type(next(c.args[o] for c in commands_of(a) if c.op == op and o in c.args)) for a, op, o in OUTPUTS}
    assert len(kinds) == 3, "views, caches and states"


def test_a_decode_step_is_compared_too(models: Models) -> None:
    index = next(i for i, c in enumerate(commands_of("llama")) if c.op == "attention")
    (output,) = [arg.name for arg, _ in diff.items(commands_of("llama")[index], "w")]
    fault = Fault(index, output, nudge, step=4)
    with pytest.raises(diff.Disagreement) as caught:
        feed(models.path("llama"), diff.DiffExecutor(CpuExecutor(1), wrong("reference", fault), ("a", "b")))
    found = caught.value.difference
    assert (found.step, found.rows, found.position) == (4, 1, PROMPT + 1)


def test_a_command_that_does_nothing_is_found(models: Models) -> None:
    """Every command but those that leave their input as it is, one left out at a time."""
    commands = commands_of("gemma3")

    class Lazy(CpuExecutor):
        left_out = -1

        def run_command(self, handle: int, step: StepInputs, index: int) -> None:
            if index != self.left_out:
                super().run_command(handle, step, index)

    for index in range(len(commands)):
        lazy = Lazy(1)
        lazy.left_out = index
        with pytest.raises(diff.Disagreement) as caught:
            feed(models.path("gemma3"), diff.DiffExecutor(CpuExecutor(1), lazy, ("cpu", "lazy")))
        assert caught.value.difference.command == index


def test_b_gets_the_inputs_of_a(models: Models) -> None:
    """A fault of A is its own business once it is an input: only the command itself differs, no later one."""
    index = next(i for i, c in enumerate(commands_of("qwen3")) if c.op == "matmul")
    fault = Fault(index, "y", nudge, step=1)
    a = wrong("cpu", fault)
    with pytest.raises(diff.Disagreement) as caught:
        feed(models.path("qwen3"), diff.DiffExecutor(a, CpuExecutor(1), ("wrong", "cpu")))
    assert caught.value.difference.command == index

    class Blind(diff.DiffExecutor):
        """Lets that one output pass."""

        def _disagreement(self, step: StepInputs, program: Any, index: int, *rest: Any) -> Any:
            raise AssertionError(f"command {index}")

    class Deaf(diff.Judge):
        def compare(self, name: str, command: Command, *rest: Any) -> Any:
            verdict = super().compare(name, command, *rest)
            return diff.Verdict(True) if command is commands[index] and fault.seen == 1 else verdict

    fault = Fault(index, "y", nudge, step=1)
    pair = Blind(wrong("cpu", fault), CpuExecutor(1), ("wrong", "cpu"))
    pair.judge = Deaf()
    with Engine.open(models.path("qwen3"), EngineOptions(chunk=CHUNK, n_ctx=64), executor=pair) as engine:
        commands = engine.program.commands
        engine.forward(engine.new_sequence(), tokens(PROMPT))
    assert pair.steps == 3


def test_elementwise_and_reduction_ops_say_how_close() -> None:
    for op in OPS.values():
        assert (op.magnitude is not None) == (op.tolerance in ("elementwise", "reduction")), op.name


# ---- exchange ----


@pytest.mark.parametrize("arch", ["llama", "qwen35"])
def test_what_is_poked_is_peeked(models: Models, arch: str) -> None:
    """On both executors, every item of a program. (That the CPU derives the rest of a Q8 row shows above, where B is
    the CPU.)"""
    rng = np.random.default_rng(0)
    for executor in (CpuExecutor(1), ReferenceExecutor("q8")):
        with Engine.open(models.path(arch), EngineOptions(chunk=CHUNK, n_ctx=64), executor=executor) as engine:
            engine.forward(engine.new_sequence(), tokens(CHUNK))
            step, handle = engine.steps.inputs, int(Phase.PROMPT)
            for command in engine.program.commands:
                for _, item in diff.items(command, "w"):
                    place = diff.place_of(step, command, item, "w")
                    old = executor.peek(handle, item, place)
                    if isinstance(old, Q8Rows):
                        codes = rng.integers(-127, 128, old.codes.shape).astype(np.int8)
                        new: Data = Q8Rows(codes, rng.random(old.scales.shape, np.float32))
                    else:
                        new = rng.standard_normal(old.shape).astype(old.dtype)
                    executor.poke(handle, item, place, new)
                    got = executor.peek(handle, item, place)
                    if isinstance(new, Q8Rows):
                        assert isinstance(got, Q8Rows)
                        assert np.array_equal(got.codes, new.codes) and np.array_equal(got.scales, new.scales)
                    else:
                        assert got.dtype == new.dtype and np.array_equal(got, new)


def test_names_of_executors() -> None:
    made = diff.make("cpu:portable:threads=3", 1, "auto")
    assert isinstance(made, CpuExecutor) and (made.isa, made.threads) == ("portable", 3)
    made.close()
    for text in ("gpu,cpu", "cpu", "cpu,cpu,cpu", "cpu,", "cpu:fast,cpu", "cpu:threads=0,cpu", "reference:avx2,cpu"):
        with pytest.raises(OptionError, match="--diff"):
            diff.make_pair(text, 1, "auto")


# ---- shortened programs ----


@pytest.mark.parametrize("arch", NAMES)
def test_first_layers_are_the_shorter_model(models: Models, arch: str) -> None:
    """The same weights under the same names: a model that was made with fewer layers gives the same bits."""
    layers = 4 if arch.startswith("qwen35") else 3
    for n in (1, 2):
        cut = feed(models.path(arch, n_layer=layers), CpuExecutor(1), lambda p, n=n: narrow.keep_layers(p, n))
        assert np.array_equal(cut, feed(models.path(arch, n_layer=n), CpuExecutor(1))), n


def test_all_layers_are_the_model(models: Models) -> None:
    whole: list[Any] = []
    with Engine.open(models.path("llama"), EngineOptions(n_ctx=64), edit=lambda p: whole.append(p) or p) as engine:
        assert narrow.keep_layers(engine.program, 2) is engine.program
        for n in (0, 3):
            with pytest.raises(OptionError, match="the model has 2 layers"):
                narrow.keep_layers(engine.program, n)
    assert len(whole) == 1


@pytest.mark.parametrize("kind", ["cpu", "reference"])
def test_stopping_after_each_command(models: Models, kind: str) -> None:
    """A cut program computes what the whole one does up to there, and loads only what it uses."""
    path = models.path("qwen3")
    ids = tokens(9)
    weights = []
    for index in range(len(commands_of("qwen3"))):
        executor: Any = CpuExecutor(2) if kind == "cpu" else ReferenceExecutor()
        with Engine.open(
            path, EngineOptions(n_ctx=64), executor=executor, edit=lambda p, i=index: narrow.stop_after(p, i)
        ) as cut:
            logits = cut.forward(cut.new_sequence(), ids)
            assert logits.shape == (1, 0) or "logits" in cut.program.outputs
            command, handle = cut.program.commands[-1], int(Phase.PROMPT)
            got = [
                (a.name, executor.peek(handle, i, diff.place_of(cut.steps.inputs, command, i, "w")))
                for a, i in diff.items(command, "w")
            ]
            weights.append(executor.memory()["weights"])
        other: Any = CpuExecutor(1) if kind == "cpu" else ReferenceExecutor()
        with Engine.open(path, EngineOptions(n_ctx=64), executor=other) as whole:
            handle, seq = int(Phase.PROMPT), whole.new_sequence()
            seq.extend(ids)
            whole.steps.inputs.set_blocks(seq.index, seq.blocks)
            whole.steps.inputs.fill([diff_run(seq, ids)], [8])
            for i in range(index + 1):
                other.run_command(handle, whole.steps.inputs, i)
            for name, data in got:
                item = command.args[name]
                want = other.peek(handle, item, diff.place_of(whole.steps.inputs, command, item, "w"))
                if isinstance(data, Q8Rows):
                    assert isinstance(want, Q8Rows) and np.array_equal(data.codes, want.codes)
                else:
                    assert np.array_equal(data, want), (index, name)
    assert weights == sorted(weights) and weights[0] < weights[-1]


def diff_run(seq: Any, ids: list[int]) -> Any:
    from ie.program.step import Run

    return Run(seq.index, 0, ids, seq.state, seq.keep(len(ids)))


def test_names_of_commands(models: Models) -> None:
    with Engine.open(models.path("qwen3"), EngineOptions(n_ctx=64)) as engine:
        program = engine.program
    names = [(c.op, c.layer) for c in program.commands]
    assert narrow.find(program, "7") == 7
    assert narrow.find(program, "matmul") == names.index(("matmul", 0))
    assert narrow.find(program, "matmul:1") == names.index(("matmul", 1))
    assert narrow.describe(program, narrow.find(program, "embed")) == "command 0 embed"
    assert narrow.describe(program, names.index(("rope", 1))) == f"command {names.index(('rope', 1))} rope, layer 1"
    for text in ("", "matmul:9", "mamtul", "softcap", "99", "-1", "matmul:", "matmul:x", "1:2", "٣"):
        with pytest.raises(OptionError, match="--stop-after"):
            narrow.find(program, text)


# ---- the timed walk ----


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_timed_step_computes_the_same(models: Models, threads: int) -> None:
    rows: list[Any] = []
    timed = feed(models.path("gemma3"), TraceExecutor(CpuExecutor(threads), rows.append))
    assert np.array_equal(timed, feed(models.path("gemma3"), CpuExecutor(1)))
    assert rows[0] == COLUMNS
    table = [dict(zip(COLUMNS, row, strict=True)) for row in rows[1:]]
    n = len(commands_of("gemma3"))
    assert [r["command"] for r in table] == list(range(n)) * (3 + DECODE)
    assert all(float(r["microseconds"]) >= 0 for r in table)
    assert sum(float(r["microseconds"]) for r in table) > 0
    assert [r["phase"] for r in table[::n]] == ["prefill"] * 3 + ["decode"] * DECODE
    assert [r["rows"] for r in table[::n]] == [CHUNK, CHUNK, PROMPT - 2 * CHUNK] + [1] * DECODE
    last = [r for r in table if r["step"] == 1 and r["op"] == "gather"]
    assert [(r["rows"], r["groups"], r["bytes"]) for r in last] == [(0, 0, 0)], "a step without output rows"


def test_phases_of_a_trace(models: Models) -> None:
    """A prompt of one chunk, drafts, drafts verified, a token."""
    rows: list[Any] = []
    options = EngineOptions(chunk=CHUNK, n_ctx=64)
    executor = TraceExecutor(CpuExecutor(1), rows.append)
    with Engine.open(
        models.path("qwen35", n_mtp=1), options, executor=executor, draft=Mtp(DraftOptions(p_min=0.0))
    ) as engine:
        seq = engine.new_sequence()
        engine.forward(seq, tokens(9))
        chain(engine, seq, 7, 2)
        engine.verify(seq, [7, 8, 9])
        engine.verify(seq, [1])
    table = [dict(zip(COLUMNS, row, strict=True)) for row in rows[1:]]
    phases = {r["step"]: r["phase"] for r in table}
    assert list(phases.values()) == ["prefill", "draft", "decode", "decode"]
    assert {r["rows"] for r in table if r["phase"] == "draft"} == {1}


def test_costs_are_those_of_the_op_table(models: Models) -> None:
    rows: list[Any] = []
    feed(models.path("llama"), TraceExecutor(ReferenceExecutor(), rows.append), decode=0)
    commands = commands_of("llama")
    for row in rows[1 : 1 + len(commands)]:
        r = dict(zip(COLUMNS, row, strict=True))
        command = commands[r["command"]]
        assert (r["op"], r["layer"]) == (command.op, command.layer)
        if command.op == "matmul" and r["rows"]:
            w = command.args["w"]
            assert (r["groups"], r["bytes"]) == (-(-w.m // 16), layout_for(format_by_name(w.format)).nbytes(w.m, w.k))
            assert r["flops"] == 2 * r["rows"] * w.m * w.k
        if command.op == "rmsnorm" and r["rows"]:
            assert (r["groups"], r["bytes"], r["flops"]) == (CHUNK, 4 * CHUNK * command.args["x"].cols, 0)
