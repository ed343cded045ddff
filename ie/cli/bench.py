"""`ie-bench`: rates of reading and generating, as llama-bench reports them.

Owns: the forms of the report (llama-bench's columns and JSON keys, with GB/s and the share of the machine's memory
bandwidth beside them). Does not own how anything is measured (ie/measure/bench.py).
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from .. import __version__, settings
from ..errors import OptionError
from ..gguf import GgufFile
from ..machine import this_machine
from ..measure.bench import TEXT, TEXT_ROOM, Case, Samples, bandwidth_share, measure, measure_drafted, plan, weight_rate
from . import console as console_module
from . import drafting
from .console import OK, ClosedOutput, Console, OutputError
from .options import Options
from .session import Loader
from .visible import one_line

COMMAND = "ie-bench"
BACKENDS = {"cpu": "CPU"}


def main(argv: Sequence[str] | None = None, loader: Loader | None = None) -> int:
    """Entry point; returns the exit status. Tests give a loader of their own."""
    words = sys.argv[1:] if argv is None else argv
    return console_module.run(COMMAND, words, lambda console, chosen: _main(console, chosen, loader))


def _main(console: Console, chosen: Options, loader: Loader | None) -> int:
    if chosen.model is None:
        raise OptionError("no model: name a GGUF file, as in: ie-bench model.gguf")
    tests = plan(chosen.bench_prompt, chosen.bench_gen, chosen.bench_pair, chosen.bench_depth)
    if not tests:
        raise OptionError("nothing to measure: -p and -n are 0, and there is no -pg")
    drafting.check(chosen)
    if chosen.draft != "0" and chosen.bench_pair:
        raise OptionError("--draft is for tests that only generate (-n): leave out -pg")
    model = describe(chosen.model)
    with PRINTERS[chosen.output](console.text, chosen) as printer:
        for threads in chosen.bench_threads:
            for result in _results(console, chosen, tests, threads, model, loader or _default_loader()):
                printer.print(result)
    return OK


def _default_loader() -> Loader:
    from .load import load

    return partial(load, text=False)


# -- the facts of a result ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelFacts:
    """What is said of the model file."""

    filename: str
    kind: str  # architecture, size, most common format
    size: int  # bytes of tensors
    params: int


def describe(path: str) -> ModelFacts:
    """Reads the file's tables. IeError, OSError."""
    with GgufFile.open(path) as gguf:
        by_format: dict[str, int] = {}
        params = 0
        for tensor in gguf.tensors.values():
            elements = 1
            for dim in tensor.shape:
                elements *= dim
            params += elements
            by_format[tensor.format.name] = by_format.get(tensor.format.name, 0) + tensor.nbytes
        common = max(by_format, key=lambda name: by_format[name], default="")
        arch = one_line(str(gguf.get("general.architecture", "?")))
        return ModelFacts(path, f"{arch} {_short(params)} {common}".strip(), sum(by_format.values()), params)


def _short(count: int) -> str:
    """135M, 1.5B."""
    return f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.0f}M"


