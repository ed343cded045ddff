"""llvm-objdump as the judge of the disassembler: its lines for whole files and for samples of every opcode.

Owns: the samples, and the files in golden/ that hold what llvm-objdump 19 made of them, for machines without it.
`python -m tests.sim.objdump` writes these anew; it needs llvm-objdump-19 (Debian: apt install llvm-19).
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from rdna4sim.decode import LAYOUTS, opcodes
from rdna4sim.disasm import operands
from tests.sim.asm import assemble
from tests.sim.build import code_object

OBJDUMP = shutil.which("llvm-objdump-19")
GOLDEN = Path(__file__).resolve().parent / "golden"
LINE = re.compile(r"^\t(\S.*?)\s*// ([0-9A-F]{12}): ((?:[0-9A-F]{8} ?)+)(.*)$")
NOP = 0xBF800000
SLOT = 8
HEADS = {
    "SOP1": 0b101111101 << 23, "SOP2": 0b10 << 30, "SOPC": 0b101111110 << 23, "SOPK": 0b1011 << 28,
    "SOPP": 0b101111111 << 23, "SMEM": 0b111101 << 26, "VOP1": 0b0111111 << 25, "VOP2": 0, "VOPC": 0b0111110 << 25,
    "VOP3": 0b110101 << 26, "VOP3SD": 0b110101 << 26, "VOP3P": 0xCC << 24, "VOPD": 0b110010 << 26,
    "DS": 0b110110 << 26, "FLAT": 0xEC << 24, "SCRATCH": 0xED << 24, "GLOBAL": 0xEE << 24,
}  # fmt: skip
MODIFIERS = ("neg", "abs", "opsel", "neg_hi", "clamp", "omod")
SOURCES = (0, 5, 17, 104, 106, 108, 124, 125, 126, 128, 129, 192, 193, 208, 235, 240, 242, 247, 248, 253)
VECTORS = (256, 260, 300, 383, 500)
LITERALS = (0x12345678, 1, 0xFFFFFFFF, 0x3F800000, 0x3C00, 0x8000, 0xFFFFF000)
DPP16 = (0x1B, 0xE4, 0x101, 0x10F, 0x111, 0x121, 0x140, 0x141, 0x150, 0x161)
# What LLVM writes otherwise on purpose or by mistake, and why the disassembler does not.
EXCEPTIONS = {
    "s_version": "LLVM writes a sum of names; here it is the number",
    "v_fmac_f16": "LLVM counts the result as a source in op_sel",
    "v_cvt_pk_u8_f32": "LLVM leaves out the half of a 16-bit operand",
    "v_wmma_f16_16x16x16_f16": "a literal that no matrix operand can be",
}  # fmt: skip
WORDS = [
    *([0xBF870000 | n] for n in (0, 1, 5, 8, 9, 11, 15, 0x10, 0x70, 0x80, 0x91, 0x1A1, 0x2A5)),
    *([0xBF880000 | n] for n in (0, 0xFFFF, 0xFF9F, 0xFF9E, 0xFF9D, 0xFF9B, 0xFF1F, 0xFE9F, 0xF19F, 0x0F9F)),
    *([0xBF890000 | n] for n in (0, 0xFFFF, 0xFFF0, 0xFC07)),
    *([0xBFB60000 | n] for n in (1, 2, 3, 5, 9, 0x80, 0xFF, 0x1FF)),
    *([0xBE804C00 | n] for n in (128, 129, 130, 131, 132, 133, 134, 135, 136, 255)),
    *([0xB880F800 | n] for n in (0, 1, 2, 7, 16, 24, 29, 32)), [0xB88020C1], [0xB98020C1, 0x1234], [0xB98020C1, 1],
    *([0xD8D40000 | n, 5] for n in (0, 1, 0x1F, 0x41F, 0x401F, 0x7C1F, 0xC1F, 0x3E0, 0x1E, 0x38, 0x17, 0x81B, 0x100F,
                                    0x8000, 0x801B, 0xC000)),
    *([base, scope << 18 | hint << 20, 0] for base in (0xEE05007C, 0xEE06807C, 0xEE0D407C) for scope in (0, 3)
      for hint in (3, 4, 5, 7)),
    *([0xF4000000 | scope << 21 | hint << 23, 0xF8000000] for scope in (1, 2, 3) for hint in (0, 1, 3)),
    *([0xBF830000 | n] for n in (63, 64, 65, 0xFFFF)), [0xBE8047FF], [0xFFFFFFFF],
]  # fmt: skip


def lines_of(path: Path) -> list[str]:
    assert OBJDUMP
    command = [OBJDUMP, "-d", "-z", "--mcpu=gfx1201", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def texts_of(samples: Sequence[Sequence[int]], folder: Path) -> list[tuple[str, int]]:
    """LLVM's text of each sample and the words it took."""
    slots = [[*words, *[NOP] * (SLOT - len(words))] for words in samples]
    rows = "\n".join(f".long {', '.join(map(hex, slot))}" for slot in slots)
    path = folder / "samples.hsaco"
    path.write_bytes(assemble(f".text\n.globl samples\n.p2align 8\n.type samples,@function\nsamples:\n{rows}\n"))
    found = {int(m[2], 16): (m[1], len(m[3].split())) for line in lines_of(path) if (m := LINE.match(line))}
    first = min(found)
    return [found[first + 4 * SLOT * i] for i in range(len(samples))]


