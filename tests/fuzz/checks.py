"""What must hold for a case's file: run in a child, which may crash, hang or be killed.

Owns: the invariants and the words for a broken one (`Broken`). Does not own bounds and crashes (campaign.py).

The same bits for every chunk, thread count, instruction set and draft; the reference's results within each op's
tolerance; the same verdict of cpu and reference on what is no number; one line and status 1 for what is refused.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ie import tokenizer
from ie.cli import bench as ie_bench
from ie.cli import ppl as ie_ppl
from ie.cli import run as ie_run
from ie.cli import tokenize as ie_tokenize
from ie.devices import CpuExecutor, ReferenceExecutor, diff
from ie.devices.cpu import available_isas
from ie.draft.choose import make as make_drafter
from ie.draft.mtp import Mtp
from ie.engine import Engine
from ie.engine.generation import generate
from ie.errors import IeError, SampleError
from ie.gguf import GgufFile
from ie.measure import ppl
from ie.program.step import StepInputs
from ie.sample import Sampler, SamplerParams
from ie.settings import DraftOptions, EngineOptions
from tests.fuzz.case import Case, gene
from tests.fuzz.vocabularies import TEXTS

EDGE = 1e18
"""Magnitudes from which squares, and sums of products, leave float32: a norm is then 0 on executors that have it, but
not in float64."""


SHARP = 1e3
"""Factor of queries and keys (of scores it is the square) from which rounding of scores decides which key is seen."""


class Broken(AssertionError):
    """An invariant that does not hold. `kind` is one word for the histogram."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    """A warning of a library would be a line on stderr that nobody wrote."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for one in caught:
        raise Broken("warning", f"{one.category.__name__}: {one.message} ({one.filename}:{one.lineno})")


