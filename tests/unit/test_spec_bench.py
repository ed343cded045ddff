"""What docs/speculative.md says of measurements is what the kept files say, and the sums over them are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.spec_bench import ratio, table_row

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "benchmarks").glob("draft-*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_page_says_what_was_measured(path: Path) -> None:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    assert table_row(path.name, found) in (ROOT / "docs" / "speculative.md").read_text("utf-8").splitlines()
    assert found["commit"] and found["command"].startswith("scripts/spec_bench.py") and found["machine"]["cpu"]


def test_no_row_without_its_file() -> None:
    rows = [line for line in (ROOT / "docs" / "speculative.md").read_text("utf-8").splitlines() if "| `draft-" in line]
    assert len(rows) == len(FILES) > 0


def test_ratios_are_of_sums_of_medians() -> None:
    one = {"plain_seconds": [3.0, 9.0, 4.0], "draft_seconds": [2.0, 1.0, 7.0]}
    two = {"plain_seconds": [10.0], "draft_seconds": [5.0]}
    assert ratio([one], "seconds") == 2.0 and ratio([one, two], "seconds") == 2.0
    both = [
        {**r, "plain_cpu_seconds": [6.0], "draft_cpu_seconds": [4.0], "ratio": x}
        | {"tokens": 11, "steps": 4, "proposed": 8, "accepted": 6}
        for r, x in ((one, 1.5), (two, 0.5))
    ]
    assert table_row("f", {"results": both}) == "| `f` | 2 | 2.00× | 1.50× | 0.50 to 1.50 | 2.50 | 75 % |"
