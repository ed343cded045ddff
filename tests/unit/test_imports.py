"""The import order of ie/, and that the core starts with numpy and cffi alone."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


check_imports = script("check_imports")


def test_the_tree_keeps_the_order() -> None:
    assert check_imports.offences(ROOT / "ie") == []


def test_circles_are_found(tmp_path: Path) -> None:
    """Those of one room too; an import inside a function, or for types alone, closes none."""
    assert check_imports.circles(ROOT / "ie") == []
    room = tmp_path / "ie" / "cli"
    room.mkdir(parents=True)
    for name, text in {
        "a": "from .b import x\n",
        "b": "from ..cli import c\n",
        "c": "from . import a\ndef f():\n    from . import b\n",
        "d": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .e import y\n",
        "e": "from .d import z\n",
    }.items():
        (room / f"{name}.py").write_text(text)
    assert check_imports.circles(tmp_path / "ie") == ["circle of imports: ie.cli.a > ie.cli.b > ie.cli.c > ie.cli.a"]


def test_ie_and_the_simulator_do_not_know_one_another(tmp_path: Path) -> None:
    assert check_imports.strangers(ROOT / "ie", "rdna4sim") == check_imports.strangers(ROOT / "rdna4sim", "ie") == []
    path = tmp_path / "rdna4sim" / "hip.py"
    path.parent.mkdir()
    path.write_text("import numpy\nfrom . import elf\ndef f():\n    from ie.gguf import GgufFile\n")
    assert check_imports.strangers(tmp_path / "rdna4sim", "ie") == ["rdna4sim/hip.py:4: rdna4sim imports ie"]


@pytest.mark.parametrize(
    ("name", "text", "offence"),
    [
        ("gguf.py", "from .engine import Engine", "imports ie.engine, which stands below it"),
        ("gguf.py", "from ie.engine import Engine", "imports ie.engine"),
        ("gguf.py", "from ie import engine", "imports ie.engine"),
        ("gguf.py", "from . import engine", "imports ie.engine"),
        ("gguf.py", "import ie.engine", "imports ie.engine"),
        ("ops/add.py", "from ..engine import Engine", "imports ie.engine"),
        ("ops/add.py", "from .. import engine", "imports ie.engine"),
        ("gguf.py", "def f():\n    import rich", "imports rich, and the core may import only"),
        ("gguf.py", "def f():\n    from .engine import Engine", "imports ie.engine"),
        ("__init__.py", "from .errors import IeError", "imports ie.errors"),
        ("novel.py", "", "novel has no place in ORDER"),
    ],
)
def test_an_offence_is_found(tmp_path: Path, name: str, text: str, offence: str) -> None:
    path = tmp_path / "ie" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    found = check_imports.offences(tmp_path / "ie")
    assert len(found) == 1 and offence in found[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("engine.py", "from .gguf import GgufFile\nimport numpy as np\nfrom cffi import FFI\nimport os.path"),
        ("ops/add.py", "from .table import Op\nfrom . import table\nfrom ..errors import IeError"),
        ("gguf.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import rich"),
        ("cli/run.py", "def f():\n    import rich"),
        ("__init__.py", "__version__ = '0'"),
    ],
)
def test_what_is_allowed_passes(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "ie" / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert check_imports.offences(tmp_path / "ie") == []


def test_importing_the_core_loads_only_numpy_and_cffi() -> None:
    names = [name for name in check_imports.ORDER if name in check_imports.CORE]
    there = [n for n in names if (ROOT / "ie" / f"{n}.py").exists() or (ROOT / "ie" / n / "__init__.py").exists()]
    program = (
        "import importlib, sys\n"
        f"for name in {there!r}: importlib.import_module('ie.' + name)\n"
        "print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    foreign = {"click", "tokenizers", "jinja2", "sentencepiece", "google", "rich", "prompt_toolkit", "gguf"}
    foreign.add("huggingface_hub")
    assert not foreign & set(done.stdout.split())
    assert "numpy" in done.stdout.split()
