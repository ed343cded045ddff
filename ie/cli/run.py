"""`ie-run`: text from a model.

Owns: the course of a run, from options to exit status. What each stage does stands in its own module: task (which
prompt), load and session (the model), answer (one generation), chat (a conversation), summary, info.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import OptionError
from ..settings import resolve_seed
from . import console as console_module
from . import sampling
from .answer import answer, check_bytes, check_length, feed
from .chat import Conversation, ReadLine, encode, opening, read_message, talk, terminal_reader
from .console import INTERRUPTED, OK, Console, OutputError
from .dump import LogitsDump
from .inputs import check_outputs
from .options import Options
from .session import Loader, Session, fresh_seed
from .summary import Timing, enough, summary
from .task import Task, as_text, examines, flag_of, parse_ids, plan, read_prompt

COMMAND = "ie-run"


def main(argv: Sequence[str] | None = None, loader: Loader | None = None) -> int:
    """Entry point; returns the exit status. Tests give a loader of their own."""
    words = sys.argv[1:] if argv is None else argv
    return console_module.run(COMMAND, words, lambda console, chosen: _main(console, chosen, loader))


def _main(console: Console, chosen: Options, loader: Loader | None) -> int:
    task = plan(chosen, sys.stdin is not None and sys.stdin.isatty())
    sampling.check(chosen)
    if chosen.info:
        return _info(console, chosen)
    check_outputs({"--dump-logits": chosen.dump_logits, "--trace": chosen.trace}, chosen)
    data = read_prompt(chosen, task)
    if task.chat and task.source != "none" and not data.strip():
        raise OptionError(f"{flag_of(task.source)}: the prompt is empty")
    seed = resolve_seed(chosen.seed, fresh_seed)
    session = (loader or _default_loader())(chosen)
    try:
        for warning in session.warnings:
            console.line(warning)
        for note in (*session.notes, f"seed {seed}" + (" (random)" if chosen.seed < 0 else "")):
            console.note(note)
        for note in session.inspection.notes if session.inspection else ():
            console.line(note)
        if session.drafting is not None:
            for note in session.drafting.notes:
                console.line(note)
            session.drafting.show = console.line_apart if chosen.spec_trace else None
        if session.engine.n_ctx > session.trained_context:
            console.line(f"note: the model was made for a context of {session.trained_context:,} tokens, not more")
        run = Run(console, chosen, task, session, seed)
        return run.conversation(data) if task.interactive else run.single(data)
    finally:
        session.engine.close()


def _default_loader() -> Loader:
    from .load import load

    return load


def _info(console: Console, chosen: Options) -> int:
    from ..gguf import GgufFile
    from . import info

    assert chosen.model is not None
    with GgufFile.open(chosen.model) as gguf:
        for line in info.lines(gguf):
            console.text(line + "\n")
    return OK


@dataclass(frozen=True)
class Run:
    """One run after loading."""

    console: Console
    chosen: Options
    task: Task
    session: Session
    seed: int

    def conversation(self, data: bytes) -> int:
        """Messages from the terminal; the first one may have come with the command line."""
        conversation = Conversation(self.session, self.chosen, self.seed, self.console)
        read_line: ReadLine = terminal_reader(self.console)
        self.console.line("(/help lists what can be done besides talking)")
        if data:
            conversation.say(as_text(data, flag_of(self.task.source)))
            self.console.end_answer()
        talk(conversation, self.console, read_line)
        drafting = self.session.drafting
        return self._finish(conversation.total, drafting.total.describe() if drafting is not None else "")

    def single(self, data: bytes) -> int:
        """One answer, or with -n 0 none."""
        ids = self._chat_ids(data) if self.task.chat else self._raw_ids(data)
        check_length(len(ids), self.session)
        if examines(self.chosen):
            from .inspect import examine

            return examine(self.console, self.session, ids, self.chosen)
        self._check_text()
        if self.chosen.dump_logits is None:
            return OK if self.chosen.n_predict == 0 else self._answer(data, ids, None)
        with LogitsDump(self.chosen.dump_logits, self.session.engine.n_vocab) as dump:
            if self.chosen.n_predict == 0:
                feed(self.session, self.session.engine.new_sequence(), ids, dump)
                dump.commit()
                return OK
            return self._answer(data, ids, dump)

    def _check_text(self) -> None:
        """OptionError where text is wanted from a file that has no vocabulary: it would be empty."""
        from ..tokenizer.codec import NoTokenizer

        if isinstance(self.session.tokenizer, NoTokenizer) and not self.chosen.print_ids and self.chosen.n_predict:
            raise OptionError(f"{self.chosen.model}: the file has no tokenizer, so there is no text: add --print-ids")

    def _chat_ids(self, data: bytes) -> list[int]:
        messages = opening(self.session, self.chosen)
        if self.task.source == "none":
            try:
                text = read_message(terminal_reader(self.console))
            except EOFError as error:
                raise OptionError("no message was given") from error
        else:
            text = as_text(data, flag_of(self.task.source))
        message = {"role": "user", "content": text}
        return encode(self.session, [*messages, message], self.chosen.parse_special is True)

    def _raw_ids(self, data: bytes) -> list[int]:
        if self.task.source in ("tokens", "tokens_file"):
            return parse_ids(data, self.session.engine.n_vocab, flag_of(self.task.source))
        check_bytes(len(data), self.session)
        ids = self.session.tokenizer.encode(data, parse_special=self.chosen.parse_special is not False)
        if not ids:
            raise OptionError("the prompt is empty, and this model begins no text by itself: give it a text with -p")
        return ids

    def _answer(self, data: bytes, ids: list[int], dump: LogitsDump | None) -> int:
        seq = self.session.engine.new_sequence()
        text, one_id = self.console.text, None
        if self.chosen.print_ids:
            text, one_id = (lambda piece: None), (lambda token: self.console.text(f"{token}\n"))
        if self.chosen.display_prompt and not self.task.chat:
            if one_id is not None:
                for token in ids:
                    one_id(token)
            elif self.task.source in ("tokens", "tokens_file"):
                text(self.session.tokenizer.decode(ids))
            else:
                text(data)
        result = answer(self.session, seq, ids, self.chosen, self.seed, text, emit_id=one_id, dump=dump)
        # After Ctrl-C the dump is not committed: a file with fewer positions would pass for a whole one.
        if dump is not None and result.reason != "interrupt":
            dump.commit()
        return self._finish(result.timing, result.note, INTERRUPTED if result.reason == "interrupt" else OK)

    def _finish(self, timing: Timing, note: str, status: int = OK) -> int:
        """Prints the summary; a second Ctrl-C does not cut it off, but nobody is waited for any longer."""
        console, session = self.console, self.session
        before = signal.signal(signal.SIGINT, lambda number, frame: console.hurry())
        if status == INTERRUPTED:
            console.hurry()
        try:
            console.end_text()
            bandwidth = session.bandwidth() if enough(timing) else 0.0
            console.line(summary(session.load_seconds, timing, session.weight_bytes, bandwidth, note))
        except OutputError:
            if status != INTERRUPTED:
                raise
        finally:
            signal.signal(signal.SIGINT, before)
        return status
