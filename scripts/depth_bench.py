#!/usr/bin/env python3
"""What the keys and values of a long context cost a generated token.

    python scripts/depth_bench.py MODEL.gguf [MODEL.gguf …] [--depth 4096] [-t 2] [-r 40]

Each round reads the bandwidth, runs steps of one token near the start and at the depth, and reads the bandwidth again:
the two differ in attention alone, and what the machine gives in that moment is known. The ratio of a round is the time
that the depth adds over the time to read its keys and values at that bandwidth. Results with every sample go to
benchmarks/depth.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ie.config import ModelConfig  # noqa: E402
from ie.engine import Engine  # noqa: E402
from ie.errors import IeError  # noqa: E402
from ie.machine import this_machine  # noqa: E402
from ie.options import EngineOptions  # noqa: E402
from ie.step import Run  # noqa: E402
from scripts.bench import commit  # noqa: E402

STEPS, NEAR = 6, 3  # steps of a sample; the position near the start


def key_value_bytes(config: ModelConfig, depth: int) -> int:
    """F16 keys and values that a token after `depth` others sees; local layers see their window."""
    seen = ((layer.n_kv, min(depth, layer.window or depth)) for layer in config.layers)
    return sum(2 * 2 * heads * config.head_dim * n for heads, n in seen)


def measure(path: str, depth: int, threads: int, rounds: int) -> dict[str, Any]:
    """Seconds a step near the start and at the depth, and bytes/s, of each round."""
    with Engine.open(path, EngineOptions(threads=threads, n_ctx=depth + 32)) as engine:
        if engine.config.delta is not None:
            raise IeError(f"{path}: has recurrent layers, whose steps cannot be taken at any position")
        seq = engine.new_sequence()
        engine.forward(seq, [7 + i * 7919 % (engine.n_vocab - 7) for i in range(depth + 1)])
        handle = engine._handle(1, 1)

        def step(position: int) -> float:
            engine.step_inputs.fill([Run(seq.slot, position, [7])], [0])
            begin = time.perf_counter()
            for _ in range(STEPS):
                engine.executor.run(handle, engine.step_inputs)
            return (time.perf_counter() - begin) / STEPS

        step(NEAR), step(depth)
        samples = []
        for _ in range(rounds):
            before = engine.read_bandwidth()
            near, deep = step(NEAR), step(depth)
            samples.append({"near": near, "deep": deep, "bandwidth": (before + engine.read_bandwidth()) / 2})
        size = key_value_bytes(engine.config, depth)
        ratios = [(s["deep"] - s["near"]) / (size / s["bandwidth"]) for s in samples]
        return {"model": Path(path).stem, "kv_bytes": size, "ratio": statistics.median(ratios),
                "quartiles": statistics.quantiles(ratios, n=4)[::2], "samples": samples}  # fmt: skip


def table_row(found: dict[str, Any]) -> str:
    """The row of docs/performance.md that a result stands behind."""
    near, added, bandwidth = (
        statistics.median(f(s) for s in found["samples"])
        for f in (lambda s: s["near"], lambda s: s["deep"] - s["near"], lambda s: s["bandwidth"])
    )
    lo, hi = found["quartiles"]
    return (
        f"| {found['model']} | {1e3 * near:.2f} | {found['kv_bytes'] / 1e6:.1f} | {1e3 * added:.2f} "
        f"| {bandwidth / 1e9:.0f} | {found['ratio']:.2f} | {lo:.2f} to {hi:.2f} |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--depth", type=int, default=4096)
    parser.add_argument("-t", type=int, default=2, help="threads")
    parser.add_argument("-r", type=int, default=40, help="rounds")
    args = parser.parse_args()
    try:
        results = [measure(model, args.depth, args.t, args.r) for model in args.models]
    except IeError as error:
        print(f"depth_bench: {error}", file=sys.stderr)
        return 1
    for found in results:
        print(table_row(found))
    words = ["scripts/depth_bench.py", *(Path(m).name for m in args.models)]
    words += ["--depth", str(args.depth), "-t", str(args.t), "-r", str(args.r)]
    here = this_machine()
    kept = {
        "machine": here.cpu_name,
        "cores": here.cores,
        "commit": commit(),
        "command": " ".join(words),
        "results": results,
    }
    (ROOT / "benchmarks" / "depth.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
