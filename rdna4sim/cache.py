"""Compiling and keeping: translated code objects and the HIP stand-in, by content.

Owns: the compiler's flags, the names of cached files and their seal. A name is the SHA-256 of everything the result
depends on, so nothing is ever stale; a file appears under its name only when it is complete, and ends with a digest of
itself, so that one which was damaged later is made anew.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from . import __version__
from .elf import CodeObject
from .errors import SimError
from .settings import cache_folder, compiler_environment
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
# Behind the library's own bytes, where no loader looks: this and the SHA-256 of those bytes.
SEAL = b"rdna4sim"
# Seconds after which a folder that a killed compiler left is nobody's.
ABANDONED = 3600


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


def tool(arguments: list[str], what: str, folder: Path) -> None:
    """Run the compiler of the ziglang wheel, never a ziglang.py of the working folder; its own cache is in `folder`."""
    command = [sys.executable, "-P", "-m", "ziglang", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, errors="replace", env=compiler_environment(folder))
    if ran.returncode:
        first = next((line for line in ran.stderr.splitlines() if "error" in line), ran.stderr.strip()[:300])
        raise SimError(f"{what}: the C compiler failed: {first}")


def sealed(path: Path) -> bool:
    """Whether the file is there, whole and unchanged."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    body, seal = data[: -len(SEAL) - 32], data[-len(SEAL) - 32 :]
    return seal == SEAL + hashlib.sha256(body).digest()


def keep(built: Path, output: Path) -> None:
    """Seals a library and gives it its name, once its bytes are on the disk."""
    digest = hashlib.sha256(built.read_bytes()).digest()
    with built.open("ab") as file:
        file.write(SEAL + digest)
        file.flush()
        os.fsync(file.fileno())
    os.replace(built, output)


@contextmanager
def workshop(folder: Path) -> Iterator[Path]:
    """A folder to compile in."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="build-", ignore_cleanup_errors=True) as work:
        yield Path(work)


def sweep(folder: Path) -> None:
    """Removes what compilers that were killed left in the cache."""
    for left in (*folder.glob("build-*"), *folder.glob("hip-*/build-*")):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED:
                shutil.rmtree(left, ignore_errors=True)


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
        tool(["clang", *flags, "-ffreestanding", "-c", source, "-o", objects[i]], output.name, folder)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(build, range(len(sources))))
    tool(["ld.lld", "-shared", "-Bsymbolic", *objects, "-o", str(folder / "out.so")], output.name, folder)
    keep(folder / "out.so", output)


def translated(data: bytes, variant: Variant) -> Path:
    """The shared library of a code object's kernels; made if it is not there or damaged."""
    folder = cache_folder()
    output = folder / f"{key(data, variant)}.so"
    sweep(folder)
    if sealed(output):
        return output
    texts = translate(CodeObject(data), variant)
    with workshop(folder) as work:
        compile_parts(texts, variant, work, output)
    return output


def stand_in() -> Path:
    """The shared library that stands in for libamdhip64; made if it is not there or damaged."""
    cached = cache_folder()
    output = cached / f"hip-{sources_digest()[:24]}" / "libamdhip64.so.6"
    sweep(cached)
    if sealed(output):
        return output
    with workshop(cached) as work:
        built = work / output.name
        sources = [str(path) for path in sorted(HIP.glob("*.c"))]
        defines = [f'-DRDNA4SIM_BUILT_WITH="{sys.executable}"', f'-DRDNA4SIM_PACKAGE_PARENT="{PACKAGE.parent}"']
        shared = ["cc", "-shared", f"-Wl,-soname,{output.name}", *FLAGS, "-mcpu=native", "-fno-sanitize=all"]
        libraries = ["-lpthread", "-ldl", "-lm", "-o", str(built)]
        tool([*shared, "-I", str(INCLUDE), *defines, *sources, *libraries], "the HIP stand-in", work)
        output.parent.mkdir(exist_ok=True)
        keep(built, output)
    return output


def main(arguments: list[str]) -> None:
    """What the stand-in runs: VARIANT, with the image on stdin. Prints the library's path; or the reason there is none,
    and ends with 1. After Ctrl-C it ends with 130 and says nothing: the host program hears of it too."""
    try:
        answer, status = os.fsencode(translated(sys.stdin.buffer.read(), Variant.named(arguments[0]))), 0
    except KeyboardInterrupt:
        os._exit(130)
    except (SimError, OSError) as e:
        answer, status = str(e).encode("utf-8", "surrogateescape"), 1
    except Exception as e:  # A damaged file that nobody thought of: still one line, and the host program lives on.
        answer, status = f"the translator failed: {type(e).__name__}: {e}".encode("utf-8", "replace"), 1
    with suppress(OSError):  # The host program may have left.
        os.write(1, answer if not status else answer.replace(b"\n", b" "))
    sys.exit(status)
