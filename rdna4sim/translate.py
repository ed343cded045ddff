"""A code object to one C file: one function for each kernel, a table of them at the end.

Owns: basic blocks, branches, calls, the state a wave starts with, and the order in which semantics modules are asked.
The C is compiled against include/; what it needs at run time comes through the Runtime table of sim.h.

The file is not trusted, and a compiler reads this text: nothing of the file but numbers gets into it. Names are given
as their places in the file (`name_of`), numbers pass `whole_numbers`, and a refusal's reason is text of our own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .decode import Inst, decode_range
from .elf import CodeObject, Kernel, Symbol, whole
from .emit import Body
from .errors import BadFile, Unsupported
from .semantics import memory, packed, scalar, vector

BRANCHES = {
    "s_branch": "1", "s_cbranch_scc0": "!scc", "s_cbranch_scc1": "scc", "s_cbranch_vccz": "!s106",
    "s_cbranch_vccnz": "s106",
    "s_cbranch_execz": "!exec", "s_cbranch_execnz": "exec",
}  # fmt: skip
ENDS = ("s_endpgm", "s_endpgm_saved")
JUMPS = ("s_setpc_b64", "s_swappc_b64", "s_call_b64")
# User SGPRs in the order of the code-property bits: (bit, what, registers).
USER_SGPRS = (
    (0, "buffer", 4),
    (1, "dispatch", 2),
    (2, "queue", 2),
    (3, "kernarg", 2),
    (4, "id", 2),
    (5, "scratch", 2),
    (6, "size", 1),
)
TTMP_X, TTMP_YZ = 108 + 9, 108 + 7
COUNT_CLASS = {"SOP1": "SALU", "SOP2": "SALU", "SOPC": "SALU", "SOPK": "SALU", "SMEM": "SMEM", "DS": "LDS",
               "GLOBAL": "VMEM", "FLAT": "VMEM", "SCRATCH": "VMEM"}  # fmt: skip
TRANSCENDENTAL = re.compile(r"v_(s_)?(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos)_f(16|32)")
# Cycles of a 16x16 WMMA on a SIMD: 1024 operations a cycle and compute unit (two SIMDs) with 16-bit elements, twice as
# many with 8-bit ones, four times with 4-bit ones (AMD's figures for RDNA 4). An instruction does 2 * 16 * 16 * K.
WMMA_RATE = {"f16": 512, "bf16": 512, "iu8": 1024, "fp8": 1024, "bf8": 1024, "iu4": 2048}


MOST_WORDS = 1 << 19
"""Words of machine code, 4 bytes each, that are translated for one file; functions that kernels call count for each."""


class Budget:
    """The words that may still be translated for one file."""

    def __init__(self, words: int = MOST_WORDS) -> None:
        self.left = words

    def spend(self, size: int) -> None:
        """Takes `size` bytes of machine code. Raises BadFile when that is more than is left."""
        self.left -= size + 3 >> 2
        if self.left < 0:
            raise BadFile(f"more than {MOST_WORDS} words of machine code to translate, too much for one file")


@dataclass(frozen=True)
class Variant:
    """What is compiled in: weak memory, counters."""

    weak: bool = False
    counters: bool = False

    @property
    def name(self) -> str:
        return ("weak" if self.weak else "plain") + ("-counters" if self.counters else "")

    @classmethod
    def named(cls, name: str) -> Variant:
        """The variant of this name: plain, weak, plain-counters, weak-counters."""
        return cls(name.startswith("weak"), name.endswith("-counters"))


def count_class(inst: Inst) -> str:
    """The counter that an instruction belongs to."""
    name = inst.name
    if name in JUMPS or (inst.fmt == "SOPP" and "branch" in name):
        return "BRANCH"
    if name == "s_barrier_wait":
        return "BARRIER"
    if inst.fmt == "SOPP" or name.startswith("s_barrier"):
        return "WAIT" if name.startswith("s_wait") else "OTHER"
    if "wmma" in name:
        return "WMMA"
    return COUNT_CLASS.get(inst.fmt, "VALU")


def wmma_cycles(name: str) -> int:
    """Cycles that a WMMA or SWMMAC instruction keeps its SIMD busy; a sparse one does twice the work in the time."""
    shape = re.fullmatch(r"v_s?wmma\w*?_16x16x(\d+)_([a-z]+\d+)\w*", name)
    if not shape:
        return 16
    sparse = 2 if "swmmac" in name else 1
    return max(1, 2 * 16 * 16 * int(shape[1]) // (WMMA_RATE.get(shape[2], 512) * sparse))


def counts_of(run: list[Inst]) -> dict[str, int]:
    """What a block adds to the counters each time it runs: counter to number."""
    counts: dict[str, int] = {}
    for inst in run:
        what = count_class(inst)
        counts[what] = counts.get(what, 0) + 1
        if what == "WMMA":
            counts["WMMA_CYCLES"] = counts.get("WMMA_CYCLES", 0) + wmma_cycles(inst.name)
        if TRANSCENDENTAL.match(inst.name):
            counts["TRANS"] = counts.get("TRANS", 0) + 1
    return counts


def functions_of(code: CodeObject, kernel: Kernel, budget: Budget) -> list[Inst]:
    """The kernel's instructions and, if it calls, those of every function in the file that is no kernel."""
    budget.spend(kernel.size)
    found = decode_range(code.code(kernel.entry, kernel.size), kernel.entry)
    if any(inst.name in JUMPS for inst in found):
        entries = {k.entry for k in code.kernels}
        sizes: dict[int, int] = {}
        for symbol in code.symbols:
            if symbol.kind == 2 and symbol.address not in entries and symbol.size:
                sizes[symbol.address] = max(symbol.size, sizes.get(symbol.address, 0))
        for address, size in sizes.items():
            budget.spend(size)
            found += decode_range(code.code(address, size), address)
        check_apart(found)
    return found


