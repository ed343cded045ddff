#!/usr/bin/env python3
"""Compiles kernels_c into libie_cpu.so with the clang of the `ziglang` wheel.

    python scripts/build_kernels.py [--out DIR] [--target x86_64|aarch64] [--force] [--program FILE]

CPU kernels are compiled once per instruction set, host code once. Objects are kept in build/ by the hash of
their text, their headers and their flags, so an unchanged file costs nothing. Linked against an old glibc:
one library serves every Linux of the architecture.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "kernels_c"
HOST_FOLDERS = ("host", "sample")  # compiled once, for every processor of the architecture
BUILD = ROOT / "build" / "obj"
GLIBC = "2.17"
HOST = platform.machine()

CFLAGS = (
    "-std=gnu11 -O3 -fPIC -ffp-contract=off -fno-math-errno -fno-trapping-math -fvisibility=hidden "
    "-fno-sanitize=all -Wall -Wextra -Werror -Wno-psabi -Ikernels_c/include"
).split()
# clang 20 to 22 take a masked counter for a straight one when they vectorise, t[o + (i & 15)] for t[o + i], so only
# loops marked with IE_VECTORIZE are vectorised (docs/performance.md). A mark must not let sums of floats change their
# order; it is not heard where a loop is unrolled instead, which is no reason to warn.
VECTORIZE_FLAGS = "-fno-vectorize -mllvm -hints-allow-reordering=false -Wno-pass-failed".split()
CFLAGS += VECTORIZE_FLAGS
ISAS = {
    "x86_64": {
        "portable": "-march=x86_64",
        "avx2": "-march=x86_64_v3",
        "avxvnni": "-march=x86_64_v3+avxvnni",
        "avx512": "-march=x86_64_v4+avx512vnni -mprefer-vector-width=512",
    },
    "aarch64": {
        "portable": "-mcpu=generic",
        "neon": "-mcpu=generic+dotprod",
        "i8mm": "-mcpu=generic+dotprod+i8mm",
    },
}


class BuildError(Exception):
    """A compiler call failed, or the compiler is missing."""


@dataclass(frozen=True)
class Unit:
    """One object: a source file and the flags it is compiled with."""

    source: Path
    name: str
    flags: tuple[str, ...]


def units(arch: str) -> list[Unit]:
    """All objects of the library for an architecture."""
    out = []
    for isa, march in ISAS[arch].items():
        for path in sorted((KERNELS / "cpu").glob("*.c")):
            out.append(Unit(path, f"{path.stem}-{isa}", (*march.split(), f"-DIE_ISA={isa}")))
    base = ISAS[arch]["portable"]
    host = sorted(path for folder in HOST_FOLDERS for path in (KERNELS / folder).glob("*.c"))
    return out + [Unit(path, f"{path.stem}-host", (base,)) for path in host]


def headers_digest() -> bytes:
    """Hash of every header: any of them may be included by any source."""
    h = hashlib.sha256()
    for path in sorted([*KERNELS.rglob("*.h"), *(ROOT / "core_laws").glob("*.h")]):
        h.update(path.read_bytes())
    return h.digest()


def zig(*args: str) -> None:
    """Run `python -m ziglang cc …`; BuildError with the compiler's text when it fails."""
    cmd = [sys.executable, "-m", "ziglang", "cc", *args]
    done = subprocess.run(cmd, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        text = (done.stderr or done.stdout).strip()
        hint = "\nThe compiler comes with: pip install ziglang" if "No module named" in text else ""
        raise BuildError(f"{' '.join(cmd)}\n{text}{hint}")


def target_of(arch: str) -> str:
    return f"{arch}-linux-gnu.{GLIBC}"


def object_of(unit: Unit, arch: str, headers: bytes) -> tuple[Path, list[str]]:
    """Where an object is kept, by what it is made of, and the flags that make it."""
    flags = [*CFLAGS, "-target", target_of(arch), *unit.flags]
    common = headers + target_of(arch).encode()
    key = hashlib.sha256(common + unit.source.read_bytes() + " ".join(flags).encode()).hexdigest()[:24]
    return BUILD / f"{unit.name}-{key}.o", flags


def compile_unit(unit: Unit, arch: str, headers: bytes) -> Path:
    out, flags = object_of(unit, arch, headers)
    if not out.exists():
        part = out.with_suffix(f".{os.getpid()}.part")
        zig(*flags, "-c", str(unit.source), "-o", str(part))
        part.replace(out)
    return out


def objects(arch: str) -> list[Path]:
    """All objects of the library; those that are not there are compiled."""
    BUILD.mkdir(parents=True, exist_ok=True)
    headers = headers_digest()
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(lambda u: compile_unit(u, arch, headers), units(arch)))


