"""Checks the house rules that no linter knows.

Owns: the limits and words below. Sizes of files and functions, where the environment may be read, words that
mark unfinished work, and documents that name files or flags which do not exist. Exits 1 with one line per offence.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 80
# A device is driver calls and nothing of a model; the engine is what callers see of steps that are made elsewhere.
SMALL_FILES = {"ie/devices/cpu.py": 150, "ie/engine/engine.py": 200}
# What is more than this belongs into a room.
MAX_TOP_FILES = 8
SOURCE_SUFFIXES = {".py", ".c", ".h", ".sh"}
# Tables of numbers are as long as they are.
LONG_FILES = {"ie/formats/iq_grids.py", "kernels_c/include/iq_grids.h", "LICENSE"}
UNFINISHED = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "X" * 3 + r"\b", "NotImplemented" + "Error")))
ENVIRONMENT = re.compile(r"\bos\.environ\b|\bgetenv\b|\bos\.putenv\b")
# The environment is read in one module. Tests and scripts set it for the processes that they start.
ENVIRONMENT_MODULE = "ie/paths.py"
ENVIRONMENT_SCOPE = ("ie/", "kernels_c/", "core_laws/")
# Text leaves the process in one module, where it is made safe for a terminal; entry.py has nothing else at hand yet.
WRITING_MODULES = ("ie/cli/console.py", "ie/cli/entry.py")
WRITING_SCOPE = ("ie/", "kernels_c/host/", "kernels_c/sample/")
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
# lost.c says one line when nothing else works any more.
WRITING_C = re.compile(r"\b(?:v?d?f?printf|perror|f?puts|fwrite|putchar)\s*\(|\bstd(?:out|err)\b|STD(?:OUT|ERR)_FILENO")
WRITING_C_FILES = {"kernels_c/host/lost.c"}
# The design says where things will stand; its paths and flags exist when the part that needs them does.
FORWARD_LOOKING = {"docs/design.md"}
# Flags of other programs that documents mention.
FOREIGN_FLAGS = {"--check", "--flag", "--list", "--no-build-isolation", "--no-deps", "--out"}
FOREIGN_FLAGS |= {"--format", "--rows", "--m", "--k"}  # of scripts/op_bench.py
FOREIGN_FLAGS |= {"--kernel", "--grid", "--block", "--lds", "--cooperative", "--repeat", "--json"}  # of rdna4sim
FOREIGN_FLAGS |= {"--target"}  # of clang
CODE_FOLDERS = ("ie/", "kernels_c/", "core_laws/", "scripts/", "tests/", "docs/", "tiny_models/", "benchmarks/")


def tracked_files(root: Path) -> list[str]:
    """Files that are or would be committed, as paths relative to the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(name for name in listed if (root / name).is_file())


def long_functions(name: str, text: str) -> Iterator[str]:
    """Functions of a Python file over the limit; of a C file, those that start and end in column one."""
    if name.endswith(".py"):
        for node in ast.walk(ast.parse(text, name)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    yield f"{name}:{node.lineno}: {node.name} has {length} lines, the limit is {MAX_FUNCTION_LINES}"
    elif name.endswith((".c", ".h")):
        start = 0
        for number, line in enumerate(text.splitlines(), 1):
            if line.rstrip().endswith("{") and not line[:1].isspace() and "(" in line:
                start = number
            elif line.startswith("}") and start:
                if number - start + 1 > MAX_FUNCTION_LINES:
                    length = number - start + 1
                    yield f"{name}:{start}: a function of {length} lines, the limit is {MAX_FUNCTION_LINES}"
                start = 0


def check_source(name: str, text: str) -> Iterator[str]:
    """Sizes, unfinished work and the environment in one source file."""
    lines = text.splitlines()
    limit = SMALL_FILES.get(name, MAX_FILE_LINES)
    if len(lines) > limit and name not in LONG_FILES:
        yield f"{name}: {len(lines)} lines, the limit is {limit}"
    if name not in LONG_FILES:
        yield from long_functions(name, text)
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line):
            yield f"{name}:{number}: unfinished work: {line.strip()[:80]}"
        if name.startswith(ENVIRONMENT_SCOPE) and name != ENVIRONMENT_MODULE and ENVIRONMENT.search(line):
            yield f"{name}:{number}: reads the environment, which only {ENVIRONMENT_MODULE} may"
    yield from writes(name, text)


