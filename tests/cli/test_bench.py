"""ie-bench on a tiny model: which tests it does, and the forms of its report."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from ie.cli import bench
from ie.errors import ResourceError
from tests import gguf_bytes
from tiny_models import make_tiny

# Keys of llama-bench that programs which read its results use.
KEYS = (
    "build_commit build_number cpu_info gpu_info backends model_filename model_type model_size model_n_params n_batch"
    " n_ubatch n_threads cpu_mask cpu_strict poll type_k type_v n_gpu_layers split_mode main_gpu no_kv_offload"
    " flash_attn tensor_split use_mmap embeddings n_prompt n_gen n_depth test_time avg_ns stddev_ns avg_ts stddev_ts"
    " samples_ns samples_ts"
).split()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf", arch="llama", n_ctx=96))


@pytest.fixture
def ie_bench(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    readings = itertools.cycle([30e9, 36.2e9])  # each repetition stands between two of them
    monkeypatch.setattr("ie.devices.CompiledExecutor.read_bandwidth", lambda executor: next(readings))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})

    def call(*argv: Any) -> tuple[int, str, str]:
        status = bench.main([str(word) for word in argv])
        out, err = capfdbinary.readouterr()
        return status, out.decode(), err.decode()

    return call


def test_json(ie_bench, model: str) -> None:
    argv = [model, "-p", "8-16*2", "-n", "3", "-pg", "5,2", "-d", "0,7", "-t", "1,2", "-r", "3", "-o", "json"]
    status, out, err = ie_bench(*argv)
    assert (status, err) == (0, "")
    results = json.loads(out)
    at_each_depth = [(8, 0), (16, 0), (0, 3), (5, 2)]
    expected = [(t, d, p, n) for t in (1, 2) for d in (0, 7) for p, n in at_each_depth]
    assert [(r["n_threads"], r["n_depth"], r["n_prompt"], r["n_gen"]) for r in results] == expected
    for r in results:
        assert set(KEYS) <= set(r)
        assert r["model_filename"] == model and r["model_type"].startswith("llama ") and r["backends"] == "CPU"
        assert len(r["samples_ns"]) == len(r["samples_ts"]) == 3
        rates = [1e9 * (r["n_prompt"] + r["n_gen"]) / ns for ns in r["samples_ns"]]
        assert r["samples_ts"] == pytest.approx(rates, rel=1e-6)
        assert r["avg_ts"] == pytest.approx(statistics.fmean(rates), rel=1e-6)
        assert r["stddev_ts"] == pytest.approx(statistics.stdev(rates), rel=1e-4)
        assert r["avg_ns"] == pytest.approx(statistics.fmean(r["samples_ns"]), abs=1)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", r["test_time"])
        if r["n_prompt"]:
            assert r["weight_gbs"] is r["bandwidth_share"] is None
        else:
            assert r["weight_gbs"] == pytest.approx(r["weight_bytes"] * r["avg_ts"] / 1e9, abs=1e-3)
            assert r["bandwidth_gbs"] == 33.1
            share = r["weight_bytes"] * statistics.median(r["samples_ts"]) / 33.1e9
            assert r["bandwidth_share"] == pytest.approx(share, abs=1e-3)
    assert json.loads(ie_bench(model, "-p", "4", "-n", "0", "-r", "1", "-o", "json")[1])[0]["stddev_ts"] == 0


def test_more_threads_than_processors(ie_bench, model: str) -> None:
    status, out, err = ie_bench(model, "-p", "4", "-n", "0", "-r", "1", "-t", "2,500", "-o", "json")
    assert status == 0 and [r["n_threads"] for r in json.loads(out)] == [2, 2]
    assert err == "note: -t 500: no more threads run than there are processors for this process: 2\n"


def test_table(ie_bench, model: str) -> None:
    status, out, _ = ie_bench(model, "-p", "8", "-n", "2", "-r", "2", "-d", "5", "--chunk", "4", "-t", "1")
    lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in out.splitlines()]
    assert status == 0
    assert lines[0] == "model|size|params|backend|threads|chunk|test|t/s|GB/s|of memory".split("|")
    assert all(re.fullmatch("-+:?", cell) for cell in lines[1])
    assert [line[6] for line in lines[2:]] == ["pp8 @ d5", "tg2 @ d5"]
    assert all(re.fullmatch(r"\d+\.\d\d ± \d+\.\d\d", line[7]) for line in lines[2:])
    assert lines[2][8:] == ["–", "–"] and lines[3][9].endswith(" %") and lines[3][4:6] == ["1", "4"]
    assert len({len(line) for line in out.splitlines()}) == 1


def test_json_lines_and_csv(ie_bench, model: str) -> None:
    argv = [model, "-p", "8", "-n", "2", "-r", "2", "-t", "1"]
    lines = [json.loads(line) for line in ie_bench(*argv, "-o", "jsonl")[1].splitlines()]
    rows = list(csv.DictReader(io.StringIO(ie_bench(*argv, "-o", "csv")[1])))
    assert [r["test"] for r in lines] == [r["test"] for r in rows] == ["pp8", "tg2"]
    assert set(lines[0]) - set(rows[0]) == {"samples_ns", "samples_ts"}
    assert float(rows[1]["avg_ts"]) > 0


def test_reference(ie_bench, model: str) -> None:
    status, out, _ = ie_bench(model, "-p", "4", "-n", "1", "-r", "1", "--no-warmup", "--executor", "reference")
    assert status == 0 and out.count("| reference |") == 2 and out.splitlines()[-1].endswith("        – |")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "no model: name a GGUF file"),
        (["MODEL", "-p", "0", "-n", "0"], "nothing to measure"),
        (["MODEL", "-p", "x"], "-p: expected integers from 0 to"),
        (["MODEL", "-o", "sql"], "-o: expected md, json, jsonl or csv, got 'sql'"),
        (["MODEL", "-r", "0"], "-r: expected an integer from 1 to 1,000"),
        (["/nowhere.gguf"], "/nowhere.gguf"),
    ],
)
def test_refused(ie_bench, model: str, argv: list[str], message: str) -> None:
    status, out, err = ie_bench(*[model if word == "MODEL" else word for word in argv])
    assert (status, out) == (1, "") and err.startswith("ie-bench: ") and message in err and err.count("\n") == 1


@pytest.mark.parametrize("form", ["md", "json", "jsonl", "csv"])
def test_a_result_is_begun_when_there_is_one(ie_bench, model: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = [model, "-p", "4,8", "-n", "0", "-r", "1", "--no-warmup", "-o", form]
    whole = ie_bench(*argv)[1]
    assert (whole.startswith("[\n"), whole.endswith("\n]\n")) == (form == "json", form == "json")
    done: list[object] = []

    def failing(*args: Any, **more: Any) -> Any:
        if len(done) == fails_at:
            raise ResourceError("no more")
        done.append(args)
        return measured(*args, **more)

    measured = bench.measure
    monkeypatch.setattr(bench, "measure", failing)
    fails_at = 0
    assert ie_bench(*argv) == (1, "", "ie-bench: no more\n")
    fails_at = 1
    status, out, _ = ie_bench(*argv)
    assert status == 1 and out.endswith("\n") and "pp8" not in out
    if form == "json":
        assert [result["test"] for result in json.loads(out)] == ["pp4"], "what was measured can be read"


def test_names_that_a_terminal_would_obey(ie_bench, tmp_path: Path) -> None:
    path = make_tiny(Path(os.fsdecode(os.fsencode(tmp_path) + b"/m\xff\x1b\xc2\x9b\xe2\x80\xa8\n.gguf")))
    argv = [path, "-p", "4", "-n", "0", "-r", "1", "--no-warmup"]
    for form in ("json", "jsonl"):
        out = ie_bench(*argv, "-o", form)[1]
        found = json.loads(out)
        assert (found[0] if form == "json" else found)["model_filename"] == str(path)
        assert all(c.isprintable() or c == "\n" for c in out)


def test_an_architecture_is_one_cell(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes.gguf([gguf_bytes.record("general.architecture", gguf_bytes.STRING, "a\n\x1b[31m")]))
    assert bench.describe(str(path)).kind == r"a\n\x1b[31m 0M"


def test_the_script_adds_what_makes_a_number_evidence(tmp_path: Path, model: str) -> None:
    from scripts import bench as script

    found = script.run(Path(model), ["-p", "4", "-n", "1", "-r", "1"])
    assert found["command"].startswith("ie-bench tiny.gguf -p 4") and found["results"][0]["n_prompt"] == 4
    assert set(found["machine"]) >= {"cpu", "cores", "arch"}
    assert found["commit"] == "" or re.fullmatch(r"[0-9a-f]{40}(, with changes)?", found["commit"])
