#!/bin/sh
# Makes .venv with the first Python that is new enough: the one that was named, or one found here.
set -eu

for python in ${1:-python3 python3.14 python3.13 python3.12 python3.11}; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    if ! said=$("$python" -m venv .venv 2>&1); then
        rm -rf .venv
        echo "$python cannot make a virtual environment (on Debian: apt install python3-venv): $said" >&2
        exit 1
    fi
    exit 0
done

found=$("${1:-python3}" -c 'import platform; print(platform.python_version())' 2>/dev/null || echo none)
echo "Outbox Admin needs Python 3.11 or newer; found: $found. Name one with PYTHON=, as in: make up PYTHON=python3.13" >&2
exit 1
