"""--diff, --stop-after, --layers and --trace of ie-run: what they print, their exit status and what they refuse."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ie import devices
from ie.cli import run
from ie.cli.inspect import statistics
from ie.devices import ReferenceExecutor
from ie.devices.base import Place
from ie.devices.trace import COLUMNS
from tiny_models import make_tiny

IDS = ["--tokens", "3,1,4,1,5,9,2,6"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf", arch="qwen3", n_layer=3, n_ctx=96))


@pytest.fixture
def ie_run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(sys, "stdin", None)

    def call(*argv: str) -> tuple[int, str, str]:
        status = run.main(list(argv))
        out, err = capfdbinary.readouterr()
        return status, out.decode(), err.decode()

    return call


@pytest.fixture
def wrong_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference executor computes one value of the second layer's glu wrongly."""

    class Wrong(ReferenceExecutor):
        def load(self, job: Any, progress: Any) -> None:
            self.commands = job.programs["model"].commands
            super().load(job, progress)

        def run_command(self, handle: int, step: Any, index: int) -> None:
            super().run_command(handle, step, index)
            command = self.commands[index]
            if (command.op, command.layer) == ("glu", 1) and step.n_rows == 8:
                (item,) = [command.args[n] for n in ("y", "yq") if n in command.args]
                place = Place(8, *[np.zeros(0, int)] * 3)
                data = self.peek(handle, item, place)
                data.codes[5, 7] = -data.codes[5, 7]  # type: ignore[union-attr]
                self.poke(handle, item, place, data)

    real = devices.make
    monkeypatch.setattr(devices, "make", lambda name, *more: Wrong() if name == "reference" else real(name, *more))


def test_diff_of_two_that_agree(ie_run, model: str) -> None:
    status, out, err = ie_run(model, *IDS, "--diff", "cpu,reference")
    assert status == 0
    assert out.startswith("cpu and reference agree: 5 steps, ") and "closest to its bound" in out
    assert out.count("\n") == 1 and "tok" not in err
    status, out, _ = ie_run(model, *IDS, "--diff", "cpu:portable:threads=1,cpu", "-n", "0", "-t", "2")
    assert status == 0 and out.startswith("cpu:portable:threads=1 and cpu agree: 1 step, ") and "every bit" in out


def test_diff_names_the_first_wrong_command(ie_run, model: str, wrong_reference: None) -> None:
    status, out, err = ie_run(model, *IDS, "--diff", "cpu,reference")
    assert status == 1
    first, place, detail = out.splitlines()
    assert re.fullmatch(
        r"cpu and reference differ first at command \d+ glu, layer 1: "
        r"output yq \(blk\.1\.ffn_glu\.q8\) in step 0 \(8 rows from position 0\)",
        first,
    )
    found = re.fullmatch(r"  row 5 \(position 5\), value \[7\]: cpu code (-?\d+), reference code (-?\d+)", place)
    assert found and int(found[1]) == -int(found[2])
    assert "1 of 768 differ" in detail
    # It is the reference's fault alone: a command before it agrees, and so do the layers before.
    command = int(re.findall(r"command (\d+)", first)[0])
    assert ie_run(model, *IDS, "--diff", "cpu,reference", "--stop-after", str(command - 1))[0] == 0
    assert ie_run(model, *IDS, "--diff", "cpu,reference", "--stop-after", str(command))[0] == 1
    assert ie_run(model, *IDS, "--diff", "cpu,reference", "--layers", "1")[0] == 0
    assert ie_run(model, *IDS, "--diff", "cpu,reference", "--layers", "2")[0] == 1


def test_stop_after_prints_statistics(ie_run, model: str) -> None:
    outputs = {}
    for executor in ("cpu", "reference"):
        status, out, err = ie_run(model, *IDS, "--stop-after", "rope:2", "--executor", executor, "--chunk", "5")
        assert status == 0 and re.search(
            r"note: the program ends after command \d+ rope, layer 2, of \d+ commands", err
        )
        assert "tok" not in err
        lines = out.splitlines()
        assert [line.split(" rope")[1] for line in lines[::4]] == [
            ", layer 2, positions 0 to 4:",
            ", layer 2, positions 5 to 7:",
        ]
        shapes = [re.findall(r"^  (\w+) \((.*?)\) (\[.*?\]), min ", line)[0] for line in lines if line[0] == " "]
        assert [(n, s) for n, _, s in shapes[:3]] == [
            ("q", "[5, 64]"),
            ("k_cache", "[5, 2, 16]"),
            ("v_cache", "[5, 2, 16]"),
        ]
        assert shapes[1][1] == "blk.2.k" and shapes[3][2] == "[3, 64]"
        outputs[executor] = [float(x) for x in re.findall(r"-?\d+\.\d+", out)]
    assert np.allclose(outputs["cpu"], outputs["reference"], rtol=0.05, atol=0.05)


