"""scripts/op_bench.py measures every op that has a shape of its own, and notices a row that depends on others."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ie.ops import OPS

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))

import op_bench  # noqa: E402

SMALL = "--m 40 --k 256 --cols 64 --heads 4 --kv-heads 2 --head-dim 32 --depth 40 -t 2 -r 2 --min-mb 0".split()
CHAIN_ONLY = {"pick", "ring_get", "ring_put"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_bench, "measured_bandwidth", lambda threads: 30e9)


def results(*argv: str) -> tuple[int, Any]:
    printed: list[str] = []
    status = op_bench.main([*argv], printed.append)
    return status, json.loads(printed[0]) if "--json" in argv else printed


@pytest.mark.parametrize("op", sorted(set(OPS) - CHAIN_ONLY))
def test_every_op(op: str) -> None:
    status, found = results(op, "--rows", "1,5", "--json", *SMALL)
    assert status == 0 and found["shape"]["head_dim"] == 32
    for line, rows in zip(found["results"], (1, 5), strict=True):
        assert (line["op"], line["rows"], line["threads"], line["same_bits"]) == (op, rows, 2, True)
        assert len(line["samples"]) == 2 and min(line["samples"]) > 0 and line["bytes"] > 0
        assert line["gb_per_s"] == pytest.approx(line["bytes"] / line["microseconds"] / 1e3)
        own = op in ("matmul", "experts", "attention", "conv", "deltanet")
        assert (line["of_measured"] is not None) == own


@pytest.mark.parametrize("fmt", ["F32", "BF16", "Q4_1", "Q6_K", "IQ2_S"])
def test_formats(fmt: str) -> None:
    status, found = results("matmul", "--format", fmt, "--rows", "3", "--json", *SMALL)
    (line,) = found["results"]
    assert status == 0 and line["flops"] == 2 * 3 * 40 * 256


@pytest.mark.parametrize(("op", "matrices"), [("matmul", 1), ("experts", 3 * 2)])
def test_weight_bytes_of_a_step_are_those_of_used_matrices(op: str, matrices: int) -> None:
    """Three rows with two experts each: of the eight that there are, as many as are used."""
    shape = op_bench.Shape(format="Q8_0", m=64, k=256, experts=8, used=2, depth=0)
    device = op_bench.Device(op_bench.Bench(OPS[op], shape), 2, 3, 1, "auto")
    try:
        assert device.executor.command_bytes(device.handle, 3, 3) == 2 * matrices * 64 * 256 * 34 // 32
    finally:
        device.executor.close()


def test_copies_exceed_the_caches() -> None:
    bench = op_bench.Bench(OPS["matmul"], op_bench.Shape(format="Q8_0", m=64, k=256))
    assert op_bench.copies_for(bench, 1, 1 << 20) * 64 * 256 * 34 // 32 >= 1 << 20
    assert op_bench.copies_for(bench, 1, 1 << 40) == op_bench.MAX_COPIES
    program = bench.program(3)
    assert len({c.args["w"] for c in program.commands}) == 3 and program.stage == (0, 1, 2)


def test_table() -> None:
    status, lines = results("matmul", "--format", "Q4_K", "--rows", "1,2", *SMALL, "--isa", "portable")
    head, table = lines
    assert status == 0 and head.startswith("matmul format=Q4_K m=40 k=256, 2 threads, portable, ")
    assert len(table.splitlines()) == 3 and table.count("the same") == 2
    assert "in cache" in results("add", *SMALL)[1][1]


def test_a_row_that_depends_on_its_neighbours_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(op_bench.CpuExecutor):
        def run_command(self, handle: int, step: Any, index: int) -> None:
            super().run_command(handle, step, index)
            if step.n_rows > 1:
                view = self.bound[handle].program.commands[0].args["y"]
                self.read(handle, view, step.n_rows)[1, 3] = np.nextafter(self.read(handle, view, 2)[1, 3], np.inf)

    monkeypatch.setattr(op_bench, "CpuExecutor", Wrong)
    status, lines = results("matmul", "--rows", "1,4", *SMALL)
    assert status == 1 and lines[1].count("the same") == 1 and lines[1].count("DIFFERENT") == 1


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["matmul", "--format", "Q4_K", "--k", "896"], "Q4_K"),
        (["matmul", "--format", "Q9"], "Q9"),
        (["matmul", "--rows", "0"], "at least 1"),
        (["matmul", "--rows", "x"], "x"),
        (["pick"], "cannot be measured alone"),
        (["add", "--q8"], "has no Q8 output"),
    ],
)
def test_refusals_are_one_line(capsys: pytest.CaptureFixture[str], argv: list[str], said: str) -> None:
    assert op_bench.main([argv[0], *SMALL, *argv[1:]]) == 1
    err = capsys.readouterr().err
    assert err.startswith("op_bench: ") and said in err and err.count("\n") == 1
