"""The kernels for aarch64 under qemu's emulation: the same bits as here, and the right choice for each processor.

Every op, every weight layout with few and with many rows, ragged sizes, steps of whole tiny models, the sampler's
passes and repacking run here once, are written to a file (tests/recording.py), and run again by a static program
(tests/cpu/replay.c) that is linked from the very objects of the library. Also natively, on every instruction set of
this machine. What emulation cannot show is speed.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from ie import native
from ie.engine import Engine
from ie.formats import LAYOUTS
from ie.ops import OPS
from ie.program import Buffer, Command, Program, View
from ie.program.step import ROW, Run, StepInputs
from ie.settings import EngineOptions
from scripts import build_kernels
from tests import variants
from tests.op_cases import SWEPT, draw, weight_formats
from tests.recording import Recording
from tests.rig import ISAS, Case, run_cpu

ROOT = Path(__file__).resolve().parents[2]
REPLAY = ROOT / "tests" / "cpu" / "replay.c"
WEIGHTED = [op.name for op in OPS.values() if any(a.kind in ("matrix", "matrices") for a in op.args)]
FAST = [layout for layout in LAYOUTS if layout.fields]
ROWS: Sequence[tuple[str, Callable[[int], bool]]] = (
    ("few rows", lambda n: n <= 8),
    ("some rows", lambda n: 8 < n <= 16),
    ("many rows", lambda n: n > 16),
)
"""Numbers of rows that take different ways through matmul."""
EMULATED = ["portable", "neon", "i8mm"]
CHOICES = [("cortex-a53", 1), ("cortex-a72", 1), ("cortex-a76", 2), ("neoverse-n1", 2), ("max", 3)]
"""Processors that qemu knows, and how many of EMULATED they have: i8mm came after the Cortex-A76."""


def _record_products(recording: Recording) -> None:
    """Every op with a matrix and every format; matmul with each number of rows for those that have a layout."""
    fast = {layout.format_name for layout in FAST}
    for op in WEIGHTED:
        for fmt in weight_formats():
            cases = [draw(op, seed, fmt) for seed in range(60 if op == "matmul" and fmt in fast else 1)]
            recording.case(f"{op} {fmt}", cases[0])
            for name, fits in ROWS:
                found = [c for c in cases[1:] if fits(c.live(c.program.commands[0].domain))]
                for case in found[:1]:
                    recording.case(f"{op} {fmt}, {name}", case)


def _record_pick(recording: Recording, rng: np.random.Generator) -> None:
    x, token, prob = (Buffer(*b, ROW) for b in (("x", "f32", 61), ("id", "i32", 1), ("prob", "f32", 1)))
    for p_min in (0.0, 1.0):
        views = {"x": View.of(x), "id": View.of(token), "prob": View.of(prob)}
        args = {**views, "split": 20, "shift": 1000, "p_min": p_min}
        program = Program((Command("pick", args, -1, ROW, 1),), (0,))
        logits = (3 * rng.standard_normal((1, 61))).astype(np.float32)
        recording.case(f"pick {p_min}", Case(program, {x: logits}, [Run(0, 0, [7, 8, 9])]))


def _record_model(recording: Recording, arch: str, fmt: str, folder: Path) -> None:
    """A prompt in two chunks, then a token."""
    path = variants.make(folder / f"{arch}.gguf", arch=arch, formats=fmt, **variants.shape_for(fmt))
    with Engine.open(path, EngineOptions(threads=1, n_ctx=64, chunk=20)) as engine:
        executor, plain, steps = engine.executor, engine.executor.run, iter(range(9))

        def run(handle: int, step: StepInputs) -> None:
            name = f"model {arch} {fmt}, step {next(steps)}"
            recording.step(name, executor, handle, step, lambda: plain(handle, step))  # type: ignore[arg-type]

        executor.run = run  # type: ignore[method-assign]
        seq = engine.new_sequence()
        engine.forward(seq, variants.tokens(23), "all")
        engine.forward(seq, variants.tokens(1), "last")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The file, and the names of its cases."""
    made, rng, folder = Recording(), np.random.default_rng(3), tmp_path_factory.mktemp("recorded")
    for op in SWEPT:
        for seed in range(0 if op in WEIGHTED else 8):
            made.case(f"{op} {seed}", draw(op, seed))
    _record_products(made)
    _record_pick(made, rng)
    formats = ["Q4_K", "Q8_0", "Q4_0", "Q6_K", "Q4_1", "F16"]
    for i, arch in enumerate(variants.NAMES):
        _record_model(made, arch, formats[i % len(formats)], folder)
    for n in (1, 15, 16, 100, 128):
        row = (9 * rng.standard_normal(n)).astype(np.float32)
        row[rng.random(n) < 0.2] = -np.inf
        made.passes(f"passes {n}", row, 30.0, 1.0 if n % 2 else 0.7)
    for layout in FAST:
        made.repack(f"repack {layout.name}", layout, 37, 2 * layout.block, rng)
    return made.write(folder / "cases.bin"), made.names


