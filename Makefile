# Two commands do everything on a machine that has Python 3.11+ and make:
#   make demo   the main job on the embedded data set
#   make test   linters, type checker and tests; SLOW=1 adds the slow ones, as CI does, EXHAUSTIVE=1 all others too
PYTHON ?= python3
VENV ?= .venv
# Options for pip's downloads, e.g. PIP_ARGS="--index-url …" for a CPU-only torch on Linux.
PIP_ARGS ?=
BIN := $(VENV)/bin
CHECKED := src tests benchmarks examples docs/conf.py docs/_ext
# The demo needs the package alone; tests need the extras and tools too.
EXTRAS ?= dev
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: test demo docs pages pages-check lint format unit clean
test: lint unit

demo: $(INSTALLED)
	@$(BIN)/graphcaps demo --out demo

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "graphcaps needs Python 3.11 or newer; set PYTHON=…"; exit 2; }
	$(PYTHON) -m venv $(VENV)

# The stamps are newer than both files, so that a second call installs nothing.
$(INSTALLED): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) $(PIP_ARGS) -c constraints.txt -e .
	@touch $@

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) $(PIP_ARGS) -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $(INSTALLED) $@

docs: $(READY)
	$(BIN)/sphinx-build -W -q -b html docs build/docs
	@echo "Open build/docs/index.html"

# Pages that show stored results; pages-check writes nothing and names those that are not current.
pages: $(READY)
	$(BIN)/python -m benchmarks.pages
	$(BIN)/python benchmarks/architecture_diagram.py

pages-check: $(READY)
	$(BIN)/python -m benchmarks.pages --check
	$(BIN)/python benchmarks/architecture_diagram.py --check

lint: $(READY)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

# A test that takes ten minutes hangs (the longest takes 40 s): its process ends with the stacks of all threads. This
# watchdog is a thread of C and needs no interpreter lock, which a deadlock in a library may hold.
WATCHDOG := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true

# PYTEST_ARGS: which tests and how, e.g. PYTEST_ARGS="tests/ops -x". The empty variable lets Python keep compiled
# modules, so that the processes that tests start need not compile the package again.
unit: $(READY)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal --durations=10 $(WATCHDOG) $(if $(EXHAUSTIVE),,-m "not exhaustive$(if $(SLOW),, and not slow)") $(PYTEST_ARGS)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
