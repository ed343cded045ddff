"""Compiles the sample kernels to gfx1201 code objects.

Owns: the compiler's command line, and a folder of results named by the hash of what went in, so that each source is
compiled once. Does not own: what the simulator makes of them.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import ziglang

HERE = Path(__file__).resolve().parent
KERNELS = HERE / "kernels"
SOURCES = sorted(path.stem for path in KERNELS.glob("*.c"))
CACHE = Path(tempfile.gettempdir()) / "rdna4sim-test-kernels"
HEADERS = Path(ziglang.__file__).parent / "lib" / "include"
FLAGS = ["-x", "c", "-std=gnu11", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx1201", "-nogpulib", "-ffreestanding"]
FLAGS += ["-nostdinc", "-isystem", str(HEADERS), "-Wall", "-Wextra", "-O3", "-ffp-contract=off"]


def _zig(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "ziglang", *arguments], capture_output=True, text=True)
    if done.returncode or done.stderr:
        raise RuntimeError(f"{' '.join(arguments)}\n{done.stderr}")


def compile_source(text: str, defines: tuple[str, ...] = ()) -> bytes:
    """The code object of a C source that may include "gfx.h"."""
    header = (KERNELS / "gfx.h").read_text()
    key = hashlib.sha256("\0".join((text, header, ziglang.__file__, *FLAGS, *defines)).encode()).hexdigest()[:24]
    target = CACHE / f"{key}.hsaco"
    if not target.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            source, out = Path(folder) / "kernel.c", Path(folder) / "kernel.hsaco"
            source.write_text(text)
            options = [f"-D{d}" for d in defines]
            _zig("clang", *FLAGS, "-I", str(KERNELS), *options, "-c", str(source), "-o", f"{folder}/kernel.o")
            _zig("ld.lld", "-shared", f"{folder}/kernel.o", "-o", str(out))
            out.rename(target)
    return target.read_bytes()


@cache
def code_object(stem: str, *defines: str) -> bytes:
    """The code object of `kernels/<stem>.c`."""
    return compile_source((KERNELS / f"{stem}.c").read_text(), defines)
