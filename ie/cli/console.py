"""stdout, stderr, the log and exit statuses, the same for every command.

Owns: how text leaves the process and how a failure becomes one line and a status. No other module of the package writes
to the two streams: what libraries say (logging, warnings) passes through here too. Does not own any wording of results.
stdout carries the result alone, stderr everything else; both are written at once. Lines of stderr and of the log
are escaped; the result is where it goes to a terminal (see `visible`), and stays as it is anywhere else.

Statuses: 0 done, also when the reader of stdout left early; 1 error; 130 after Ctrl-C.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import select
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

from .. import __version__, native, paths
from ..errors import IeError
from ..gguf import part_paths
from . import help, options
from .options import Options
from .visible import Visible, one_line

OK, FAILED, INTERRUPTED = 0, 1, 130

LAST_WORDS = 1.0
"""Seconds that a reader has to take what is said after Ctrl-C."""
LOOK = 0.2  # seconds between two looks at the clock while nobody reads


class ClosedOutput(Exception):
    """The reader of stdout has left: a normal end for a command in a pipe."""


class OutputError(IeError):
    """stdout cannot be written: the disk is full, or it was closed before the start."""


class Console:
    """The two output streams of one run of a command. `words`: its command line, whose files are never logged to."""

    def __init__(self, command: str, verbose: bool = False, words: Sequence[str] = ()) -> None:
        self.command = command
        self.verbose = verbose
        self.raw = False  # bytes stay as they are at a terminal too
        self._words = words
        self._visible = Visible()
        self._at_line_start = True
        self._log_failed = False
        self._read: set[tuple[int, int]] | None = None  # files that are never logged to; None: not looked for yet
        self._until = math.inf

    def hurry(self) -> None:
        """What nobody has read LAST_WORDS seconds after the first call of this is not said: somebody wants
        the command to end, and a full pipe must not keep it. May be called in a signal handler."""
        self._until = min(self._until, time.monotonic() + LAST_WORDS)

    @property
    def out_is_terminal(self) -> bool:
        return sys.stdout is not None and sys.stdout.isatty()

    @property
    def err_is_terminal(self) -> bool:
        return err_is_terminal()

    def text(self, piece: str | bytes) -> None:
        """Result to stdout, at once, as UTF-8 whatever the locale. ClosedOutput, OutputError."""
        data = piece.encode("utf-8", "surrogateescape") if isinstance(piece, str) else piece
        if data and sys.stdout is None:
            raise OutputError("stdout is closed: there is nowhere to print the result")
        if data and not self.raw and self.out_is_terminal:
            data = self._visible.push(data)
        self._out(data)

    def _out(self, data: bytes) -> None:
        if not data:
            return
        try:
            self._write(sys.stdout, data)
        except BrokenPipeError as error:
            self._at_line_start = True
            raise ClosedOutput from error
        except OSError as error:
            self._at_line_start = True
            raise OutputError(f"cannot write to stdout: {error.strerror}") from error
        self._at_line_start = data.endswith(b"\n")

    def end_text(self) -> None:
        """Moves to a new line where stderr would stick to the text: on a terminal, and where both are one file."""
        self._out(self._visible.flush())
        if self._at_line_start:
            return
        if self.out_is_terminal:
            self.text("\n")
        elif self.err_is_terminal or _same_file():
            self._err("\n")
            self._at_line_start = True

    def end_answer(self) -> None:
        """Moves to a new line on stdout, wherever that leads: another answer follows in a conversation."""
        self._out(self._visible.flush())
        if not self._at_line_start:
            self.text("\n")

    def prompt(self, text: str) -> None:
        """What asks for a line, to stderr, without a new line."""
        self._err(text)

    def line(self, message: str) -> None:
        """One line to stderr. A stderr that cannot be written is not a reason to fail."""
        self._err(one_line(message) + "\n")

    def line_apart(self, message: str) -> None:
        """One line to stderr that does not stick to text before it."""
        self.end_text()
        self.line(message)

    def note(self, message: str) -> None:
        """One line for those who asked: to stderr with -v, and to the file named by IE_LOG."""
        if self.verbose:
            self.line(message)
        self.log(message)

    def log(self, message: str) -> None:
        """Appends a line to the file named by IE_LOG, if there is one; that it cannot be written is said once."""
        try:
            path = paths.log_file()
            if path is None:
                return
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            entry = f"{stamp} {self.command}[{os.getpid()}] {one_line(message)}\n"
            with open(paths.open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab", buffering=0) as file:
                if self._read is None:
                    self._read = _files_read(self._words)
                at = os.fstat(file.fileno())
                if (at.st_dev, at.st_ino) in self._read:
                    raise OSError(None, "this file is read, or named on the command line", str(path))
                file.write(entry.encode("utf-8", "backslashreplace"))
        except (OSError, IeError) as error:  # diagnostics must never be the reason of a failure
            if not self._log_failed:
                self._log_failed = True
                self.line_apart_quietly(f"note: IE_LOG: {describe(error)}: nothing is logged")

    def library(self, message: str) -> None:
        """A message of a library, with the name of the command."""
        self.line_apart_quietly(f"{self.command}: {message}")
        self.log(message)

    def error(self, message: str) -> None:
        """`command: message` to stderr and to the log."""
        self.line_apart_quietly(f"{self.command}: {message}")
        self.log(message)

    def bug(self, error: BaseException) -> None:
        """A failure of our own: one line, and with -v, and in the log, where it was."""
        self.error(f"this is a bug: {type(error).__name__}: {error}. -v shows where")
        for line in traceback.format_exception(error):
            for part in line.splitlines():
                self.note(part)

    def line_apart_quietly(self, message: str) -> None:
        """A line to stderr that does not stick to text before it, for use while an error is being reported."""
        self.end_text_quietly()
        self.line(message)

    def end_text_quietly(self) -> None:
        """end_text() for use while an error is being reported: a second failure is not reported."""
        try:
            self.end_text()
        except (ClosedOutput, OutputError):
            return

    def _err(self, text: str) -> None:
        if sys.stderr is None:
            return
        with contextlib.suppress(OSError, ValueError):
            self._write(sys.stderr, text.encode(sys.stderr.encoding or "utf-8", "backslashreplace"))

    def _write(self, stream: TextIO, data: bytes) -> None:
        """All of it, past the stream's buffer: what could not be written is not tried again later. OSError, also when
        nobody reads and time is up (`hurry`)."""
        stream.flush()
        file: Any = getattr(stream.buffer, "raw", stream.buffer)
        rest = memoryview(data)
        while rest:
            self._wait(file)
            written = file.write(rest[: select.PIPE_BUF])  # as much as a pipe that is ready takes without waiting
            if written is not None:  # None: another program has set the pipe not to wait, and was faster
                rest = rest[written:]
        file.flush()

    def _wait(self, file: Any) -> None:
        """Until a pipe or a terminal takes something."""
        try:
            descriptor = file.fileno()
        except (AttributeError, OSError, ValueError):  # no file of the system: nothing to wait for
            return
        while not select.select([], [descriptor], [], LOOK)[1]:
            if time.monotonic() > self._until:
                raise OSError(errno.ETIMEDOUT, "nobody reads it")


def err_is_terminal() -> bool:
    """Whether somebody looks at stderr."""
    return sys.stderr is not None and sys.stderr.isatty()


def err_stream() -> TextIO:
    """stderr, for a library that draws on a terminal."""
    return sys.stderr


def _files_read(words: Sequence[str]) -> set[tuple[int, int]]:
    """Device and number of the standard input, and of each file that a word of the command line names, by itself or
    behind a `=`, with the other parts of a split model."""
    places: list[str | int] = [0]
    for name in filter(None, (part for word in words for part in (word, word.partition("=")[2]))):
        places += part_paths(name)
    found = set()
    for place in places:
        with contextlib.suppress(OSError, ValueError):
            at = os.stat(place)
            found.add((at.st_dev, at.st_ino))
    return found


def describe(error: IeError | OSError) -> str:
    """An error in one line; the system's own with the file, if there is one, in front."""
    if isinstance(error, IeError):
        return str(error)
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes | os.PathLike) else ""
    return f"{where}{error.strerror or error}"


