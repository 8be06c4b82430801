# memlane: `make help` lists what can be made.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# What the demo needs is a part of that, and installed in less than half of the time.
USABLE := $(if $(wildcard $(STAMP)),$(STAMP),$(VENV)/.usable)
# What the environment holds; `make test EXTRAS=cuda,dev,numba,triton` also runs the tests of kernels from Numba and Triton.
EXTRAS ?= cuda,dev
# What `make fuzz` does; `make fuzz FUZZ=--help` lists the options.
FUZZ ?= --number 2000
# A file of versions for pip to keep to; none takes the newest that pyproject.toml allows.
CONSTRAINTS ?=

# What `make mutants` changes: files or folders.
MODULE ?= src/memlane/sass/waiting.py

.PHONY: help demo test test-all gpu-test check format fuzz mutants stale tables wheel wheel-check clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) --editable '.[$(EXTRAS)]'
	@touch $@

$(VENV)/.usable: pyproject.toml
	@echo "Installing memlane and NVIDIA's compiler into $(VENV) (about 400 MB; a minute or two) ..."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cuda]'
	@touch $@

demo: $(USABLE) ## trace the example transposes on the emulator and explain what is wrong with them
	$(BIN)/memlane trace examples/transpose.py --target emulator:h200 --force
	$(BIN)/memlane explain transpose.parquet

test: $(STAMP) ## run the tests that need no GPU
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not gpu and not slow"

test-all: $(STAMP) ## run the slow tests, too
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m "not gpu"

gpu-test: $(STAMP) ## run the tests that need a GPU
	$(BIN)/python -m pytest -q -m gpu

check: $(STAMP) ## format, lint, strict types, import rules
	$(BIN)/ruff format --check src tests examples benchmarks
	$(BIN)/ruff check src tests examples benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP) ## format the code
	$(BIN)/ruff format src tests examples benchmarks
	$(BIN)/ruff check --fix src tests examples benchmarks

fuzz: $(STAMP) ## give mutated inputs to everything that reads files and words; FUZZ="--reader ptx --seed 7 --number 1000000"
	$(BIN)/python -m tests.fuzz $(FUZZ)

mutants: $(STAMP) ## change a module in small wrong ways and see whether its tests notice; MODULE=src/memlane/sass/waiting.py
	$(BIN)/python benchmarks/mutants.py --module $(MODULE)

stale: $(STAMP) ## name the committed results that are older than the code they measured
	$(BIN)/python benchmarks/stale.py

tables: $(STAMP) ## write the tables and figures of the docs from the committed results
	$(BIN)/python benchmarks/docs.py
	$(BIN)/python -m memlane.lab.volume draw benchmarks/results/h200/volume docs/figures/volume

wheel: $(STAMP) ## build what could be published, in dist/: a wheel and a source distribution
	rm -rf dist
	$(BIN)/python -m pip install --quiet build
	$(BIN)/python -m build --outdir dist .

wheel-check: wheel ## install the wheel into bare environments of every Python that is found, and run the demo there
	$(BIN)/python benchmarks/wheel.py dist

clean: ## remove the environment and caches
	rm -rf $(VENV) dist .mutants .pytest_cache .mypy_cache .ruff_cache
