#!/usr/bin/env bash
# Runs one benchmark (its file name without .py), or all of them one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."

BIN="${VENV:-.venv}/bin"
# Helpers start with an underscore or live in folders; every other module there is a benchmark.
mapfile -t all < <(find benchmarks -maxdepth 1 -name '[a-z]*.py' -printf '%f\n' | sed 's/\.py$//' | sort)
wanted=("$@")
[[ $# -gt 0 ]] || wanted=("${all[@]}")
[[ ${#wanted[@]} -gt 0 ]] || { echo "bench: no benchmarks here" >&2; exit 1; }

for name in "${wanted[@]}"; do
  if [[ ! -f "benchmarks/$name.py" ]]; then
    echo "bench: no benchmark $name; there are: ${all[*]}" >&2
    exit 1
  fi
done
for name in "${wanted[@]}"; do
  "$BIN/python" -m "benchmarks.$name"
done