@dataclass(frozen=True)
class Result:
    """One line of the report."""

    model: ModelFacts
    chosen: Options
    samples: Samples
    threads: int
    began: float  # seconds since the epoch
    weight_bytes: int

    @property
    def bandwidth(self) -> float:
        """Bytes/s that the machine read meanwhile: the median; 0 when not known."""
        return statistics.median(self.samples.bandwidths) if self.samples.bandwidths else 0.0

    @property
    def gbs(self) -> float | None:
        """GB/s of weights read while generating."""
        found = weight_rate(self.samples, self.weight_bytes)
        return None if found is None else found / 1e9

    @property
    def share(self) -> float | None:
        """That, as a share of what the machine read at the time."""
        return bandwidth_share(self.samples, self.weight_bytes)

    @property
    def backend(self) -> str:
        return BACKENDS.get(self.chosen.executor, self.chosen.executor)

    def fields(self) -> dict[str, Any]:
        """llama-bench's keys; those of things that do not exist here have their neutral value. Ours follow."""
        samples, test, drafts = self.samples, self.samples.test, self.samples.drafts
        (avg_ns, stddev_ns), (avg_ts, stddev_ts) = samples.duration, samples.rate
        return {
            "build_commit": f"ie {__version__}",
            "build_number": 0,
            "cpu_info": this_machine().cpu_name,
            "gpu_info": "",
            "backends": self.backend,
            "model_filename": self.model.filename,
            "model_type": self.model.kind,
            "model_size": self.model.size,
            "model_n_params": self.model.params,
            "n_batch": self.chosen.chunk,
            "n_ubatch": self.chosen.chunk,
            "n_threads": self.threads,
            "cpu_mask": "0x0",
            "cpu_strict": False,
            "poll": 0,
            "type_k": "f16",
            "type_v": "f16",
            "n_gpu_layers": 0,
            "split_mode": "none",
            "main_gpu": 0,
            "no_kv_offload": False,
            "flash_attn": True,
            "tensor_split": "0.00",
            "use_mmap": True,
            "embeddings": False,
            "n_prompt": test.n_prompt,
            "n_gen": test.n_gen,
            "n_depth": test.n_depth,
            "test_time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.began)),
            "avg_ns": round(avg_ns),
            "stddev_ns": round(stddev_ns),
            "avg_ts": round(avg_ts, 6),
            "stddev_ts": round(stddev_ts, 6),
            "samples_ns": list(samples.ns),
            "samples_ts": [round(rate, 6) for rate in samples.rates],
            "test": test.label,
            "executor": self.chosen.executor,
            "cpu_isa": self.chosen.cpu_isa,
            "weight_bytes": self.weight_bytes,
            "weight_gbs": None if self.gbs is None else round(self.gbs, 3),
            "bandwidth_gbs": round(self.bandwidth / 1e9, 3) if self.bandwidth else None,
            "bandwidth_share": None if self.share is None else round(self.share, 4),
            "draft": self.chosen.draft,
            "draft_proposed": drafts.proposed if drafts else None,
            "draft_accepted": drafts.accepted if drafts else None,
            "tokens_per_step": round(drafts.emitted / drafts.steps, 4) if drafts else None,
        }


def _results(
    console: Console, chosen: Options, tests: list[Case], threads: int, model: ModelFacts, loader: Loader
) -> Iterator[Result]:
    """Opens the model once for a number of threads, and measures."""
    context = max(test.tokens for test in tests) + (TEXT_ROOM if chosen.draft != "0" else 0)
    session = loader(dataclasses.replace(chosen, ctx_size=context, threads=threads))
    here = this_machine()
    used = settings.resolve_threads(settings.bound_threads(threads, here.useful), here.cores)
    used = used if chosen.executor == "cpu" else 1
    try:
        for warning in session.warnings:
            console.line(warning)
        for note in session.notes:
            console.note(note)
        if context > session.trained_context:
            console.line(f"note: the model was made for a context of {session.trained_context:,} tokens, not more")
        bos = session.tokenizer.bos_id if session.tokenizer.add_bos else None
        for test in tests:
            time.sleep(chosen.delay)
            console.note(f"measuring {test.label} with {used} thread{'s' if used != 1 else ''}")
            began = time.time()
            how: dict[str, Any] = {"repetitions": chosen.repetitions, "warmup": chosen.warmup}
            if session.drafting is not None and test.n_gen:
                text = session.tokenizer.encode(TEXT)[:TEXT_ROOM]
                samples = measure_drafted(session.engine, test, text, session.drafting.drafter, **how)
            else:
                alone = test.n_gen > 0 and test.n_prompt == 0
                samples = measure(session.engine, test, bos=bos, bandwidth=session.bandwidth if alone else None, **how)
            yield Result(model, chosen, samples, used, began, session.weight_bytes)
    finally:
        session.engine.close()


# -- the forms of a report ---------------------------------------------------------------------------------------------

Write = Callable[[str], None]