def writes(name: str, text: str) -> Iterator[str]:
    """Places that write to stdout or stderr by themselves, as far as names tell."""
    if not name.startswith(WRITING_SCOPE) or name in WRITING_MODULES:
        return
    found: list[tuple[int, str]] = []
    if name.endswith(".py"):
        for node in ast.walk(ast.parse(text, name)):
            match node:
                case ast.Call(func=ast.Name(id="print")):
                    found.append((node.lineno, "print()"))
                case ast.Attribute(value=ast.Name(id="sys"), attr=attr) if attr in STREAMS:
                    found.append((node.lineno, f"sys.{attr}"))
                case ast.ImportFrom(module="sys", names=names) if STREAMS & {alias.name for alias in names}:
                    found.append((node.lineno, "an import of a stream"))
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="os"), attr="write"), args=[ast.Constant(value=1 | 2), *_]
                ):
                    found.append((node.lineno, "os.write()"))
                case ast.Attribute(value=ast.Name(id="traceback"), attr=attr) if attr.startswith("print_"):
                    found.append((node.lineno, f"traceback.{attr}"))
    elif name not in WRITING_C_FILES:
        code = re.sub(r"/\*.*?\*/", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL)
        found = [(n, m[0]) for n, line in enumerate(code.splitlines(), 1) for m in WRITING_C.finditer(line)]
    for number, what in found:
        yield f"{name}:{number}: {what}: only {WRITING_MODULES[0]} writes to stdout and stderr"


def code_spans(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of inline code and of lines in code blocks of a Markdown file."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield number, line
        else:
            for span in re.findall(r"`([^`]+)`", line):
                yield number, span


def check_document(root: Path, name: str, text: str, flags: Iterable[str]) -> Iterator[str]:
    """Links, paths and flags in one Markdown file that lead nowhere."""
    folder = (root / name).parent
    for number, line in enumerate(text.splitlines(), 1):
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            path = target.split("#")[0]
            if path and "://" not in path and not (folder / path).exists():
                yield f"{name}:{number}: link to {target}, which does not exist"
    if name in FORWARD_LOOKING:
        return
    known = set(flags) | FOREIGN_FLAGS
    for number, span in code_spans(text):
        for word in re.findall(r"[\w./-]+", span):
            path = word.rstrip(".")
            if path.startswith(CODE_FOLDERS) and not (root / path).exists():
                yield f"{name}:{number}: names {path}, which does not exist"
        for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", span):
            if flag not in known:
                yield f"{name}:{number}: names the flag {flag}, which no command has"


def offences(root: Path, flags: Iterable[str]) -> list[str]:
    """All offences in the files of a checkout."""
    found: list[str] = []
    flags, names = set(flags), tracked_files(root)
    top = [name for name in names if re.fullmatch(r"ie/[^/]+", name)]
    if len(top) > MAX_TOP_FILES:
        found.append(f"ie/: {len(top)} files at its top, the limit is {MAX_TOP_FILES}: {' '.join(top)}")
    for name in names:
        path = root / name
        if path.suffix in SOURCE_SUFFIXES:
            found += check_source(name, path.read_text())
        elif path.suffix == ".md":
            found += check_document(root, name, path.read_text(), flags)
    return found


def main() -> int:
    sys.path.insert(0, str(ROOT))
    from ie.cli import options

    found = offences(ROOT, options.all_flags())
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
