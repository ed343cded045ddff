"""Checks that every generated file and page is what its generator writes now.

Owns: the list of generators. Each has a `--check` mode that writes nothing, names what differs and exits 1.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GENERATORS = ("scripts/write_generated.py",)


def main() -> int:
    worst = 0
    for script in GENERATORS:
        status = subprocess.run([sys.executable, script, "--check"], cwd=ROOT).returncode
        if status:
            print(f"{script}: out of date; run: make docs", file=sys.stderr)
        worst = max(worst, abs(status))
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
