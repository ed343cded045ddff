"""The environment of rdna4sim's Python side, and where things are kept. The only module here that reads the
environment."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """RDNA4SIM_CACHE, else rdna4sim below the user's cache folder."""
    named = os.environ.get("RDNA4SIM_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rdna4sim"


def report_file(otherwise: Path) -> str:
    """RDNA4SIM_REPORT if it is set; else it is set to `otherwise` for the stand-in, and nothing is returned."""
    named = os.environ.get("RDNA4SIM_REPORT", "")
    if not named:
        os.environ["RDNA4SIM_REPORT"] = str(otherwise)
    return named
