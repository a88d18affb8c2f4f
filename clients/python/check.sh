#!/bin/sh
# Checks this package: format, lint, types, tests. PYTHON (python3) needs ruff and mypy.
set -eu
cd "$(dirname "$0")"
python="${PYTHON:-python3}"
"$python" -m ruff format --check .
"$python" -m ruff check .
"$python" -m mypy
"$python" -m unittest discover -s tests
