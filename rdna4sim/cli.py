"""`python -m rdna4sim.cli libpath` and `translate FILE`: build, and print the path of what was built."""

from __future__ import annotations

import sys
from pathlib import Path

from .cache import stand_in, translated
from .errors import SimError
from .translate import Variant


def main(arguments: list[str]) -> int:
    """Prints a path; one line on standard error and 1 if there is none."""
    try:
        if arguments == ["libpath"]:
            print(stand_in())
        elif len(arguments) == 2 and arguments[0] == "translate":
            print(translated(Path(arguments[1]).read_bytes(), Variant()))
        else:
            raise SimError("usage: python -m rdna4sim.cli libpath | translate FILE")
    except (SimError, OSError) as e:
        print(f"rdna4sim: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
