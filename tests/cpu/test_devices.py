"""One executor over any device: the op sweep and whole models on a device whose memory the host cannot address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ie.devices import CompiledExecutor, CpuExecutor
from ie.draft.mtp import Mtp, chain_of
from ie.engine import Engine
from ie.errors import IeError, ModelError
from ie.program import finish
from ie.program.step import Run, StepInputs
from ie.settings import DraftOptions, EngineOptions
from tests import variants
from tests.cpu.test_ops import PLAIN, PRODUCTS
from tests.graphs import Graph
from tests.op_cases import draw
from tests.remote import RemoteDevice, remote
from tests.rig import APART, Case, CaseRun, run_cpu


@pytest.fixture
def far() -> Iterator[RemoteDevice]:
    device = remote()
    device.reset()
    yield device
    device.reset()


@pytest.mark.parametrize(("op", "seed", "fmt"), [case for case in PLAIN + PRODUCTS if case[1] < 3])
def test_ops_on_a_device_of_other_addresses(op: str, seed: int, fmt: str | None, far: RemoteDevice) -> None:
    case = draw(op, seed, fmt)
    assert CaseRun(case, CompiledExecutor(far, APART)).run().bits() == run_cpu(case).bits()


def logits(path: str, executor: CompiledExecutor) -> list[object]:
    """Of a prompt in chunks, a verification step with a step back, tokens after it; and a chain of drafts."""
    options, out = EngineOptions(n_ctx=96, chunk=19), list[object]()
    ids = variants.tokens(60)
    with Engine.open(path, options, executor, draft=Mtp(DraftOptions(depth=3, p_min=0.0))) as engine:
        seq, chain = engine.new_sequence(), chain_of(engine)
        out.append(engine.forward(seq, ids[:40], "all").tobytes())
        out.append(engine.verify(seq, ids[40:46]).tobytes())
        seq.truncate(42)
        out.append(engine.forward(seq, ids[46:]).tobytes())
        out.append(chain.draft(seq, 3, 3) if chain is not None else None)
    return out


@pytest.mark.parametrize("arch", variants.NAMES)
def test_models_on_a_device_of_other_addresses(arch: str, tmp_path: Path) -> None:
    mtp = {"n_mtp": 1} if arch.startswith("qwen35") else {}
    path = variants.make(tmp_path / "m.gguf", arch=arch, **mtp)
    assert logits(path, CompiledExecutor(RemoteDevice())) == logits(path, CpuExecutor(1))


def test_an_address_of_the_host_ends_the_other_process() -> None:
    """What these tests would do if a pointer into the host's memory came along."""
    device = RemoteDevice()
    executor = CompiledExecutor(device, APART)
    case = draw("add", 0)
    run = CaseRun(case, executor)
    bound, ours = executor.bound[0], np.zeros(1 << 16, np.uint8)
    commands = bound.commands.copy()
    commands[16:24].view("<u8")[0] = ours.ctypes.data
    bound.handle = device.load(commands, np.array([0, 1], np.int32), bound.limits)
    with pytest.raises(IeError, match="the other process ended"):
        run.executor.run(0, case.step())


def test_a_step_is_one_copy(far: RemoteDevice) -> None:
    """The step inputs hold no address: bytes that were moved elsewhere are the same step."""
    case = draw("gather", 1)
    executor = CompiledExecutor(far, APART)
    CaseRun(case, executor).run()
    step = case.step()
    header = {name: int(step.header[name][0]) for name in ("token", "pos", "seq", "out_row", "seg", "tables")}
    assert all(0 < at < step.memory.size for at in header.values()) and len(set(header.values())) == len(header)


def test_refusals_are_the_same(far: RemoteDevice) -> None:
    case = draw("add", 0)
    executor = CompiledExecutor(far, APART)
    CaseRun(case, executor)
    step = StepInputs(max(1, case.n_rows), 1, 1)
    step.fill([Run(0, 0, [0])], [])
    with pytest.raises(IeError, match="its block table lacks a block"):
        executor.run(0, step)


def test_bad_numbers_are_refused_there_too(tmp_path: Path) -> None:
    path = variants.make(tmp_path / "m.gguf", arch="llama", formats="F32")
    raw = bytearray(Path(path).read_bytes())
    raw[-4:] = b"\x00\x00\xc0\x7f"
    Path(path).write_bytes(raw)
    for executor in (CpuExecutor(1), CompiledExecutor(RemoteDevice())):
        with pytest.raises(ModelError, match="NaN"):
            Engine.open(path, EngineOptions(n_ctx=64), executor)


@pytest.mark.parametrize("seed", range(6))
def test_whole_programs(seed: int, far: RemoteDevice) -> None:
    graph = Graph(seed)
    program = finish(graph.commands, graph.outputs())
    case = Case(program, {}, [Run(0, 0, list(range(7)))], file=graph.file)
    there = CaseRun(case, CompiledExecutor(far, APART)).run()
    here = run_cpu(case)
    for view in case.program.outputs.values():
        assert there.floats(view).tobytes() == here.floats(view).tobytes()
