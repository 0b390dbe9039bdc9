# Every target does its own set-up: .venv with the machine's Python, pip only, no Docker, no root.
# On a machine without GPUs, point PIP_EXTRA_INDEX_URL at an index of CPU builds: it saves gigabytes.
SHELL := /bin/bash
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Test files side by side, each as a whole. These numbers are for two cores: tests wait for a good
# part of their time. End-to-end tests run on the stack of their worker, which is 60 processes.
# DURATIONS is how many of the slowest are listed (0: all).
WORKERS ?= 3
STACKS  ?= 2
DURATIONS ?= 12
BESIDE := --dist loadfile --no-loadscope-reorder -n
NAME   ?=
ARGS   ?=
export PYTHON VENV
# Tests start hundreds of processes: they need not compile our modules each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-containers test-namespaces test-gpu check tests sim bench bench-gpu proto lock clean

help:  ## show this list
	@echo "usage: make TARGET"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 19

setup:  ## create .venv and install everything (the other targets do this by themselves)
	@bash scripts/setup.sh

demo: setup  ## train, kill a host, recover, compare bit for bit; ARGS="--keep --seed 7"
	@$(BIN)/everstep demo $(ARGS)

check: setup  ## lint, format, types, import rules, wire code, architecture and unit tests (2 min)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/proto.py --check
	$(BIN)/pytest -q $(BESIDE) $(WORKERS) tests/architecture tests/unit

test: check  ## check, then contract, integration and end-to-end tests on real servers (20 to 40 min)
	$(BIN)/pytest -q $(BESIDE) $(WORKERS) --durations=$(DURATIONS) tests/contract tests/sim tests/integration
	$(BIN)/pytest -q $(BESIDE) $(STACKS) --durations=$(DURATIONS) tests/e2e

test-containers: setup  ## docker-compose.yml and PostgreSQL in containers (Docker engine, Compose 2.26; 10 min)
	$(BIN)/pytest -q tests/containers

test-namespaces: setup  ## hosts in network namespaces that are really cut off (Linux, root, iproute2; 5 min)
	$(BIN)/pytest -q tests/namespaces

test-gpu: setup  ## a job over NCCL loses a rank and a host (one NVIDIA GPU is enough; 5 min)
	$(BIN)/pytest -q tests/gpu

sim: setup  ## simulate fleets under faults for SECONDS (600); failures come with their replay
	@$(BIN)/everstep sim run --seconds $(or $(SECONDS),600) $(ARGS)

bench: setup  ## print figures as JSON, also kept in benchmarks/results/; NAME=recovery runs one
	@bash scripts/bench.sh $(NAME)

bench-gpu: setup  ## what a snapshot of state on a GPU costs (one NVIDIA GPU; 5 min)
	@$(BIN)/python -m benchmarks.snapshot --device cuda

proto: setup  ## generate lib/everstep/wire/v1 from proto/
	$(BIN)/python scripts/proto.py

lock: setup  ## write constraints.txt from what is installed
	$(BIN)/python scripts/lock.py

clean:  ## remove .venv and caches; never the state of a stack (that is: everstep down --wipe)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