def program_of(main: Path, arch: str) -> tuple[Path, list[str]]:
    """Where the program of `build_program` is kept, by what it is made of, and the flags that make it."""
    static = arch != HOST  # no C library to run with; zig compiles one, once
    libc = ["-target", f"{arch}-linux-musl", "-static"] if static else ["-target", target_of(arch)]
    flags = [*libc, "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-s"]
    headers = headers_digest()
    parts = [str(object_of(unit, arch, headers)[0]) for unit in units(arch)]
    key = hashlib.sha256(headers + main.read_bytes() + " ".join([*flags, *parts]).encode()).hexdigest()[:24]
    return BUILD / f"{main.stem}-{arch}-{key}", flags


def build_program(main: Path, arch: str) -> Path:
    """A program of one C file and the library's objects. For another architecture it is static, to be emulated."""
    out, flags = program_of(main, arch)
    made = objects(arch)
    if not out.exists():
        part = out.with_suffix(f".{os.getpid()}.part")
        zig(*flags, "-o", str(part), str(main), *map(str, made), "-lpthread")
        part.replace(out)
    return out


def declarations() -> str:
    """What Python may call: the parts between CDEF marks of the host code's headers, without comments."""
    parts = []
    for header in sorted(path for folder in HOST_FOLDERS for path in (KERNELS / folder).glob("*.h")):
        found = re.search(r"/\* CDEF BEGIN \*/(.*)/\* CDEF END \*/", header.read_text(encoding="utf8"), re.S)
        parts += [found[1]] if found else []
    if not parts:
        raise BuildError("no header of the host code has CDEF marks")
    return re.sub(r"/\*.*?\*/", "", "".join(parts), flags=re.S)


def build(out_dir: Path, arch: str, force: bool = False) -> Path:
    """Build the library into out_dir and return its path."""
    out_dir.mkdir(parents=True, exist_ok=True)
    if force:
        for old in BUILD.glob("*.o"):
            old.unlink()
    made = objects(arch)
    library = out_dir / "libie_cpu.so"
    with tempfile.TemporaryDirectory(dir=out_dir) as tmp:  # renamed into place: a running process keeps the old file
        part = Path(tmp) / library.name
        zig("-target", target_of(arch), "-shared", "-s", "-o", str(part), *map(str, made), "-lpthread")
        part.replace(library)
    (out_dir / "host.cdef").write_text(declarations(), encoding="utf8")
    return library


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile kernels_c into libie_cpu.so.")
    parser.add_argument("--out", type=Path, default=ROOT / "ie" / "lib", help="directory of the library")
    parser.add_argument("--target", choices=sorted(ISAS), default=HOST, help="architecture")
    parser.add_argument("--program", type=Path, help="C file to link with the objects, in place of the library")
    parser.add_argument("--force", action="store_true", help="compile everything again")
    args = parser.parse_args()
    try:
        if args.program:
            build_program(args.program, args.target)
        else:
            build(args.out, args.target, args.force)
    except (BuildError, OSError) as error:
        print(f"build_kernels: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
