"""Every function of the library, as it is shipped and as a build without optimisation computes it: the same bits.

The other build has host code, decoders and the portable kernels at -O0; that the other instruction sets agree with the
portable kernels is tested elsewhere (test_ops.py, test_sample.py).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from ie import native
from scripts import build_kernels
from scripts.build_kernels import HOST
from tests.every_function import NO_RESULT, digests

ROOT = Path(__file__).resolve().parents[2]
CHILD = "from tests.every_function import main; main()"


def library(folder: Path, *flags: str, of: tuple[str, ...] = ("host", "portable")) -> Path:
    """The library with the objects of those kinds compiled with `flags` on top; objects are kept as always."""
    build_kernels.BUILD.mkdir(parents=True, exist_ok=True)
    headers = build_kernels.headers_digest()
    units = [
        replace(u, flags=(*u.flags, *flags)) if u.name.rsplit("-", 1)[1] in of else u for u in build_kernels.units(HOST)
    ]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        made = list(pool.map(lambda u: build_kernels.compile_unit(u, HOST, headers), units))
    out = folder / "libie_cpu.so"
    build_kernels.zig("-target", build_kernels.target_of(HOST), "-shared", "-o", str(out), *map(str, made), "-lpthread")
    shutil.copy(native.LIB_DIR / "host.cdef", folder)
    return out


def differing(folder: Path) -> list[str]:
    """Names of what the library in the folder computes otherwise."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    other, here = json.loads(done.stdout), digests()
    assert other.keys() == here.keys()
    return [name for name in here if here[name] != other[name]]


def test_every_function_is_called() -> None:
    declared = set(re.findall(r"\b(ie_\w+)\(", (native.LIB_DIR / "host.cdef").read_text(encoding="utf8")))
    called = {name.split()[0] for name in digests()}
    assert called | NO_RESULT == declared and not called & NO_RESULT


def test_a_build_without_optimisation_computes_the_same(tmp_path: Path) -> None:
    library(tmp_path, "-O0")
    assert differing(tmp_path) == []


def test_another_arithmetic_is_found(tmp_path: Path) -> None:
    library(tmp_path, "-funsafe-math-optimizations", of=("host",))
    found = differing(tmp_path)
    assert any(name.startswith("ie_formula") for name in found), found
    assert not any(name.startswith(("ie_repack", "ie_core", "ie_run")) for name in found), found
