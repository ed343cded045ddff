"""Fuzzes models that are accepted: random odd but legal files through every command, with what must hold for each.

    python scripts/fuzz_models.py --seconds 3600 --seed 1
    python scripts/fuzz_models.py --case build/fuzz/17-bits/reduced.json     # one finding again

Prints a summary: cases made, accepted and refused with the reasons, findings with their seeds and the folder kept for
each (the file, the case as JSON, and both reduced). Exits 1 on findings, and when so little was accepted that finding
nothing says nothing. Owns: the command line and the processes of --jobs; everything else stands in tests/fuzz/.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ie.model.config import ARCHITECTURES
from tests.fuzz.campaign import Campaign
from tests.fuzz.case import FORMAT_NAMES, from_json

LEAST_ACCEPTED = 0.5
"""Share of the cases: a generator whose files are mostly refused tests the refusals alone."""
NEEDED = ("finite", "not finite", "compared", "generated", "mtp", "perplexity", "command", "vocabulary")
"""Facts that a long run must have met."""


def warm() -> None:
    """Import what children use, so that each does not do it anew."""
    import jinja2  # noqa: F401
    import sentencepiece  # noqa: F401
    import tokenizers  # noqa: F401

    import tests.fuzz.checks  # noqa: F401
    from ie import native
    from ie.cli import load  # noqa: F401

    native.lib()


def job(number: int, jobs: int, seed: int, seconds: float, cases: int, keep: Path) -> Campaign:
    warm()
    campaign = Campaign(keep)
    count = itertools.count if cases < 0 else lambda start, step: range(start, seed + cases, step)
    campaign.run(count(seed + number, jobs), seconds, sys.stderr)
    return campaign


def gaps(campaign: Campaign) -> Iterator[str]:
    """What a run of more than a few hundred cases should have met and did not."""
    if campaign.made < 300:
        return
    if campaign.outcomes["accepted"] < LEAST_ACCEPTED * campaign.made:
        yield f"only {campaign.outcomes['accepted']} of {campaign.made} cases were accepted"
    yield from (f"never: {fact}" for fact in NEEDED if not campaign.facts[fact])
    reached = {pair for pair, n in campaign.pairs.items() if n}
    archs, formats = {a for a, _ in reached}, {f for _, f in reached}
    yield from (f"no accepted model of architecture {a}" for a in ARCHITECTURES if a not in archs)
    yield from (f"no accepted model with a tensor of format {f}" for f in FORMAT_NAMES if f not in formats)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Fuzz models that are accepted.")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (default 60)")
    parser.add_argument("--seed", type=int, default=0, help="first seed; the cases follow from it (default 0)")
    parser.add_argument("--cases", type=int, default=-1, help="at most so many cases (default: no limit)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz"), help="where files of findings go")
    parser.add_argument("--case", type=Path, help="run one case, a JSON file of a finding, instead")
    chosen = parser.parse_args(argv)
    chosen.keep.mkdir(parents=True, exist_ok=True)
    whole = Campaign(chosen.keep)
    if chosen.case is not None:
        warm()
        whole.reduce_seconds = 0.0
        whole.one(from_json(json.loads(chosen.case.read_text())))
    else:
        work = [(n, chosen.jobs, chosen.seed, chosen.seconds, chosen.cases, chosen.keep) for n in range(chosen.jobs)]
        if chosen.jobs == 1:
            whole = job(*work[0])
        else:
            with multiprocessing.get_context("spawn").Pool(chosen.jobs) as pool:
                for one in pool.starmap(job, work):
                    whole.merge(one)
    for line in whole.summary():
        print(line)
    missing = list(gaps(whole)) if chosen.case is None else []
    for line in missing:
        print(f"gap: {line}")
    return 1 if whole.findings or missing else 0


if __name__ == "__main__":
    sys.exit(main())
