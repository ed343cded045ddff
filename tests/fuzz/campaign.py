"""Many cases, each in a child of its own: bounds of time and memory, what was found, and its reduction.

Owns: the children, the counts, the files kept for findings. A child that is killed by a signal or by its bound is a
finding, like a broken invariant. Does not own what is checked (checks.py).
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from tests.fuzz.case import GENES, Case, draw, gene
from tests.fuzz.model import format_of, shape_of, specs_of, write

SECONDS = 90.0
"""Bound of one case: far more than any takes, the chat templates' own bound of 10 s included."""
MEMORY = 6 << 30
"""Address space of a child beyond what it has at the start."""

CheckCase = Callable[[Case, Path], tuple[str | None, set[str], set[str]]]
"""(case, path) to (why the file is refused or None, facts, lines of commands that refused); raises for a finding."""


@dataclass
class Result:
    """What became of a case: accepted, refused (with the reason), or a finding of some kind."""

    outcome: str
    kind: str = ""
    detail: str = ""
    facts: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def check_case(case: Case, path: Path) -> tuple[str | None, set[str], set[str]]:
    from tests.fuzz.checks import Check

    check = Check(case, path)
    reason = check.all()
    return reason, check.facts, check.lines


def _child(case: Case, folder: Path, check: CheckCase) -> dict[str, Any]:
    try:
        path = write(case, folder)
    except Exception:
        return {"outcome": "finding", "kind": "generator", "detail": traceback.format_exc()}
    try:
        reason, facts, lines = check(case, path)
    except BaseException as error:
        kind = getattr(error, "kind", f"exception {type(error).__name__}")
        where = "" if hasattr(error, "kind") else traceback.format_exc()
        return {"outcome": "finding", "kind": kind, "detail": f"{error}\n{where}".strip()}
    outcome = "accepted" if reason is None else "refused"
    return {"outcome": outcome, "detail": reason or "", "facts": sorted(facts), "lines": sorted(lines)}


def run_case(case: Case, folder: Path, check: CheckCase = check_case, seconds: float = SECONDS) -> Result:
    """One case in a child. `folder` holds its file afterwards."""
    readable, writable = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(readable)
            _quiet(folder / "stderr")
            faulthandler.enable(2)  # where a crash is, in the finding
            _bound_memory()
            answer = json.dumps(_child(case, folder, check)).encode("utf-8", "backslashreplace")
            with os.fdopen(writable, "wb") as pipe:
                pipe.write(answer)
            status = 0
        finally:
            os._exit(status)
    os.close(writable)
    answer, late = _read(readable, seconds)
    if late:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    said = (folder / "stderr").read_bytes()[-2000:].decode("utf-8", "replace")
    if late:
        return Result("finding", "hang", f"not done after {seconds:g} s\n{said}")
    if os.WIFSIGNALED(status):
        return Result("finding", f"signal {signal.Signals(os.WTERMSIG(status)).name}", said)
    if status or not answer:
        return Result("finding", f"exit {os.waitstatus_to_exitcode(status)}", said)
    return Result(**json.loads(answer))


def _quiet(path: Path) -> None:
    """Streams 0, 1 and 2 of the child: nothing to read, nothing shown, a file for what the libraries say."""
    nowhere, said = os.open(os.devnull, os.O_RDWR), os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for target, source in ((0, nowhere), (1, said), (2, said)):
        os.dup2(source, target)


def _bound_memory() -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read(descriptor: int, seconds: float) -> tuple[bytes, bool]:
    """All that the child writes, and whether it took too long."""
    end, out = time.monotonic() + seconds, b""
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return out, True
            piece = pipe.read(1 << 16)
            if not piece:
                return out, False
            out += piece


# ---- reduction ----


def reduced(case: Case, kind: str, check: CheckCase, seconds: float) -> Case:
    """Genes put back to their ordinary value as long as a finding of the same kind stays."""
    end = time.monotonic() + seconds
    changed = True
    while changed:
        changed = False
        for name in [n for n in case if n != "seed"]:
            if time.monotonic() > end:
                return case
            smaller = {n: v for n, v in case.items() if n != name}
            with tempfile.TemporaryDirectory() as folder:
                found = run_case(smaller, Path(folder), check)
            if found.outcome == "finding" and found.kind == kind:
                case, changed = smaller, True
    return case


# ---- a campaign ----


@dataclass
class Finding:
    seed: int
    kind: str
    detail: str
    case: Case
    folder: Path


