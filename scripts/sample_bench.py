#!/usr/bin/env python3
"""How long choosing a token takes: microseconds from Python to Python, median of many, for common sets of options.

python scripts/sample_bench.py [--vocab 152064] [--isa NAME] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ie import native  # noqa: E402
from ie.machine import this_machine  # noqa: E402
from ie.sample import Sampler, SamplerParams  # noqa: E402
from scripts.bench import commit  # noqa: E402

CASES = {
    "temp 0": SamplerParams(temp=0.0),
    "default": SamplerParams(),
    "top-k 64": SamplerParams(top_k=64),
    "default, penalties and DRY": SamplerParams(repeat_penalty=1.1, frequency_penalty=0.1, dry_multiplier=0.8),
    "top-k 0": SamplerParams(top_k=0),
    "temperature alone": SamplerParams(top_k=0, top_p=1.0, min_p=0.0),
}


def measure(params: SamplerParams, logits: np.ndarray, isa: str | None, count: int) -> float:
    """Median microseconds of a call, with a history of 256 tokens."""
    sampler = Sampler(params, logits.size, isa=native.ISAS.index(isa) if isa else None)
    history = [int(t) for t in np.random.default_rng(1).integers(0, logits.size, 256)]
    times = []
    for i in range(count):
        begin = time.perf_counter()
        sampler.sample(logits, i, history)
        times.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--vocab", type=int, default=152064, help="logits a row (152064)")
    parser.add_argument("--isa", choices=native.ISAS, help="instruction set (the best)")
    parser.add_argument("--count", type=int, default=300, help="calls of each (300)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the result in a file")
    args = parser.parse_args()
    logits = np.random.default_rng(0).normal(0.0, 3.0, args.vocab).astype(np.float32)
    found = {name: measure(params, logits, args.isa, args.count) for name, params in CASES.items()}
    for name, us in found.items():
        print(f"{name:<28} {us:9.1f} us")
    if args.json:
        here = this_machine()
        settings = {"vocab": args.vocab, "isa": args.isa or "best", "count": args.count}
        result = {"machine": here.cpu_name, "commit": commit(), "settings": settings, "microseconds": found}
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
