"""`python -m rdna4sim libpath`: builds the stand-in if need be and prints its path."""

from __future__ import annotations

import sys

from .cache import stand_in
from .errors import SimError


def main(arguments: list[str]) -> int:
    """Prints a path; one line on standard error and 1 if there is none."""
    try:
        if arguments != ["libpath"]:
            raise SimError("usage: python -m rdna4sim libpath")
        print(stand_in())
    except (SimError, OSError) as e:
        print(f"rdna4sim: {e}", file=sys.stderr)
        return 1
    return 0