def check_apart(instructions: list[Inst]) -> None:
    """Raises Unsupported where functions overlap: an address would mean two instructions."""
    end, function = 0, 0
    for inst in sorted(instructions, key=lambda inst: inst.address):
        if inst.address < end:
            raise Unsupported(f"functions overlap: instructions at {function:#x} and {inst.address:#x}")
        end, function = inst.address + inst.size, inst.address


def leaders(instructions: list[Inst], entry: int) -> set[int]:
    """Addresses where a basic block starts."""
    known = {inst.address for inst in instructions}
    found, expected = {entry}, entry
    for inst in instructions:
        if inst.address != expected:
            found.add(inst.address)
        expected = inst.address + inst.size
        if inst.name in BRANCHES or inst.name == "s_call_b64":
            if inst.target not in known:
                raise Unsupported(
                    f"{inst.name} at {inst.address:#x} goes to {inst.target:#x}, which is no instruction of the kernel"
                )
            found.add(inst.target)
        if inst.name in BRANCHES or inst.name in JUMPS or inst.name in ENDS:
            found.add(expected)
    return found & known


def slice_over(inst: Inst) -> str:
    """C that lets other waves run, and the limit of instructions be looked at, where a loop may come round."""
    return f"if (UNLIKELY(ic >= w->slice_end)) YIELD(YIELD_SLICE, {inst.address:#x});"


def jump(body: Body, inst: Inst) -> None:
    """Calls and returns: the program counter chooses a block. They can make a loop as branches can."""
    after = inst.address + inst.size
    body.line(slice_over(inst))
    if inst.name == "s_call_b64":
        body.write_scalar(inst.f["sdst"], "q", f"w->code + {after:#x}")
        body.line(f"goto L_{inst.target:x};")
        return
    body.line(f"jump_to = {body.scalar(inst.f['src0'], 'q')}; w->pc = {inst.address:#x};")
    if inst.name == "s_swappc_b64":
        body.write_scalar(inst.f["sdst"], "q", f"w->code + {after:#x}")
    body.line("goto dispatch;")


def instruction(body: Body, inst: Inst) -> None:
    """C for one instruction, behind the check of weak memory mode that its registers have landed."""
    body.inst = inst
    body.touched_v, body.touched_s = set(), set()
    start = len(body.lines)
    if inst.name in ENDS:
        body.line("goto end;")
    elif inst.name in BRANCHES:
        if "vcc" in inst.name:
            body.s(106)
        if inst.target <= inst.address:
            body.line(f"if ({BRANCHES[inst.name]}) {{ {slice_over(inst)} goto L_{inst.target:x}; }}")
        else:
            body.line(f"if ({BRANCHES[inst.name]}) goto L_{inst.target:x};")
    elif inst.name in JUMPS:
        jump(body, inst)
    elif not any(module.emit(body, inst) for module in (scalar, vector, packed, memory)):
        raise Unsupported(f"{inst.name} at {inst.address:#x} is not translated")
    if body.weak:
        tests = []
        for array, touched in (("v", body.touched_v), ("s", body.touched_s)):
            words: dict[int, int] = {}
            for register in touched:
                words[register >> 5] = words.get(register >> 5, 0) | 1 << (register & 31)
            tests += [f"(w->{array}_pending[{word}] & {mask:#x}u)" for word, mask in sorted(words.items())]
        if tests:
            fault = f"w->rt->fault(w, FAULT_REGISTER_PENDING, {inst.address:#x}, 0, 0, 0)"
            body.lines.insert(start, f"  if (UNLIKELY({' | '.join(tests)})) {fault};")


