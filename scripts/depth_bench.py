#!/usr/bin/env python3
"""What the keys and values of a long context cost a generated token.

    python scripts/depth_bench.py MODEL.gguf [MODEL.gguf …] [--depth 4096] [-t 2] [-r 40]

Each round reads the bandwidth, runs steps of one token near the start and at the depth, and reads the bandwidth again:
the two differ in attention alone, and what the machine gives in that moment is known. As in ie-doctor 256 MB are read:
of weights that are less the caches hold a part, and reading them again is faster than memory. The ratio of a round is
the time that the depth adds over the time to read its keys and values at that bandwidth. For a profile the round times
commands too: how much longer attention takes at the depth, how much longer all others do, and how much longer attention
takes when every block of a head is the same one, and so in cache: that is its arithmetic. Results with every sample go
to benchmarks/depth.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ie import native  # noqa: E402
from ie.devices.cpu import SAMPLE  # noqa: E402
from ie.devices.trace import Costs  # noqa: E402
from ie.engine import Engine  # noqa: E402
from ie.engine.kv import BLOCK  # noqa: E402
from ie.errors import IeError  # noqa: E402
from ie.machine import this_machine  # noqa: E402
from ie.model.config import ModelConfig  # noqa: E402
from ie.program.step import Phase, Run  # noqa: E402
from ie.settings import EngineOptions  # noqa: E402
from scripts.bench import commit  # noqa: E402

STEPS, TIMED, NEAR = 6, 3, 3  # steps of a sample, and of one by commands; the position near the start


def multiply_adds(config: ModelConfig, depth: int) -> int:
    """Of all query heads with the keys and the values that they see."""
    return sum(2 * layer.n_head * config.head_dim * min(depth, layer.window or depth) for layer in config.layers)


def measure(path: str, depth: int, threads: int, rounds: int) -> dict[str, Any]:
    """Seconds a step near the start and at the depth, and bytes/s, of each round."""
    with Engine.open(path, EngineOptions(threads=threads, n_ctx=depth + 32)) as engine:
        if engine.config.delta is not None:
            raise IeError(f"{path}: has recurrent layers, whose steps cannot be taken at any position")
        seq = engine.new_sequence()
        engine.forward(seq, [7 + i * 7919 % (engine.n_vocab - 7) for i in range(depth + 1)])
        handle = int(Phase.GENERATED)

        def step(position: int) -> float:
            engine.steps.inputs.fill([Run(seq.index, position, [7])], [0], Phase.GENERATED)
            begin = time.perf_counter()
            for _ in range(STEPS):
                engine.executor.run(handle, engine.steps.inputs)
            return (time.perf_counter() - begin) / STEPS

        memory = native.Memory(SAMPLE, "reading", huge=True)
        memory.array[:] = 1
        lib, pool, start = engine.executor.lib, engine.executor.device.pool, native.pointer(memory.array, "void *")

        def bandwidth() -> float:
            return memory.nbytes / min(lib.ie_read_seconds(pool, start, memory.nbytes) for _ in range(2))

        program = engine.executor.bound[handle].program
        attends, costs = np.array([c.op == "attention" for c in program.commands]), Costs(program)
        tables = engine.steps.inputs.tables

        def commands(position: int) -> tuple[float, float]:
            """Seconds of attention and of all other commands."""
            engine.steps.inputs.fill([Run(seq.index, position, [7])], [0], Phase.GENERATED)
            runs = [engine.executor.run_timed(handle, engine.steps.inputs) for _ in range(TIMED)]
            times = np.median(np.array(runs), axis=0) / 1e9
            return float(times[attends].sum()), float(times[~attends].sum())

        def attention_bytes(position: int) -> int:
            """By the op table."""
            engine.step_inputs.fill([Run(seq.slot, position, [7])], [0])
            return sum(costs.of(int(i), engine.step_inputs)[1] for i in np.flatnonzero(attends))

        step(NEAR), step(depth)
        size = attention_bytes(depth) - attention_bytes(NEAR)
        samples = []
        for _ in range(rounds):
            before = bandwidth()
            near, deep = step(NEAR), step(depth)
            little, much = commands(NEAR), commands(depth)
            kept = tables.copy()
            tables[seq.index] = kept[seq.index, depth // BLOCK]
            cached = commands(depth)[0]
            tables[:] = kept
            samples.append({"near": near, "deep": deep, "bandwidth": (before + bandwidth()) / 2,
                            "attention": much[0] - little[0], "others": much[1] - little[1],
                            "cached": cached - little[0]})  # fmt: skip
        ratios = [(s["deep"] - s["near"]) / (size / s["bandwidth"]) for s in samples]
        return {"model": Path(path).stem, "kv_bytes": size, "multiply_adds": multiply_adds(engine.config, depth),
                "ratio": statistics.median(ratios), "quartiles": statistics.quantiles(ratios, n=4)[::2],
                "samples": samples}  # fmt: skip


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


def profile_row(found: dict[str, Any]) -> str:
    """The row of the profile: times in ms, and the rate of attention's multiply-adds where nothing is read."""
    size, samples = found["kv_bytes"], found["samples"]
    reading = statistics.median(size / s["bandwidth"] for s in samples)
    share = statistics.median(s["attention"] / (size / s["bandwidth"]) for s in samples)
    attention, others, cached = (statistics.median(s[k] for s in samples) for k in ("attention", "others", "cached"))
    return (
        f"| {found['model']} | {1e3 * reading:.2f} | {1e3 * attention:.2f} | {share:.2f} | {1e3 * others:.2f} "
        f"| {1e3 * cached:.2f} | {found['multiply_adds'] / cached / 1e9:.0f} |"
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
    for row in (table_row, profile_row):
        for found in results:
            print(row(found))
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
