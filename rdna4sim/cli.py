"""`rdna4sim`: looks into code objects and runs their kernels.

Owns: commands and options, what goes to which stream, and statuses: 0 done, also when the reader of stdout left early;
1 error, one line on stderr; 130 after Ctrl-C, 143 after SIGTERM or SIGHUP. A kernel's fault is the simulator's report
on stderr and 1.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import click

from . import __version__, arguments, disasm, info
from . import run as runner
from .cache import Terminated, end_tidily, stand_in
from .elf import CodeObject, Kernel, unbundled
from .errors import SimError

SHOWN = 16
"""Values of a buffer that `=>-` prints."""
LIMIT = 256 << 20
"""Bytes of the largest file that is read."""
NAMES, NAME = 64, 1000
"""How many names a message lists, and characters of each."""


def triple(most: Sequence[int]) -> Callable[[click.Context, click.Parameter, str], tuple[int, int, int]]:
    """Reads `X`, `X,Y` or `X,Y,Z`, each from 1 to what `most` has for it."""

    def read(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, int, int]:
        parts = value.split(",")
        good = len(parts) <= 3 and all(p.isascii() and p.isdecimal() for p in parts)
        if not good or not all(1 <= int(p[:12]) <= m for p, m in zip(parts, most, strict=False)):
            limits = f"{most[0]}" if len(set(most)) == 1 else f"{most[0]} (X) and {most[1]} (Y, Z)"
            given = arguments.short(value)
            raise click.BadParameter(f"{given} is not X, X,Y or X,Y,Z with numbers from 1 to {limits}", ctx, param)
        x, y, z = (*map(int, parts), *(1,) * (3 - len(parts)))
        return x, y, z

    return read


class ClosedOutput(Exception):
    """The reader of stdout has left: a normal end for a command in a pipe."""


def out(text: str) -> None:
    """Result to stdout, at once, as UTF-8 whatever the locale. ClosedOutput, SimError."""
    if sys.stdout is None:
        raise SimError("stdout is closed: there is nowhere to print the result")
    try:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()
    except OSError as e:
        abandon_stdout()
        if isinstance(e, BrokenPipeError):
            raise ClosedOutput from e
        raise SimError(f"cannot write to stdout: {e.strerror}") from None


def read_image(name: str) -> CodeObject:
    """Raises SimError, with the file's name, for anything that is no code object."""
    try:
        arguments.regular(name)
        with open(name, "rb") as file:
            data = file.read(LIMIT + 1)
    except (OSError, ValueError) as e:
        raise SimError(f"{name}: {getattr(e, 'strerror', None) or e}") from None
    if len(data) > LIMIT:
        raise SimError(f"{name}: larger than {LIMIT >> 20} MiB")
    try:
        return CodeObject(unbundled(data))
    except SimError as e:
        raise SimError(f"{name}: {e}") from None


def kernel_of(code: CodeObject, file: str, name: str | None) -> Kernel:
    """The kernel of this name, or the only one."""
    names = few([kernel.name for kernel in code.kernels])
    if not names:
        raise SimError(f"{file}: no kernels")
    if name is None and len(code.kernels) > 1:
        raise SimError(f"{file}: several kernels, name one with --kernel: {names}")
    for kernel in code.kernels:
        if name in (None, kernel.name):
            return kernel
    raise SimError(f"{file}: no kernel {name}; there is {names}")


def few(names: Sequence[str]) -> str:
    """Names for a message: not all of very many, and no very long one whole."""
    shown = [name if len(name) <= NAME else name[:NAME] + "..." for name in names[:NAMES]]
    return ", ".join(shown) + (f" and {len(names) - NAMES} more" if len(names) > NAMES else "")


OPTIONS = """\b
Options of the simulator are environment variables:
  RDNA4SIM_SEED=N         order of waves and workgroups, poison
  RDNA4SIM_LIMIT=N        instructions of a launch; an endless kernel ends there
  RDNA4SIM_WEAK=1         weak memory mode
  RDNA4SIM_UNDEFINED=0    reads of LDS that nobody wrote are no fault
  RDNA4SIM_REPORT=FILE    where reports go (standard error)
  RDNA4SIM_COUNTERS=FILE  instructions and bytes by kernel, as JSON
  RDNA4SIM_ESTIMATE=1     events tell the estimated time, with counters
  RDNA4SIM_CACHE=FOLDER   where translations are kept (~/.cache/rdna4sim)
  RDNA4SIM_PYTHON=FILE    the Python that translates for a host program
"""

FILE = click.argument("file", metavar="FILE")


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=OPTIONS,
)
@click.version_option(__version__, message="rdna4sim %(version)s")
def cli() -> None:
    """Executes gfx1201 (RDNA4) machine code on the CPU, and shows what is in a code object.

    \b
    rdna4sim info kernel.hsaco
    rdna4sim disasm kernel.hsaco --kernel scale
    rdna4sim run kernel.hsaco --block 64 iota:f32:64 'zeros:f32:64=>out.npy' f32:2
    """


@cli.command(short_help="Build the stand-in for HIP, print its path.")
def libpath() -> None:
    """Build the library that stands in for libamdhip64 if need be, and print its path."""
    out(f"{stand_in()}\n")


@cli.command(name="info", short_help="Segments, kernels, their needs and arguments.")
@FILE
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
def info_command(file: str, as_json: bool) -> None:
    """Target, segments and kernels of a code object, with what each kernel needs and takes."""
    code = read_image(file)
    try:
        about = info.describe(code)
    except SimError as e:
        raise SimError(f"{file}: {e}") from None
    out(json.dumps(about, indent=2) + "\n" if as_json else info.as_text(file, about))


