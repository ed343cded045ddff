"""Where things lie outside the program, and what the environment may say about it.

Owns: the two environment variables that exist, IE_CACHE and IE_LOG, and the paths that follow from them. It is
the only module that reads the environment. It creates nothing on import and decides nothing about behaviour.
"""

from __future__ import annotations

import os
from pathlib import Path

from .errors import ResourceError


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


def _expand(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ResourceError(f"{text}: {error}. Set IE_CACHE to a folder that can be written") from error


def models_dir() -> Path:
    """The folder inside the cache that holds fetched models."""
    return cache_dir() / "models"


def library_dir() -> Path:
    """The folder of the compiled kernels, inside the package."""
    return Path(__file__).resolve().parent / "lib"


def log_file() -> Path | None:
    """The file that IE_LOG names: diagnostics are appended to it. None when unset or empty."""
    named = os.environ.get("IE_LOG")
    return _expand(named) if named else None
