"""The wheel: what is in it, and for which machines it says it is."""

from __future__ import annotations

import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("build", reason="the package `build` is not installed")
    out = tmp_path_factory.mktemp("wheel")
    build = ROOT / "build" / f"lib.linux-{platform.machine()}-cpython-{sys.version_info[0]}{sys.version_info[1]}"
    for package in ("ie", "rdna4sim"):
        (build / package).mkdir(parents=True, exist_ok=True)
        (build / package / "stale.py").write_text("")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.glob("*.whl")
    return path


def test_one_wheel_serves_every_python_and_every_glibc_since_2_17(wheel: Path) -> None:
    assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{platform.machine()}.whl")


def test_the_wheel_holds_the_packages_with_what_they_need_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = [path for package in ("ie", "rdna4sim") for path in (ROOT / package).rglob("*.py")]
    wanted += (ROOT / "rdna4sim").rglob("*.[ch]")
    ours = {name for name in names if ".dist-info/" not in name}
    needed = {"ie/py.typed", "ie/lib/libie_cpu.so", "ie/lib/host.cdef", "rdna4sim/py.typed"}
    assert ours == {str(path.relative_to(ROOT)) for path in wanted} | needed
    about = {name.partition("/")[2] for name in names - ours}
    assert about >= {"entry_points.txt", "licenses/LICENSE", "licenses/NOTICE"}


def test_the_simulator_is_an_extra_with_exact_versions(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (about,) = [archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA")]
        (commands,) = [archive.read(name).decode() for name in archive.namelist() if name.endswith("entry_points.txt")]
    extra = {line.split(": ")[1] for line in about.splitlines() if line.endswith('; extra == "sim"')}
    assert {word.partition("==")[0] for word in extra} == {"tinygrad", "ziglang"}
    assert "rdna4sim = rdna4sim.cli:main" in commands
    always = [line for line in about.splitlines() if line.startswith("Requires-Dist: ") and "extra ==" not in line]
    assert not any("tinygrad" in line or "ziglang" in line for line in always)


def test_the_library_needs_only_an_old_glibc(wheel: Path) -> None:
    library = zipfile.ZipFile(wheel).read("ie/lib/libie_cpu.so")
    versions = {
        tuple(int(part) for part in word.split(b"."))
        for chunk in library.split(b"\0")
        if chunk.startswith(b"GLIBC_") and (word := chunk[6:]).replace(b".", b"").isdigit()
    }
    assert versions and max(versions) <= (2, 17)
