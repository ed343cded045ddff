"""Compiles the C kernels while a wheel or an editable install is built.

Owns: when the kernels are compiled, where the library goes, and the wheel's tag. How they are compiled is
scripts/build_kernels.py; what else is in the package is pyproject.toml.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
SOURCES = ("kernels_c", "core_laws", "scripts/build_kernels.py")
LIBRARY = "libie_cpu.so"


def newest_source() -> float:
    """Modification time of the newest file the library is made of."""
    times = []
    for name in SOURCES:
        path = ROOT / name
        files = path.rglob("*") if path.is_dir() else [path]
        times += [file.stat().st_mtime for file in files if file.is_file()]
    return max(times)


def build_kernels(out: Path) -> None:
    """Compile into `out`, unless the library there is newer than every source."""
    library = out / LIBRARY
    whole = library.exists() and (out / "host.cdef").exists()
    if whole and library.stat().st_mtime >= newest_source():
        return
    out.mkdir(parents=True, exist_ok=True)
    script = str(ROOT / "scripts" / "build_kernels.py")
    subprocess.run([sys.executable, script, "--out", str(out)], check=True, cwd=ROOT)


class BuildPy(build_py):
    """Adds ie/lib: in the tree for an editable install, in the build folder for a wheel."""

    def run(self) -> None:
        if not self.editable_mode:
            # What an earlier build left there would be packed as well.
            for package in ("ie", "rdna4sim"):
                shutil.rmtree(Path(self.build_lib) / package, ignore_errors=True)
        super().run()
        build_kernels(ROOT / "ie" / "lib" if self.editable_mode else Path(self.build_lib).resolve() / "ie" / "lib")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs = list(super().get_outputs(include_bytecode))
        if self.editable_mode:
            return outputs
        return outputs + [str(path) for path in (Path(self.build_lib) / "ie" / "lib").glob("*")]


class BdistWheel(bdist_wheel):
    """One wheel per machine for every Python 3: the library is opened at run time and knows no Python ABI."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        # The kernels are linked against glibc 2.17, so the tag promises no more than that.
        return "py3", "none", f"manylinux_2_17_{platform.machine()}"


class BinaryDistribution(Distribution):
    """Makes the build use the platform's own library folder even though there is no extension module."""

    def has_ext_modules(self) -> bool:
        return True


setup(cmdclass={"build_py": BuildPy, "bdist_wheel": BdistWheel}, distclass=BinaryDistribution)
