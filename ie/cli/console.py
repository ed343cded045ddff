"""stdout, stderr and exit statuses, the same for every command.

Owns: how text leaves the process and how a failure becomes one line and a status. Does not own any wording of
results. stdout carries the result alone, stderr everything else; both are flushed at once.

Statuses: 0 done, also when the reader of stdout left early; 1 error; 130 after Ctrl-C.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence

from .. import __version__, options, paths
from ..errors import IeError
from ..options import Options

OK, FAILED, INTERRUPTED = 0, 1, 130


class ClosedOutput(Exception):
    """The reader of stdout has left: a normal end for a command in a pipe."""


class OutputError(IeError):
    """stdout cannot be written: the disk is full, or it was closed before the start."""


class Console:
    """The two output streams of one run of a command."""

    def __init__(self, command: str, verbose: bool = False) -> None:
        self.command = command
        self.verbose = verbose
        self._at_line_start = True
        self._log_failed = False

    @property
    def out_is_terminal(self) -> bool:
        return sys.stdout is not None and sys.stdout.isatty()

    @property
    def err_is_terminal(self) -> bool:
        return sys.stderr is not None and sys.stderr.isatty()

    def text(self, piece: str | bytes) -> None:
        """Result to stdout, at once, as UTF-8 whatever the locale. ClosedOutput, OutputError."""
        if not piece:
            return
        data = piece.encode("utf-8", "surrogateescape") if isinstance(piece, str) else piece
        if sys.stdout is None:
            raise OutputError("stdout is closed: there is nowhere to print the result")
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError as error:
            self._abandon_stdout()
            raise ClosedOutput from error
        except OSError as error:
            self._abandon_stdout()
            raise OutputError(f"cannot write to stdout: {error.strerror}") from error
        self._at_line_start = data.endswith(b"\n")

    def end_text(self) -> None:
        """Moves to a new line where stderr would stick to the text: on a terminal, and where both are one file."""
        if self._at_line_start:
            return
        if self.out_is_terminal:
            self.text("\n")
        elif self.err_is_terminal or _same_file():
            self._err("\n")
            self._at_line_start = True

    def end_answer(self) -> None:
        """Moves to a new line on stdout, wherever that leads: another answer follows in a conversation."""
        if not self._at_line_start:
            self.text("\n")

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
        """Appends to the file named by IE_LOG, if there is one; that it cannot be written is said once."""
        path = paths.log_file()
        if path is None:
            return
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        try:
            with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{stamp} {self.command}[{os.getpid()}] {message}\n")
        except OSError as error:  # diagnostics must never be the reason of a failure
            if not self._log_failed:
                self._log_failed = True
                self.line(f"note: IE_LOG={path}: {error.strerror}: nothing is logged")

    def error(self, message: str) -> None:
        """`command: message` to stderr and to the log."""
        self.end_text_quietly()
        self.line(f"{self.command}: {message}")
        self.log(message)

    def end_text_quietly(self) -> None:
        """end_text() for use while an error is being reported: a second failure is not reported."""
        try:
            self.end_text()
        except (ClosedOutput, OutputError):
            return

    def _err(self, text: str) -> None:
        try:
            if sys.stderr is not None:
                sys.stderr.write(text)
                sys.stderr.flush()
        except (OSError, ValueError):
            return

    def _abandon_stdout(self) -> None:
        """Points stdout at nothing, so that the interpreter's own flush at exit does not fail again."""
        self._at_line_start = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, sys.stdout.fileno())
        finally:
            os.close(nowhere)


def _same_file() -> bool:
    """True when stdout and stderr lead to the same place, as after 2>&1."""
    try:
        return os.path.samestat(os.fstat(1), os.fstat(2))
    except OSError:
        return False


def one_line(text: str) -> str:
    """Text that comes from a file or a path, made safe for a terminal: one line, control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


def run(command: str, argv: Sequence[str], body: Callable[[Console, Options], int]) -> int:
    """Reads the command line and runs the body; every failure becomes one line on stderr and an exit status."""
    console = Console(command, verbose="-v" in argv or "--verbose" in argv)
    try:
        chosen = options.parse(command, argv)
        if chosen.help:
            console.text(options.help_text(command))
            return OK
        if chosen.version:
            console.text(f"{command} {__version__}\n")
            return OK
        return body(console, chosen)
    except ClosedOutput:
        return OK
    except KeyboardInterrupt:
        console.error("interrupted")
        return INTERRUPTED
    except IeError as error:
        console.error(str(error))
    except MemoryError:
        console.error("out of memory. A smaller context (-c) or a smaller model needs less")
    except OSError as error:
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        console.error(f"{where}{error.strerror or error}")
    except Exception as error:
        console.error(f"this is a bug: {type(error).__name__}: {error}. -v shows where")
        console.log(traceback.format_exc())
        if console.verbose:
            traceback.print_exc()
    return FAILED
