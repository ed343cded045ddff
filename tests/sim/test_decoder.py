"""The simulator's disassembler against another one: llvm-objdump 19, whole lines.

Where the tool is installed it judges every instruction of the sample kernels and samples of every opcode; everywhere
else its words on a part of them, kept in golden/, do. How the samples are made: `objdump`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rdna4sim.cli import main
from rdna4sim.decode import decode
from rdna4sim.disasm import functions, listing, scan, text_of
from rdna4sim.elf import STT_FUNC, CodeObject, Symbol
from rdna4sim.errors import Unsupported
from tests.sim import objdump
from tests.sim.asm import assemble
from tests.sim.build import SOURCES, code_object
from tests.sim.objdump import GOLDEN, LINE, OBJDUMP

needs_llvm = pytest.mark.skipif(OBJDUMP is None, reason="no llvm-objdump-19 (Debian: apt install llvm-19)")


def text_and_words(words: list[int]) -> tuple[str, int]:
    """What the disassembler makes of the first instruction of these words."""
    data = b"".join(word.to_bytes(4, "little") for word in words)
    _, inst, size = next(scan(data, 0))
    try:
        return (text_of(inst) if inst else f".long {words[0]:#x}"), size // 4
    except Unsupported:
        return f".long {words[0]:#x}", 1


@needs_llvm
@pytest.mark.parametrize("source", SOURCES)
def test_every_line_of_a_kernel_is_llvms(
    source: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / f"{source}.hsaco"
    path.write_bytes(code_object(source))
    assert main(["disasm", str(path)]) == 0
    ours = capsysbinary.readouterr().out.decode().splitlines()
    spans = [range(s.address, s.address + s.size) for s in functions(CodeObject(path.read_bytes()))]
    want = []
    for line in objdump.lines_of(path):
        found = LINE.match(line)
        if not found or any(int(found[2], 16) in span for span in spans):
            want.append(line)
    assert sum(1 for line in ours if LINE.match(line)) > 50
    assert ours == want


@needs_llvm
@pytest.mark.parametrize("seed, kinds", [(1, ("plain", "literal", "modified")), (2, ("plain", "dpp16", "dpp8"))])
def test_samples_of_every_opcode_are_llvms(seed: int, kinds: tuple[str, ...], tmp_path: Path) -> None:
    samples = list(objdump.samples(seed, kinds))
    wrong, judged = [], 0
    for words, (text, count) in zip(samples, objdump.texts_of(samples, tmp_path), strict=True):
        if objdump.agreed(text):
            judged += 1
            if (got := text_and_words([*words, objdump.NOP])) != (text, count):
                wrong.append((text, got[0], [f"{word:08X}" for word in words]))
    assert judged > 2000
    # LLVM 19 leaves out which half of a 16-bit operand is meant where it knows no 16-bit registers.
    assert [w for w in wrong if re.sub(r" op_sel:\S+", "", w[1]) != w[0]] == []


def test_instructions_are_what_llvm_wrote_down() -> None:
    wrong, rows = [], (GOLDEN / "instructions.txt").read_text().splitlines()
    for line in rows:
        text, _, hexadecimal = line.rpartition(" // ")
        words = [int(word, 16) for word in hexadecimal.split()]
        if (got := text_and_words(words)) != (text, len(words)):
            wrong.append((text, got))
    assert len(rows) > 700
    assert [w for w in wrong if re.sub(r" op_sel:\S+", "", w[1][0]) != w[0]] == []


class Bytes:
    """Stands for a code object that holds one stretch of code."""

    def __init__(self, address: int, data: bytes) -> None:
        self.address, self.data = address, data

    def code(self, address: int, size: int) -> bytes:
        return self.data[address - self.address : address - self.address + size]


def test_a_function_is_what_llvm_wrote_down() -> None:
    text = (GOLDEN / "control.txt").read_text()
    found = [LINE.match(line) for line in text.splitlines()[1:]]
    words = [int(word, 16) for m in found if m and m[1] != "s_code_end" for word in m[3].split()]
    data = b"".join(word.to_bytes(4, "little") for word in words)
    address, name = re.match(r"([0-9a-f]+) <(\w+)>", text).groups()  # type: ignore[union-attr]
    symbol = Symbol(name, int(address, 16), len(data), STT_FUNC, 1)
    ours = list(listing(Bytes(symbol.address, data), symbol, [symbol]))  # type: ignore[arg-type]
    assert any("<collatz+0x" in line for line in ours)
    assert ours == [line for line in text.splitlines() if "s_code_end" not in line]


def test_a_word_that_is_no_instruction_is_a_long_line_and_the_rest_follows() -> None:
    # Unknown words, an encoding of three words that is not decoded, an operand number that stands for nothing.
    words = [0xFFFFFFFF, 0xC4050000, 0xBE800000, 0xBE800001, 0xBE8000D1, 0xBFB00000]
    data = b"".join(word.to_bytes(4, "little") for word in words)
    symbol = Symbol("f", 0x100, len(data), STT_FUNC, 1)
    lines = list(listing(Bytes(0x100, data), symbol, [symbol]))[1:]  # type: ignore[arg-type]
    assert [line.split("//")[0].strip() for line in lines] == [
        ".long 0xffffffff", ".long 0xc4050000", ".long 0xbe800000", ".long 0xbe800001", ".long 0xbe8000d1", "s_endpgm"
    ]  # fmt: skip


@pytest.mark.parametrize("word", [0xBE8047FF, 0xBE804CFF, 0x7E0000FF])
def test_a_field_that_is_no_operand_has_no_literal(word: int) -> None:
    assert decode(word.to_bytes(4, "little"), 0, 0).size == 4


def test_a_function_without_a_size_reaches_to_the_next_or_to_the_end() -> None:
    text = ".text\n.globl f, g\n.type f,@function\n.type g,@function\nf:\n s_nop 1\n s_nop 2\ng:\n s_nop 3\n"
    code = CodeObject(assemble(text))
    f, g = functions(code)
    assert (f.name, f.size, g.name, g.address) == ("f", 8, "g", f.address + 8)
    assert [line.split("//")[0].strip() for line in listing(code, g, [f, g])][1:] == ["s_nop 3"]
    assert functions(CodeObject(assemble(".text\n s_nop 0\n"))) == []
