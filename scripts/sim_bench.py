#!/usr/bin/env python3
"""Measures the gfx1201 simulator: `python scripts/sim_bench.py [--out benchmarks/rdna4sim.json]`.

Owns: the speed of the dot4 kernel on one core (wave-instructions a second), and the time
to load all sample kernels with an empty cache and again with a full one. Every measurement is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ie.machine import this_machine  # noqa: E402
from tests.sim.build import SOURCES, code_object  # noqa: E402
from tests.sim.cases_engine import dot4_result  # noqa: E402
from tests.sim.hip import simulator  # noqa: E402

GROUPS, STEPS, REPEATS = 4, 400_000, 5
LOOP = "dot4_loop"


def instructions_per_step() -> int:
    """Instructions between the loop's label and its branch, from LLVM's disassembly."""
    with tempfile.NamedTemporaryFile(suffix=".hsaco") as file:
        file.write(code_object("matvec"))
        file.flush()
        command = ["llvm-objdump-19", "-d", "--mcpu=gfx1201", f"--disassemble-symbols={LOOP}", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line.split("//")[0].strip() for line in text.splitlines() if "//" in line]
    ends = [i for i, line in enumerate(lines) if line.startswith("s_cbranch_scc")]
    for end in ends:
        distance = int(lines[end].split()[1])
        if distance >= 0x8000:
            words = [4 * len(line.split("//")[1].split(":")[1].split()) for line in text.splitlines() if "//" in line]
            target = sum(words[: end + 1]) + 4 * (distance - 0x10000)
            first = next(i for i in range(len(words)) if sum(words[:i]) == target)
            return end + 1 - first
    raise ValueError("no loop found")


def speed() -> dict[str, float]:
    """Wave-instructions a second of the dot4 loop, the best of several runs; the result is checked."""
    random = np.random.default_rng(1)
    a, b = random.integers(0, 2**32, (2, GROUPS * 256), np.uint32)
    per_step = instructions_per_step()
    with simulator() as hip:
        kernel = hip.kernel(code_object("matvec"), LOOP)
        given = [hip.buffer(a), hip.buffer(b), hip.buffer(np.zeros(a.size, np.int32))]
        hip.launch(kernel, [GROUPS], [256], [*given, np.int32(50)])
        assert (given[2].read(np.int32) == dot4_result(a, b, 50)).all()
        times = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            hip.launch(kernel, [GROUPS], [256], [*given, np.int32(STEPS)])
            times.append(time.perf_counter() - start)
    count = GROUPS * 8 * STEPS * per_step
    return {"wave_instructions": count, "seconds": min(times), "per_second": count / min(times)}


def loading() -> dict[str, float]:
    """Seconds to load every sample code object."""
    images = [code_object(source) for source in SOURCES]
    with simulator() as hip:
        start = time.perf_counter()
        for image in images:
            hip.load(image)
        return {"seconds": time.perf_counter() - start}


def measured(what: str, cache: str) -> dict[str, float]:
    """One measurement in a process pinned to one core."""
    environment = {**os.environ, "RDNA4SIM_CACHE": cache}
    command = [sys.executable, __file__, "--only", what]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", choices=("speed", "loading"))
    options = parser.parse_args()
    if options.only:
        if options.only == "speed":
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        print(json.dumps(speed() if options.only == "speed" else loading()))
        return 0
    machine = asdict(this_machine()) | {"flags": len(this_machine().flags)}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT
    ).stdout.strip()
    with tempfile.TemporaryDirectory() as cache:
        result = {
            "machine": machine, "commit": commit, "command": "python scripts/sim_bench.py",
            "cold": measured("loading", cache), "cached": measured("loading", cache), "dot4": measured("speed", cache),
        }  # fmt: skip
    print(json.dumps(result, indent=1))
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
