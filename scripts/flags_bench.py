#!/usr/bin/env python3
"""What it costs that only marked loops are vectorised: `python scripts/flags_bench.py MODEL.gguf… [--rounds 8]`.

Owns: benchmarks/compiler_flags.json. Three builds of this checkout: `marked`, as it is shipped; `every`, all loops
that the compiler can vectorise, with whatever it then gets wrong; `none`, the marks without effect. Which objects are
the same bytes in two builds is counted. Reading prompts, generating and sampling are timed in turns, each time in a
process of its own; a ratio is the median over the rounds of the time, divided by that of `every` in the same round.
With --rounds 0 nothing is timed: objects alone, which a busy machine does not disturb.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ie.machine import this_machine  # noqa: E402
from scripts import build_kernels  # noqa: E402
from scripts.bench import commit  # noqa: E402

MARKED = list(build_kernels.CFLAGS)
BUILDS = {
    "every": [flag for flag in MARKED if flag != "-fno-vectorize"],
    "marked": MARKED,
    "none": [*MARKED, "-DIE_VECTORIZE="],
}
OPEN = "import sys, pathlib, ie.native as n; n.LIB_DIR = pathlib.Path(sys.argv.pop(1)); "
BENCH = OPEN + "from ie.cli.bench import main; sys.exit(main())"
SAMPLE = OPEN + "from scripts.sample_bench import main; sys.exit(main())"


def build(folder: Path, flags: list[str]) -> dict[str, bytes]:
    """The library into the folder; the bytes of its objects, by unit."""
    build_kernels.CFLAGS = flags
    build_kernels.build(folder, build_kernels.HOST)
    headers, arch = build_kernels.headers_digest(), build_kernels.HOST
    units = build_kernels.units(arch)
    return {unit.name: build_kernels.object_of(unit, arch, headers)[0].read_bytes() for unit in units}


def times(library: Path, models: list[Path], words: list[str]) -> Iterator[tuple[str, float]]:
    """(what, microseconds) of one turn."""

    def output(code: str, *arguments: str) -> str:
        command = [sys.executable, "-c", code, str(library), *arguments]
        return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout

    for model in models:
        for test in json.loads(output(BENCH, str(model), *words, "-o", "json")):
            tokens = test["n_prompt"] + test["n_gen"]
            yield f"{model.stem} {test['test']}", min(test["samples_ns"]) / tokens / 1e3
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "sample.json"
        output(SAMPLE, "--count", "60", "--json", str(kept))
        for name, us in json.loads(kept.read_text(encoding="utf8"))["microseconds"].items():
            yield f"sampling, {name}", us


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--words", default="-p 128 -n 32 -r 3", help="of ie-bench")
    args = parser.parse_args()
    names = list(BUILDS) if args.rounds else ["every", "marked"]
    load, found = os.getloadavg()[0], defaultdict[str, dict[str, list[float]]](lambda: defaultdict(list))
    with tempfile.TemporaryDirectory() as folder:
        libraries = {name: Path(folder) / name for name in names}
        objects = {name: build(libraries[name], BUILDS[name]) for name in names}
        for i in range(args.rounds):
            for name in names[:: 1 if i % 2 else -1]:
                for what, us in times(libraries[name], args.models, args.words.split()):
                    found[what][name].append(us)
    ratios = {
        what: {n: statistics.median(b / a for a, b in zip(by["every"], by[n], strict=True)) for n in names[1:]}
        for what, by in found.items()
    }
    changed = {n: [unit for unit, data in objects["every"].items() if objects[n][unit] != data] for n in names[1:]}
    for n, units in changed.items():
        print(f"{n}: {len(units)} of {len(objects['every'])} objects differ from those with every loop vectorised")
    for what, ratio in ratios.items():
        print(f"{what:<50} marked {ratio['marked']:.3f}  none {ratio['none']:.3f}")
    here = this_machine()
    result = {
        "machine": {"cpu": here.cpu_name, "cores": here.cores}, "load_before": round(load, 2), "commit": commit(),
        "command": f"scripts/flags_bench.py {' '.join(m.name for m in args.models)} --rounds {args.rounds}",
        "objects": len(objects["every"]), "differ": changed, "ratios": ratios, "microseconds": found,
    }  # fmt: skip
    out = ROOT / "benchmarks" / "compiler_flags.json"
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf8")
    print(out.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