def replay(program: Sequence[str], *args: str | Path) -> tuple[int, list[str]]:
    """Exit status and lines."""
    done = subprocess.run([*program, *map(str, args)], capture_output=True, text=True)
    assert done.stderr == "", done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.fixture(scope="module")
def native_program() -> list[str]:
    return [str(build_kernels.build_program(REPLAY, build_kernels.HOST))]


@pytest.fixture(scope="module")
def emulated() -> Callable[[str], list[str]]:
    """The command that runs the program on an aarch64 processor."""
    qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if qemu is None:
        pytest.skip("qemu-aarch64 is not installed (Debian: apt install qemu-user)")
    program = build_kernels.program_of(REPLAY, "aarch64")[0]
    if not program.exists():
        pytest.skip("the kernels for aarch64 are not compiled: make test-aarch64 does it")
    return lambda cpu: [qemu, "-cpu", cpu, str(program)]


def check(lines: list[str], isas: Sequence[str], cases: int) -> None:
    assert lines == [f"{isa} {threads}: {cases} cases, 0 differ" for isa in isas for threads in (1, 3)]


def test_the_recording_covers_every_op_and_layout(recording: tuple[Path, list[str]]) -> None:
    names = recording[1]
    assert {name.split()[0] for name in names} >= {op.name for op in OPS.values()}
    for layout in FAST:
        for rows, _ in ROWS:
            assert f"matmul {layout.format_name}, {rows}" in names
        assert f"repack {layout.name}" in names and f"experts {layout.format_name}" in names
    assert sum(name.startswith("model ") for name in names) == 3 * len(variants.NAMES)


def test_here(native_program: list[str], recording: tuple[Path, list[str]]) -> None:
    status, lines = replay(native_program)
    assert status == 0 and lines == [" ".join(sorted(ISAS, key=native.ISAS.index))]
    status, lines = replay(native_program, recording[0])
    check(lines, sorted(ISAS, key=native.ISAS.index), len(recording[1]))
    assert status == 0


def test_a_difference_is_noticed(native_program: list[str], tmp_path: Path) -> None:
    """Any one bit of what the command must leave behind; and a guard band's."""
    case = draw("add", 1)
    made = Recording()
    made.case("add", case)
    whole = made.write(tmp_path / "cases.bin").read_bytes()
    assert replay(native_program, tmp_path / "cases.bin", "portable")[0] == 0
    view = next(view for arg, view in case.program.commands[0].views() if "w" in arg.access)
    result = run_cpu(case).rows(view.buffer, 1)[0, :16].tobytes()
    at = whole.rindex(result)
    for place in (at, at + 15, at - 1):  # what lies before the first row is as it was
        (tmp_path / "bad.bin").write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        status, lines = replay(native_program, tmp_path / "bad.bin", "portable")
        assert status == 1 and lines[-1] == "portable 3: 1 cases, 1 differ" and "add: byte" in lines[0]


@pytest.mark.parametrize(("cpu", "n"), CHOICES)
def test_the_choice_on_aarch64(cpu: str, n: int, emulated: Callable[[str], list[str]]) -> None:
    assert replay(emulated(cpu)) == (0, [" ".join(EMULATED[:n])])


def test_the_same_bits_on_aarch64(emulated: Callable[[str], list[str]], recording: tuple[Path, list[str]]) -> None:
    status, lines = replay(emulated("max"), recording[0])
    check(lines, EMULATED, len(recording[1]))
    assert status == 0
