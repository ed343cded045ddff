"""Measures drafting: `python scripts/spec_bench.py MODEL.gguf benchmarks/prompts.json --kind rewrite --json OUT`.

Owns: alternating generation without and with drafts in one process, on the same prompts, and the sums over them. What
is timed goes from the first generated token to the last, without the prompt. Both give the same tokens, which is
checked. The ratio of a prompt is that of the median times of its repetitions. Beside the clock's time stands the
processor time of all threads: a machine that does other work at the same time disturbs it less.

A file of prompts is a JSON list of {"name", "kind", "text"}; "chat": true puts the text through the chat template.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ie import tokenizer  # noqa: E402
from ie.cli.options import parse  # noqa: E402
from ie.draft.choose import make  # noqa: E402
from ie.engine import Engine  # noqa: E402
from ie.engine.drafter import DraftStats  # noqa: E402
from ie.engine.generation import generate  # noqa: E402
from ie.machine import this_machine  # noqa: E402
from ie.sample import Sampler, SamplerParams  # noqa: E402
from ie.tokenizer import Tokenizer, encode_chat  # noqa: E402
from scripts.bench import commit  # noqa: E402


def prompt_ids(words: Tokenizer, prompt: dict[str, Any]) -> list[int]:
    """Token ids of one entry of the file."""
    if prompt.get("chat"):
        return encode_chat(words, [{"role": "user", "content": prompt["text"]}])
    return words.encode(prompt["text"])


class Runner:
    """One engine, and generations on it."""

    def __init__(self, engine: Engine, words: Tokenizer, args: argparse.Namespace) -> None:
        self.engine, self.words, self.args = engine, words, args
        self.depth = 7 if args.draft == "auto" else int(args.draft)

    def run(self, ids: list[int], drafted: bool) -> tuple[tuple[float, float], list[int], DraftStats]:
        """(seconds and processor seconds after the first token, tokens, what drafting did)."""
        args, engine, stats = self.args, self.engine, DraftStats()
        drafter = make(args.drafter, engine, self.depth, args.draft == "auto") if drafted else None
        sampler = Sampler(SamplerParams(temp=args.temp, seed=args.seed), engine.n_vocab)
        seq = engine.new_sequence()
        try:
            tokens = generate(
                engine, seq, ids, sampler, max_tokens=args.n, eog_ids=self.words.eog_ids, drafter=drafter, stats=stats
            )
            out = [next(tokens)]
            begin, used = time.perf_counter(), time.process_time()
            out += tokens
            return (time.perf_counter() - begin, time.process_time() - used), out, stats
        finally:
            seq.close()

    def compare(self, prompt: dict[str, Any]) -> dict[str, Any]:
        """All repetitions of one prompt, alternating which goes first. AssertionError when the tokens differ."""
        ids = prompt_ids(self.words, prompt)
        times: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for i in range(self.args.repeat):
            results = {}
            for drafted in (False, True) if i % 2 == 0 else (True, False):
                seconds, out, stats = self.run(ids, drafted)
                times[drafted].append(seconds)
                results[drafted] = out, stats
            assert results[False][0] == results[True][0], f"{prompt['name']}: drafts changed the text"
        out, stats = results[True]
        found = {
            f"{name}_{clock}": [round(t[i], 4) for t in times[drafted]]
            for i, clock in enumerate(("seconds", "cpu_seconds"))
            for name, drafted in (("plain", False), ("draft", True))
        }
        return {
            "name": prompt["name"],
            "kind": prompt["kind"],
            "prompt_tokens": len(ids),
            "tokens": len(out),
            "steps": stats.steps,
            "proposed": stats.proposed,
            "accepted": stats.accepted,
            **found,
            "ratio": round(ratio([found], "seconds"), 4),
            "cpu_ratio": round(ratio([found], "cpu_seconds"), 4),
        }


def ratio(results: list[dict[str, Any]], clock: str) -> float:
    """Median time without drafts over that with drafts, summed over prompts."""
    plain, drafted = (sum(statistics.median(r[f"{which}_{clock}"]) for r in results) for which in ("plain", "draft"))
    return plain / drafted


def table_row(name: str, found: dict[str, Any]) -> str:
    """A kept file as a row of the table in docs/speculative.md."""
    results = found["results"]
    tokens, steps, proposed, accepted = (
        sum(r[k] for r in results) for k in ("tokens", "steps", "proposed", "accepted")
    )
    each, emitted = sorted(r["ratio"] for r in results), tokens - len(results)
    return (
        f"| `{name}` | {len(results)} | {ratio(results, 'seconds'):.2f}× | {ratio(results, 'cpu_seconds'):.2f}× "
        f"| {each[0]:.2f} to {each[-1]:.2f} | {emitted / steps:.2f} | {100 * accepted / proposed:.0f} % |"
    )


def line(name: str, results: list[dict[str, Any]]) -> str:
    """Rates of one or of several prompts together."""
    tokens, steps, proposed, accepted = (
        sum(r[k] for r in results) for k in ("tokens", "steps", "proposed", "accepted")
    )
    after = tokens - len(results)
    plain, drafted = (sum(statistics.median(r[k]) for r in results) for k in ("plain_seconds", "draft_seconds"))
    return (
        f"{name:<24} {after / plain:8.1f} {after / drafted:8.1f} tok/s {ratio(results, 'seconds'):6.2f}x"
        f" (cpu time {ratio(results, 'cpu_seconds'):.2f}x)"
        f" {after / steps:6.2f} tok/step {proposed:6} proposed {100 * accepted / max(1, proposed):4.0f} % accepted"
    )


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("model", type=Path)
    p.add_argument("prompts", type=Path)
    p.add_argument("--kind", help="only the prompts of this kind")
    p.add_argument("--draft", default="auto")
    p.add_argument("--drafter", default="auto")
    p.add_argument("--draft-pmin", help="as ie-run")
    p.add_argument("--mtp", help="file with the MTP block")
    p.add_argument("-n", type=int, default=200)
    p.add_argument("-t", type=int, default=0)
    p.add_argument("--temp", type=float, default=0.0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--json", type=Path, help="keep the samples in this file")
    args = p.parse_args(argv)
    prompts = [x for x in json.loads(args.prompts.read_text("utf-8")) if args.kind in (None, x["kind"])]
    words = ["--draft", args.draft, "--drafter", args.drafter, "-t", str(args.t)]
    words += ["--mtp", args.mtp] if args.mtp else []
    words += ["--draft-pmin", args.draft_pmin] if args.draft_pmin else []
    load = os.getloadavg()[0]
    with Engine.open(str(args.model), parse("ie-run", words).engine()) as engine:
        runner = Runner(engine, tokenizer.load(engine.gguf), args)
        results = []
        for prompt in prompts:
            results.append(runner.compare(prompt))
            print(line(prompt["name"], results[-1:]), flush=True)
        for kind in sorted({r["kind"] for r in results}):
            print(line(f"= {kind}", [r for r in results if r["kind"] == kind]))
        threads = engine.stats.threads
    if args.json:
        here = this_machine()
        found = {
            "machine": {"cpu": here.cpu_name, "cores": here.cores, "threads": here.threads, "arch": here.arch},
            "threads": threads,
            "load_before": round(load, 2),
            "commit": commit(),
            "command": " ".join(["scripts/spec_bench.py", args.model.name, *_options(argv or sys.argv[1:], args)]),
            "results": results,
        }
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def _options(words: list[str], args: argparse.Namespace) -> list[str]:
    """The command line as it was, without folders."""
    return [Path(w).name if "/" in w else w for w in words if Path(w) != args.model]


if __name__ == "__main__":
    sys.exit(main())