def refusal(call: Callable[[], Any]) -> str | None:
    """The message with which `call` refuses; None when it does not."""
    try:
        call()
    except IeError as error:
        if "\n" in str(error) or not str(error).strip():
            raise Broken("message", f"not one line: {str(error)!r}") from error
        return str(error)
    return None


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Bit for bit, but any NaN is as good as another."""
    return a.shape == b.shape and bool(((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))).all())


class Widest(ReferenceExecutor):
    """Float64 arithmetic that remembers the largest magnitude that any buffer held."""

    def __init__(self) -> None:
        super().__init__("float64")
        self.most = 0.0

    def run_command(self, handle: int, step: StepInputs, index: int) -> None:
        super().run_command(handle, step, index)
        for values in self.buffers.values():
            finite = np.abs(values[np.isfinite(values)])
            self.most = max(self.most, float(finite.max(initial=0.0)))


class Check:
    """One case and its file. `facts` are what the campaign counts."""

    def __init__(self, case: Case, path: Path) -> None:
        self.case, self.path = case, str(path)
        self.facts: set[str] = set()
        self.lines: set[str] = set()  # with which commands refused an accepted file
        self.mtp_refused = False
        self.n_ctx = min(gene(case, "n_ctx"), 512)

    def opened(self, executor: Any = None, draft: Mtp | None = None, **options: Any) -> Engine:
        more = {"threads": 1, "n_ctx": self.n_ctx, **options}
        return Engine.open(self.path, EngineOptions(**more), executor=executor, draft=draft)

    def all(self) -> str | None:
        """Every check. The reason when the file is refused."""
        with _no_warnings():
            reason = self.verdict_at_load()
            if reason is not None:
                self.commands_refuse(reason)
                return reason
            self.prompt = self.make_prompt()
            base = self.logits()
            self.invariance(base)
            finite = bool(np.isfinite(base).all())
            self.facts.add("finite" if finite else "not finite")
            self.against_reference(base)
            self.generation(finite)
            self.perplexity(base)
        self.commands()
        return None

    # ---- load ----

    def verdict_at_load(self) -> str | None:
        def close(executor: Any) -> None:
            self.opened(executor).close()

        cpu = refusal(lambda: close(CpuExecutor(1)))
        reference = refusal(lambda: close(ReferenceExecutor()))
        if cpu != reference:
            raise Broken("verdict", f"cpu says {cpu!r}, reference {reference!r}")
        if cpu is None:
            words = refusal(lambda: self.vocabulary())
            self.facts.add("vocabulary refused" if words else "vocabulary")
            return words
        return cpu

    def vocabulary(self) -> Any:
        with GgufFile.open(self.path) as file:
            return tokenizer.load(file)

    def commands_refuse(self, reason: str) -> None:
        status, out, err = run_command(ie_run.main, [self.path, "--tokens", "0", "-n", "1", "-c", "8", "-t", "1"])
        lines = [line for line in err.splitlines() if not line.endswith("; ignored")]  # notes of reading the file
        if status != 1 or out or len(lines) != 1:
            raise Broken("refusal", f"ie-run: status {status}, stdout {out!r}, stderr {err!r} for {reason!r}")

    # ---- logits ----

    def make_prompt(self) -> list[int]:
        rng = np.random.default_rng(self.case["seed"])
        with self.opened() as engine:
            n_vocab = engine.n_vocab
        length = min(gene(self.case, "prompt"), max(1, self.n_ctx))
        return [int(t) for t in rng.integers(0, n_vocab, length)]

    def logits(self, executor: Any = None, **options: Any) -> np.ndarray:
        with self.opened(executor, **options) as engine:
            return engine.forward(engine.new_sequence(), self.prompt, "all").copy()

    def invariance(self, base: np.ndarray) -> None:
        isas = available_isas()
        ways = [(1, 2, isas[-1]), (7, 3, isas[self.case["seed"] % len(isas)])]
        ways.append((gene(self.case, "chunk"), gene(self.case, "threads"), gene(self.case, "isa")))
        for chunk, threads, isa in ways:
            got = self.logits(chunk=chunk, threads=threads, cpu_isa=isa)
            if not same_bits(got, base):
                row = int(np.flatnonzero((got.view(np.uint32) != base.view(np.uint32)).any(axis=1))[0])
                raise Broken("bits", f"chunk {chunk}, {threads} threads, {isa}: row {row} differs")
        with self.opened(chunk=3) as engine:  # a prompt, then single rows
            seq = engine.new_sequence()
            first = engine.forward(seq, self.prompt[: len(self.prompt) // 2 + 1])[-1]
            rows = [
                first.copy(),
                *(engine.forward(seq, [t])[-1].copy() for t in self.prompt[len(self.prompt) // 2 + 1 :]),
            ]
            if not same_bits(np.array(rows), base[len(self.prompt) // 2 :]):
                raise Broken("bits", "decode differs from prefill")

    def against_reference(self, base: np.ndarray) -> None:
        other = self.logits(ReferenceExecutor())
        finite, expected = np.isfinite(base).all(axis=1), np.isfinite(other).all(axis=1)
        if not (finite == expected).all():
            if self.near_the_edge():
                self.facts.add("edge of float32")
                return
            row = int(np.flatnonzero(finite != expected)[0])
            raise Broken("verdict", f"row {row}: finite on cpu {bool(finite[row])}, on reference {bool(expected[row])}")
        pair = diff.make_pair("cpu,reference", 1, "auto")
        try:
            self.logits(pair, chunk=16)
            self.facts.add("compared")
        except diff.Disagreement as error:
            values = " ".join(error.difference.values) + error.difference.detail
            if "nan" in values or "inf" in values:
                self.facts.add("not finite inside")
            elif self.beyond_precision(str(error)):
                self.facts.add("edge of float32")
            else:
                raise Broken("tolerance", str(error).replace("\n", " ")) from error

    def beyond_precision(self, report: str) -> bool:
        """Whether a difference is one that no order of operations in float32 could avoid."""
        sharp = "attention" in report.splitlines()[0] and float(gene(self.case, "attn_factor") or 1) >= SHARP
        return sharp or vanishing(report) or self.near_the_edge()

    def near_the_edge(self) -> bool:
        widest = Widest()
        self.logits(widest)
        return widest.most > EDGE

    # ---- sampling and drafts ----

    def generation(self, finite: bool) -> None:
        results = [self.generated(None), self.generated("lookup")]
        with self.opened() as engine:
            has_mtp = engine.config.mtp is not None
        if has_mtp:
            draft = Mtp(DraftOptions(p_min=0.0))
            if refusal(lambda: self.opened(CpuExecutor(1), draft=draft).close()) is None:
                results += [self.generated("mtp"), self.generated("mtp+lookup")]
                self.facts.add("mtp")
            else:
                self.mtp_refused = True  # heads that cannot be taken apart, or a damaged tensor of the block
                self.facts.add("mtp refused")
        for other in results[1:]:
            if other != results[0]:
                raise Broken("drafts", f"with drafts {other}, without {results[0]}")
        self.facts.add("generated" if isinstance(results[0], list) else "no token")

    def generated(self, drafter: str | None) -> list[int] | str:
        """Token ids, or the line with which sampling refuses."""
        draft = Mtp(DraftOptions(p_min=0.0)) if drafter and "mtp" in drafter else None
        executor = CpuExecutor(2)
        with self.opened(executor, draft=draft, chunk=16) as engine:
            seq = engine.new_sequence()
            params = SamplerParams(temp=0.7, top_k=0, seed=3)
            sampler = Sampler(params, engine.n_vocab)
            made = make_drafter(drafter, engine, 5, measured=False) if drafter else None
            out: list[int] = []
            try:
                for token in generate(engine, seq, self.prompt, sampler, max_tokens=14, eog_ids=(), drafter=made):
                    out.append(token)
            except SampleError as error:
                return str(error)
            if not all(0 <= t < engine.n_vocab for t in out):
                raise Broken("ids", f"{out} in a vocabulary of {engine.n_vocab}")
            return out

    def perplexity(self, base: np.ndarray) -> None:
        """As ie-ppl measures it: a number or one line, and a line wherever a row holds no number."""
        if len(self.prompt) < 4:
            return
        windows = ppl.disjoint(len(self.prompt), len(self.prompt) // 2, None, None)
        with self.opened() as engine:
            found: list[float] = []

            def measure() -> None:
                for estimate in ppl.perplexity(engine, self.prompt, windows):
                    found.extend((estimate.value, estimate.error))

            refused = refusal(measure)
        if refused is None and any(math.isnan(v) for v in found):
            raise Broken("perplexity", f"NaN: {found}")
        self.facts.add("perplexity refused" if refused else "perplexity")

    # ---- the commands ----

    def commands(self) -> None:
        """The installed commands with the case's options, in this process."""
        words = self.vocabulary()
        text = self.path + ".txt"
        Path(text).write_bytes(TEXTS[gene(self.case, "text")])
        no_text = words.__class__.__name__ == "NoTokenizer"
        ids = ",".join(map(str, self.prompt[:20]))
        common = [
            "-n",
            gene(self.case, "predict"),
            "-s",
            "7",
            "-c",
            str(self.n_ctx),
            "-t",
            str(gene(self.case, "threads")),
        ]
        common += ["--chunk", str(gene(self.case, "chunk")), "--cpu-isa", gene(self.case, "isa"), *sampling(self.case)]
        if not no_text:
            self.tokenize(text, words.n_vocab)
            self.run_once([self.path, "-f", text, *common])
            self.run_ppl(text)
            if gene(self.case, "template") is not None:
                self.run_once([self.path, "-cnv", "-st", "-p", "hi <|im_end|> \x1b", *common])
        plain = self.run_once([self.path, "--tokens", ids, "--print-ids", *common])
        drafts = drafting(self.case)
        if drafts:
            with_drafts = self.run_once([self.path, "--tokens", ids, "--print-ids", *common, *drafts])
            refused_draft = with_drafts[0] == 1 and (self.mtp_refused or "MTP" in with_drafts[2])
            if with_drafts[:2] != plain[:2] and not refused_draft:
                raise Broken("drafts", f"{drafts}: {with_drafts}, without {plain}")
        if plain[0] == 0:
            self.facts.add("command")
        self.run_once([self.path, "--info"])
        self.extra_command(ids, plain)

    def extra_command(self, ids: str, plain: tuple[int, str, str]) -> None:
        """What only some cases run, as it takes time: the commands that look inside, and the measuring ones."""
        kind, out = gene(self.case, "extra_command"), self.path + ".out"
        prompt = [self.path, "--tokens", ids, "-n", "2", "-c", "64", "-t", "1"]
        ways = {
            "dump": [*prompt, "--print-ids", "--dump-logits", out + ".npy"],
            "dump text": [*prompt, "--print-ids", "--dump-logits", out],
            "stop": [*prompt[:3], "--stop-after", "rope:0"],
            "layers": [*prompt, "--print-ids", "--layers", "1"],
            "trace": [*prompt, "--print-ids", "--trace", out],
            "reference": [*prompt, "--print-ids", "--executor", "reference"],
            "raw": [*prompt[:3], "--executor", "reference", "--stop-after", "0"],
        }
        if kind in ways:
            self.run_once(ways[kind])
        elif kind in ("diff", "diff float64"):
            pair = "cpu,reference" if kind == "diff" else "reference-float64,cpu"
            status, out, err = run_command(ie_run.main, [*prompt, "--diff", pair])
            failed = any(not line.endswith("; ignored") for line in err.splitlines() if line.startswith("ie-run: "))
            if status == 1 and "differ first" in out and not failed:
                # This one is a result, which stdout gets; of numbers that are none, none are equal.
                if "nan" not in out and "inf" not in out and not self.beyond_precision(out):
                    raise Broken("tolerance", out)
            else:
                self.judge("ie-run", ["--diff", pair], status, err)
        elif kind == "bench":
            self.judged("ie-bench", ie_bench.main, [self.path, "-p", "3", "-n", "2", "-r", "1", "-t", "1"])
        elif kind == "kld":
            text, base = self.path + ".kld.txt", self.path + ".kld"
            Path(text).write_bytes(b" the old clock said that the old clock" * 40)
            words = [self.path, "-f", text, "-t", "1"]
            made = self.judged(
                "ie-ppl", ie_ppl.main, [*words, "-c", "16", "--chunks", "20", "--kl-divergence-base", base]
            )
            if made[0] == 0:
                self.judged("ie-ppl", ie_ppl.main, [*words, "--kl-divergence", "--kl-divergence-base", base])
        if kind is not None:
            self.facts.add("extra command")

    def run_once(self, argv: Sequence[str]) -> tuple[int, str, str]:
        return self.judged("ie-run", ie_run.main, argv)

    def judged(self, name: str, main: Callable[[Sequence[str]], int], argv: Sequence[str]) -> tuple[int, str, str]:
        """(status, stdout, the line of an error) of a command.

        Broken for a bug, a traceback, a warning, or a failure that is not one line."""
        status, out, err = run_command(main, argv)
        return status, out, self.judge(name, [a if len(a) < 60 else a[:60] + "…" for a in argv[1:40]], status, err)

    def judge(self, name: str, shown: Sequence[str], status: int, err: str) -> str:
        """The line of an error in stderr, or nothing; Broken as for `judged`."""
        for sign in ("this is a bug", "Traceback", "Warning:", "out of memory"):
            if sign in err:
                raise Broken("bug", f"{name} {shown}: {err[-600:]!r}")
        said = [line for line in err.splitlines() if line.startswith(f"{name}: ")]
        lines = [line for line in said if not line.endswith("; ignored")]  # notes of reading the file
        if status not in (0, 1) or (status == 1) != (len(lines) == 1):
            raise Broken("status", f"{name} {shown}: status {status}, stderr {err[-600:]!r}")
        self.lines.update(lines)
        return "\n".join(lines)

    def run_ppl(self, text: str) -> None:
        long = self.path + ".long.txt"
        Path(long).write_bytes(Path(text).read_bytes() * 3 + b" the old clock said that the old clock" * 3)
        self.judged("ie-ppl", ie_ppl.main, [self.path, "-f", long, "-c", "8", "--chunks", "2", "-t", "1"])

    def tokenize(self, text: str, n_vocab: int) -> None:
        status, out, _ = self.judged("ie-tokenize", ie_tokenize.main, [self.path, "-f", text, "--ids"])
        if status == 0 and not all(0 <= int(t) < n_vocab for t in out.strip(" []\n").split(",") if t):
            raise Broken("ids", f"ie-tokenize: {out[:200]} in a vocabulary of {n_vocab}")
        self.judged("ie-tokenize", ie_tokenize.main, [self.path, "-f", text])


