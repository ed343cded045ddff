"""The environment of rdna4sim's Python side, and where things are kept. The only module here that reads the
environment."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import SimError

LONGEST = 3500
"""Bytes of the cache folder's path: what is kept below it must stay within the 4096 that Linux allows."""


def cache_folder() -> Path:
    """RDNA4SIM_CACHE, else rdna4sim below the user's cache folder; absolute. Raises SimError."""
    named, base = os.environ.get("RDNA4SIM_CACHE"), os.environ.get("XDG_CACHE_HOME", "")
    if named:
        path = os.path.abspath(named)
    elif os.path.isabs(base):
        path = os.path.join(base, "rdna4sim")
    else:
        try:
            home = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            raise SimError("there is no home folder; RDNA4SIM_CACHE names a folder for translations") from None
        path = os.path.abspath(os.path.join(home, ".cache", "rdna4sim"))
    if len(os.fsencode(path)) > LONGEST:
        raise SimError(f"{'RDNA4SIM_CACHE' if named else 'the cache folder'} is a path of more than {LONGEST} bytes")
    return Path(path)


def compiler_environment(folder: Path) -> dict[str, str]:
    """The environment of the compiler: what it keeps for itself goes to `folder`, not below HOME."""
    return {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(folder / "zig"), "ZIG_LOCAL_CACHE_DIR": str(folder / "zig")}


@contextmanager
def report_file(otherwise: str) -> Iterator[str]:
    """RDNA4SIM_REPORT if it is set; else nothing, and it is `otherwise` for the stand-in as long as this lasts."""
    named = os.environ.get("RDNA4SIM_REPORT", "")
    if named:
        yield named
        return
    os.environ["RDNA4SIM_REPORT"] = otherwise
    try:
        yield ""
    finally:
        del os.environ["RDNA4SIM_REPORT"]
