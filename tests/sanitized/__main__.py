"""Runs the groups of cases under the sanitizers, two at a time, and says what the first fault of each was.

    python -m tests.sanitized                    build, check that faults are noticed, run everything
    python -m tests.sanitized --only heads,ops   some groups

A group is a process that writes each case's name before it runs; the sanitizers end the process at a fault. Owns:
processes and their report. Does not own the build (scripts/build_sanitized.py) or what is run (cases.py).
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from scripts import build_sanitized

SHOWN = 40
"""Lines of a sanitizer's report that are shown."""


@dataclass(frozen=True)
class Ended:
    """How a group ended: exit status, cases begun, the last one's name, and stderr."""

    status: int
    cases: int
    last: str
    errors: str
    seconds: float


def run_group(group: str) -> Ended:
    begin = time.monotonic()
    command = [sys.executable, "-m", "tests.sanitized", "--group", group]
    done = subprocess.run(
        command,
        env=build_sanitized.environment(),
        capture_output=True,
        text=True,
        errors="replace",
        cwd=build_sanitized.ROOT,
    )
    names = done.stdout.splitlines()
    return Ended(done.returncode, len(names), names[-1] if names else "", done.stderr, time.monotonic() - begin)


def one_group(group: str) -> int:
    """In the group's own process."""
    from ie import native

    native.LIB_DIR = build_sanitized.OUT
    from tests.sanitized import planted
    from tests.sanitized.cases import GROUPS
    from tests.sanitized.poison import watched

    assert watched(), "the sanitizer's runtime is not loaded"
    if group in planted.FAULTS:
        print(group, flush=True)
        planted.FAULTS[group][0]()
        return 0
    for name, run in GROUPS[group]():
        print(name, flush=True)
        run()
    return 0


def notices() -> list[str]:
    """Planted faults that the sanitizers let pass."""
    from tests.sanitized import planted

    missed = []
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for (name, (_, words)), ended in zip(planted.FAULTS.items(), pool.map(run_group, planted.FAULTS), strict=True):
            if ended.status == 0 or words not in ended.errors:
                missed.append(f"not noticed: {name} (status {ended.status}): {ended.errors.strip()[-300:]}")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Run the kernels under AddressSanitizer and UndefinedBehaviorSanitizer."
    )
    parser.add_argument("--only", help="groups, with commas between them")
    parser.add_argument("--group", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.group:
        return one_group(chosen.group)
    begin = time.monotonic()
    try:
        build_sanitized.build()
    except (build_sanitized.BuildError, OSError) as error:
        print(f"test-sanitized: {error}", file=sys.stderr)
        return 1
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = f"{time.monotonic() - begin:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processors"
    print(f"built in {took}", flush=True)
    from tests.sanitized.cases import GROUPS

    missed = notices()
    for line in missed:
        print(line)
    groups = chosen.only.split(",") if chosen.only else list(GROUPS)
    failed = bool(missed)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for group, ended in zip(groups, pool.map(run_group, groups), strict=True):
            print(
                f"{group}: {ended.cases} cases, {ended.seconds:.0f} s{'' if ended.status == 0 else ', FAILED'}",
                flush=True,
            )
            if ended.status:
                failed = True
                print(f"in: {ended.last} (status {ended.status})")
                print("\n".join(ended.errors.strip().splitlines()[:SHOWN]))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = f"{time.monotonic() - begin:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processors"
    print(f"{'faults' if failed else 'clean'}, {took}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
