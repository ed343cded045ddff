"""The house rules check: the tree keeps them, and an offence against each is found."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ie.cli import options
from tests.unit.test_imports import ROOT, script

check_rules = script("check_rules")


def test_the_tree_keeps_the_rules() -> None:
    assert check_rules.offences(ROOT, options.all_flags()) == []


LONG_PY = "def f():\n" + "    x = 1\n" * 80
LONG_C = "int f(int a) {\n" + "    a++;\n" * 79 + "}\n"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("ie/a.py", "x = 1\n" * 801, "801 lines"),
        ("ie/devices/cpu.py", "x = 1\n" * 151, "151 lines, the limit is 150"),
        ("ie/engine/engine.py", "x = 1\n" * 201, "201 lines, the limit is 200"),
        ("ie/a.py", LONG_PY, "f has 81 lines"),
        ("kernels_c/a.c", LONG_C, "a function of 81 lines"),
        ("ie/a.py", "x = 1  # TO" + "DO later", "unfinished work"),
        ("ie/a.py", "raise NotImplemented" + "Error", "unfinished work"),
        ("ie/a.py", "import os\nx = os.environ['A']", "reads the environment"),
        ("kernels_c/a.c", 'char *x = getenv("A");', "reads the environment"),
        ("ie/a.py", "def f():\n    print(1)", "ie/a.py:2: print(): only ie/cli/console.py writes"),
        ("ie/cli/a.py", "import sys\nsys.stderr.write('a')", "sys.stderr"),
        ("ie/a.py", "from sys import stdout", "an import of a stream"),
        ("ie/a.py", "import os\nos.write(2, b'a')", "os.write()"),
        ("ie/a.py", "import traceback\ntraceback.print_exc()", "traceback.print_exc"),
        ("kernels_c/host/a.c", '/* a\n b */\nprintf ("a");', "kernels_c/host/a.c:3: printf ("),
        ("kernels_c/host/a.c", "write(STDERR_FILENO, a, 1);", "STDERR_FILENO"),
        ("README.md", "see [this](docs/none.md)", "link to docs/none.md, which does not exist"),
        ("README.md", "it is in `ie/none.py`.", "names ie/none.py, which does not exist"),
        ("README.md", "use `--temp` or `--nothing 3`", "names the flag --nothing"),
        ("README.md", "    ie-run m.gguf --nothing", "names the flag --nothing"),
        ("README.md", "```\nie-run --nothing\n```", "names the flag --nothing"),
    ],
)
def test_an_offence_is_found(tmp_path: Path, name: str, text: str, said: str) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    found = check_rules.offences(tmp_path, {"--temp"})
    assert len(found) == 1 and said in found[0] and found[0].startswith(name)


def test_what_is_more_than_a_few_files_belongs_into_a_room(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "ie" / "room").mkdir(parents=True)
    for name in "abcdefgh":
        for folder in ("ie", "ie/room"):
            (tmp_path / folder / f"{name}.py").write_text("")
    assert check_rules.offences(tmp_path, set()) == []
    (tmp_path / "ie" / "i.py").write_text("")
    (found,) = check_rules.offences(tmp_path, set())
    assert found.startswith("ie/: 9 files at its top, the limit is 8: ie/a.py ie/b.py")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ie/a.py", "x = 1\n" * 800),
        ("ie/a.py", "def f():\n" + "    x = 1\n" * 79),
        ("ie/paths.py", "import os\nx = os.environ['A']"),
        ("ie/cli/console.py", "import sys\nsys.stderr.write('a')"),
        ("ie/a.py", "import sys\nx = sys.stdin, 'print(1)'  # sys.stdout"),
        ("tests/a.py", "print(1)"),
        ("kernels_c/host/a.c", "/* printf(a) to stderr */ snprintf(a, 2, b);"),
        ("tests/a.py", "import os\nx = os.environ['A']"),
        ("README.md", "see [this](README.md#here) and [that](https://example.org/x), `ie/`, `--temp`, --nothing"),
    ],
)
def test_what_is_allowed_passes(tmp_path: Path, name: str, text: str) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for made in ("ie/a.py", "README.md"):
        (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / made).write_text("")
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert check_rules.offences(tmp_path, {"--temp"}) == []
