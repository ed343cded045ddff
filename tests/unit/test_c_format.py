"""scripts/check_c_format.py looks at all C that is written by hand, and finds what is not formatted."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import check_c_format

ROOT = Path(__file__).resolve().parents[2]
STYLE = (ROOT / ".clang-format").read_text(encoding="utf8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("int f(void) { return 1; }\n", ""),
        ("int f(void) {return 1;}\n", "not formatted"),
        ("  int a;\n", "not formatted"),
        ("/* " + "x" * 115 + " */\n", "a.c:1: longer than 120"),
        ("int a; /* " + "é" * 107 + " */\n", ""),
    ],
)
def test_what_is_found(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / ".clang-format").write_text(STYLE, encoding="utf8")
    path = tmp_path / "a.c"
    path.write_text(text, encoding="utf8")
    found = check_c_format.differing([path])
    assert len(found) == bool(said) and all(said in line for line in found)
    assert path.read_text(encoding="utf8") == text
    left = check_c_format.differing([path], write=True)
    assert left == check_c_format.differing([path]) == [line for line in found if "longer" in line]


def test_generated_headers_are_left_to_their_generator() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in check_c_format.files()}
    assert "kernels_c/include/ops.h" not in names
    assert {"core_laws/ie_core.h", "kernels_c/cpu/matmul.c", "kernels_c/sample/sample.h", "tests/cpu/replay.c"} <= names
