"""What a run of ie-run is asked to do: which prompt, from where, as text or as a conversation.

Owns: the rules by which options exclude each other (a pure function), and reading prompts. A prompt is bytes until a
tokenizer or a template needs it otherwise; files are untrusted: their size is bounded before they are read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ..errors import OptionError
from . import drafting
from .inputs import read_at_most
from .options import Options

MAX_PROMPT_BYTES = 64 << 20

Source = Literal["prompt", "file", "tokens", "tokens_file", "stdin", "none"]
_FLAG = {"prompt": "-p", "file": "-f", "tokens": "--tokens", "tokens_file": "--tokens-file"}
# Options that have a meaning next to --info.
# Options that a run which prints findings in place of text has no use for.
_TEXT_FIELDS = {"print_ids": "--print-ids", "dump_logits": "--dump-logits"}
_INFO_FIELDS = {"info", "model", "verbose"}


@dataclass(frozen=True)
class Task:
    """How a run proceeds."""

    source: Source
    chat: bool  # the chat template is used
    interactive: bool  # it goes on at the terminal after the first answer


def plan(chosen: Options, stdin_is_terminal: bool) -> Task:
    """Options → Task; OptionError for combinations in which an option would have to be ignored."""
    if chosen.model is None:
        raise OptionError('no model given. Name a GGUF file: ie-run model.gguf -p "Water boils at"')
    if chosen.info:
        extra = sorted(chosen.given - _INFO_FIELDS)
        if extra:
            raise OptionError(f"--info only looks at the file: leave out --{extra[0].replace('_', '-')}")
        return Task("none", chat=False, interactive=False)
    if chosen.executor != "cpu" and chosen.cpu_isa != "auto":
        raise OptionError(f"--cpu-isa is for --executor cpu, not for {chosen.executor}: leave out one of them")
    source = _source(chosen, stdin_is_terminal)
    chat = source == "none" if chosen.conversation is None else chosen.conversation
    _check_source(chosen, source, chat)
    reads_stdin = source == "stdin" or chosen.file == "-" or chosen.tokens_file == "-"
    goes_on = chat and stdin_is_terminal and not reads_stdin and not chosen.single_turn
    if goes_on and (chosen.dump_logits is not None or chosen.print_ids):
        flag = "--dump-logits" if chosen.dump_logits is not None else "--print-ids"
        raise OptionError(f"{flag} is for a single answer, not for a conversation: add -st, or give a prompt with -p")
    _check_examination(chosen, goes_on)
    drafting.check(chosen)
    if goes_on and chosen.n_predict == 0:
        raise OptionError("-n 0 leaves nothing to say in a conversation")
    return Task(source, chat, interactive=goes_on)


def examines(chosen: Options) -> bool:
    """Whether the run prints findings in place of text."""
    return chosen.diff is not None or chosen.stop_after is not None


def _check_examination(chosen: Options, goes_on: bool) -> None:
    flag = "--diff" if chosen.diff is not None else "--stop-after"
    if chosen.diff is not None and "executor" in chosen.given:
        raise OptionError("--diff names its executors itself: leave out --executor")
    if chosen.diff is not None and chosen.trace is not None:
        raise OptionError("--trace times one executor, --diff runs two: leave out one of them")
    if not examines(chosen):
        return
    for name, other in _TEXT_FIELDS.items():
        if name in chosen.given:
            raise OptionError(f"{flag} prints what it finds and no text: leave out {other}")
    if goes_on:
        raise OptionError(f"{flag} is for a single answer, not for a conversation: add -st, or give a prompt with -p")
    if chosen.stop_after is not None and chosen.n_predict > 0:
        raise OptionError("--stop-after ends before there are logits, so nothing is generated: leave out -n")


def _source(chosen: Options, stdin_is_terminal: bool) -> Source:
    sources: list[Source] = ["prompt", "file", "tokens", "tokens_file"]
    given = [name for name in sources if getattr(chosen, name) is not None]
    if len(given) > 1:
        raise OptionError(f"{_FLAG[given[0]]} and {_FLAG[given[1]]} both give a prompt: leave out one of them")
    if given:
        return given[0]
    return "none" if stdin_is_terminal else "stdin"


def _check_source(chosen: Options, source: Source, chat: bool) -> None:
    if source == "none" and not chat:
        raise OptionError("no prompt: give one with -p or -f, or pipe it in")
    if chat and source in ("tokens", "tokens_file"):
        raise OptionError(f"{_FLAG[source]} gives token ids, but a conversation (-cnv) needs text: leave out one")
    if not chat and chosen.system is not None:
        raise OptionError("-sys is for conversations: add -cnv")
    if not chat and chosen.single_turn:
        raise OptionError("-st is for conversations: add -cnv")


def read_prompt(chosen: Options, task: Task) -> bytes:
    """The bytes of the prompt; empty for a conversation that starts at the terminal. OptionError, OSError."""
    if task.source == "prompt":
        assert chosen.prompt is not None
        return chosen.prompt.encode("utf-8", "surrogateescape")
    if task.source == "tokens":
        assert chosen.tokens is not None
        return chosen.tokens.encode("utf-8", "surrogateescape")
    if task.source == "none":
        return b""
    name = {"file": chosen.file, "tokens_file": chosen.tokens_file}.get(task.source) or "-"
    data = _read_bounded(name)
    return data if task.source == "tokens_file" else data.removesuffix(b"\n")


def _read_bounded(name: str) -> bytes:
    data = read_at_most(name, MAX_PROMPT_BYTES, "give a prompt with -p or -f")
    if len(data) > MAX_PROMPT_BYTES:
        where = "the standard input" if name == "-" else name
        raise OptionError(f"{where}: longer than {MAX_PROMPT_BYTES >> 20} MiB, which no context holds")
    return data


def parse_ids(data: bytes, n_vocab: int, flag: str) -> list[int]:
    """Token ids separated by commas or white space; OptionError with the place of the first wrong one."""
    text = data.decode("utf-8", "backslashreplace").strip()
    if not text:
        raise OptionError(f"{flag}: no token ids in it")
    ids = []
    for number, word in enumerate(re.split(r"\s*,\s*|\s+", text), 1):
        if not re.fullmatch(r"\d{1,10}", word, re.ASCII) or int(word) >= n_vocab:
            got = f"'{word[:40]}'" if word else "nothing"
            raise OptionError(f"{flag}: item {number}: expected a token id from 0 to {n_vocab - 1}, got {got}")
        ids.append(int(word))
    return ids


def as_text(data: bytes, flag: str) -> str:
    """Bytes of a prompt as text, for a chat template; OptionError with the offset of the first wrong byte."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = f"byte 0x{data[error.start]:02x} at offset {error.start:,}"
        raise OptionError(f"{flag}: not UTF-8 text: {wrong}. A conversation needs text") from error


def flag_of(source: Source) -> str:
    """How messages name the place a prompt came from."""
    return _FLAG.get(source, "the standard input")
