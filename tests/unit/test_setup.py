"""make setup: when the virtual environment is made anew. Nothing is installed: make says what it would do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """What stands for an installed environment of the Python that runs this test."""
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    (tmp_path / "venv" / ".dependencies").touch()
    return tmp_path / "venv"


def planned(venv: Path, *words: str) -> str:
    """What make setup would do to the environment."""
    command = ["make", "-n", "setup", f"VENV={venv}", *words]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS", "VENV")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return "\n".join(line for line in done.stdout.splitlines() if "setup_venv.sh" in line)


def interpreter(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_an_environment_that_is_there_stays(venv: Path) -> None:
    assert planned(venv) == ""
    assert planned(venv, f"PYTHON={os.path.realpath(sys.executable)}") == ""
    same = interpreter(venv.parent / "same", f'exec {os.path.realpath(sys.executable)} "$@"')
    assert planned(venv, f"PYTHON={same}") == ""


def test_one_of_another_python_is_made_anew(venv: Path) -> None:
    other = interpreter(venv.parent / "other", "echo /opt/other/bin/python3 3.14.0")
    assert planned(venv, f"PYTHON={other}").endswith(f"scripts/setup_venv.sh {venv} {other}")


def test_one_that_does_not_run_is_not_passed_over(venv: Path) -> None:
    """So that the script says what is wrong with it."""
    assert planned(venv, "PYTHON=/nowhere/python3").endswith("/nowhere/python3")
    shutil.rmtree(venv)
    assert "setup_venv.sh" in planned(venv)
