"""Checks that modules of ie/ import only what stands above them and never in a circle, that the core needs numpy and
cffi alone, and that ie and the simulator do not know one another.

Owns: the order of the modules (ORDER) and what each may import from outside (CORE, CORE_PACKAGES).
The order is the pipeline: data flows downwards, so a module never needs to know what comes after it.
Exits 1 with one line per offence.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# A name is a module or a room (a package) right below ie/, in the order in which data flows.
ORDER = [
    "errors",
    "paths",
    "machine",
    "settings",
    "native",
    "formats",
    "gguf",
    "tokenizer",
    "ops",
    "program",
    "model",
    "devices",
    "sample",
    "engine",
    "draft",
    "measure",
    "api",
    "serve",
    "cli",
]
# Load, plan, run and greedy choice. tokenizer, serve and cli may use more, imported inside functions.
CORE = set(ORDER) - {"tokenizer", "serve", "cli"}
CORE_PACKAGES = {"numpy", "cffi"}


def unit_of(path: Path, package: Path) -> str:
    """The name in ORDER that a file belongs to; empty for ie/__init__.py itself."""
    first = path.relative_to(package).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def imports(tree: ast.Module, path: Path, package: Path) -> Iterator[tuple[int, str, bool]]:
    """(line, dotted name, at run time) of every import, relative ones made absolute, typing-only ones marked."""
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    here = (package.name, *path.relative_to(package).with_suffix("").parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, id(node) not in typing_only
        elif isinstance(node, ast.ImportFrom):
            base = list(here[: len(here) - node.level]) if node.level else []
            module = ".".join(base + ([node.module] if node.module else []))
            yield node.lineno, module, id(node) not in typing_only
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}", id(node) not in typing_only


def offences(package: Path) -> list[str]:
    """One line for each import that breaks the order, and for each module missing from ORDER."""
    found = []
    for path in sorted(package.rglob("*.py")):
        unit = unit_of(path, package)
        where = path.relative_to(package.parent)
        if unit and unit not in ORDER:
            found.append(f"{where}: {unit} has no place in ORDER of scripts/check_imports.py")
            continue
        seen: set[tuple[int, str]] = set()
        for line, name, at_run_time in imports(ast.parse(path.read_text(), str(path)), path, package):
            parts = name.split(".")
            if parts[0] == package.name and len(parts) > 1 and parts[1] in ORDER:
                target = parts[1]
                wrong = not unit or ORDER.index(target) > ORDER.index(unit)
                reason = f"imports {package.name}.{target}, which stands below it"
            else:
                target = parts[0]
                external = target not in sys.stdlib_module_names and target not in (package.name, "__future__")
                wrong = external and at_run_time and (not unit or unit in CORE) and target not in CORE_PACKAGES
                reason = f"imports {target}, and the core may import only {' and '.join(sorted(CORE_PACKAGES))}"
            if wrong and (line, target) not in seen:
                seen.add((line, target))
                found.append(f"{where}:{line}: {unit or package.name} {reason}")
    return found


def circles(package: Path) -> list[str]:
    """One line for each circle of modules that import one another while they are loaded, in whatever room."""
    modules = {
        ".".join(p.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__"): p
        for p in package.rglob("*.py")
    }
    uses: dict[str, set[str]] = {}
    for name, path in modules.items():
        tree = ast.parse(path.read_text())
        loaded = ast.Module([n for n in tree.body if not isinstance(n, ast.FunctionDef | ast.ClassDef)], [])
        found = {target for _, target, at_run_time in imports(loaded, path, package) if at_run_time}
        uses[name] = {m for m in found if m in modules and not f"{name}.".startswith(f"{m}.")}  # its rooms are open
    state: dict[str, int] = {}
    out: list[str] = []

    def visit(name: str, trail: list[str]) -> None:
        if state.get(name) == 1:
            out.append("circle of imports: " + " > ".join([*trail[trail.index(name) :], name]))
        if name in state:
            return
        state[name] = 1
        for other in sorted(uses[name]):
            visit(other, [*trail, name])
        state[name] = 2

    for name in sorted(modules):
        visit(name, [])
    return out


def strangers(package: Path, other: str) -> list[str]:
    """One line for each import of `other` in a package."""
    found = []
    for path in sorted(package.rglob("*.py")):
        names = {(line, name.split(".")[0]) for line, name, _ in imports(ast.parse(path.read_text()), path, package)}
        where = path.relative_to(package.parent)
        found += [f"{where}:{line}: {package.name} imports {other}" for line, name in sorted(names) if name == other]
    return found


def main() -> int:
    found = offences(ROOT / "ie") + circles(ROOT / "ie")
    found += strangers(ROOT / "ie", "rdna4sim") + strangers(ROOT / "rdna4sim", "ie")
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