VANISHING = 1e-30
"""Differences below this are of numbers that one order of operations loses and another does not: products that leave
float32 at its small end, and what lies near an exponential's end."""


def vanishing(report: str) -> bool:
    """Whether the worst difference of a report is as small as that."""
    worst = re.search(r"worst at \[[^\]]*\], ([0-9.e+-]+) where", report)
    return worst is not None and float(worst[1]) < VANISHING


def sampling(case: Case) -> list[str]:
    """The command line of the sampling genes."""
    out = ["--temp", gene(case, "temp"), "--top-k", gene(case, "top_k"), "--top-p", gene(case, "top_p")]
    out += ["--min-p", gene(case, "min_p")]
    for name, flags in (
        ("typical", ("--typical",)), ("sigma", ("--top-nsigma",)), ("xtc", ("--xtc-probability", "--xtc-threshold")),
        ("penalties", ("--repeat-penalty", "--presence-penalty", "--frequency-penalty")),
        ("last_n", ("--repeat-last-n",)),
        ("dry", ("--dry-multiplier", "--dry-base", "--dry-allowed-length")), ("breaker", ("--dry-sequence-breaker",)),
        ("dynatemp", ("--dynatemp-range", "--dynatemp-exp")), ("samplers", ("--samplers",)), ("stop", ("--stop",)),
    ):  # fmt: skip
        value = gene(case, name)
        if value is not None:
            words = str(value).split(" ") if len(flags) > 1 else [str(value)]
            out += [part for flag, word in zip(flags, words, strict=True) for part in (flag, word)]
    bias = gene(case, "bias")
    if bias == "every-inf":
        out += [part for token in range(300) for part in ("--logit-bias", f"{token}-inf")]
    elif bias is not None:
        out += ["--logit-bias", bias]
    return [*out, "--ignore-eos"] if gene(case, "ignore_eos") else out


def drafting(case: Case) -> list[str]:
    drafter = gene(case, "drafter")
    if drafter is None:
        return []
    more = gene(case, "draft_more") if drafter != "lookup" else ()
    return ["--draft", str(gene(case, "draft")), "--drafter", drafter, *more]


class _Stream(io.TextIOWrapper):
    """A standard stream that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode("utf-8", "backslashreplace")  # type: ignore[attr-defined]


def run_command(main: Callable[[Sequence[str]], int], argv: Sequence[str]) -> tuple[int, str, str]:
    """(status, stdout, stderr) of a command in this process."""
    before = sys.stdout, sys.stderr
    out, err = _Stream(), _Stream()
    sys.stdout, sys.stderr = out, err
    try:
        status = main(list(argv))
    finally:
        sys.stdout, sys.stderr = before
    return status, out.text(), err.text()
