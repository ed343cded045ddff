"""What a code object holds, as data and as text: target, segments, kernels with their needs and arguments.

Owns: the keys of `rdna4sim info --json` and the layout of the text.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from .decode import Inst
from .disasm import functions, printable, scan
from .elf import CodeObject, Kernel, whole
from .errors import SimError
from .translate import Budget, Variant, count_class, kernel_function

WAVE32 = 1 << 10
CLASSES = ("VALU", "SALU", "VMEM", "SMEM", "LDS", "WMMA", "WAIT", "BRANCH", "BARRIER", "OTHER", "unknown")


def explicit_arguments(kernel: Kernel) -> list[dict[str, Any]]:
    """The arguments that the host passes, in order: offset and size in bytes, kind, name and type (may be empty)."""
    found = []
    for arg in kernel.args:
        offset, size, kind = arg.get(".offset"), arg.get(".size"), str(arg.get(".value_kind", ""))
        if whole(offset) and whole(size) and not kind.startswith("hidden_"):
            texts = {key: printable(str(arg.get(f".{key}", ""))) for key in ("name", "type_name")}
            found.append({"offset": offset, "size": size, "kind": printable(kind), **texts})
    return found


def class_of(inst: Inst | None) -> str:
    return "unknown" if inst is None else count_class(inst)


def refusal(code: CodeObject, kernel: Kernel, budget: Budget) -> str:
    """Why this kernel cannot be run, with the address of the instruction; empty if it can."""
    try:
        kernel_function(code, kernel, 0, Variant(), budget)
    except SimError as e:
        return printable(str(e))
    except Exception as e:  # A damaged file that nobody thought of; `run` says the same.
        return printable(f"the translator failed: {type(e).__name__}: {e}")
    return ""


def describe_kernel(code: CodeObject, kernel: Kernel, size: int, budget: Budget) -> dict[str, Any]:
    """size: bytes of its code."""
    counts = Counter(class_of(inst) for _, inst, _ in scan(code.code(kernel.entry, size), kernel.entry))
    hidden = [str(arg.get(".value_kind", "")) for arg in kernel.args]
    return {
        "name": kernel.name,
        "entry": kernel.entry,
        "code_bytes": size,
        "lds_bytes": kernel.lds_bytes,
        "scratch_bytes": kernel.scratch_bytes,
        "argument_bytes": kernel.kernarg_bytes,
        "vgprs": kernel.vgprs,
        "sgprs": kernel.sgprs,
        "max_threads": kernel.max_threads,
        "wave_size": 32 if kernel.properties & WAVE32 else 64,
        "instructions": {name: counts[name] for name in CLASSES if counts[name]},
        "refused": refusal(code, kernel, budget),
        "arguments": explicit_arguments(kernel),
        "hidden_arguments": sum(kind.startswith("hidden_") for kind in hidden),
    }


def describe(code: CodeObject) -> dict[str, Any]:
    """Everything, ready for JSON. Sizes and addresses are bytes."""
    sizes = {symbol.address: symbol.size for symbol in functions(code)}
    budget = Budget()
    target = code.metadata.get("amdhsa.target")
    return {
        "processor": code.processor,
        "target": printable(target) if isinstance(target, str) else "",
        "file_bytes": len(code.data),
        "segments": [
            {"address": address, "offset": offset, "file_bytes": in_file, "memory_bytes": in_memory}
            for address, offset, in_file, in_memory in code.segments
        ],
        "kernels": [describe_kernel(code, k, sizes.get(k.entry, k.size), budget) for k in code.kernels],
    }


WIDEST = 40


def table(rows: list[list[Any]], right: int, indent: str = "  ") -> list[str]:
    """Rows of one width in columns; the first `right` columns are numbers and stand to the right.

    No column is wider than WIDEST for a cell of a file that is: that one sticks out."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [min(WIDEST, max(len(row[i]) for row in texts)) for i in range(len(texts[0]))]
    lines = []
    for row in texts:
        cells = [c.rjust(w) if i < right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def as_text(name: str, about: dict[str, Any]) -> str:
    """The description for a person."""
    lines = [f"{printable(name)}: {about['target'] or about['processor']}, {about['file_bytes']} bytes", "", "segments"]
    rows: list[list[Any]] = [["address", "offset", "in file", "in memory"]]
    for s in about["segments"]:
        rows.append([f"{s['address']:#x}", f"{s['offset']:#x}", s["file_bytes"], s["memory_bytes"]])
    lines += table(rows, 4)
    for k in about["kernels"]:
        counts = k["instructions"]
        lines += ["", f"kernel {printable(k['name'])}"]
        explicit, hidden = len(k["arguments"]), k["hidden_arguments"]
        facts = {
            "entry": f"{k['entry']:#x}, {k['code_bytes']} bytes of code",
            "LDS": f"{k['lds_bytes']} bytes a workgroup",
            "scratch": f"{k['scratch_bytes']} bytes a lane",
            "registers": f"{k['vgprs']} VGPRs, {k['sgprs']} SGPRs",
            "threads": f"at most {k['max_threads']} a workgroup, {k['wave_size']} a wave",
            "instructions": f"{sum(counts.values())}: " + ", ".join(f"{n} {what}" for what, n in counts.items()),
            "arguments": f"{k['argument_bytes']} bytes: {explicit} given by the host, {hidden} hidden",
        }
        if k["refused"]:
            facts["cannot run"] = k["refused"]
        lines += table([[name, text] for name, text in facts.items()], 0)
        rows = [["#", "offset", "size", "kind", "name"]]
        for i, a in enumerate(k["arguments"]):
            rows.append([i, a["offset"], a["size"], a["kind"], " ".join(filter(None, (a["type_name"], a["name"])))])
        lines += table(rows, 3, "    ") if k["arguments"] else []
    if not about["kernels"]:
        lines += ["", "no kernels"]
    return "\n".join(lines) + "\n"