def blocks(body: Body, instructions: list[Inst], entry: int) -> list[int]:
    """C for all basic blocks; returns the addresses they start at."""
    starts = leaders(instructions, entry)
    index = 0
    while index < len(instructions):
        end = index + 1
        while end < len(instructions) and instructions[end].address not in starts:
            end += 1
        run = instructions[index:end]
        body.lines.append(f"L_{run[0].address:x}: __attribute__((unused));")
        body.line(f"ic += {len(run)};")
        if body.counters:
            body.line(" ".join(f"COUNT(w, COUNT_{what}, {n});" for what, n in sorted(counts_of(run).items())))
        for inst in run:
            instruction(body, inst)
        if run[-1].address + run[-1].size not in starts and run[-1].name not in (*ENDS, "s_branch", *JUMPS):
            body.line(f"w->rt->fault(w, FAULT_END, {run[-1].address:#x}, 0, 0, 0);")
        index = end
    return sorted(starts)


def initial_sgprs(kernel: Kernel) -> dict[int, str]:
    """Scalar registers that hold something at the start."""
    if not kernel.properties >> 10 & 1:
        raise Unsupported("it is built for 64 lanes a wave; only 32 are translated")
    if kernel.preload:
        raise Unsupported("it wants its arguments preloaded into registers, which is not modelled")
    values: dict[int, str] = {TTMP_X: "w->group_x", TTMP_YZ: "w->group_yz"}
    at = 0
    for bit, what, count in USER_SGPRS:
        if not kernel.properties >> bit & 1:
            continue
        source = {"dispatch": "w->dispatch", "kernarg": "w->kernarg", "size": str(kernel.scratch_bytes)}.get(
            what, "0ull"
        )
        for i in range(count):
            values[at + i] = f"(u32)({source}{' >> 32' if i == 1 else ''})" if i < 2 else "0"
        at += count
    return values


def prologue(body: Body, kernel: Kernel) -> list[str]:
    """Declarations of registers; what the launch sets, the rest poisoned by seed."""
    initial = initial_sgprs(kernel)
    lines = [
        "  u32 exec = w->exec, scc = 0, m0 = poison(w->seed, 125);"
        " u64 ic = w->instructions, jump_to = 0; (void)jump_to;"
    ]
    if body.weak:
        lines.append("  weak_registers(w);")
        lines += [f"  w->s[{n}] = {text};" for n, text in sorted(initial.items())]
        lines.append("  w->v[0] = *(const V *)w->vid;")
        return lines
    for n in sorted(body.sgprs):
        lines.append(f"  u32 s{n} = {initial.get(n, f'poison(w->seed, {n})')}; (void)s{n};")
    for n in sorted(body.vgprs):
        lines.append(f"  V v{n} = {'*(const V *)w->vid' if n == 0 else f'SP(poison(w->seed, {256 + n}))'}; (void)v{n};")
    return lines


def indexed_macros(body: Body) -> list[str]:
    """GET_INDEXED and SET_INDEXED over the registers of this kernel."""
    if body.weak:
        count = max(body.vgprs) + 1
        test = (
            f"if ((i) >= {count}u) w->rt->fault(w, FAULT_INDEX, at, 0, (u64)(i), 0);"
            " if (w->v_pending[(i) >> 5] >> ((i) & 31) & 1) w->rt->fault(w, FAULT_REGISTER_PENDING, at, 0, 0, 0);"
        )
        return [
            "#undef GET_INDEXED", "#undef SET_INDEXED",
            f"#define GET_INDEXED(x, i, at) {{ {test} x = w->v[i]; }}",
            f"#define SET_INDEXED(i, x, at) {{ {test} w->v[i] = sel(exec, x, w->v[i]); }}",
        ]  # fmt: skip
    fault = "default: w->rt->fault(w, FAULT_INDEX, at, 0, (u64)(i), 0);"
    gets = " ".join(f"case {n}: x = v{n}; break;" for n in sorted(body.vgprs))
    sets = " ".join(f"case {n}: v{n} = sel(exec, x, v{n}); break;" for n in sorted(body.vgprs))
    return [
        "#undef GET_INDEXED", "#undef SET_INDEXED",
        f"#define GET_INDEXED(x, i, at) switch (i) {{ {gets} {fault} }}",
        f"#define SET_INDEXED(i, x, at) switch (i) {{ {sets} {fault} }}",
    ]  # fmt: skip


