"""`ie-doctor`: what works on this machine, and what is missing where something does not.

Owns: the list of things looked at and their wording. Each check is a function of its own that returns a line, so one
that fails does not hide the others.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .. import __version__, machine, paths
from ..errors import IeError
from . import console as console_module
from .console import FAILED, OK, Console
from .info import size
from .options import Options
from .summary import number
from .visible import one_line

COMMAND = "ie-doctor"
ISA_NAMES = {
    "avx512": "AVX-512 VNNI",
    "avxvnni": "AVX2 with AVX-VNNI",
    "avx2": "AVX2",
    "i8mm": "NEON with i8mm",
    "neon": "NEON with dot products",
    "portable": "portable C",
}
PACKAGES = ("numpy", "cffi", "click", "tokenizers", "sentencepiece", "jinja2", "rich", "prompt_toolkit")


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, PASS, FAIL, no or nothing, and the facts."""

    what: str
    verdict: str
    facts: str


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    words = sys.argv[1:] if argv is None else argv
    return console_module.run(COMMAND, words, _main)


def _main(console: Console, chosen: Options) -> int:
    findings = []
    for check in CHECKS:
        finding = _guarded(check)
        findings.append(finding)
        console.text(f"{finding.what:<10} {finding.verdict:<5} {one_line(finding.facts)}".rstrip() + "\n")
    if chosen.verbose:
        console.text(f"{'flags':<16} {' '.join(sorted(machine.this_machine().flags))}\n")
    return FAILED if any(finding.verdict == "FAIL" for finding in findings) else OK


def _guarded(check: Callable[[], Finding]) -> Finding:
    name = check.__name__.removeprefix("check_")
    try:
        return check()
    except IeError as error:
        return Finding(name, "FAIL", str(error))
    except Exception as error:
        return Finding(name, "FAIL", f"{type(error).__name__}: {error}")


def check_cpu() -> Finding:
    """Every instruction set that this machine has must compute what the reference does, and the same bits."""
    from ..devices.cpu import available_isas, read_bandwidth
    from .selftest import SelfTest

    isas = available_isas()
    with SelfTest() as test:
        results = {isa: test.cpu(isa) for isa in isas}
        for isa, got in results.items():
            fault = test.fault(got)
            if fault:
                return Finding("cpu", "FAIL", f"{ISA_NAMES.get(isa, isa)}: {fault}")
    first = results[isas[0]]
    odd = [isa for isa, got in results.items() if not np.array_equal(got, first)]
    if odd:
        return Finding("cpu", "FAIL", f"{odd[0]} and {isas[0]} do not give the same bits")
    here = machine.this_machine()
    others = f" (same bits: {', '.join(ISA_NAMES.get(isa, isa) for isa in isas[1:])})" if isas[1:] else ""
    cores = f"{here.cores} core{'s' if here.cores > 1 else ''}"
    facts = f"{ISA_NAMES.get(isas[0], isas[0])}{others}, {cores}, reads {number(read_bandwidth(here.cores) / 1e9)} GB/s"
    return Finding("cpu", "PASS", facts)


def check_reference() -> Finding:
    from .selftest import SelfTest

    with SelfTest() as test:
        if not np.isfinite(test.expected).all():
            return Finding("reference", "FAIL", "logits that are not finite")
    return Finding("reference", "PASS", "numpy: defines what is right, and is slow")


def check_hip() -> Finding:
    return Finding("hip", "no", "AMD GPUs: not part of this version")


def check_cuda() -> Finding:
    return Finding("cuda", "no", "NVIDIA GPUs: not part of this version")


def check_machine() -> Finding:
    here = machine.this_machine()
    free = machine.free_memory()
    memory = f", {size(free)} of memory free" if free else ""
    return Finding("machine", "", f"{here.cpu_name}, {here.arch}, {here.threads} hardware threads{memory}")


def check_kernels() -> Finding:
    library = paths.library_dir() / "libie_cpu.so"
    if not library.exists():
        return Finding("kernels", "FAIL", f"{library} is not there: run make setup, or install the wheel again")
    return Finding("kernels", "", f"{library}, {size(library.stat().st_size)}")


def check_compiler() -> Finding:
    """Only who changes the kernels needs one."""
    if importlib.util.find_spec("ziglang") is None:
        return Finding("compiler", "", "none installed; needed only to build the kernels (pip install ziglang)")
    return Finding("compiler", "", f"ziglang {importlib.metadata.version('ziglang')}")


def check_cache() -> Finding:
    folder = paths.cache_dir()
    if not folder.exists():
        return Finding("cache", "", f"{folder}, not made yet")
    files = [file for file in folder.rglob("*") if file.is_file()]
    models = sum(1 for file in files if file.suffix == ".gguf")
    total = sum(file.stat().st_size for file in files)
    return Finding("cache", "", f"{folder}, {size(total)}, {models} model{'' if models == 1 else 's'}")


def check_versions() -> Finding:
    found = [f"ie {__version__}", f"Python {platform.python_version()}"]
    missing = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Finding("versions", "FAIL", f"not installed: {', '.join(missing)}. pip install {' '.join(missing)}")
    return Finding("versions", "", ", ".join(found))


CHECKS: tuple[Callable[[], Finding], ...] = (
    check_cpu,
    check_reference,
    check_hip,
    check_cuda,
    check_machine,
    check_kernels,
    check_compiler,
    check_cache,
    check_versions,
)


if __name__ == "__main__":
    sys.exit(main())
