#!/usr/bin/env python3
"""Compiles kernels_c with AddressSanitizer and UndefinedBehaviorSanitizer into build/sanitized.

    python scripts/build_sanitized.py               build, and print the runtime that must be loaded before Python
    python scripts/build_sanitized.py --compiler name the compiler that would be taken
    python scripts/build_sanitized.py --run ...     build, and run the Python interpreter with these arguments under it

The clang of the `ziglang` wheel comes without the sanitizers' runtime, so this takes the system's. Owns: which clang,
the sanitizers, and the environment that they run in. Units, instruction sets and the rest come from build_kernels.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.build_kernels import CFLAGS, HOST, ISAS, ROOT, BuildError, Unit, declarations, headers_digest, units

OUT = ROOT / "build" / "sanitized"
OLDEST = 16
"""First clang with _Float16 and dot products as the kernels use them."""
GET_IT = f"the sanitized build needs clang {OLDEST} or newer with its runtime (Debian: apt-get install clang-19)"

CHECKS = "address,undefined,float-cast-overflow,local-bounds,nullability"
FEWER = (
    "address,bounds,shift,signed-integer-overflow,integer-divide-by-zero,float-cast-overflow,"
    "unreachable,return,bool,enum"
)
"""For the other instruction sets, whose source lines are the portable ones': no UBSan check of each load and store.
Those make a matrix kernel take several times as long to compile."""
FLAGS = (
    "-fno-sanitize-recover=all -shared-libasan -fno-omit-frame-pointer -g1 -O1 "
    "-Wno-unknown-pragmas -Wno-unknown-warning-option -Wno-pass-failed"
).split()
OPTIONS = {
    # Leaks of the interpreter are none of ours; SIGBUS is the library's own; a freed or poisoned byte ends the process.
    "ASAN_OPTIONS": "detect_leaks=0:allow_user_poisoning=1:allocator_may_return_null=1:handle_sigbus=0:"
    "detect_stack_use_after_return=0:check_initialization_order=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "PYTHONMALLOC": "malloc",
}


@functools.cache
def compiler() -> tuple[str, str]:
    """(clang, its shared runtime of AddressSanitizer). BuildError says how to get one."""
    for name in ("clang", *(f"clang-{n}" for n in range(30, OLDEST - 1, -1))):
        path = shutil.which(name)
        if path is None:
            continue
        version = subprocess.run([path, "-dumpversion"], capture_output=True, text=True).stdout
        runtime = _runtime(path)
        if version and int(version.split(".")[0]) >= OLDEST and runtime:
            return path, runtime
    raise BuildError(GET_IT)


def _runtime(clang: str) -> str:
    """The runtime's path, or "" where it is not installed: its name differs from one packaging to the next."""
    for name in (f"libclang_rt.asan-{HOST}.so", "libclang_rt.asan.so"):
        found = subprocess.run([clang, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
        if Path(found).is_file():
            return found
    return ""


def plain_flags(flags: Sequence[str]) -> list[str]:
    """Names of processors and features as clang itself spells them: zig's have underscores, and + before features."""
    out = []
    for flag in flags:
        if flag.startswith(("-march=x86_64", "-mcpu=generic")):
            base, *features = flag.split("+")
            if HOST == "x86_64":
                out += [base.replace("x86_64_v", "x86-64-v").replace("x86_64", "x86-64"), *(f"-m{f}" for f in features)]
            else:
                out.append("-march=armv8-a" + "".join(f"+{f}" for f in features))
        elif flag != "-fno-sanitize=all" and not flag.startswith("-O"):
            out.append(flag)
    return out


def compile_unit(unit: Unit, common: bytes) -> Path:
    clang, _ = compiler()
    portable = set(unit.flags) & set(ISAS[HOST]["portable"].split())
    checks = CHECKS if portable else FEWER
    flags = [*plain_flags([*CFLAGS, *unit.flags]), f"-fsanitize={checks}", *FLAGS]
    key = hashlib.sha256(common + unit.source.read_bytes() + " ".join(flags).encode()).hexdigest()[:24]
    out = OUT / "obj" / f"{unit.name}-{key}.o"
    if not out.exists():
        part = out.with_suffix(f".{os.getpid()}.part")
        call(clang, *flags, "-c", str(unit.source), "-o", str(part))
        part.replace(out)
    return out


def call(*command: str) -> None:
    """Run the compiler; BuildError with its text when it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{' '.join(command)}\n{(done.stderr or done.stdout).strip()}")


def build() -> Path:
    """The library with its declarations in OUT; returns the folder."""
    clang, _ = compiler()
    (OUT / "obj").mkdir(parents=True, exist_ok=True)
    version = subprocess.run([clang, "--version"], capture_output=True).stdout
    common = headers_digest() + version
    # Large files first: with few cores the last one to start decides when all are done.
    todo = sorted(units(HOST), key=lambda u: -u.source.stat().st_size)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        made = list(pool.map(lambda u: compile_unit(u, common), todo))
    library = OUT / "libie_cpu.so"
    part = library.with_suffix(f".{os.getpid()}.part")
    call(clang, f"-fsanitize={CHECKS}", "-shared-libasan", "-shared", "-o", str(part), *map(str, made), "-lpthread")
    part.replace(library)
    (OUT / "host.cdef").write_text(declarations(), encoding="utf8")
    return OUT


def environment() -> dict[str, str]:
    """What a Python that loads the library must be started with."""
    return {**os.environ, **OPTIONS, "LD_PRELOAD": compiler()[1]}


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile kernels_c with sanitizers.")
    parser.add_argument(
        "--run", nargs=argparse.REMAINDER, help="arguments of Python, to be run with the library's runtime"
    )
    parser.add_argument("--compiler", action="store_true", help="only name the compiler; status 1 when there is none")
    args = parser.parse_args()
    try:
        if args.compiler:
            print(compiler()[0])
            return 0
        build()
    except (BuildError, OSError) as error:
        print(f"build_sanitized: {error}", file=sys.stderr)
        return 1
    if args.run is None:
        print(compiler()[1])
        return 0
    return subprocess.run([sys.executable, *args.run], cwd=ROOT, env=environment()).returncode


if __name__ == "__main__":
    sys.exit(main())
