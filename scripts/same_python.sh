#!/usr/bin/env bash
# same_python.sh FOLDER PYTHON: whether the virtual environment in FOLDER is one of this interpreter.
# Exit status 0 also where there is no environment yet, 1 also for an interpreter that does not run.
set -uo pipefail
binary='import os, sys; print(os.path.realpath(sys.executable), sys.version)'
venv=$("$1/bin/python" -c "$binary" 2>/dev/null) || exit 0
wanted=$("$2" -c "$binary" 2>/dev/null) || exit 1
[ "$venv" = "$wanted" ]
