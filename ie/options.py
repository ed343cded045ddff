"""The options of every command: one frozen dataclass, from which the command lines are derived.

Owns: each option's flags, type, range, default, help and the commands it belongs to; the help texts and docs/cli.md;
the pure functions that turn "auto" into a value. Does not own how words are read (ie/flags.py) nor what an option
means: no file is opened and no machine is looked at here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from . import flags
from .flags import INT_MAX, Kind, Spec

# What each command is for; the order of the help pages.
COMMANDS: dict[str, str] = {
    "ie-run": "Generates text with a GGUF model.",
    "ie-doctor": "Says what works on this machine, and what is missing where something does not.",
}
GROUPS = ("model", "prompt", "generation", "sampling", "executor", "output", "other")

EXECUTORS = ("cpu", "reference")
CPU_ISAS = ("auto", "avx512", "avx2", "portable")
MAX_AUTO_CONTEXT = 8192


def _option(default: Any, *flags: str, kind: Kind, help: str, group: str, **more: Any) -> Any:
    return field(default=default, metadata={"spec": Spec(flags, kind, help, group, **more)})


@dataclass(frozen=True)
class EngineOptions:
    """What the engine needs to know: the part of the options that decides memory and executor."""

    n_ctx: int = 0  # tokens; 0: resolve_context()
    threads: int = 0  # 0: resolve_threads()
    chunk: int = 512  # most prompt tokens in one step
    executor: str = "cpu"
    cpu_isa: str = "auto"


@dataclass(frozen=True)
class Options:
    """Every option of every command, with its default."""

    model: str | None = _option(
        None, "-m", "--model", kind="path", metavar="FILE", group="model", positional=True,
        help="the GGUF file; the first of its parts if it is split. May stand without the flag",
    )  # fmt: skip
    info: bool = _option(
        False, "--info", kind="bool", group="model",
        help="print the file's metadata, tensors by format and the model's shape, and exit",
    )  # fmt: skip

    prompt: str | None = _option(
        None, "-p", "--prompt", kind="text", metavar="TEXT", group="prompt",
        help="text to continue, taken as it is; with -cnv the first message of a conversation",
    )  # fmt: skip
    file: str | None = _option(
        None, "-f", "--file", kind="path", metavar="FILE", group="prompt",
        help="read the prompt from a file, without one newline at its end; - is the standard input",
    )  # fmt: skip
    tokens: str | None = _option(
        None, "--tokens", kind="text", metavar="IDS", group="prompt",
        help="the prompt as token ids, separated by commas or spaces; nothing is added to them",
    )  # fmt: skip
    tokens_file: str | None = _option(
        None, "--tokens-file", kind="path", metavar="FILE", group="prompt",
        help="read such token ids from a file; - is the standard input",
    )  # fmt: skip
    conversation: bool | None = _option(
        None, "-cnv", "--conversation", kind="bool", group="prompt", off_flags=("-no-cnv", "--no-conversation"),
        shown_default="on when there is no prompt and the standard input is a terminal",
        help="use the model's chat template; on a terminal the conversation goes on until /exit",
    )  # fmt: skip
    system: str | None = _option(
        None, "-sys", "--system-prompt", kind="text", metavar="TEXT", group="prompt",
        help="the system message of a conversation",
    )  # fmt: skip
    single_turn: bool = _option(
        False, "-st", "--single-turn", kind="bool", group="prompt",
        help="end a conversation after the first answer",
    )  # fmt: skip

    n_predict: int = _option(
        -1, "-n", "--predict", "--n-predict", kind="int", metavar="N", group="generation", lo=-1, hi=INT_MAX,
        help="most tokens to generate; 0 generates and prints nothing; -1: until the model ends or the context is full",
    )  # fmt: skip
    stop: tuple[str, ...] = _option(
        (), "--stop", kind="text", metavar="TEXT", group="generation", repeatable=True,
        help="end before this text appears. May be repeated",
    )  # fmt: skip
    ignore_eos: bool = _option(
        False, "--ignore-eos", kind="bool", group="generation",
        help="never choose a token that ends the generation",
    )  # fmt: skip

    temp: float = _option(
        0.8, "--temp", "--temperature", kind="float", metavar="T", group="sampling", lo=0,
        help="temperature; 0 always takes the likeliest token",
    )  # fmt: skip
    top_k: int = _option(
        40, "--top-k", kind="int", metavar="K", group="sampling", lo=0, hi=INT_MAX,
        help="draw from the K likeliest tokens; 0: off",
    )  # fmt: skip
    top_p: float = _option(
        0.95, "--top-p", kind="float", metavar="P", group="sampling", lo=0, hi=1,
        help="draw from the fewest tokens that together have probability P; 1: off",
    )  # fmt: skip
    min_p: float = _option(
        0.05, "--min-p", kind="float", metavar="P", group="sampling", lo=0, hi=1,
        help="leave out tokens less likely than P times the likeliest; 0: off",
    )  # fmt: skip
    seed: int = _option(
        -1, "-s", "--seed", kind="int", metavar="N", group="sampling", lo=-1, hi=2**64 - 1,
        help="seed of the random numbers: the same seed gives the same text; -1: a new one each time, shown by -v",
    )  # fmt: skip

    ctx_size: int = _option(
        0, "-c", "--ctx-size", kind="int", metavar="N", group="executor", lo=0, hi=INT_MAX,
        shown_default="auto: the smallest of the model's own, 8192 and what fits",
        help="tokens that prompt and answer may have together; 0: auto",
    )  # fmt: skip
    threads: int = _option(
        0, "-t", "--threads", kind="int", metavar="N", group="executor", lo=-1, hi=1024,
        shown_default="auto: one for each core",
        help="threads of the cpu executor; 0 or -1: auto. The answer does not depend on it",
    )  # fmt: skip
    chunk: int = _option(
        512, "--chunk", kind="int", metavar="N", group="executor", lo=1, hi=4096,
        help="most prompt tokens computed in one step. The answer does not depend on it",
    )  # fmt: skip
    executor: str = _option(
        "cpu", "--executor", kind="choice", metavar="NAME", group="executor", choices=EXECUTORS,
        help="what computes: the compiled kernels (cpu), or numpy (reference), which defines what is right and is slow",
    )  # fmt: skip
    cpu_isa: str = _option(
        "auto", "--cpu-isa", kind="choice", metavar="NAME", group="executor", choices=CPU_ISAS,
        help="instruction set of the cpu executor. The answer does not depend on it",
    )  # fmt: skip

    display_prompt: bool = _option(
        True, "--display-prompt", kind="bool", group="output", off_flags=("--no-display-prompt",),
        help="print the prompt before its continuation; a conversation never does",
    )  # fmt: skip
    print_ids: bool = _option(
        False, "--print-ids", kind="bool", group="output",
        help="print token ids, one a line, instead of text",
    )  # fmt: skip
    dump_logits: str | None = _option(
        None, "--dump-logits", kind="path", metavar="FILE", group="output",
        help="write the logits of every position, the prompt's included: float32 [positions, vocabulary] if the name"
        " ends in .npy, else a text line `position token logit0 logit1 …` for each",
    )  # fmt: skip

    verbose: bool = _option(
        False, "-v", "--verbose", kind="bool", group="other", commands=tuple(COMMANDS),
        help="say on stderr what was chosen automatically, and show a traceback where there is a bug",
    )  # fmt: skip
    version: bool = _option(
        False, "--version", kind="bool", group="other", commands=tuple(COMMANDS), help="print the version and exit"
    )  # fmt: skip
    help: bool = _option(
        False, "-h", "--help", kind="bool", group="other", commands=tuple(COMMANDS), help="print this help and exit"
    )  # fmt: skip

    given: frozenset[str] = frozenset()  # names of the fields that the command line set

    def engine(self) -> EngineOptions:
        """The part that the engine needs."""
        return EngineOptions(
            n_ctx=self.ctx_size,
            threads=max(0, self.threads),
            chunk=self.chunk,
            executor=self.executor,
            cpu_isa=self.cpu_isa,
        )


def specs(command: str) -> dict[str, Spec]:
    """Field name → Spec of the options of one command, in declaration order."""
    found = {f.name: f.metadata["spec"] for f in fields(Options) if "spec" in f.metadata}
    return {name: spec for name, spec in found.items() if command in spec.commands}


def all_flags() -> frozenset[str]:
    """Every flag that any command has."""
    return frozenset(flag for command in COMMANDS for spec in specs(command).values() for flag in spec.every_flag())


def parse(command: str, argv: Sequence[str]) -> Options:
    """Command line → Options. OptionError, one line, for whatever is wrong with it (see ie/flags.py)."""
    values = flags.read(command, specs(command), argv)
    return replace(Options(), **values, given=frozenset(values))


# -- what "auto" means -------------------------------------------------------------------------------------------------


def resolve_threads(requested: int, cores: int) -> int:
    """Threads to use: what was asked for, or one for each physical core."""
    return requested if requested > 0 else max(1, cores)


def resolve_context(requested: int, trained: int, fits: int) -> int:
    """Context length in tokens: what was asked for, or the smallest of the model's own, 8192 and what fits."""
    return requested if requested > 0 else max(1, min(trained, MAX_AUTO_CONTEXT, fits))


