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
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ie.machine import this_machine  # noqa: E402
from rdna4sim.decode import decode_range  # noqa: E402
from rdna4sim.elf import CodeObject  # noqa: E402
from tests.sim.build import SOURCES, code_object  # noqa: E402
from tests.sim.cases_engine import dot4_result  # noqa: E402
from tests.sim.hip import simulator  # noqa: E402

GROUPS, STEPS, REPEATS = 4, 400_000, 5
LOOP = "dot4_loop"


def instructions_per_step() -> dict[str, int]:
    """Instructions of the loop, by the simulator's own decoder, and how many of them only wait or hint."""
    code = CodeObject(code_object("matvec"))
    kernel = next(k for k in code.kernels if k.name == LOOP)
    listing = decode_range(code.code(kernel.entry, kernel.size), kernel.entry)
    back = next(i for i in listing if i.name.startswith("s_cbranch") and i.target <= i.address)
    loop = [i.name for i in listing if back.target <= i.address <= back.address]
    return {"all": len(loop), "waits_and_hints": sum(name.startswith(("s_delay", "s_wait", "s_nop")) for name in loop)}


def speed() -> dict[str, Any]:
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
    count = GROUPS * 8 * STEPS * per_step["all"]
    return {"loop": per_step, "wave_instructions": count, "seconds": min(times), "per_second": count / min(times)}


def loading() -> dict[str, Any]:
    """Seconds to load every sample code object."""
    images = [code_object(source) for source in SOURCES]
    with simulator() as hip:
        start = time.perf_counter()
        for image in images:
            hip.load(image)
        kernels = sum(len(CodeObject(image).kernels) for image in images)
        return {"files": len(images), "kernels": kernels, "seconds": time.perf_counter() - start}


def measured(what: str, cache: str) -> dict[str, Any]:
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