def test_statistics() -> None:
    x = np.array([[3.0, -4.0, np.nan], [0.0, 12.0, 1.0]], np.float32)
    assert statistics(x) == ("[2, 3], min -4, max 12, mean 2.4, rms 5.83095, 1 NaN; first 3, -4, nan, 0, 12, 1")
    assert statistics(np.full((1, 9), np.nan, np.float32)).startswith("[1, 9], no numbers, 9 NaN; first nan, nan")
    assert statistics(np.arange(100, dtype=np.float16)).endswith("first 0, 1, 2, 3, 4, 5, 6, 7")
    assert "max inf" in statistics(np.array([1, np.inf], np.float32))


def test_stop_after_a_command_on_output_rows(ie_run, model: str) -> None:
    status, out, _ = ie_run(model, *IDS, "--stop-after", "gather", "--chunk", "5")
    first, second, values = out.splitlines()
    assert status == 0 and first.endswith("not run, the step has no output rows")
    assert second.endswith("positions 5 to 7:") and "[1, 64]" in values


def test_layers_is_said_on_stderr(ie_run, model: str) -> None:
    base = [model, *IDS, "-n", "12", "--temp", "0", "--print-ids", "--ignore-eos"]
    status, whole, err = ie_run(*base)
    assert "layers" not in err
    status, cut, err = ie_run(*base, "--layers", "1")
    assert status == 0 and err.startswith("note: 1 of 3 layers run: the results are those of a shortened model\n")
    assert cut != whole and len(cut.splitlines()) == 20
    assert ie_run(*base, "--layers", "3")[1] == whole == ie_run(*base, "--layers", "0")[1]


def test_trace(ie_run, model: str, tmp_path: Path) -> None:
    base = [model, *IDS, "-n", "4", "--temp", "0", "--print-ids", "--ignore-eos"]
    path = tmp_path / "trace.csv"
    _, plain, _ = ie_run(*base)
    status, out, _ = ie_run(*base, "--trace", str(path), "-t", "2")
    assert (status, out) == (0, plain)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    steps = 1 + 3  # the last token is not fed
    n = len(rows) // steps
    assert [r["command"] for r in rows] == [str(i) for i in range(n)] * steps
    assert [r["phase"] for r in rows[::n]] == ["prefill"] + ["decode"] * 3
    assert {r["op"] for r in rows} >= {"embed", "matmul", "attention"} and {r["layer"] for r in rows} == {*"012", "-1"}
    assert all(float(r["microseconds"]) >= 0 and int(r["groups"]) > 0 for r in rows)
    assert list(tmp_path.iterdir()) == [path], "no part file is left"


def test_no_trace_of_a_run_that_failed(ie_run, model: str, tmp_path: Path) -> None:
    status, _, err = ie_run(model, *IDS, "--trace", str(tmp_path / "a.csv"), "-c", "4")
    assert status == 1 and "context" in err
    status, _, err = ie_run(str(tmp_path / "none.gguf"), *IDS, "--trace", str(tmp_path / "a.csv"))
    assert status == 1 and not list(tmp_path.iterdir())
    status, _, err = ie_run(model, *IDS, "--trace", str(tmp_path))
    assert status == 1 and "this is a folder: name a file in it" in err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--diff", "cpu"], "expected two executors, A,B, got 'cpu'"),
        (["--diff", "cpu,gpu"], "unknown executor 'gpu'"),
        (["--diff", "cpu:wide,cpu"], "got 'wide'"),
        (["--diff", "cpu,reference", "--executor", "cpu"], "leave out --executor"),
        (["--diff", "cpu,reference", "--trace", "x.csv"], "--diff runs two"),
        (["--diff", "cpu,reference", "--print-ids"], "leave out --print-ids"),
        (["--stop-after", "0", "--dump-logits", "x.npy"], "leave out --dump-logits"),
        (["--stop-after", "0", "-n", "5"], "leave out -n"),
        (["--stop-after", "nothing"], "no op nothing"),
        (["--stop-after", "matmul:7"], "no such command"),
        (["--layers", "4"], "the model has 3 layers"),
        (["--layers", "-1"], "at least 0"),
    ],
)
def test_refusals_are_one_line(ie_run, model: str, argv: list[str], said: str) -> None:
    status, out, err = ie_run(model, *IDS, *argv)
    assert (status, out) == (1, "") and said in err and err.count("\n") == 1
