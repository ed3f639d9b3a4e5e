# Everything works from a fresh clone: each target first makes .venv if it is not there.
#   make demo      train a small model on a simulated cloud that takes its machines away
#   make test      lint, types, layers, all tests but the slow ones
#   make test-all  the same with the slow tests
#   make test-fast lint, types, layers, the tests of the cores: within a minute
#   make simulate SEED=7   replay one seeded simulation and tell its story
#   make chaos ARGS="--minutes 20 --seed 7"   four jobs through kills, stops and forged messages
#   make mutants SEED=7    mutate the cores and list the mutants that no test notices
#   make bench     list and run the benchmarks
#   make picture   record the demo again and draw the picture in the README

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SEED ?= 7
JOBS ?= 5
FAST := $(addprefix tests/,job lease messages planning throughput catalog structure) $(wildcard tests/*/test_*properties.py)

# Where pip has been told to look, uv looks too: it reads none of pip's settings.
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
ifneq ($(PIP_INDEX_URL),)
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif
# TORCH_BACKEND=cpu makes uv take torch's CPU build from torch's own package index.
ifneq ($(TORCH_BACKEND),)
export UV_TORCH_BACKEND := $(TORCH_BACKEND)
endif

# The tests start hundreds of processes: without its bytecode each would compile us anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-all test-fast lint unit simulate chaos mutants bench picture clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Tradewind needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version). Try: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	@echo "Setting up $(VENV) (once; about half a minute)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/tradewind demo $(ARGS)

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@set -o pipefail; $(BIN)/lint-imports --no-cache | sed '1,/^Contracts$$/d'

# Without bytecode each of the processes would compile all tests: one collects them first.
unit: $(READY)
	@ls tests/__pycache__/*pytest*.pyc >/dev/null 2>&1 || $(BIN)/pytest --collect-only >/dev/null 2>&1 || true
	@$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

# The tests wait for processes and clocks half of the time: lint uses the cores meanwhile, and prints when it ends.
test: $(READY)
	@lint=$$(mktemp); trap 'rm -f $$lint' EXIT; \
	$(MAKE) --no-print-directory lint >$$lint 2>&1 & \
	$(MAKE) --no-print-directory unit; unit=$$?; \
	wait $$!; linted=$$?; cat $$lint; exit $$((unit | linted))

test-all:
	@$(MAKE) --no-print-directory test ARGS="-m 'slow or not slow' $(ARGS)"

test-fast:
	@$(MAKE) --no-print-directory test ARGS="$(FAST) $(ARGS)"

simulate: $(READY)
	@$(BIN)/python -m tests.simulation --seed $(SEED)

chaos: $(READY)
	@$(BIN)/python -m tests.chaos $(ARGS)

mutants: $(READY)
	@$(BIN)/python -m tests.mutants --seed $(SEED) $(ARGS)

bench: $(READY)
	@$(BIN)/python -m benchmarks $(ARGS)

picture: $(READY)
	@$(BIN)/python docs/pictures/render.py --record

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
