"""The options of every command: one frozen dataclass, from which the command lines are derived.

Owns: each option's flags, type, range, default, help and the commands it belongs to. Does not own how words are read
(`flags`), the help pages (`help`), nor what an option means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..settings import AUTO_DEPTH, CPU_ISAS, DRAFTERS, EXECUTORS, DraftOptions, EngineOptions
from . import flags
from .flags import INT_MAX, Kind, Spec

# What each command is for; the order of the help pages.
COMMANDS: dict[str, str] = {
    "ie-run": "Generates text with a GGUF model.",
    "ie-ppl": "Measures how well a GGUF model predicts a text: perplexity, and divergence from another model.",
    "ie-bench": "Measures how fast a GGUF model reads prompts and generates, as llama-bench does.",
    "ie-tokenize": "Shows the tokens of a text in the vocabulary of a GGUF file.",
    "ie-doctor": "Says what works on this machine, and what is missing where something does not.",
}
GROUPS = (
    "model", "prompt", "text", "tests", "generation", "sampling", "drafting",
    "executor", "output", "debugging", "other",
)  # fmt: skip
_MODEL_COMMANDS = ("ie-run", "ie-ppl", "ie-bench", "ie-tokenize")
_ENGINE_COMMANDS = ("ie-run", "ie-ppl", "ie-bench")
DRAFTS = (*(str(n) for n in range(16)), "auto")


def _option(default: Any, *flags: str, kind: Kind, help: str, group: str, **more: Any) -> Any:
    return field(default=default, metadata={"spec": Spec(flags, kind, help, group, **more)})


@dataclass(frozen=True)
class Options:
    """Every option of every command, with its default."""

    model: str | None = _option(
        None, "-m", "--model", kind="path", metavar="FILE", group="model", positional=True,
        commands=_MODEL_COMMANDS,
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
    typical_p: float = _option(
        1.0, "--typical", "--typical-p", kind="float", metavar="P", group="sampling", lo=0, hi=1,
        help="draw from the tokens whose information is nearest to the entropy, as many as have probability P; 1: off",
    )  # fmt: skip
    top_n_sigma: float = _option(
        -1.0, "--top-nsigma", "--top-n-sigma", kind="float", metavar="N", group="sampling",
        help="leave out tokens whose logit is more than N standard deviations below the largest; 0 or less: off",
    )  # fmt: skip
    xtc_probability: float = _option(
        0.0, "--xtc-probability", kind="float", metavar="P", group="sampling", lo=0, hi=1,
        help="with this probability leave out the likeliest tokens, all but one of those that reach the threshold",
    )  # fmt: skip
    xtc_threshold: float = _option(
        0.1, "--xtc-threshold", kind="float", metavar="P", group="sampling", lo=0, hi=1,
        help="the probability that XTC takes for likely; above 0.5: off",
    )  # fmt: skip
    repeat_last_n: int = _option(
        64, "--repeat-last-n", kind="int", metavar="N", group="sampling", lo=-1, hi=INT_MAX,
        help="how many of the last tokens, the prompt's included, are penalised; 0: off; -1: all",
    )  # fmt: skip
    repeat_penalty: float = _option(
        1.0, "--repeat-penalty", kind="float", metavar="R", group="sampling", lo=1e-6,
        help="divide the logits of these tokens by R, or multiply them where they are negative; 1: off",
    )  # fmt: skip
    presence_penalty: float = _option(
        0.0, "--presence-penalty", kind="float", metavar="X", group="sampling",
        help="subtract X from the logits of these tokens",
    )  # fmt: skip
    frequency_penalty: float = _option(
        0.0, "--frequency-penalty", kind="float", metavar="X", group="sampling",
        help="subtract X for each time that the token occurs among them",
    )  # fmt: skip
    dry_multiplier: float = _option(
        0.0, "--dry-multiplier", kind="float", metavar="X", group="sampling", lo=0,
        help="DRY: penalty for a token that would make a repetition longer; 0: off",
    )  # fmt: skip
    dry_base: float = _option(
        1.75, "--dry-base", kind="float", metavar="X", group="sampling", lo=0,
        help="DRY: each token of the repetition multiplies the penalty by this; below 1: off",
    )  # fmt: skip
    dry_allowed_length: int = _option(
        2, "--dry-allowed-length", kind="int", metavar="N", group="sampling", lo=0, hi=INT_MAX,
        help="DRY: repetitions shorter than this are not penalised",
    )  # fmt: skip
    dry_penalty_last_n: int = _option(
        64, "--dry-penalty-last-n", kind="int", metavar="N", group="sampling", lo=-1, hi=INT_MAX,
        help="DRY: how many of the last tokens are searched for repetitions; 0: off; -1: all",
    )  # fmt: skip
    dry_sequence_breaker: tuple[str, ...] = _option(
        (), "--dry-sequence-breaker", kind="text", metavar="TEXT", group="sampling", repeatable=True,
        shown_default="a new line, a colon, a double quote, an asterisk",
        help="DRY: a text that no repetition reaches across, in place of the default ones; \\n and \\t stand for a new"
        " line and a tab, none for no text at all. May be repeated",
    )  # fmt: skip
    dynatemp_range: float = _option(
        0.0, "--dynatemp-range", kind="float", metavar="X", group="sampling", lo=0,
        help="the temperature goes from --temp less X, where one token is certain, to --temp plus X, where all are"
        " equally likely; 0: off",
    )  # fmt: skip
    dynatemp_exponent: float = _option(
        1.0, "--dynatemp-exp", kind="float", metavar="X", group="sampling", lo=0,
        help="the power of the entropy's share that the temperature follows",
    )  # fmt: skip
    logit_bias: tuple[str, ...] = _option(
        (), "-l", "--logit-bias", kind="text", metavar="TOKEN(+/-)BIAS", group="sampling", repeatable=True,
        help="add to the logit of a token id: 15043+1 makes it likelier, 15043-inf forbids it. May be repeated",
    )  # fmt: skip
    samplers: str | None = _option(
        None, "--samplers", kind="text", metavar="NAMES", group="sampling",
        shown_default="penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature",
        help="the samplers that are used and their order, separated by ; or ,",
    )  # fmt: skip
    sampler_seq: str | None = _option(
        None, "--sampling-seq", "--sampler-seq", kind="text", metavar="LETTERS", group="sampling",
        shown_default="edskypmxt", help="the same as --samplers with a letter for each",
    )  # fmt: skip
    seed: int = _option(
        -1, "-s", "--seed", kind="int", metavar="N", group="sampling", lo=-1, hi=2**64 - 1,
        help="seed of the random numbers: the same seed gives the same text; -1: a new one each time, shown by -v",
    )  # fmt: skip

    draft: str = _option(
        "0", "--draft", kind="choice", metavar="D", group="drafting", choices=DRAFTS, commands=("ie-run", "ie-bench"),
        shown_choices="an integer from 0 to 15, or auto",
        help="let up to D tokens be guessed ahead and checked by the model in one step; 0: off; auto: whenever that is"
        " measured to be faster. The text does not depend on it",
    )  # fmt: skip
    drafter: str = _option(
        "auto", "--drafter", kind="choice", metavar="NAME", group="drafting", choices=DRAFTERS,
        commands=("ie-run", "ie-bench"),
        help="who guesses: the model's MTP block, what followed the same words earlier in the text (lookup), or both;"
        " auto: both where there is an MTP block, else lookup",
    )  # fmt: skip
    draft_pmin: float = _option(
        0.6, "--draft-pmin", kind="float", metavar="P", group="drafting", lo=0, hi=1, commands=("ie-run", "ie-bench"),
        help="the MTP block stops before a guess that it holds less likely than P",
    )  # fmt: skip
    mtp: str | None = _option(
        None, "--mtp", kind="path", metavar="FILE", group="drafting", commands=("ie-run", "ie-bench"),
        help="a GGUF file with the MTP block, when the model's own has none",
    )  # fmt: skip
    draft_head: str = _option(
        "q4_0", "--draft-head", kind="choice", metavar="NAME", group="drafting", choices=("q4_0", "full"),
        commands=("ie-run", "ie-bench"),
        help="the matrix that guesses are read from: a small copy of the model's output matrix, or that itself",
    )  # fmt: skip
    draft_vocab: int = _option(
        131072, "--draft-vocab", kind="int", metavar="N", group="drafting", lo=0, hi=INT_MAX,
        commands=("ie-run", "ie-bench"),
        help="the MTP block guesses among the first N tokens and the last 512; 0: among all",
    )  # fmt: skip
    spec_trace: bool = _option(
        False, "--spec-trace", kind="bool", group="drafting",
        help="print a line for each step on stderr: position, guesses, the model's own tokens, how many held",
    )  # fmt: skip

    ctx_size: int = _option(
        0, "-c", "--ctx-size", kind="int", metavar="N", group="executor", lo=0, hi=INT_MAX,
        shown_default="auto: the smallest of the model's own, 8192 and what fits",
        help="tokens that prompt and answer may have together; 0: auto",
    )  # fmt: skip
    threads: int = _option(
        0, "-t", "--threads", kind="int", metavar="N", group="executor", lo=-1, hi=1024, commands=("ie-run", "ie-ppl"),
        shown_default="auto: one for each core",
        help="threads of the cpu executor; 0 or -1: auto. More than there are processors to run them on would only wait"
        " for each other: that many run then, and a line says so. The answer does not depend on it",
    )  # fmt: skip
    chunk: int = _option(
        512, "--chunk", kind="int", metavar="N", group="executor", lo=1, hi=4096, commands=_ENGINE_COMMANDS,
        help="most prompt tokens computed in one step. The answer does not depend on it",
    )  # fmt: skip
    executor: str = _option(
        "cpu", "--executor", kind="choice", metavar="NAME", group="executor", choices=EXECUTORS,
        commands=_ENGINE_COMMANDS,
        help="what computes: the compiled kernels (cpu), or numpy (reference), which defines what is right and is slow",
    )  # fmt: skip
    cpu_isa: str = _option(
        "auto", "--cpu-isa", kind="choice", metavar="NAME", group="executor", choices=CPU_ISAS,
        commands=_ENGINE_COMMANDS,
        help="instruction set of the cpu executor. The answer does not depend on it, the speed does: on x86-64"
        " portable is very slow",
    )  # fmt: skip

    display_prompt: bool = _option(
        True, "--display-prompt", kind="bool", group="output", off_flags=("--no-display-prompt",),
        help="print the prompt before its continuation; a conversation never does",
    )  # fmt: skip
    raw: bool = _option(
        False, "--raw", kind="bool", group="output",
        help="at a terminal, write the text as it is, escape sequences too. Otherwise control characters in it are"
        " shown, as \\x1b; what goes to a file or a pipe is never changed",
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

    text_file: str | None = _option(
        None, "-f", "--file", kind="path", metavar="FILE", group="text", commands=("ie-ppl",),
        help="the text, without one newline at its end; - is the standard input. With --kl-divergence it only checks"
        " that the base file was made from this text",
    )  # fmt: skip
    window: int = _option(
        512, "-c", "--ctx-size", kind="int", metavar="N", group="tests", lo=4, hi=1 << 20, commands=("ie-ppl",),
        help="tokens of a window; the text must have two of them",
    )  # fmt: skip
    chunks: int = _option(
        -1, "--chunks", kind="int", metavar="N", group="tests", lo=-1, hi=INT_MAX, commands=("ie-ppl",),
        help="most windows to score; -1: all",
    )  # fmt: skip
    first: int = _option(
        -1, "--first", kind="int", metavar="N", group="tests", lo=-1, hi=INT_MAX, commands=("ie-ppl",),
        shown_default="half the window",
        help="position in a window, from 0, whose prediction is the first to count",
    )  # fmt: skip
    stride: int = _option(
        0, "--stride", "--ppl-stride", kind="int", metavar="N", group="tests", lo=0, hi=1 << 20, commands=("ie-ppl",),
        help="windows overlap: each begins N tokens after the one before, is N/2 longer than -c says, and counts its"
        " last N predictions; 0: off",
    )  # fmt: skip
    kl_base: str | None = _option(
        None, "--kl-divergence-base", "--save-all-logits", kind="path", metavar="FILE", group="tests",
        commands=("ie-ppl",),
        help="write the model's log-probabilities to this file; with --kl-divergence read them from it. The format is"
        " that of llama-perplexity",
    )  # fmt: skip
    kl_divergence: bool = _option(
        False, "--kl-divergence", kind="bool", group="tests", commands=("ie-ppl",),
        help="compare this model with the one that wrote the base file, on the text stored there",
    )  # fmt: skip

    bench_prompt: tuple[int, ...] = _option(
        (512,), "-p", "--n-prompt", kind="counts", metavar="N,…", group="tests", lo=0, hi=1 << 24,
        commands=("ie-bench",), shown_default="512",
        help="tests that read a prompt of N tokens, one test for each N; 0: none",
    )  # fmt: skip
    bench_gen: tuple[int, ...] = _option(
        (128,), "-n", "--n-gen", kind="counts", metavar="N,…", group="tests", lo=0, hi=1 << 24,
        commands=("ie-bench",), shown_default="128",
        help="tests that generate N tokens, one test for each N; 0: none",
    )  # fmt: skip
    bench_pair: tuple[tuple[int, int], ...] = _option(
        (), "-pg", kind="pair", metavar="P,N", group="tests", lo=0, hi=1 << 24, commands=("ie-bench",),
        repeatable=True, help="a test that reads P tokens and then generates N. May be repeated",
    )  # fmt: skip
    bench_depth: tuple[int, ...] = _option(
        (0,), "-d", "--n-depth", kind="counts", metavar="N,…", group="tests", lo=0, hi=1 << 24,
        commands=("ie-bench",), shown_default="0",
        help="tokens that are there before a test begins, not timed; every test is done at every depth",
    )  # fmt: skip
    repetitions: int = _option(
        5, "-r", "--repetitions", kind="int", metavar="N", group="tests", lo=1, hi=1000, commands=("ie-bench",),
        help="how often each test is timed",
    )  # fmt: skip
    warmup: bool = _option(
        True, "--warmup", kind="bool", group="tests", off_flags=("--no-warmup",), commands=("ie-bench",),
        help="do each test once without timing it",
    )  # fmt: skip
    delay: int = _option(
        0, "--delay", kind="int", metavar="SECONDS", group="tests", lo=0, hi=86400, commands=("ie-bench",),
        help="wait before each test, so that the machine cools down",
    )  # fmt: skip
    bench_threads: tuple[int, ...] = _option(
        (0,), "-t", "--threads", kind="counts", metavar="N,…", group="executor", lo=0, hi=1024,
        commands=("ie-bench",), shown_default="auto: one for each core",
        help="threads of the cpu executor; every test is done with each number; 0: auto. No more run than there are"
        " processors to run them on",
    )  # fmt: skip
    output: str = _option(
        "md", "-o", "--output", kind="choice", metavar="FORMAT", group="output", commands=("ie-bench",),
        choices=("md", "json", "jsonl", "csv"), help="how to print the results",
    )  # fmt: skip

    tokenize_text: str | None = _option(
        None, "-p", "--prompt", kind="text", metavar="TEXT", group="text", commands=("ie-tokenize",), help="the text"
    )  # fmt: skip
    tokenize_file: str | None = _option(
        None, "-f", "--file", kind="path", metavar="FILE", group="text", commands=("ie-tokenize",),
        help="read the text from a file, every byte of it; - is the standard input",
    )  # fmt: skip
    bos: bool = _option(
        True, "--bos", kind="bool", group="text", off_flags=("--no-bos",), commands=("ie-tokenize",),
        help="add the tokens that the vocabulary puts at the beginning and the end of a text, if it does",
    )  # fmt: skip
    parse_special: bool | None = _option(
        None, "--parse-special", kind="bool", group="text", off_flags=("--no-parse-special",),
        commands=("ie-run", "ie-tokenize"), shown_default="on for plain text, off for the messages of a conversation",
        help="read the names of special tokens in the text as these tokens",
    )  # fmt: skip
    ids: bool = _option(
        False, "--ids", kind="bool", group="output", commands=("ie-tokenize",),
        help="print a list of ids on one line instead of id and piece on a line each",
    )  # fmt: skip
    show_count: bool = _option(
        False, "--show-count", kind="bool", group="output", commands=("ie-tokenize",),
        help="print the number of tokens after them",
    )  # fmt: skip

    diff: str | None = _option(
        None, "--diff", kind="text", metavar="A,B", group="debugging",
        help="run every command on two executors, B with A's inputs, and print the first output that differs by more"
        " than rounding; exit status 1 if there is one. Executors: cpu, reference, reference-float64; cpu:avx2,"
        " cpu:threads=1 and the like for a variant. After the prompt come -n tokens, 4 by default",
    )  # fmt: skip
    stop_after: str | None = _option(
        None, "--stop-after", kind="text", metavar="OP[:LAYER]", group="debugging",
        help="end the program after this command, the first of its op (in that layer) or the one with this index, and"
        " print statistics of its output instead of text",
    )  # fmt: skip
    layers: int = _option(
        0, "--layers", kind="int", metavar="N", group="debugging", lo=0, hi=INT_MAX, shown_default="all",
        help="run the first N layers only; 0: all. The text is that of the shortened model",
    )  # fmt: skip
    trace: str | None = _option(
        None, "--trace", kind="path", metavar="FILE", group="debugging",
        help="write a line of CSV for each command of each step: phase, op, layer, tiles, bytes, flops, microseconds",
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

    def drafting(self) -> DraftOptions | None:
        """What the MTP block needs; None when it is not to draft."""
        if self.draft == "0" or self.drafter == "lookup":
            return None
        return DraftOptions(self.draft_depth, self.draft_pmin, self.draft_vocab, self.draft_head == "q4_0", self.mtp)

    @property
    def draft_depth(self) -> int:
        """Most drafts of the MTP block in a step; 0: none."""
        return AUTO_DEPTH if self.draft == "auto" else int(self.draft)


def specs(command: str) -> dict[str, Spec]:
    """Field name → Spec of the options of one command, in declaration order."""
    found = {f.name: f.metadata["spec"] for f in fields(Options) if "spec" in f.metadata}
    return {name: spec for name, spec in found.items() if command in spec.commands}


def all_flags() -> frozenset[str]:
    """Every flag that any command has."""
    return frozenset(flag for command in COMMANDS for spec in specs(command).values() for flag in spec.every_flag())


def parse(command: str, argv: Sequence[str]) -> Options:
    """Command line → Options. OptionError, one line, for whatever is wrong with it (see ie/cli/flags.py)."""
    values = flags.read(command, specs(command), argv)
    return replace(Options(), **values, given=frozenset(values))
