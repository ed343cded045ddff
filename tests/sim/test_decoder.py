"""The simulator's decoder against another one: Debian's llvm-objdump-19, on every instruction of the sample kernels."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.build import SOURCES, code_object
from tests.sim.elf import functions
from tests.sim.hip import library_path, no_disasm

OBJDUMP = shutil.which("llvm-objdump-19")
LINE = re.compile(r"^\s+(\S.*?)\s*// ([0-9A-F]+): ((?:[0-9A-F]{8} ?)+)")


def by_llvm(path: Path) -> dict[int, tuple[str, int]]:
    """Address to mnemonic and length in bytes, of all instructions of all functions."""
    assert OBJDUMP
    text = subprocess.run(
        [OBJDUMP, "-d", "--mcpu=gfx1201", str(path)], capture_output=True, text=True, check=True
    ).stdout
    out = {}
    for line in text.splitlines():
        if found := LINE.match(line):
            words = found[3].split()
            out[int(found[2], 16)] = (plain(found[1]), 4 * len(words))
    return out


def by_simulator(path: Path) -> dict[int, tuple[str, int]]:
    library_path()
    command = [sys.executable, "-m", "rdna4sim", "disasm", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    out = {}
    for line in text.splitlines():
        if found := LINE.match(line):
            out[int(found[2], 16)] = (plain(found[1]), 4 * len(found[3].split()))
    return out


def plain(text: str) -> str:
    """The mnemonic without the suffix of its encoding; both of a dual instruction."""
    parts = [part.split()[0] for part in text.split("::")]
    return " ".join(re.sub(r"_(e32|e64|dpp|e64_dpp|dpp8)$", "", part) for part in parts)


@no_disasm
@pytest.mark.skipif(OBJDUMP is None, reason="llvm-objdump-19 is not installed (Debian: apt install llvm-19)")
@pytest.mark.parametrize("source", SOURCES)
def test_lengths_and_mnemonics_agree_with_llvm(source: str, tmp_path: Path) -> None:
    path = tmp_path / f"{source}.hsaco"
    path.write_bytes(code_object(source))
    llvm, ours = by_llvm(path), by_simulator(path)
    inside = [range(first, first + size) for first, size in functions(path.read_bytes()).values()]
    want = {at: v for at, v in llvm.items() if any(at in r for r in inside)}
    assert len(want) > 50
    assert {at: v for at, v in ours.items() if at in want} == want
