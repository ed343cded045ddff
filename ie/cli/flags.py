"""Command lines: what one option is, and reading words by a table of options.

Owns: `Spec` (flags, kind and range of one option), the wording of everything that can be wrong with a word, and the
reading itself, which `click` does. Does not own which options there are: that is ie/cli/options.py.

Rules, the same for every command: `--flag VALUE` and `--flag=VALUE`; `-` and `_` are the same inside a flag; no
abbreviations and no letters run together; a flag given twice counts the last time, unless it is repeatable; `--` ends
the flags. A value that is itself a flag must be attached with `=`, so that a forgotten value is never swallowed; it
may start with `-` otherwise, as a prompt does that is a list.
"""

from __future__ import annotations

import difflib
import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..errors import OptionError

if TYPE_CHECKING:
    import click

Kind = Literal["text", "path", "int", "float", "bool", "choice", "counts", "pair"]

INT_MAX = 2**31 - 1
MAX_COUNTS = 64
"""Most values that one list or range of counts may stand for."""


@dataclass(frozen=True)
class Spec:
    """How one field of Options appears on a command line."""

    flags: tuple[str, ...]
    kind: Kind
    help: str
    group: str
    commands: tuple[str, ...] = ("ie-run",)
    off_flags: tuple[str, ...] = ()  # bool only: flags that set False
    metavar: str = ""
    lo: float | None = None
    hi: float | None = None
    choices: tuple[str, ...] = ()
    repeatable: bool = False
    positional: bool = False
    shown_default: str = ""
    shown_choices: str = ""  # in place of a long list of them

    def every_flag(self) -> tuple[str, ...]:
        """Flags that set the option and those that switch it off."""
        return self.flags + self.off_flags

    def expected(self) -> str:
        """What a value must look like, for error messages and tables."""
        if self.kind == "choice":
            return self.shown_choices or " or ".join([", ".join(self.choices[:-1]), self.choices[-1]])
        if self.kind in ("int", "float"):
            return ("an integer" if self.kind == "int" else "a number") + self._range()
        if self.kind == "counts":
            return f"integers{self._range()}, as 512 or 128,512 or 1-8 or 1-8+2 or 1-64*2"
        if self.kind == "pair":
            return f"two integers{self._range()}, as 512,128"
        return "a file name" if self.kind == "path" else "a text"

    def _range(self) -> str:
        if self.lo is not None and self.hi is not None and self.hi < INT_MAX:
            return f" from {self.lo:,} to {self.hi:,}"
        return f" of at least {self.lo:,}" if self.lo is not None else ""


def read(command: str, known: Mapping[str, Spec], argv: Sequence[str]) -> dict[str, Any]:
    """The values that the words of a command line give, by name; a name that none sets is absent.

    OptionError, one line, for an unknown flag (with the nearest known one), a missing or wrong value (with flag,
    value and what was expected) and an argument too many.
    """
    import click
    from click.core import ParameterSource

    params: list[click.Parameter] = [_parameter(name, spec) for name, spec in known.items()]
    params.append(click.Argument(["_words"], nargs=-1, type=click.UNPROCESSED))
    reader = _command_class()(command, params=params, add_help_option=False)
    try:
        context = reader.make_context(
            command, list(argv), obj=known, token_normalize_func=lambda name: name.replace("_", "-")
        )
    except click.ClickException as error:  # nothing is known to lead here; a message is better than a traceback
        raise OptionError(" ".join(error.format_message().split())) from error
    source = context.get_parameter_source
    values = {name: context.params[name] for name in known if source(name) is ParameterSource.COMMANDLINE}
    positional = next((name for name, spec in known.items() if spec.positional), None)
    for word in context.params["_words"]:
        if positional is None:
            raise OptionError(f"unexpected argument '{word}': {command} takes options only")
        if positional in values:
            hint = ". A prompt is given with -p, in quotes" if "prompt" in known else ""
            raise OptionError(f"unexpected argument '{word}': the model is already '{values[positional]}'{hint}")
        if not word:
            raise OptionError("the name of the model file is empty")
        values[positional] = word
    return values


def _parameter(name: str, spec: Spec) -> click.Option:
    import click

    if spec.kind == "bool":
        pairs = [f" /{flag}" for flag in spec.off_flags]
        return click.Option([name, *spec.flags, *pairs], is_flag=True, default=None, help=spec.help)
    # click's own number types take what Python's int() and float() do: 1_0, ' 1', '٣', nan.
    more: dict[str, Any] = {"type": click.UNPROCESSED, "multiple": spec.repeatable, "callback": _checked}
    return click.Option([name, *spec.flags], help=spec.help, **more)


