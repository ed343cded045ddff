"""Help texts of the commands, from the table of options.

Owns: their wording around the table, and their shape. docs/cli.md says the same (scripts/write_generated.py).
"""

from __future__ import annotations

from .flags import Spec
from .options import COMMANDS, GROUPS, Options, specs

# -- help --------------------------------------------------------------------------------------------------------------

NOTES = {
    "ie-run": """\
Without -p, -f, --tokens or --tokens-file the prompt is read from the standard input; on a terminal, a
conversation starts instead. Text goes to stdout as it comes, everything else to stderr. `--flag=VALUE` works, and
so does `_` for `-` inside a flag. Exit status: 0 also when the reader of a pipe leaves early (`| head -1`); 1 after
an error, which is one line on stderr; 130 after Ctrl-C.""",
    "ie-ppl": """\
The text is cut into windows of -c tokens; each is read from an empty cache, and the predictions of its second half
count. stdout gets the value so far after each window and a final estimate, exp of the mean loss, with its standard
error. The same text, window and rule for the first token make values comparable, also with those of llama.cpp.
Exit status: 1 after an error, which is one line on stderr, as when the text is too short; 130 after Ctrl-C.""",
    "ie-bench": """\
Tokens are random and nothing is sampled; with --draft, generation continues a text that is built in. A rate is the
mean of the repetitions and their standard deviation. GB/s are the weights that generation reads, beside what this
machine was measured to read from memory. Lists of N give every combination; 1-8 is a range, 1-8+2 one with a step,
16-256*2 one with a factor. Exit status: 1 after an error.""",
    "ie-tokenize": """\
The file may be a vocabulary without a model. Exit status: 1 after an error, which is one line on stderr.""",
    "ie-doctor": """\
Exit status: 1 when something that should work here does not (FAIL), else 0.""",
}
EXAMPLES = {
    "ie-run": (
        ("a conversation", "ie-run model.gguf"),
        ("continue a text", 'ie-run model.gguf -p "Water boils at" -n 20 --temp 0'),
        ("ask one question", 'ie-run model.gguf -cnv -st -p "Name three primary colours."'),
        ("a prompt from a pipe", "git diff | ie-run model.gguf -cnv -sys 'Summarise this change.'"),
        ("what is in the file", "ie-run model.gguf --info"),
    ),
    "ie-ppl": (
        ("the first 8 windows", "ie-ppl model.gguf -f text.txt --chunks 8"),
        ("keep what a model says …", "ie-ppl big.gguf -f text.txt --kl-divergence-base big.kld"),
        ("… and compare another", "ie-ppl small.gguf --kl-divergence --kl-divergence-base big.kld"),
    ),
    "ie-bench": (
        ("512 tokens read, 128 generated", "ie-bench model.gguf"),
        ("generation after long texts", "ie-bench model.gguf -p 0 -n 32 -d 0,1024,4096"),
        ("generation with drafts", "ie-bench model.gguf -p 0 --draft 7"),
        ("for a script", "ie-bench model.gguf -r 10 -o json"),
    ),
    "ie-tokenize": (
        ("id and piece on a line each", 'ie-tokenize model.gguf -p "Hello world"'),
        ("the ids of a file", "ie-tokenize model.gguf -f text.txt --ids"),
    ),
    "ie-doctor": (),
}


def usage(command: str) -> str:
    """The line of how a command is called."""
    positional = " [MODEL]" if any(spec.positional for spec in specs(command).values()) else ""
    return f"{command}{positional} [options]"


def default_text(name: str, spec: Spec) -> str:
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
    out = [f"usage: {usage(command)}", "", COMMANDS[command], *_wrap(NOTES[command], 100)]
    if EXAMPLES[command]:
        out += ["", "examples:", *(f"  {line:<63} # {what}" for what, line in EXAMPLES[command])]
    for group in GROUPS:
        members = {name: spec for name, spec in specs(command).items() if spec.group == group}
        if members:
            out += ["", f"{group}:"]
        for name, spec in members.items():
            default = default_text(name, spec)
            text = spec.help + (f" [{', '.join(spec.choices)}]" if spec.choices and not spec.shown_choices else "")
            text += f" (default: {default})" if default else ""
            out += [f"  {_flag_text(spec)}", *(f"        {line}" for line in _wrap(text, 92))]
    return "\n".join(out) + "\n"
