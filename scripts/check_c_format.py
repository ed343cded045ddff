"""Checks that C is formatted as .clang-format says, by the clang-format of the Python package.

    python scripts/check_c_format.py           name what differs, exit 1
    python scripts/check_c_format.py --write   format the files

Owns: which files are formatted: all C in FOLDERS that is written by hand. Does not own the style (.clang-format).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from clang_format import get_executable

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.write_generated import FILES as GENERATED  # noqa: E402

FOLDERS = ("core_laws", "kernels_c", "tests/cpu")
MAX_LINE = 120  # of comments too, which clang-format leaves as they are


def files() -> list[Path]:
    """The C files that are formatted, sorted."""
    found = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.[ch]")))
    return [path for path in found if path.relative_to(ROOT).as_posix() not in GENERATED]


def long_lines(name: str, text: str) -> list[str]:
    """Places of lines that are too long."""
    lines = enumerate(text.splitlines(), 1)
    return [f"{name}:{i}: longer than {MAX_LINE}" for i, line in lines if len(line) > MAX_LINE]


def differing(paths: list[Path], write: bool = False) -> list[str]:
    """What is not formatted, as lines to print; with `write` it is formatted, and the rest is named."""
    found = []
    for path in paths:
        done = subprocess.run(
            [get_executable("clang-format"), "--style=file", str(path)], capture_output=True, text=True, encoding="utf8"
        )
        if done.returncode:
            return [f"{path}: {done.stderr.strip()}"]
        if write:
            path.write_text(done.stdout, encoding="utf8")
        elif done.stdout != path.read_text(encoding="utf8"):
            found.append(f"{path}: not formatted; run: python scripts/check_c_format.py --write")
        found += long_lines(str(path), done.stdout)
    return found


def main() -> int:
    if sys.argv[1:] not in ([], ["--write"]):
        print(f"check_c_format: unknown arguments {' '.join(sys.argv[1:])}; known: --write", file=sys.stderr)
        return 1
    found = differing(files(), bool(sys.argv[1:]))
    print("\n".join(found), end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
