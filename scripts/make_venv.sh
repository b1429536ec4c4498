#!/usr/bin/env bash
# Make the virtual environment named by the first argument with a Python of 3.11 or newer, or say what is missing.
# PYTHON=/path/to/python chooses one.
set -euo pipefail
venv=$1

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

if [ -x "$venv/bin/python" ] && new_enough "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    exit 0
fi

python=""
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python}; do
    if command -v "$candidate" >/dev/null && new_enough "$candidate"; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "tablestream needs Python 3.11 or newer, and ${PYTHON:-python3} is not." >&2
    echo "Install one (Debian 12 or newer: apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3.11" >&2
    exit 1
fi

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    # Debian keeps ensurepip in a package of its own.
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "Python's venv module is missing; installing python3-venv."
        apt-get update -q || true
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends python3-venv
    else
        echo "$python cannot make virtual environments; install its venv module (Debian: sudo apt-get install python3-venv)." >&2
        exit 1
    fi
fi
rm -rf "$venv"
"$python" -m venv "$venv"
