"""A conversation: messages, the chat template, commands that start with a slash.

Owns: the list of messages, what of it the engine already holds, and the loop at the terminal. Reading a line is a
function that it is given, so that tests need no terminal.
"""

from __future__ import annotations

import contextlib
import os
import sys
import termios
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import IeError, OptionError, TokenizerError
from . import ends
from .answer import Answer, answer, check_length
from .console import Console, OutputError, describe, err_stream
from .dump import AtomicFile
from .inputs import check_outputs
from .options import Options
from .session import Session
from .summary import Timing, enough, summary

HELP = """\
/reset    forget the conversation
/regen    answer the last message again, with other random numbers
/save F   write the conversation to a file
/stats    times of the last answer
/exit     leave (or Ctrl-D)
A line that ends in \\ goes on in the next. Ctrl-C ends an answer."""

ReadLine = Callable[[str], str]  # prompt → line; EOFError at the end, KeyboardInterrupt for Ctrl-C


class Conversation:
    """Messages so far and the sequence that holds them."""

    def __init__(self, session: Session, chosen: Options, seed: int, console: Console) -> None:
        self._session, self._chosen, self._seed, self._console = session, chosen, seed, console
        self._seq: Any = session.engine.new_sequence()
        self._answers = 0
        self.messages = opening(session, chosen)
        self.total = Timing()
        self.last: Answer | None = None

    def reset(self) -> None:
        """Forgets everything but the system message."""
        self.messages = opening(self._session, self._chosen)

    def say(self, text: str) -> Answer:
        """Adds a message and streams the answer to it. After an error the message is not part of the conversation."""
        self.messages.append({"role": "user", "content": text})
        try:
            return self._reply()
        except BaseException:
            del self.messages[-1]
            raise

    def regenerate(self) -> Answer:
        """Takes the last answer back and gives another one. OptionError when there is none."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            raise OptionError("there is no answer to give again")
        before = self.messages.pop()
        try:
            return self._reply()
        except BaseException:
            self.messages.append(before)
            raise

    def _reply(self) -> Answer:
        ids = encode(self._session, self.messages, self._chosen.parse_special is True)
        check_length(len(ids), self._session)
        keep = min(_common(self._seq.tokens, ids), len(ids) - 1)
        self._seq.truncate(keep)
        # Each answer has random numbers of its own, or asking again would give the same text.
        seed = (self._seed + self._answers) % 2**64
        result = answer(self._session, self._seq, ids[keep:], self._chosen, seed, self._console.text)
        self._answers += 1
        self.total += result.timing
        self.last = result
        self.messages.append({"role": "assistant", "content": result.text})
        if result.reason == "interrupt":
            # A step may have been cut short anywhere; what it left behind is not trusted.
            self._seq.close()
            self._seq = self._session.engine.new_sequence()
        return result

    def save(self, path: str) -> None:
        """Writes the conversation as Markdown. OptionError for a file in use or none, ResourceError, OSError."""
        check_outputs({"/save": path}, self._chosen)
        text = "".join(f"## {m['role']}\n\n{m['content'].strip()}\n\n" for m in self.messages)
        with AtomicFile(path) as target:
            target.file.write(text.encode("utf-8", "surrogateescape"))
            target.commit()

    def summary(self, timing: Timing, note: str = "") -> str:
        session = self._session
        bandwidth = session.bandwidth() if enough(timing) else 0.0
        return summary(session.load_seconds, timing, session.weight_bytes, bandwidth, note)


def opening(session: Session, chosen: Options) -> list[dict[str, str]]:
    """What a conversation begins with: the system message, or nothing. OptionError for a model that cannot converse."""
    if session.tokenizer.chat_template is None:
        raise OptionError("the model has no chat template: give a text to continue with -p, without -cnv")
    return [{"role": "system", "content": chosen.system}] if chosen.system is not None else []


def encode(session: Session, messages: Sequence[dict[str, str]], parse_special: bool) -> list[int]:
    """A whole conversation as token ids, ready for the next answer; see `tokenizer.encode_chat`."""
    from ..tokenizer import encode_chat

    ids = encode_chat(session.tokenizer, messages, parse_special=parse_special)
    if not ids:
        raise TokenizerError("chat template: it makes no text of the conversation")
    return ids


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def read_message(read_line: ReadLine) -> str:
    """One message: lines joined while they end in a backslash."""
    lines = [read_line("> ")]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(read_line("… "))
    return "\n".join(lines)


def talk(conversation: Conversation, console: Console, read_line: ReadLine) -> None:
    """The loop at the terminal, until /exit or the end of the input."""
    while True:
        try:
            text = read_message(read_line)
        except EOFError:
            return
        except KeyboardInterrupt:
            console.line("(/exit or Ctrl-D leaves)")
            continue
        if not text.strip():
            continue
        try:
            if text.startswith("/"):
                if not _command(conversation, console, text):
                    return
                continue
            conversation.say(text)
            console.end_answer()
        except KeyboardInterrupt:
            with contextlib.suppress(OutputError):
                console.end_answer()
        except (IeError, OSError) as error:
            console.error(describe(error))


def _command(conversation: Conversation, console: Console, text: str) -> bool:
    """Carries out a line that starts with a slash; False when it ends the conversation."""
    name, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    if name == "/save" and rest:
        conversation.save(rest)
        console.line(f"saved to {rest}")
    elif name == "/save":
        console.line("/save needs the name of a file")
    elif rest:
        console.line(f"{name} takes no argument")
    elif name == "/exit":
        return False
    elif name == "/reset":
        conversation.reset()
        console.line("the conversation is forgotten")
    elif name == "/regen":
        conversation.regenerate()
        console.end_answer()
    elif name == "/stats":
        last = conversation.last
        console.line(conversation.summary(last.timing, last.note) if last else "no answer yet")
    elif name == "/help":
        for line in HELP.splitlines():
            console.line(line)
    else:
        console.line(f"unknown command {name}. /help lists them; a message may start with a space and a slash")
    return True


def plain_reader(console: Console) -> ReadLine:
    """Lines from a terminal that only knows letters (TERM=dumb): no escape sequences, no history."""

    def read(prompt: str) -> str:
        console.prompt(prompt)
        line = sys.stdin.buffer.readline()
        if not line:
            raise EOFError
        return line.decode("utf-8", "replace").rstrip("\r\n")

    return read


def terminal_reader(console: Console) -> ReadLine:
    """Lines from the terminal, edited, with a history that is kept in the cache folder where that can be written."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.output import create_output
    from prompt_toolkit.output.vt100 import Vt100_Output
    from prompt_toolkit.utils import is_dumb_terminal

    from .history import open_history

    if is_dumb_terminal() or not console.err_is_terminal:
        return plain_reader(console)
    history, failure = open_history()
    if failure:
        console.note(f"{failure}: the history is not kept")
    # The prompt goes to stderr: stdout carries the answers alone, also when it is redirected.
    output = create_output(stdout=err_stream())
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False  # a line needs no cursor position, and a terminal that gives none is warned of
    session: PromptSession[str] = PromptSession(history=history, output=output)
    told = False

    def read(prompt: str) -> str:
        nonlocal told
        with ends.during(_terminal_as_it_is()):
            # Without a handler of its own: that one prints a traceback and waits for a key.
            line = session.prompt(prompt, set_exception_handler=False)
        failed = getattr(history, "failure", "")
        if failed and not told:
            told = True
            console.line(f"note: {failed}: the history is not kept")
        # Bytes that are not UTF-8 come as halves of surrogate pairs.
        return line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    return read


_MODES_OFF = b"\x1b[?2004l\x1b[?25h\x1b[0m\r\n"  # bracketed paste, hidden cursor, colours


def _terminal_as_it_is() -> Callable[[], None]:
    """What gives the terminal its present modes back."""
    try:
        terminal = sys.stdin.fileno()
        modes = termios.tcgetattr(terminal)
    except (OSError, ValueError, termios.error):
        return lambda: None

    def restore() -> None:
        termios.tcsetattr(terminal, termios.TCSANOW, modes)
        os.write(err_stream().fileno(), _MODES_OFF)

    return restore