def end_fault(address: int) -> str:
    """For code that ends where no s_endpgm is, as compilers leave it behind what cannot be reached."""
    return f"  w->rt->fault(w, FAULT_END, {address:#x}, 0, 0, 0);"


def kernel_or_reason(
    code: CodeObject, kernel: Kernel, index: int, variant: Variant, budget: Budget
) -> tuple[list[str], int, str]:
    """As kernel_function, and an empty reason; or a function that is never called, and why the kernel cannot be run.

    One instruction that is not translated must not keep the file's other kernels from running.
    """
    try:
        return *kernel_function(code, kernel, index, variant, budget), ""
    except Unsupported as e:
        return [f"static void kernel_{index}(Wave *w) {{ (void)w; }}"], 0, str(e)


def kernel_function(
    code: CodeObject, kernel: Kernel, index: int, variant: Variant, budget: Budget
) -> tuple[list[str], int]:
    """The C function of one kernel and its number of access sites. Raises Unsupported, BadFile."""
    instructions = functions_of(code, kernel, budget)
    body = Body(variant.weak, variant.counters)
    uses_index = any(inst.name.startswith("v_movrel") for inst in instructions)
    starts = blocks(body, instructions, kernel.entry)
    if uses_index:
        body.vgprs.update(range(min(max(kernel.vgprs, 1), 256)))
    out: list[str] = []
    for name, text in sorted(body.functions.items()):
        out += [f"#ifndef HAS_{name}", f"#define HAS_{name}", text, "#endif"]
    for lanes, name in body.tables.items():
        out.append(f"static const i8 k{index}_{name}[32] = {{{', '.join(map(str, lanes))}}};")
        out.append(f"#define {name} k{index}_{name}")
    if variant.weak:
        out += [f"#define v{n} (w->v[{n}])" for n in sorted(body.vgprs)] + [
            f"#define s{n} (w->s[{n}])" for n in sorted(body.sgprs)
        ]
    if uses_index:
        out += indexed_macros(body)
    out.append(f"static void kernel_{index}(Wave *w) {{")
    out += prologue(body, kernel)
    out.append(f"  goto L_{kernel.entry:x};" if kernel.entry in starts else end_fault(kernel.entry))
    out += body.lines
    if any(inst.name in ("s_setpc_b64", "s_swappc_b64") for inst in instructions):
        out.append("dispatch: switch (jump_to - w->code) {")
        out += [f"  case {address:#x}: goto L_{address:x};" for address in starts]
        out.append("  default: w->rt->fault(w, FAULT_PC, w->pc, 0, jump_to, 0); }")
    out.append("end: w->instructions = ic;")
    out.append("}")
    if variant.weak:
        out += [f"#undef v{n}" for n in sorted(body.vgprs)] + [f"#undef s{n}" for n in sorted(body.sgprs)]
    out += [f"#undef {name}" for name in body.tables.values()]
    return out, body.sites


def reason_text(why: str) -> str:
    """The reason of a refusal, which this package words, as a C string; `0` for none. What is not plain becomes `_`."""
    plain = re.sub(r"[^A-Za-z0-9_ .,:;()+-]", "_", why)
    return f'"{plain}"' if plain else "0"


def whole_numbers(*values: int) -> str:
    """Numbers of the file, with commas between. Raises BadFile for anything else: it would become part of a program."""
    if not all(whole(value) and 0 <= value < 1 << 64 for value in values):
        raise BadFile(f"{values} are not all whole numbers of 64 bits")
    return ", ".join(f"{value:#x}ull" for value in values)


def name_of(named: Kernel | Symbol) -> str:
    """The place of a name in the file, as a SimName."""
    return f"{{{whole_numbers(named.name_at, named.name_bytes)}}}"