def resolve_seed(requested: int, fresh: Callable[[], int]) -> int:
    """The seed asked for, or a fresh one."""
    return requested if requested >= 0 else fresh()


# -- help --------------------------------------------------------------------------------------------------------------

_NOTES = {
    "ie-run": """\
Without -p, -f, --tokens or --tokens-file the prompt is read from the standard input; on a terminal, a
conversation starts instead. Text goes to stdout as it comes, everything else to stderr. `--flag=VALUE` works, and
so does `_` for `-` inside a flag. Exit status: 0 also when the reader of a pipe leaves early (`| head -1`); 1 after
an error, which is one line on stderr; 130 after Ctrl-C.""",
    "ie-doctor": """\
Exit status: 1 when something that should work here does not (FAIL), else 0.""",
}
_EXAMPLES = {
    "ie-run": (
        ("a conversation", "ie-run model.gguf"),
        ("continue a text", 'ie-run model.gguf -p "Water boils at" -n 20 --temp 0'),
        ("ask one question", 'ie-run model.gguf -cnv -st -p "Name three primary colours."'),
        ("a prompt from a pipe", "git diff | ie-run model.gguf -cnv -sys 'Summarise this change.'"),
        ("what is in the file", "ie-run model.gguf --info"),
    ),
    "ie-doctor": (),
}