def _checked(context: click.Context, param: click.Parameter, value: Any) -> Any:
    name = param.name
    assert name is not None
    if name not in context.meta:
        return value
    flag, spec = context.meta[name], context.obj[name]
    return tuple(convert(flag, each, spec) for each in value) if spec.repeatable else convert(flag, value, spec)


@functools.cache
def _command_class() -> type[click.Command]:
    """A click command whose options are whole words, long and short ones alike."""
    import click
    from click.parser import _OptionParser

    class Parser(_OptionParser):
        # click sees letters run together in an unknown `-temp` and takes a following flag for a value. Both are
        # decided in this method of its parser, which has no public name.
        def _match_long_opt(self, opt: str, explicit_value: str | None, state: Any) -> None:
            assert self.ctx is not None
            self._long_opt.update(self._short_opt)
            option = self._long_opt.get(opt)
            if option is None:
                raise OptionError(f"unknown option {opt}.{_did_you_mean(opt, self._long_opt)}")
            if not option.takes_value:
                if explicit_value is not None:
                    raise OptionError(f"{opt} takes no value, but got '{explicit_value}'")
            elif explicit_value is None:
                expected = self.ctx.obj[option.obj.name].expected()
                if not state.rargs:
                    raise OptionError(f"{opt} needs a value: {expected}")
                following = state.rargs[0]
                if following.partition("=")[0].replace("_", "-") in self._long_opt:
                    raise OptionError(
                        f"{opt} needs a value: {expected}, but the flag {following} follows. "
                        f"If it is meant as the value, write {opt}={following}"
                    )
            self.ctx.meta[option.obj.name] = opt
            super()._match_long_opt(opt, explicit_value, state)

    class Command(click.Command):
        def make_parser(self, ctx: click.Context) -> _OptionParser:
            parser = Parser(ctx)
            for param in self.get_params(ctx):
                param.add_to_parser(parser, ctx)
            return parser

    return Command


def _did_you_mean(flag: str, known: Iterable[str]) -> str:
    known = list(known)
    if flag.startswith("--"):
        long = sorted((k for k in known if k.startswith("--")), key=len)
        starts = [k for k in long if k.startswith(flag) or flag.startswith(k)]
    else:
        starts = [k for k in known if k == "-" + flag]
    near = starts or difflib.get_close_matches(flag, known, 1, 0.75)
    return f" Did you mean {near[0]}?" if near else " --help lists them all."


def convert(flag: str, text: str, spec: Spec) -> Any:
    """The value that a text stands for; OptionError with flag, text and what was expected."""
    wrong = OptionError(f"{flag}: expected {spec.expected()}, got '{text}'")
    if spec.kind == "choice":
        if text not in spec.choices:
            raise wrong
        return text
    if spec.kind in ("text", "path"):
        if not text and (spec.kind == "path" or spec.repeatable):
            raise OptionError(f"{flag}: expected {spec.expected()}, got nothing")
        if "\0" in text:
            raise OptionError(f"{flag}: the value contains a NUL character")
        return text
    if spec.kind in ("int", "float"):
        values = [_number(text, spec.kind == "float")]
    elif spec.kind == "pair":
        values = [_number(word) for word in text.split(",")]
    else:
        values = [value for word in text.split(",") for value in _counts(word)]
    above = spec.lo if spec.lo is not None else -math.inf
    below = spec.hi if spec.hi is not None else math.inf
    numbers = [value for value in values if math.isfinite(value) and above <= value <= below]
    if len(numbers) < len(values) or len(values) > MAX_COUNTS or (spec.kind == "pair" and len(values) != 2):
        raise wrong
    return numbers[0] if spec.kind in ("int", "float") else tuple(numbers)


def _number(text: str, fraction: bool = False) -> float:
    """A number; NaN when the text is none."""
    pattern = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?" if fraction else r"[+-]?\d{1,30}"
    if not re.fullmatch(pattern, text, re.ASCII):
        return math.nan
    return float(text) if fraction else int(text)


def _counts(text: str) -> list[float]:
    """`8`, `1-8`, `1-8+2`, `1-8*2` as numbers; NaN where it is none of these. At most MAX_COUNTS + 1."""
    found = re.fullmatch(r"(\d{1,9})-(\d{1,9})(?:([+*])(\d{1,9}))?", text, re.ASCII)
    if not found:
        return [_number(text)]
    first, last = int(found[1]), int(found[2])
    times, step = found[3] == "*", int(found[4] or 1)
    if first > last or step < 1 + times or (times and first == 0):
        return [math.nan]
    values: list[float] = []
    while first <= last and len(values) <= MAX_COUNTS:
        values.append(first)
        first = first * step if times else first + step
    return values
