"""Compiling and keeping: translated code objects and the HIP stand-in, by content.

Owns: the compiler's flags, the names of cached files and their seal. A name is the SHA-256 of everything the result
depends on, so nothing is ever stale; a file appears under its name only when it is complete, and ends with a digest of
itself, so that one which was damaged later is made anew.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
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
# A wave's stack is host.h's STACK_BYTES: no function of a kernel may come near that.
FRAME = ["-Wframe-larger-than=1048576", "-Werror=frame-larger-than"]
# For all of one library, from the first compiler process on; and each process for itself, if nobody is left to end it.
COMPILE_SECONDS = 900
COMPILE_BYTES = 12 << 30
LIMITED = f"""import resource, runpy
resource.setrlimit(resource.RLIMIT_CPU, ({COMPILE_SECONDS}, {COMPILE_SECONDS}))
most = resource.getrlimit(resource.RLIMIT_AS)[1]
least = {COMPILE_BYTES} if most == resource.RLIM_INFINITY else min(most, {COMPILE_BYTES})
resource.setrlimit(resource.RLIMIT_AS, (least, most))
runpy.run_module("ziglang", run_name="__main__")
"""
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


class Tools:
    """The compiler's processes for one library: together no longer than `seconds`, and none outlives this context."""

    def __init__(self, what: str, folder: Path, seconds: float = COMPILE_SECONDS) -> None:
        self.what, self.folder, self.seconds = what, folder, seconds
        self.end = time.monotonic() + seconds
        self.running: set[subprocess.Popen[str]] = set()
        self.lock, self.stopped = threading.Lock(), False

    def __enter__(self) -> Tools:
        return self

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.stopped = True
            for process in self.running:
                self.kill(process)

    def kill(self, process: subprocess.Popen[str]) -> None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)

    def run(self, arguments: list[str]) -> None:
        """Runs the compiler of the ziglang wheel, never a ziglang.py of the working folder. Raises SimError.

        It is the head of a process group: it may start processes of its own, which end with it.
        """
        command = [sys.executable, "-P", "-c", LIMITED, *arguments]
        pipe, nothing, environment = subprocess.PIPE, subprocess.DEVNULL, compiler_environment(self.folder)
        with self.lock:
            if self.stopped:
                return
            process = subprocess.Popen(
                command, stdin=nothing, stdout=nothing, stderr=pipe, text=True, errors="replace", env=environment,
                process_group=0,
            )  # fmt: skip
            self.running.add(process)
        try:
            _, said = process.communicate(timeout=max(0.0, self.end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise SimError(f"{self.what}: the C compiler took more than {self.seconds:g} s") from None
        finally:
            with self.lock:
                self.running.discard(process)
                self.kill(process)
            process.wait()
        if process.returncode:
            first = next((line for line in said.splitlines() if "error" in line), said.strip()[:300])
            first = first or f"status {process.returncode}"
            raise SimError(f"{self.what}: the C compiler failed: {first}")


def trusted(path: Path, file: int) -> None:
    """Raises SimError unless what is open belongs to this user, and nobody else may write to it: its code will run."""
    about = os.fstat(file)
    if about.st_uid != os.geteuid():
        raise SimError(f"{path}: belongs to user {about.st_uid}, expected {os.geteuid()}: set RDNA4SIM_CACHE")
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SimError(f"{path}: others may write to it, and what is in it runs: chmod go-w, or set RDNA4SIM_CACHE")


def private_folder(folder: Path) -> Path:
    """Makes the folder if it is not there; its path without links. Raises SimError where others could change it."""
    fresh = not folder.exists()
    for parent in reversed(folder.parents):
        if not parent.is_dir():
            parent.mkdir(mode=0o755, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    real = Path(os.path.realpath(folder))
    for parent in real.parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise SimError(f"{real}: everybody may write to {parent}: chmod o-w, or set RDNA4SIM_CACHE")
    opened = os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if fresh:
            os.fchmod(opened, 0o700)
        trusted(real, opened)
    finally:
        os.close(opened)
    return real


def sealed(path: Path) -> bool:
    """Whether the file is there, whole and unchanged. Raises SimError if it is somebody else's."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError as e:
        raise SimError(f"{path}: {e.strerror}; remove it") from None
    with os.fdopen(opened, "rb") as file:
        trusted(path, opened)
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise SimError(f"{path}: not a regular file; remove it")
        data = file.read()
    body, seal = data[: -len(SEAL) - 32], data[-len(SEAL) - 32 :]
    return seal == SEAL + hashlib.sha256(body).digest()


def c_string(path: str) -> str:
    """A path as a C string: every byte as a number, whatever it holds."""
    return '"' + "".join(f"\\{byte:03o}" for byte in os.fsencode(path)) + '"'


def keep(built: Path, output: Path) -> None:
    """Seals a library and gives it its name, once its bytes are on the disk."""
    digest = hashlib.sha256(built.read_bytes()).digest()
    with built.open("ab") as file:
        file.write(SEAL + digest)
        file.flush()
        os.fchmod(file.fileno(), 0o700)
        os.fsync(file.fileno())
    os.replace(built, output)


@contextmanager
def workshop(folder: Path) -> Iterator[Path]:
    """A folder to compile in, gone afterwards."""
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
    flags = [*FLAGS, *FRAME, NATIVE, "-I", str(INCLUDE), "-fvisibility=default"]
    flags += ["-target", f"{os.uname().machine}-linux-gnu"]

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool, Tools(output.name, folder) as tools:

        def build(i: int) -> None:
            source = str(folder / f"part{i}.c")
            tools.run(["clang", *flags, "-ffreestanding", "-c", source, "-o", objects[i]])

        list(pool.map(build, range(len(sources))))
        tools.run(["ld.lld", "-shared", "-Bsymbolic", *objects, "-o", str(folder / "out.so")])
    keep(folder / "out.so", output)


def translated(data: bytes, variant: Variant) -> Path:
    """The shared library of a code object's kernels; made if it is not there or damaged."""
    folder = private_folder(cache_folder())
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
    cached = private_folder(cache_folder())
    output = private_folder(cached / f"hip-{sources_digest()[:24]}") / "libamdhip64.so.6"
    sweep(cached)
    if sealed(output):
        return output
    with workshop(cached) as work:
        built = work / output.name
        sources = [str(path) for path in sorted(HIP.glob("*.c"))]
        places = {"RDNA4SIM_BUILT_WITH": sys.executable, "RDNA4SIM_PACKAGE_PARENT": str(PACKAGE.parent)}
        defines = [f"-D{name}={c_string(place)}" for name, place in places.items()]
        shared = ["cc", "-shared", f"-Wl,-soname,{output.name}", *FLAGS, "-mcpu=native", "-fno-sanitize=all"]
        libraries = ["-lpthread", "-ldl", "-lm", "-o", str(built)]
        with Tools("the HIP stand-in", work) as tools:
            tools.run([*shared, "-I", str(INCLUDE), *defines, *sources, *libraries])
        keep(built, output)
    return output


class Terminated(BaseException):
    """SIGTERM or SIGHUP came: what is unfinished goes, and the process ends."""


def end_tidily() -> None:
    """From now on SIGTERM and SIGHUP are Terminated in the main thread, so that no half-made file stays behind."""

    def end(number: int, frame: object) -> None:
        for each in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, lambda *again: None)  # not SIG_IGN: Python would report one that is pending already
        raise Terminated

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, end)


def end_with_parent() -> None:
    """SIGTERM for this process when the thread that started it, and waits for it, is no more."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))


def main(arguments: list[str]) -> None:
    """What the stand-in runs: VARIANT, with the image on stdin. Prints the library's path; or the reason there is none,
    and ends with 1. After Ctrl-C it ends with 130 and says nothing: the host program hears of it too."""
    end_tidily()
    end_with_parent()
    try:
        answer, status = os.fsencode(translated(sys.stdin.buffer.read(), Variant.named(arguments[0]))), 0
    except (KeyboardInterrupt, Terminated) as e:
        os._exit(130 if isinstance(e, KeyboardInterrupt) else 128 + signal.SIGTERM)
    except (SimError, OSError) as e:
        answer, status = str(e).encode("utf-8", "surrogateescape"), 1
    except Exception as e:  # A damaged file that nobody thought of: still one line, and the host program lives on.
        answer, status = f"the translator failed: {type(e).__name__}: {e}".encode("utf-8", "replace"), 1
    with suppress(OSError):  # The host program may have left.
        os.write(1, answer if not status else answer.replace(b"\n", b" "))
    sys.exit(status)
