"""Compiling and keeping: translated code objects and the HIP stand-in, by content.

Owns: the compiler's flags, the names of cached files. A name is the SHA-256 of everything the result depends on, so
nothing
is ever stale; a file appears under its name only when it is complete.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from . import __version__
from .elf import CodeObject
from .errors import SimError
from .settings import cache_folder
from .translate import Variant, preamble, translate

PACKAGE = Path(__file__).resolve().parent
INCLUDE = PACKAGE / "include"
HIP = PACKAGE / "hip"
FLAGS = ["-std=gnu2x", "-O2", "-fPIC", "-ffp-contract=off", "-Xclang", "-ffloat16-excess-precision=none", "-fwrapv",
    "-fno-strict-aliasing",
         "-fno-math-errno", "-fno-stack-protector", "-Wno-psabi"]  # fmt: skip
NATIVE = "-march=native"
# About this many characters of C go into one compiler process.
SHARE = 150_000


@cache
def sources_digest() -> str:
    """A digest of this package's own sources: a change of the translator makes all old results unreachable."""
    digest = hashlib.sha256(__version__.encode())
    for path in sorted(p for p in PACKAGE.rglob("*") if p.suffix in (".py", ".h", ".c")):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    digest.update(sys.executable.encode() + machine().encode())
    return digest.hexdigest()


@cache
def machine() -> str:
    """What native code depends on: the processor's model and flags."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return os.uname().machine
    return os.uname().machine + "".join(
        sorted({line for line in lines if line.startswith(("flags", "model name", "Features"))})
    )


def key(data: bytes, variant: Variant) -> str:
    """The cache name of a code object's translation."""
    return hashlib.sha256(sources_digest().encode() + variant.name.encode() + b"\0" + data).hexdigest()[:32]


def tool(arguments: list[str], what: str) -> None:
    """Run the compiler of the ziglang wheel."""
    ran = subprocess.run([sys.executable, "-m", "ziglang", *arguments], capture_output=True, text=True)
    if ran.returncode:
        first = next((line for line in ran.stderr.splitlines() if "error" in line), ran.stderr.strip()[:300])
        raise SimError(f"{what}: the C compiler failed: {first}")


def compile_parts(texts: list[str], variant: Variant, folder: Path, output: Path) -> None:
    """C sources (the last one is the table, which names functions of the others) to one shared library."""
    *kernels, table = texts
    groups: list[list[str]] = [[]]
    for text in kernels:
        if groups[-1] and sum(map(len, groups[-1])) + len(text) > SHARE:
            groups.append([])
        groups[-1].append(text)
    declared = "".join(f"void kernel_{i}(Wave *w);\n" for i in range(len(kernels)))
    sources = [
        preamble(variant) + declared + "".join(group).replace("static void kernel_", "void kernel_") for group in groups
    ]
    sources[-1] += table
    objects = []
    for i, text in enumerate(sources):
        (folder / f"part{i}.c").write_text(text)
        objects.append(str(folder / f"part{i}.o"))
    flags = [*FLAGS, NATIVE, "-I", str(INCLUDE), "-fvisibility=default", "-target", f"{os.uname().machine}-linux-gnu"]

    def build(i: int) -> None:
        source = str(folder / f"part{i}.c")
        tool(["clang", *flags, "-ffreestanding", "-c", source, "-o", objects[i]], output.name)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(build, range(len(sources))))
    tool(["ld.lld", "-shared", "-Bsymbolic", *objects, "-o", str(folder / "out.so")], output.name)
    os.replace(folder / "out.so", output)


def translated(data: bytes, variant: Variant) -> Path:
    """The shared library of a code object's kernels; made if it is not there."""
    folder = cache_folder()
    output = folder / f"{key(data, variant)}.so"
    if output.exists():
        return output
    texts = translate(CodeObject(data), variant)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as work:
        compile_parts(texts, variant, Path(work), output)
    return output


def stand_in() -> Path:
    """The shared library that stands in for libamdhip64; made if it is not there."""
    folder = cache_folder() / f"hip-{sources_digest()[:24]}"
    output = folder / "libamdhip64.so.6"
    if output.exists():
        return output
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as work:
        built = Path(work) / output.name
        sources = [str(path) for path in sorted(HIP.glob("*.c"))]
        defines = [f'-DRDNA4SIM_BUILT_WITH="{sys.executable}"', f'-DRDNA4SIM_PACKAGE_PARENT="{PACKAGE.parent}"']
        arguments = [
            "cc",
            "-shared",
            f"-Wl,-soname,{output.name}",
            *FLAGS,
            "-mcpu=native",
            "-fno-sanitize=all",
            "-I",
            str(INCLUDE),
            *defines,
            *sources,
        ]
        tool([*arguments, "-lpthread", "-ldl", "-lm", "-o", str(built)], "the HIP stand-in")
        os.replace(built, output)
    return output


def main(arguments: list[str]) -> None:
    """What the stand-in runs: FILE VARIANT. Prints the library's path; or the reason there is none, and ends with 1."""
    try:
        print(translated(Path(arguments[0]).read_bytes(), Variant.named(arguments[1])))
    except (SimError, OSError) as e:
        print(e)
        sys.exit(1)
    except Exception as e:  # A damaged file that nobody thought of: still one line, and the host program lives on.
        print(f"the translator failed: {type(e).__name__}: {e}".replace("\n", " "))
        sys.exit(1)
