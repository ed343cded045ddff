#!/usr/bin/env python3
"""Speed against llama.cpp: the two in turn, the same threads, medians and their ratio.

    python scripts/compare_llamacpp.py MODEL.gguf [MODEL.gguf …] --llama PYTHON [-t 2] [-p 512] [-n 64] [-d 0] [-r 5]

PYTHON is an interpreter that has llama-cpp-python, built for this processor (pip install llama-cpp-python builds it
from source; prebuilt wheels are often for AVX2 only). Each round runs one process of each; both warm up first and time
the prompt and the generation apart. Results with every sample go to benchmarks/compare/MODEL.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ie.machine import this_machine  # noqa: E402
from scripts.bench import COMMAND, commit  # noqa: E402

LLAMA = """
import json, sys, time
import llama_cpp
path, threads, n_prompt, n_gen, depth = sys.argv[1], *map(int, sys.argv[2:6])
model = llama_cpp.Llama(path, n_ctx=n_prompt + n_gen + depth + 64, n_batch=512, n_ubatch=512, flash_attn=True,
                        verbose=False, n_threads=threads, n_threads_batch=threads)
ids = [100 + i * 7 % 5000 for i in range(max(n_prompt, depth, 8))]
out = {}
if n_prompt:
    for warm in (True, False):
        model.reset()
        start = time.perf_counter()
        model.eval(ids[:n_prompt])
        out["prompt"] = n_prompt / (time.perf_counter() - start)
if n_gen:
    model.reset()
    model.eval(ids[: max(depth, 1)])
    model.eval([ids[0]])
    start = time.perf_counter()
    for i in range(n_gen):
        model.eval([ids[i % 8]])
    out["generation"] = n_gen / (time.perf_counter() - start)
out["version"] = llama_cpp.__version__
print(json.dumps(out))
"""


def run(words: list[str]) -> Any:
    """JSON that a command prints; its own error text when it fails."""
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"compare_llamacpp: {words[0]} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return json.loads(done.stdout.strip())


def ours(model: str, args: argparse.Namespace) -> dict[str, float]:
    """Tokens a second of one ie-bench process."""
    words = [sys.executable, "-c", COMMAND, model, "-p", str(args.p), "-n", str(args.n), "-d", str(args.d)]
    rows = run([*words, "-r", "1", "-t", str(args.t), "-o", "json"])
    return {"prompt" if row["n_prompt"] else "generation": row["samples_ts"][0] for row in rows}


def theirs(model: str, args: argparse.Namespace) -> dict[str, Any]:
    """The same of one llama.cpp process."""
    out: dict[str, Any] = run([args.llama, "-c", LLAMA, model, *(str(x) for x in (args.t, args.p, args.n, args.d))])
    return out


def compare(model: str, args: argparse.Namespace) -> dict[str, Any]:
    """All rounds of one model."""
    rounds = []
    for i in range(args.r):
        a, b = ours(model, args), theirs(model, args)
        rounds.append({"ie": a, "llama.cpp": b, "load": os.getloadavg()[0]})
        print(f"{Path(model).name} {i + 1}/{args.r}: ie {a}, llama.cpp {b}", file=sys.stderr)
    out: dict[str, Any] = {"rounds": rounds}
    for what in ("prompt", "generation"):
        if what in rounds[0]["ie"]:
            medians = {who: statistics.median(r[who][what] for r in rounds) for who in ("ie", "llama.cpp")}
            out[what] = {**medians, "ratio": medians["ie"] / medians["llama.cpp"]}
    return out


def table_row(name: str, found: dict[str, Any]) -> str:
    """The row of README's table that a result file stands behind."""
    cells = []
    for what in ("generation", "prompt"):
        r = found[what]
        cells += [f"{r['ie']:,.0f}", f"{r['llama.cpp']:,.0f}", f"{r['ratio']:.2f}×"]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--llama", required=True, metavar="PYTHON", help="interpreter with llama-cpp-python")
    for flag, default, text in (
        ("-t", 2, "threads"),
        ("-p", 512, "prompt tokens"),
        ("-n", 64, "generated tokens"),
        ("-d", 0, "tokens before the generation"),
        ("-r", 5, "rounds"),
    ):
        parser.add_argument(flag, type=int, default=default, help=f"{text} ({default})")
    args = parser.parse_args()
    here = this_machine()
    for model in args.models:
        result = compare(model, args)
        settings = {"threads": args.t, "prompt": args.p, "generated": args.n, "depth": args.d}
        result = {"machine": here.cpu_name, "cores": here.cores, "commit": commit(), "settings": settings, **result}
        out = ROOT / "benchmarks" / "compare" / f"{Path(model).stem}{f'-d{args.d}' if args.d else ''}.json"
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf8")
        for what in ("prompt", "generation"):
            if what in result:
                r, name = result[what], Path(model).name
                print(f"{name} {what}: ie {r['ie']:.1f}, llama.cpp {r['llama.cpp']:.1f} t/s: {r['ratio']:.2f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
