#!/usr/bin/env bash
# setup_venv.sh FOLDER [PYTHON]: a virtual environment with the pinned dependencies. Without PYTHON, one that is there
# stays, whichever Python it was made of.
set -euo pipefail
venv=$1
wanted=${2:-}

fail() {
    echo "make setup: $1" >&2
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

python=
own=
[ -z "$wanted" ] && "$venv/bin/python" -c 'import pip' 2>/dev/null && own=$venv/bin/python
for candidate in $own ${wanted:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if new_enough "$candidate"; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ] && [ -n "$wanted" ]; then
    fail "PYTHON=$wanted is not Python 3.11 or newer: $("$wanted" --version 2>&1 | head -n 1)"
elif [ -z "$python" ]; then
    fail "no Python 3.11 or newer found: install one (Debian, Ubuntu: sudo apt install python3 python3-venv), or name it with make PYTHON=/path/to/python3"
fi

version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "Python $version has no venv module: install it (Debian, Ubuntu: sudo apt install python$version-venv)"

# An environment of another Python, or half of one after an interruption, is made anew.
if [ -d "$venv" ] && [ "$python" != "$own" ]; then
    same=$(dirname "$0")/same_python.sh
    if ! "$venv/bin/python" -c 'import pip' 2>/dev/null || ! "$same" "$venv" "$python"; then
        rm -rf "$venv"
    fi
fi
[ -d "$venv" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --disable-pip-version-check --no-input -r requirements-dev.txt