def _usage(command: str) -> str:
    positional = " [MODEL]" if any(spec.positional for spec in specs(command).values()) else ""
    return f"{command}{positional} [options]"


def _default_text(name: str, spec: Spec) -> str:
    """The default as help shows it; empty where there is none worth showing."""
    if spec.shown_default:
        return spec.shown_default
    default = getattr(Options(), name)
    if spec.kind == "bool":
        return "on" if default else ""
    return "" if default in (None, ()) else str(default)


def _flag_text(spec: Spec) -> str:
    text = ", ".join(spec.flags) + (f" {spec.metavar}" if spec.metavar else "")
    return text + (" | " + ", ".join(spec.off_flags) if spec.off_flags else "")


def _wrap(text: str, width: int) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return [*lines, line]


def help_text(command: str) -> str:
    """The text of --help, 100 columns wide."""
    out = [f"usage: {_usage(command)}", "", COMMANDS[command], *_wrap(_NOTES[command], 100)]
    if _EXAMPLES[command]:
        out += ["", "examples:", *(f"  {line:<63} # {what}" for what, line in _EXAMPLES[command])]
    for group in GROUPS:
        members = {name: spec for name, spec in specs(command).items() if spec.group == group}
        if members:
            out += ["", f"{group}:"]
        for name, spec in members.items():
            default = _default_text(name, spec)
            text = spec.help + (f" [{', '.join(spec.choices)}]" if spec.choices else "")
            text += f" (default: {default})" if default else ""
            out += [f"  {_flag_text(spec)}", *(f"        {line}" for line in _wrap(text, 92))]
    return "\n".join(out) + "\n"


def markdown() -> str:
    """The page docs/cli.md: the same facts as the help texts."""
    out = ["# Command line", "", "This page is generated from `ie/options.py`; `--help` says the same."]
    for command, purpose in COMMANDS.items():
        out += ["", f"## {command}", "", f"    {_usage(command)}", "", purpose]
        out += [" ".join(_NOTES[command].split())]
        if _EXAMPLES[command]:
            out += ["", *(f"    {line:<63} # {what}" for what, line in _EXAMPLES[command])]
        for group in GROUPS:
            members = {name: spec for name, spec in specs(command).items() if spec.group == group}
            if not members:
                continue
            out += ["", f"### {group}", "", "| option | value | default | |", "|---|---|---|---|"]
            for name, spec in members.items():
                value = "" if spec.kind == "bool" else spec.expected()
                flags = ", ".join(f"`{flag}`" for flag in spec.every_flag())
                out.append(f"| {flags} | {value} | {_default_text(name, spec)} | {spec.help} |")
    return "\n".join(out) + "\n"