@cli.command(name="disasm", short_help="The machine code as text.")
@FILE
@click.option("--kernel", metavar="NAME", help="Only this kernel or function.")
def disasm_command(file: str, kernel: str | None) -> None:
    """The machine code of all functions, in the syntax and the line format of llvm-objdump.

    A word that is no known instruction is a .long line.
    """
    code = read_image(file)
    try:
        known = disasm.functions(code)
        chosen = [symbol for symbol in known if kernel in (None, symbol.name)]
        if not chosen and kernel is not None:
            raise SimError(f"no function {kernel}; there is {few([symbol.name for symbol in known]) or 'none'}")
        out(f"\n{disasm.printable(file)}:\tfile format elf64-amdgpu\n\nDisassembly of section .text:\n")
        for symbol in chosen:
            out("\n" + "".join(line + "\n" for line in disasm.listing(code, symbol, known)))
    except SimError as e:
        raise SimError(f"{file}: {e}") from None


@cli.command(name="run", short_help="Run a kernel on buffers and values.")
@FILE
@click.option("--kernel", metavar="NAME", help="The kernel; not needed if there is one only.")
@click.option(
    "--grid",
    callback=triple(runner.MOST_GRID),
    default="1",
    metavar="X[,Y[,Z]]",
    help="Workgroups (1 if not given): X to 2147483647, Y and Z to 65536, 1073741824 in all.",
)
@click.option(
    "--block",
    callback=triple((1024,) * 3),
    required=True,
    metavar="X[,Y[,Z]]",
    help="Threads of a workgroup: to 1024 in all, or what the kernel is built for.",
)
@click.option(
    "--lds",
    type=click.IntRange(0, 65536),
    default=0,
    metavar="BYTES",
    help="LDS besides the kernel's own, to 65536 in all.",
)
@click.option(
    "--cooperative",
    is_flag=True,
    help="All workgroups at once, so that they may wait for each other: as many as the card holds.",
)
@click.option("--repeat", type=click.IntRange(1, 10**6), default=1, metavar="N", help="Launches, on the same buffers.")
@click.argument("args", nargs=-1, metavar="[ARG]...")
def run_command(file: str, kernel: str | None, args: Sequence[str], **options: Any) -> None:
    """Run a kernel. Each ARG is one argument of the kernel, in the kernel's order.

    \b
    u32:7 i32:-1 f32:0.5   a value; u8 to u64, i8 to i64, f16, f32, f64, bytes:HEX
    zeros:f32:1024         a buffer of 1024 zeros
    iota:u32:64            a buffer of 0, 1, 2, ...
    random:f32:1024:SEED   a buffer of random numbers (the seed is 0 if left out)
    file.npy               a buffer with the contents of a file
    'BUFFER=>out.npy'      any buffer; afterwards its contents go to a file
    'BUFFER=>-'            any buffer; afterwards its first values are printed

    A kernel that does not end: Ctrl-C, or RDNA4SIM_LIMIT=N instructions.
    """
    code = read_image(file)
    chosen = kernel_of(code, file, kernel)
    shape = runner.Shape(options["grid"], options["block"], options["lds"], options["cooperative"])
    shape.check(chosen)
    given = [arguments.parse(word) for word in args]
    arguments.check(chosen, given)
    arguments.check_targets(given, file)
    after, seconds = runner.run(code.data, chosen, shape, given, options["repeat"])
    for i, (argument, values) in enumerate(zip(given, after, strict=True)):
        if values is not None and argument.save == "-":
            first = " ".join(str(x) for x in values.reshape(-1)[:SHOWN])
            out(f"argument {i}, {values.size} x {values.dtype}: {first}{' ...' if values.size > SHOWN else ''}\n")
        elif values is not None and argument.save:
            arguments.save(argument.save, values)
    out(summary(chosen, shape, seconds))


def summary(kernel: Kernel, shape: runner.Shape, seconds: Sequence[float]) -> str:
    """One line: kernel, sizes and wall time of the launches, compiling not included."""
    times = f"{seconds[0]:.6f} s"
    if len(seconds) > 1:
        times = f"{len(seconds)} launches, first {times}, fastest {min(seconds):.6f} s"
    groups = f"{shape.groups} workgroup{'s' if shape.groups > 1 else ''} of {shape.threads} threads"
    return f"{disasm.printable(kernel.name)}: {groups}, {shape.waves} waves, {times}\n"


def abandon_stdout() -> None:
    """Points stdout at nothing, so that the interpreter's own flush at exit does not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def say(message: str) -> None:
    sys.stderr.write(f"rdna4sim: {disasm.printable(message)}\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    end_tidily()
    try:
        cli.main(list(sys.argv[1:] if argv is None else argv), "rdna4sim", standalone_mode=False)
        return 0
    except click.exceptions.NoArgsIsHelpError as e:
        sys.stderr.write(e.format_message() + "\n")
    except click.ClickException as e:
        say(e.format_message())
    except (click.Abort, KeyboardInterrupt, runner.Running, Terminated) as e:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        status = 128 + (signal.SIGTERM if isinstance(e, Terminated) else signal.SIGINT)
        say("terminated" if isinstance(e, Terminated) else "interrupted")
        if threading.active_count() > 1:  # a launch, which the interpreter would wait for
            sys.stderr.flush()
            os._exit(status)
        return status
    except runner.Fault as e:
        if not e.report:
            say(str(e))
        for line in e.report.splitlines():
            sys.stderr.write(f"{disasm.printable(line)}\n")
    except ClosedOutput:
        return 0
    except (SimError, MemoryError) as e:
        say(str(e) or "out of memory")
    except OSError as e:
        say(f"{e.filename}: {e.strerror}" if e.filename else str(e.strerror or e))
    except Exception as e:
        say(f"this is a bug: {type(e).__name__}: {e}")
    return 1
