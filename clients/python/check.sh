#!/bin/sh
# Checks this package: format, lint, types, tests. PYTHON (python3) needs build, mypy, ruff and setuptools; TENURE_BIN names
# the daemon.
set -eu
cd "$(dirname "$0")"
python="${PYTHON:-python3}"
"$python" -m ruff format --check .
"$python" -m ruff check .
"$python" -m mypy
"$python" -W ignore::ResourceWarning -m unittest discover -s tests
