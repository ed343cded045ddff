"""The compiler itself: loops of the kinds the engine is made of give the same with the flags of the build as with -O0.

What the compiler of the `ziglang` wheel is known to get wrong is tested to be found: when a newer one is right, those
tests fail, and say which precaution can go.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from ie.devices.cpu import available_isas
from scripts import build_kernels
from scripts.build_kernels import CFLAGS, HOST, ISAS, VECTORIZE_FLAGS
from tests import compiler_loops
from tests.compiler_loops import DIRECT, THROUGH, loops, program, run

ROOT = Path(__file__).resolve().parents[2]
LOOPS = loops()
PLAIN = ["-std=gnu11", "-O0", "-ffp-contract=off"]
HERE = [isa for isa in ISAS[HOST] if isa in available_isas()]
EVERY_LOOP = [flag for flag in CFLAGS if flag != "-fno-vectorize"]
NO_FLAGS = [flag for flag in CFLAGS if flag not in VECTORIZE_FLAGS]


@pytest.fixture(scope="module")
def want() -> dict[str, str]:
    found = run([str(program(LOOPS, PLAIN))])
    assert list(found) == list(LOOPS)
    return found


def wrong(found: dict[str, str], want: dict[str, str]) -> list[str]:
    assert found.keys() == want.keys()
    return [name for name in want if found[name] != want[name]]


@pytest.mark.parametrize("isa", HERE)
def test_loops_compute_what_is_written(isa: str, want: dict[str, str]) -> None:
    assert wrong(run([str(program(LOOPS, [*CFLAGS, *ISAS[HOST][isa].split()]))]), want) == []


@pytest.mark.parametrize("isa", ISAS["aarch64"])
def test_loops_compute_what_is_written_on_aarch64(isa: str, want: dict[str, str]) -> None:
    qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if HOST != "aarch64" and qemu is None:
        pytest.skip("qemu-aarch64 is not installed (Debian: apt install qemu-user)")
    if HOST != "aarch64" and not build_kernels.program_of(ROOT / "tests" / "cpu" / "replay.c", "aarch64")[0].exists():
        pytest.skip("nothing was compiled for aarch64: make test-aarch64 does it")
    made = program(LOOPS, [*CFLAGS, *ISAS["aarch64"][isa].split()], "aarch64")
    assert wrong(run([*([qemu, "-cpu", "max"] if qemu and HOST != "aarch64" else []), str(made)]), want) == []


@pytest.mark.parametrize("isa", HERE)
def test_the_sweep_finds_the_fault_of_vectorised_loops(isa: str, want: dict[str, str]) -> None:
    found = wrong(run([str(program(LOOPS, [*EVERY_LOOP, *ISAS[HOST][isa].split()]))]), want)
    assert found, "this compiler vectorises masked counters rightly: VECTORIZE_FLAGS and the marks can go"
    assert all("and" in name or "mod" in name or name.startswith(("runs", "store")) for name in found), found
    if isa == "avx512":  # where it was seen first
        assert any(name.startswith("runs") for name in found), found


def test_the_sweep_finds_sums_whose_order_a_mark_has_changed(want: dict[str, str]) -> None:
    flags = [*NO_FLAGS, "-fno-vectorize", *ISAS[HOST][HERE[-1]].split()]
    assert wrong(run([str(program(LOOPS, flags))]), want) == ["marked_floats"]


def test_an_element_of_a_vector_is_wrong_under_bit_cast() -> None:
    """At every level of optimisation: the front end takes the vector's first element. The sources do without."""
    for level in ("-O0", "-O3"):
        direct, through = (run([str(program(d, ["-std=gnu11", level]))]) for d in (DIRECT, THROUGH))
        assert direct != through, "this compiler is right: the next test can go"


BIT_CAST = re.compile(r"__builtin_bit_cast\s*\((?:[^()]|\([^()]*\))*\]\s*\)")


def test_no_source_has_an_element_under_bit_cast() -> None:
    assert BIT_CAST.search("x = __builtin_bit_cast(unsigned, v[2]);") and not BIT_CAST.search(
        "__builtin_bit_cast(u32, f)"
    )
    assert all(BIT_CAST.search(text) for text in DIRECT.values())
    files = [
        p
        for d in ("kernels_c", "core_laws", "rdna4sim")
        for p in (ROOT / d).rglob("*")
        if p.suffix in (".c", ".h", ".py")
    ]
    assert len(files) > 50
    assert [str(p.relative_to(ROOT)) for p in files if BIT_CAST.search(p.read_text(encoding="utf8"))] == []


MARKED = re.compile(r"IE_VECTORIZE\n\s*for \((\w+) (\w+) = [^;]*;[^;]*;[^)]*\)([^{;]*;|\s*\{.*?\n\s*\})", re.S)


def offences(text: str) -> list[str]:
    """Marked loops that must not be: the counter is no int, int32_t or int64_t, or it is masked or cut."""
    found = []
    for kind, counter, body in MARKED.findall(text):
        index = re.findall(r"\[[^\]]*\]", body)
        cut = re.compile(rf"\b{counter}\b\s*[&%]|[&%]\s*\b{counter}\b|\(u?int(8|16)_t\)")
        if kind not in ("int", "int32_t", "int64_t") or any(cut.search(part) for part in index):
            found.append(f"{kind} {counter}: {body.strip()[:60]}")
    return found


def test_marked_loops_have_straight_counters() -> None:
    planted = "IE_VECTORIZE\nfor ({} i = 0; i < n; i++)\n    y[i] = x[{}];\n"
    assert offences(planted.format("int", "i + 1")) == []
    for kind, index in (("uint32_t", "i"), ("int", "i & 15"), ("int", "o + i % 8"), ("int64_t", "(uint8_t)i")):
        assert offences(planted.format(kind, index)), (kind, index)
    marks = 0
    for path in sorted((ROOT / "kernels_c").rglob("*.[ch]")):
        text = path.read_text(encoding="utf8")
        loops_here = [line for line in text.splitlines() if line.strip() == "IE_VECTORIZE"]
        assert len(MARKED.findall(text)) == len(loops_here), f"{path}: a mark that is not before a loop"
        assert offences(text) == [], path
        marks += len(loops_here)
    assert marks > 30
    assert compiler_loops.MARK.strip() in (ROOT / "kernels_c/include/vectorize.h").read_text()
