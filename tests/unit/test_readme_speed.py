"""What README says of speed is what the kept files say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
