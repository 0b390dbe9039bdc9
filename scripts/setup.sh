#!/usr/bin/env bash
# Creates .venv and installs everything that the Makefile's targets need, with pip and nothing else.
# A stamp of what decides the result (versions, Python, place) makes a repeat instant.
set -euo pipefail
cd "$(dirname "$0")/.."

VENV="${VENV:-.venv}"
PYTHON="${PYTHON:-python3}"
STAMP="$VENV/.everstep-installed"

fail() { echo "setup: $*" >&2; exit 1; }

installed_for() {  # what the installation depends on, as one line
  { cat pyproject.toml constraints.txt; "$VENV/bin/python" -VV; pwd -P; } 2>/dev/null | sha256sum
}

if [[ -x "$VENV/bin/python" && -f "$STAMP" && "$(installed_for)" == "$(cat "$STAMP")" ]]; then
  exit 0
fi

command -v "$PYTHON" >/dev/null ||
  fail "no $PYTHON on PATH; install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$PYTHON is $("$PYTHON" -V 2>&1), 3.11 or newer is needed; name one: make PYTHON=/path/to/python3"

# A .venv whose interpreter is gone or too old cannot be repaired by pip.
if [[ -e "$VENV" ]] && ! "$VENV/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  echo "setup: $VENV has no working Python 3.11 or newer; making it again"
  rm -rf "$VENV"
fi
if [[ ! -e "$VENV" ]]; then
  "$PYTHON" -m venv "$VENV" ||
    fail "$PYTHON -m venv failed; on Debian and Ubuntu: apt-get install python3-venv"
fi

pip_install() {
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt "$@" ||
    fail "pip could not install: $*"
}

echo "setup: installing into $VENV (once; a few minutes on a slow line)"
# torch first and by itself: the largest download, and plain pip then takes the build that the
# machine's index offers without weighing it against everything else.
pip_install torch==2.13.0
pip_install -e '.[all,dev]'
installed_for >"$STAMP"
echo "setup: done"
