"""Where things lie outside the program, and what the environment may say about it.

Owns: the two environment variables that exist, IE_CACHE and IE_LOG, and the paths that follow from them (where IE_CACHE
is not set, XDG_CACHE_HOME counts). It is the only module that reads the environment or changes it. It creates nothing
on import and decides nothing about behaviour. Also how a file is opened that must be a regular one.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from .errors import ResourceError


def no_threads_of_numpy() -> None:
    """Before numpy is imported: no threads for its matrix products, unless the user asks for some. A process that may
    start no more threads would be told so by OpenBLAS's own words and a SIGINT, as if somebody had pressed Ctrl-C."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        if name in os.environ:
            return
    os.environ["OPENBLAS_NUM_THREADS"] = "1"


def cache_dir() -> Path:
    """The folder for downloaded models and the conversation history; it may not exist yet.

    IE_CACHE if set, else XDG_CACHE_HOME/ie, else ~/.cache/ie. A relative XDG_CACHE_HOME is ignored, as the XDG
    base directory specification asks. ResourceError when neither is set and there is no home directory.
    """
    named = os.environ.get("IE_CACHE")
    if named:
        return _expand(named)
    base = os.environ.get("XDG_CACHE_HOME")
    if base and os.path.isabs(base):
        return Path(base) / "ie"
    return _expand("~/.cache/ie")


def _expand(text: str, advice: str = "Set IE_CACHE to a folder that can be written") -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ResourceError(f"{text}: there is no such home directory. {advice}") from error


def history_file() -> Path:
    """The messages of earlier conversations, for the line editor. ResourceError as cache_dir()."""
    return cache_dir() / "history"


def models_dir() -> Path:
    """The folder inside the cache that holds fetched models."""
    return cache_dir() / "models"


def library_dir() -> Path:
    """The folder of the compiled kernels, inside the package."""
    return Path(__file__).resolve().parent / "lib"


def log_file() -> Path | None:
    """The file that IE_LOG names: diagnostics are appended to it. None when unset or empty. ResourceError."""
    named = os.environ.get("IE_LOG")
    return _expand(named, "Set IE_LOG to a file that can be written") if named else None


def open_regular(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """A descriptor of a regular file, opened with os.O_... `flags`, with O_CREAT made if it is not there. Never waits.

    OSError, named after `path`, for whatever else it is: opening a pipe waits for its other end, and opening some
    devices does something.
    """
    refusal = OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise refusal
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    except ValueError as error:
        raise OSError(errno.EINVAL, "not a file name", os.fspath(path)) from error
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # it was exchanged meanwhile
        os.close(descriptor)
        raise refusal
    return descriptor
