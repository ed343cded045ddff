"""`python -m rdna4sim`: see cli."""

import sys

from .cli import main

sys.exit(main())
