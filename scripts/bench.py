"""Runs ie-bench and keeps what it says as evidence: `python scripts/bench.py MODEL.gguf [ie-bench options]`.

Owns: the files benchmarks/MODEL.json. Each holds the machine, the commit, the command and ie-bench's own results with
every single sample; a run replaces the file. What a number is worth depends on what else the machine does meanwhile:
the load before the run is kept too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ie.machine import this_machine  # noqa: E402

COMMAND = "import sys; from ie.cli.bench import main; sys.exit(main())"


def commit() -> str:
    """The commit of the checkout, marked when files differ from it; empty outside of one."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    found = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "ie", "kernels_c", "core_laws")
    return f"{found}, with changes" if found and changed else found


def run(model: Path, words: Sequence[str]) -> dict[str, Any]:
    """Measures, and returns what the file will hold. CalledProcessError when ie-bench fails; it says why itself."""
    here = this_machine()
    load = os.getloadavg()[0]
    command = [sys.executable, "-c", COMMAND, str(model), *words, "-o", "json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    results = json.loads(done.stdout)
    for result in results:
        result["model_filename"] = model.name
    return {
        "machine": {"cpu": here.cpu_name, "cores": here.cores, "threads": here.threads, "arch": here.arch},
        "load_before": round(load, 2),
        "commit": commit(),
        "command": " ".join(["ie-bench", model.name, *words]),
        "results": results,
    }


def main(argv: Sequence[str]) -> int:
    if not argv or argv[0].startswith("-"):
        print("usage: bench.py MODEL.gguf [ie-bench options]", file=sys.stderr)
        return 1
    model = Path(argv[0])
    try:
        found = run(model, argv[1:])
    except subprocess.CalledProcessError as error:
        return error.returncode
    out = ROOT / "benchmarks" / f"{model.stem}.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for result in found["results"]:
        gbs = "" if result["weight_gbs"] is None else f"  {result['weight_gbs']:.1f} GB/s"
        print(f"{result['test']:<16} {result['avg_ts']:10.2f} ± {result['stddev_ts']:.2f} tok/s{gbs}")
    print(out.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
