"""What README and docs/performance.md say of speed is what the kept files say."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from scripts import depth_bench
from scripts.compare_llamacpp import table_row

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "benchmarks" / "compare").glob("*.json"))
README = (ROOT / "README.md").read_text("utf-8").splitlines()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_each_file_has_its_row(path: Path) -> None:
    found = json.loads(path.read_text("utf-8"))
    assert table_row(path.stem, found) in README
    assert len(found["rounds"]) >= 5 and found["commit"] and found["settings"]["threads"] == 2


def test_no_row_without_its_file() -> None:
    rows = [line for line in README if line.startswith("| ") and line.endswith("× |")]
    assert len(rows) == len(FILES) > 0


def test_the_depths_are_those_of_the_file() -> None:
    found = json.loads((ROOT / "benchmarks" / "depth.json").read_text("utf-8"))["results"]
    lines = (ROOT / "docs" / "performance.md").read_text("utf-8").splitlines()
    assert len(found) == 4 and all(depth_bench.table_row(one) in lines for one in found)
    assert all(depth_bench.profile_row(one) in lines for one in found)


def test_the_shares_are_those_of_the_files() -> None:
    lines = (ROOT / "docs" / "performance.md").read_text("utf-8").splitlines()
    for one in json.loads((ROOT / "benchmarks" / "depth.json").read_text("utf-8"))["results"]:
        kept = json.loads((ROOT / "benchmarks" / f"{one['model']}.json").read_text("utf-8"))["results"]
        (r,) = (r for r in kept if r["n_gen"] and not r["n_depth"])
        ms = statistics.median(r["samples_ns"]) / r["n_gen"] / 1e6
        share, rate = f"{100 * r['bandwidth_share']:.0f} %", f"{r['bandwidth_gbs']:.0f}"
        assert f"| {one['model']} | {ms:.2f} | {rate} | {share} |" in lines
