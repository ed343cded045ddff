"""Loading a model for the commands: engine, tokenizer, and what was chosen automatically.

Owns: putting the two together, with their timing. Stands apart from session.py so that the parts of a run can be
tested without an engine.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from .. import tokenizer
from ..draft.mtp import Mtp
from ..engine import Engine
from ..engine.generation import generate
from ..gguf import GgufFile
from ..machine import this_machine
from ..settings import bound_threads
from . import drafting, inspect, sampling
from .console import err_is_terminal
from .options import Options
from .session import Session

PATIENCE = 0.7  # seconds without a word before the progress of loading is shown


class Progress:
    """A bar on a terminal for a load that takes its time; nothing elsewhere, and nothing for a fast one."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._bar: Any = None
        self._shown = err_is_terminal()

    def __call__(self, done: int, total: int) -> None:
        """done of total bytes are loaded."""
        if not self._shown or (self._bar is None and time.monotonic() - self._start < PATIENCE):
            return
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, TextColumn
            from rich.progress import Progress as Bar

            class Plain(Console):
                """Does not hide the cursor, so that whatever ends the process need not bring it back."""

                def show_cursor(self, show: bool = True) -> bool:
                    return False

            self._bar = Bar(
                TextColumn("loading"), BarColumn(), DownloadColumn(), console=Plain(stderr=True), transient=True
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=total)
        self._bar.update(self._task, completed=done, total=total)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _bounded(chosen: Options) -> tuple[Options, tuple[str, ...]]:
    """The options with no more threads than can run at once, and a line that says so where they were fewer."""
    useful = this_machine().useful
    threads = bound_threads(chosen.threads, useful)
    if chosen.executor != "cpu" or threads == chosen.threads:
        return chosen, ()
    line = f"note: -t {chosen.threads}: no more threads run than there are processors for this process: {useful}"
    return dataclasses.replace(chosen, threads=threads), (line,)


def load(chosen: Options, text: bool = True) -> Session:
    """Opens the model that the options name; `text`: texts are going to be encoded. IeError for whatever is wrong."""
    start = time.monotonic()
    chosen, warnings = _bounded(chosen)
    assert chosen.model is not None
    asked = chosen.engine()
    progress = Progress()
    gguf = GgufFile.open(chosen.model)
    try:
        words = tokenizer.load(gguf)
        if text and not (chosen.tokens or chosen.tokens_file):
            words.start()  # it gets ready while weights are loaded
    except BaseException:
        gguf.close()
        raise
    try:
        inspection = inspect.prepare(chosen)
        mtp = chosen.drafting()
        engine = Engine.open(
            chosen.model,
            asked,
            executor=inspection.executor,
            progress=progress,
            edit=inspection.edit,
            gguf=gguf,
            draft=Mtp(mtp) if mtp is not None else None,
        )
    except BaseException:
        words.close()
        gguf.close()
        raise
    finally:
        progress.close()
    stats = engine.stats
    try:
        recommended = sampling.from_file(engine.gguf)
        sampling.check(chosen, engine.n_vocab)
        drafts = drafting.prepare(chosen, engine)
    except BaseException:
        words.close()
        engine.close()
        raise

    return Session(
        engine=engine,
        tokenizer=words,
        generate=generate,
        make_sampler=sampling.SamplerMaker(words, engine.n_vocab, recommended),
        load_seconds=time.monotonic() - start,
        weight_bytes=stats.weight_bytes,
        bandwidth=engine.read_bandwidth,
        trained_context=engine.config.n_ctx_train,
        notes=(
            f"executor {asked.executor}" + (f", {stats.isa}" if stats.isa else ""),
            *(
                [f"threads {stats.threads}" + (" (auto: one for each core)" if asked.threads == 0 else "")]
                if asked.executor == "cpu"
                else []
            ),
            f"context {engine.n_ctx:,} tokens" + (" (auto)" if asked.n_ctx == 0 else ""),
            *sampling.notes(chosen, recommended),
        ),
        warnings=warnings,
        inspection=inspection,
        drafting=drafts,
    )