def _same_file() -> bool:
    """True when stdout and stderr lead to the same place, as after 2>&1."""
    try:
        return os.path.samestat(os.fstat(1), os.fstat(2))
    except OSError:
        return False


class _FromLibraries(logging.Handler):
    """Warnings and errors of libraries, as lines of the console."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # the arguments do not fit the format
            message = str(record.msg)
        if record.exc_info and record.exc_info[1] is not None:
            message = f"{message}: {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        self._console.library(message)


@contextlib.contextmanager
def libraries_report_to(console: Console) -> Iterator[None]:
    """For the length of the block, what libraries log or warn of, and exceptions that nobody can catch, are lines of
    the console. Hooks that somebody else has set stay theirs."""
    handler, root = _FromLibraries(console), logging.getLogger()
    shown, unraisable, in_thread = warnings.showwarning, sys.unraisablehook, threading.excepthook

    def show(message: Warning | str, category: type[Warning], *args: Any, **more: Any) -> None:
        console.library(f"{category.__name__}: {message}")

    def lost(args: Any) -> None:
        if args.exc_type is not SystemExit:
            console.library(f"ignored: {args.exc_type.__name__}: {args.exc_value}")

    root.addHandler(handler)
    warnings.showwarning = show
    if unraisable is sys.__unraisablehook__:
        sys.unraisablehook = lost
    if in_thread is threading.__excepthook__:
        threading.excepthook = lost
    try:
        yield
    finally:
        root.removeHandler(handler)
        warnings.showwarning, sys.unraisablehook, threading.excepthook = shown, unraisable, in_thread


def _occupy_closed_streams() -> None:
    """A file that is opened later must not take the number of a stream that was closed before the start: whatever is
    written to that stream, from C too, would go into the file."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


def run(command: str, argv: Sequence[str], body: Callable[[Console, Options], int]) -> int:
    """Reads the command line and runs the body; every failure becomes one line on stderr and an exit status."""
    console = Console(command, verbose="-v" in argv or "--verbose" in argv, words=argv)
    _occupy_closed_streams()
    with libraries_report_to(console):
        status = _run(console, argv, body)
        console.end_text_quietly()
        return status


def _run(console: Console, argv: Sequence[str], body: Callable[[Console, Options], int]) -> int:
    command = console.command
    try:
        chosen = options.parse(command, argv)
        if chosen.help:
            console.text(help.help_text(command))
            return OK
        if chosen.version:
            console.text(f"{command} {__version__}\n")
            return OK
        console.raw = chosen.raw
        native.on_lost_pages(f"{command}: ")
        return body(console, chosen)
    except ClosedOutput:
        return OK
    except KeyboardInterrupt:
        console.hurry()
        console.error("interrupted")
        return INTERRUPTED
    except MemoryError:
        console.error("out of memory. A smaller context (-c) or a smaller model needs less")
    except (IeError, OSError) as error:
        console.error(describe(error))
    except Exception as error:
        console.bug(error)
    return FAILED