class _Printer:
    """Results are printed as they come. Before the first nothing is, and after an error those so far are complete."""

    def __init__(self, write: Write, chosen: Options) -> None:
        self.write, self.chosen, self.count = write, chosen, 0

    def print(self, result: Result) -> None:
        """Prints a result."""
        if not self.count:
            self.begin()
        self.add(result)
        self.count += 1

    def begin(self) -> None:
        """Before the first result."""

    def add(self, result: Result) -> None:
        """A result."""

    def end(self) -> None:
        """After the last result."""

    def __enter__(self) -> _Printer:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if self.count and not isinstance(value, ClosedOutput | OutputError):
            self.end()


class Markdown(_Printer):
    """A table; parameters that are not at their defaults have a column."""

    def __init__(self, write: Write, chosen: Options) -> None:
        super().__init__(write, chosen)
        extra = [name for name in ("chunk", "cpu_isa") if getattr(chosen, name) != getattr(Options(), name)]
        # name, width, value
        self.columns: list[tuple[str, int, Callable[[Result], str]]] = [
            ("model", -24, lambda r: r.model.kind),
            ("size", 10, lambda r: f"{r.model.size / 2**20:.2f} MiB"),
            ("params", 10, lambda r: f"{r.model.params / 1e6:.2f} M"),
            ("backend", -9, lambda r: r.backend),
            ("threads", 7, lambda r: str(r.threads)),
            *((name, 7, lambda r, name=name: str(getattr(r.chosen, name))) for name in extra),
            ("test", 14, lambda r: r.samples.test.label),
            ("t/s", 22, lambda r: "{:.2f} ± {:.2f}".format(*r.samples.rate)),
            ("GB/s", 6, lambda r: "–" if r.gbs is None else f"{r.gbs:.1f}"),
            ("of memory", 9, lambda r: "–" if r.share is None else f"{100 * r.share:.0f} %"),
        ]
        if chosen.draft != "0":
            self.columns[-2:] = [
                ("draft", 5, lambda r: r.chosen.draft),
                ("accepted", 8, lambda r: _accepted(r.samples)),
                ("tok/step", 8, lambda r: "–" if not (d := r.samples.drafts) else f"{d.emitted / d.steps:.2f}"),
            ]

    def _row(self, cells: Sequence[str]) -> None:
        widths = [width for _, width, _ in self.columns]
        padded = (c.ljust(-w) if w < 0 else c.rjust(w) for c, w in zip(cells, widths, strict=True))
        self.write(f"| {' | '.join(padded)} |\n")

    def begin(self) -> None:
        self._row([name for name, _, _ in self.columns])
        self._row(["-" * abs(width) if width < 0 else "-" * (width - 1) + ":" for _, width, _ in self.columns])

    def add(self, result: Result) -> None:
        self._row([value(result) for _, _, value in self.columns])


def _accepted(samples: Samples) -> str:
    """Share of the drafts that held."""
    drafts = samples.drafts
    return f"{100 * drafts.accepted / drafts.proposed:.0f} %" if drafts and drafts.proposed else "–"


_TO_ESCAPE = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def _json(result: Result, indent: int | None = None) -> str:
    """An object. Names of files may hold anything: what a terminal obeys and what is not UTF-8 is escaped in JSON's own
    way."""
    text = json.dumps(result.fields(), indent=indent, ensure_ascii=False)
    return _TO_ESCAPE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Json(_Printer):
    """A list of objects."""

    def begin(self) -> None:
        self.write("[")

    def add(self, result: Result) -> None:
        text = _json(result, indent=2)
        self.write(("," if self.count else "") + "\n" + "\n".join("  " + line for line in text.split("\n")))

    def end(self) -> None:
        self.write("\n]\n")


class JsonLines(_Printer):
    """An object a line."""

    def add(self, result: Result) -> None:
        self.write(_json(result) + "\n")


class Csv(_Printer):
    """A line a test, without the single samples."""

    def add(self, result: Result) -> None:
        row = {name: value for name, value in result.fields().items() if not isinstance(value, list)}
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self.count:
            writer.writerow(row)
        writer.writerow(row.values())
        self.write(text.getvalue())


PRINTERS: dict[str, type[_Printer]] = {"md": Markdown, "json": Json, "jsonl": JsonLines, "csv": Csv}