@dataclass
class Campaign:
    """Counts and findings of many cases. `keep`: where files of findings go, a folder each."""

    keep: Path
    check: CheckCase = check_case
    reduce_seconds: float = 30.0
    seconds: float = SECONDS
    only: str | None = None
    made: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    lines: Counter[str] = field(default_factory=Counter)  # of commands that refused an accepted file
    facts: Counter[str] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)  # (architecture, format) of accepted files
    findings: list[Finding] = field(default_factory=list)

    def run(self, seeds: Iterable[int], seconds: float = float("inf"), log: TextIO | None = None) -> None:
        """Cases of these seeds until the time is over."""
        end = time.monotonic() + seconds
        for seed in seeds:
            if time.monotonic() > end:
                break
            self.one(draw(seed), log)

    def one(self, case: Case, log: TextIO | None = None) -> Result:
        """One case, counted; a finding is reduced and kept."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            result = run_case(case, folder, self.check, self.seconds)
            self.count(case, result)
            if result.outcome == "finding":
                self.keep_finding(case, result, folder, log)
        return result

    def count(self, case: Case, result: Result) -> None:
        self.made += 1
        self.outcomes[result.outcome] += 1
        self.facts.update(result.facts)
        if result.outcome == "refused":
            self.reasons[family(result.detail)] += 1
        elif result.outcome == "accepted":
            self.pairs.update(set(places(case)))
            self.lines.update({family(line) for line in result.lines})

    def keep_finding(self, case: Case, result: Result, folder: Path, log: TextIO | None) -> None:
        known = sum(f.kind == result.kind for f in self.findings)
        small = case if known >= 3 else reduced(case, result.kind, self.check, self.reduce_seconds)
        target = self.keep / f"{case['seed']}-{result.kind.replace(' ', '-')}"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder, target)
        write(small, _folder(target / "reduced"))
        (target / "case.json").write_text(json.dumps(case, indent=1))
        (target / "reduced.json").write_text(json.dumps(small, indent=1))
        (target / "finding.txt").write_text(f"{result.kind}\n{result.detail}\n", "utf-8", "backslashreplace")
        self.findings.append(Finding(case["seed"], result.kind, result.detail, small, target))
        if log is not None:
            first = result.detail.strip().splitlines()[:1]
            print(
                f"seed {case['seed']}: {result.kind}: {' '.join(first)[:300]}\n  {json.dumps(small)}",
                file=log,
                flush=True,
            )

    def merge(self, other: Campaign) -> None:
        """What another one counted and found."""
        self.made += other.made
        for mine, theirs in (
            (self.outcomes, other.outcomes), (self.reasons, other.reasons), (self.facts, other.facts),
            (self.pairs, other.pairs), (self.lines, other.lines),
        ):  # fmt: skip
            mine.update(theirs)  # type: ignore[attr-defined]
        self.findings += other.findings

    def summary(self) -> Iterator[str]:
        yield f"{self.made:,} cases: " + ", ".join(f"{n:,} {name}" for name, n in sorted(self.outcomes.items()))
        yield "facts: " + ", ".join(f"{name} {n:,}" for name, n in sorted(self.facts.items()))
        archs = Counter(arch for arch, _ in self.pairs.elements())
        yield "tensors by architecture: " + ", ".join(f"{name} {n:,}" for name, n in sorted(archs.items()))
        yield f"pairs of architecture and format: {len(self.pairs)}"
        for reason, n in self.reasons.most_common():
            yield f"refused {n:6,}  {reason}"
        for line, n in self.lines.most_common():
            yield f"command {n:6,}  {line}"
        for found in self.findings:
            yield f"finding: seed {found.seed}, {found.kind}: {found.folder}"
            yield f"  {json.dumps(found.case)}"
            yield from (f"  {line[:300]}" for line in found.detail.strip().splitlines()[:3])


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def family(reason: str) -> str:
    """A refusal without its path and numbers, for the histogram."""
    command, colon, _ = reason.partition(": ") if reason.startswith("ie-") else ("", "", "")
    text = command + colon + re.sub(r"^\S*\.gguf:?", "", reason.removeprefix(command + colon)).lstrip()
    return "".join("#" if c.isdigit() else c for c in text)[:100]


def places(case: Case) -> Iterator[tuple[str, str]]:
    """(architecture, format) of each tensor of a case."""
    arch = gene(case, "arch")
    for index, spec in enumerate(specs_of(case, shape_of(case))):
        yield arch, format_of(case, spec, index)


def genes_reached(cases: Iterable[Case]) -> set[tuple[str, str]]:
    """(gene, value) that the cases have."""
    return {(name, repr(value)) for case in cases for name, value in case.items() if name in GENES}