def value_of(key: str, width: int, fmt: str, rng: random.Random) -> int:
    """A field that is likely to be valid."""
    wide = width == 9
    if key in ("src0", "src1", "src2", "srcy0") and (wide or fmt.startswith("SOP")):
        return rng.choice((*SOURCES, *VECTORS * 2) if wide else SOURCES)
    if key in ("sdst", "saddr", "soffset", "sdata"):
        return rng.choice((0, 4, 16, 64, 106, 112, 124))
    if key.startswith("opsel_hi"):
        return rng.choice(((1 << width) - 1, rng.randrange(1 << width)))
    if key in ("scope", "th", "sve", "offset0", "offset1", "ioffset"):
        return rng.choice((0, rng.randrange(1 << width)))
    choices = {"sbase": (0, 1, 8), "simm16": (5, rng.randrange(1 << 16))}
    return rng.choice(choices.get(key, (0, 1, 5, 100, 120)))


def sample(fmt: str, op: int, kind: str, rng: random.Random) -> list[int]:
    """The words of one instruction. kind: plain, literal, dpp16, dpp8 or modified."""
    layout, row = LAYOUTS[fmt], operands(fmt).get(op, {})
    f = {key: value_of(key, width, fmt, rng) for key, (_, width) in layout.items()} | {"op": op}
    f |= {key: 0 for key in MODIFIERS if key in f}
    if fmt.startswith("VOP3"):
        f |= {key: 0 for key in ("src1", "src2") if key not in row}
    kept = [key for key in MODIFIERS if key in f]
    if kind == "modified" and kept:
        key = rng.choice(kept)
        f[key] = rng.randrange(1 << layout[key][1]) & (0b1111 if "src2" in row else 0b1011)
    literal = [k for k in ("src0", "src1", "src2", "srcy0") if k in f and (layout[k][1] == 9 or fmt.startswith("SOP"))]
    extra = rng.choice(LITERALS)
    if kind == "literal" and literal:
        f[rng.choice(literal)] = 255
    elif kind.startswith("dpp") and fmt.startswith("VOP") and fmt != "VOPD":
        f["src0"] = 250 if kind == "dpp16" else rng.choice((233, 234))
        extra = rng.randrange(100) | rng.randrange(1 << 24) << 8
        if kind == "dpp16":
            extra = extra & 0xFF0C00FF | rng.choice(DPP16) << 8
    bits = HEADS[fmt]
    for key, value in f.items():
        bits |= (value & (1 << layout[key][1]) - 1) << layout[key][0]
    count = max(low + width for low, width in layout.values()) + 31 >> 5
    return [*(bits >> 32 * i & 0xFFFFFFFF for i in range(count)), extra]


def samples(seed: int, kinds: Sequence[str]) -> Iterator[list[int]]:
    """One of every opcode and kind."""
    rng = random.Random(seed)
    for fmt in HEADS:
        for op in opcodes(fmt):
            for kind in kinds:
                yield sample(fmt, op, kind, rng)


def family(mnemonic: str) -> str:
    """What golden/ holds one sample of: encodings, comparisons and kinds of memory are taken together."""
    name = re.sub(r"_(e32|e64|dpp|e64_dpp)$", "", mnemonic)
    name = re.sub(r"^(v_cmpx?|s_cmp)_(?!class)\w+?_(\w?\d+)$", r"\1_\2", name)
    if name.startswith(("v_", "s_")):
        return name
    return re.sub(r"^(flat|global|scratch)_|(?<=[a-z])_\w?\d+$", "", name).replace("_rtn", "")


def agreed(text: str) -> bool:
    """Whether LLVM took the sample for a valid instruction and writes it without a known fault."""
    name = re.sub(r"_(e32|e64|dpp|e64_dpp)$", "", text.split()[0])
    return not text.startswith(".long") and "nvalid" not in text and name not in EXCEPTIONS


def write_golden(folder: Path) -> None:
    """instructions.txt: text and words of one sample of most opcodes. control.txt: a whole function."""
    assert OBJDUMP
    GOLDEN.mkdir(exist_ok=True)
    kinds = ("plain", "literal", "dpp16", "dpp8", "modified")
    chosen: dict[str, str] = {}
    every = [*samples(7, kinds), *samples(8, kinds)]
    special = [(words, *found) for words, found in zip(WORDS, texts_of(WORDS, folder), strict=True)]
    rows = [row(words, text, count) for words, text, count in special]
    rng = random.Random(9)
    found = list(zip(every, texts_of(every, folder), strict=True))
    rng.shuffle(found)
    for words, (text, count) in found:
        short = family(text.split()[0])
        if agreed(text) and short not in chosen:
            chosen[short] = row(words, text, count)
    rows += [chosen[name] for name in sorted(chosen)]
    (GOLDEN / "instructions.txt").write_text("\n".join(rows) + "\n")
    path = folder / "control.hsaco"
    path.write_bytes(code_object("control"))
    text = "\n".join(lines_of(path))
    wanted = [part for part in text.split("\n\n") if re.match(r"[0-9a-f]{16} <collatz>:", part)]
    (GOLDEN / "control.txt").write_text("\n\n".join(wanted) + "\n")


def row(words: Sequence[int], text: str, count: int) -> str:
    return f"{text} // {' '.join(f'{word:08X}' for word in words[:count])}"


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as work:
        write_golden(Path(work))