HIDDEN = {"hidden_dynamic_lds_size": "ARG_DYNAMIC_LDS", "hidden_grid_dims": "ARG_DIMENSIONS"}
for _name, _kind in (("block_count", "BLOCKS"), ("group_size", "GROUP_SIZE"), ("remainder", "REMAINDER")):
    HIDDEN |= {f"hidden_{_name}_{axis}": f"ARG_{_kind} + {i}" for i, axis in enumerate("xyz")}


def table_of(name: str, kind: str, rows: list[str]) -> list[str]:
    """A constant array that may be empty."""
    return [f"static const {kind} {name}[] = {{", *(f"  {{{row}}}," for row in rows or ["0"]), "};"]


def argument_rows(kernel: Kernel) -> list[str]:
    """Offset, size and kind of each argument, bounds checked against the kernel's argument bytes."""
    rows = []
    for arg in kernel.args:
        offset, size, kind = arg.get(".offset", -1), arg.get(".size", -1), str(arg.get(".value_kind", ""))
        if not (whole(offset) and whole(size)) or not 0 <= offset <= offset + size <= kernel.kernarg_bytes:
            raise BadFile(f"kernel {kernel.name}: an argument lies outside its {kernel.kernarg_bytes} argument bytes")
        what = HIDDEN.get(kind, "ARG_HIDDEN_ZERO") if kind.startswith("hidden_") else "ARG_VALUE"
        rows.append(f"{whole_numbers(offset, size)}, {what}")
    return rows


def module_table(code: CodeObject, sites: list[int], reasons: list[str]) -> str:
    """The tables that the stand-in reads: kernels, arguments, segments, symbols, relocations."""
    lines, rows = [], []
    for index, (kernel, count, why) in enumerate(zip(code.kernels, sites, reasons, strict=True)):
        arguments = argument_rows(kernel)
        lines += table_of(f"args_{index}", "SimArg", arguments)
        numbers = whole_numbers(
            count, kernel.entry, kernel.lds_bytes, kernel.scratch_bytes, kernel.kernarg_bytes, kernel.max_threads,
            kernel.vgprs, kernel.sgprs, kernel.rsrc1 >> 29 & 1, len(arguments),
        )  # fmt: skip
        rows.append(f"{name_of(kernel)}, kernel_{index}, {reason_text(why)}, {numbers}, args_{index}")
    end = max((address + in_memory for address, _, _, in_memory in code.segments), default=0)
    placed = [s for s in code.symbols if s.address + s.size <= end]
    variables = [s for s in placed if s.kind == 1 and s.section and not s.name.endswith(".kd")]
    functions = [s for s in placed if s.kind == 2]
    tables = {
        "kernels": ("SimKernel", rows),
        "segments": ("SimSegment", [whole_numbers(*segment) for segment in code.segments]),
        "variables": ("SimSymbol", [f"{name_of(s)}, {whole_numbers(s.address, s.size)}" for s in variables]),
        "functions": ("SimSymbol", [f"{name_of(s)}, {whole_numbers(s.address, s.size)}" for s in functions]),
        "relocations": ("SimRelocation", [whole_numbers(*relocation) for relocation in code.relocations()]),
    }
    for name, (kind, entries) in tables.items():
        lines += table_of(name, kind, entries)
    counts = ", ".join(str(len(entries)) for _, entries in tables.values())
    lines.append(f"const SimModule sim_module = {{ABI_VERSION, {counts}, {', '.join(tables)}}};")
    return "\n".join(lines) + "\n"


def translate(code: CodeObject, variant: Variant) -> list[str]:
    """C sources of a code object's kernels, one text each, and the table as the last one."""
    if not code.kernels:
        raise BadFile("the file holds no kernel")
    texts, sites, reasons = [], [], []
    budget = Budget()
    for index, kernel in enumerate(code.kernels):
        lines, count, why = kernel_or_reason(code, kernel, index, variant, budget)
        texts.append("\n".join(lines) + "\n")
        sites.append(count)
        reasons.append(why)
    return [*texts, module_table(code, sites, reasons)]


def preamble(variant: Variant) -> str:
    """What every C source starts with."""
    defines = [f"#define SIM_{what}" for what, on in (("WEAK", variant.weak), ("COUNTERS", variant.counters)) if on]
    return "\n".join([*defines, '#include "sim_kernel.h"']) + "\n"
