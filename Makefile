# Needs only Python 3.11+ and git. The first target that needs it makes .venv from the hashed lock.
# Another interpreter: make PYTHON=python3.13 install

PYTHON ?= python3
KILLS ?= 500
WORKERS ?= 8
RUNS ?= 500

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

SOURCES := $(wildcard src tests bench demo scripts)
# Collecting all files takes as long as several tests of this kind do.
CRASH_TESTS = $(shell grep -rl --include='test_*.py' 'mark\.crash' tests)
FAST_TESTS := $(wildcard $(addprefix tests/,model pipeline machine shape store dialect/test_random_programs.py))
# As many processes as there are cores; tests that kill processes one by one, each to whoever is free.
SPREAD := --numprocesses auto --maxprocesses 4 --dist worksteal
EXPLORING := --hypothesis-profile exploring --timeout 600
FAST := not slow and not crash and not postgres
LOCK = uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --quiet \
	--no-header --no-emit-index-url --no-emit-find-links

# Without bytecode on disk every process compiles the package, and pytest every test, anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo check test test-all explore crash chaos bench bench-workers docs rows format coverage lock clean lint stepwise-resume stepwise-retry

help:  ## say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' Makefile

install: $(INSTALLED)  ## make .venv with everything that development needs

# Nothing un-hashed is fetched: the lock holds the build backend too, so the package itself
# is built without isolation and without looking for dependencies.
$(INSTALLED): pyproject.toml requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is missing or older than Python 3.11; name a newer one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments because it lacks ensurepip; install it (Debian, Ubuntu: apt install python3-venv) or name another interpreter: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --only-binary :all: --require-hashes --requirement requirements-dev.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(INSTALLED)  ## watch a pipeline being killed and carrying on
	@$(BIN)/python demo/demo.py

lint: $(INSTALLED)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy $(SOURCES)

check: lint  ## format, lint, types, shape and fast tests: under 30 seconds
	$(BIN)/pytest -q $(SPREAD) -m "$(FAST)" $(FAST_TESTS)

test: lint  ## every test, with real crashes on a real PostgreSQL (fails if none can be started)
	$(BIN)/pytest -q $(SPREAD) -m "not crash"
	$(BIN)/pytest -q --numprocesses 2 --dist loadgroup -m crash $(CRASH_TESTS)

test-all: lint  ## the same, with every test on all of its stores and with new examples
	$(BIN)/pytest -q $(SPREAD) -m "not crash" --all-stores $(EXPLORING)
	$(BIN)/pytest -q --numprocesses 2 --dist loadgroup -m crash $(CRASH_TESTS)

explore: $(INSTALLED)  ## property tests with new random examples, five times as many as in make test
	$(BIN)/pytest -q $(SPREAD) -m hypothesis $(EXPLORING)

crash: $(INSTALLED)  ## kill real processes KILLS times (500) and check that nothing was lost or repeated
	$(BIN)/python -m tests.crash.kill --kills $(KILLS)

chaos: $(INSTALLED)  ## WORKERS (8) drive RUNS (500) on one PostgreSQL while everything goes wrong that can
	$(BIN)/python -m tests.crash.chaos --workers $(WORKERS) --runs $(RUNS)

bench: $(INSTALLED)  ## measure
	$(BIN)/python -m bench

bench-workers: $(INSTALLED)  ## measure workers: how they scale, how claims are found, how soon a dead one's run goes on
	@$(BIN)/python -m bench --only workers; scaled=$$?; $(BIN)/python -m bench --only takeover && exit $$scaled

stepwise-resume: $(INSTALLED)  ## go on with a run: RUN_ID=.. FLOW=.. [START_STEP=..]
	@$(BIN)/python scripts/stepwise.py resume

stepwise-retry: $(INSTALLED)  ## make a stopped step of a run again: RUN_ID=.. FLOW=.. STEP=..
	@$(BIN)/python scripts/stepwise.py retry

docs: $(INSTALLED)  ## write the generated pages anew
	$(BIN)/python scripts/make_docs.py

rows: $(INSTALLED)  ## say which requirements of the source documents tests show, and which not yet
	@$(BIN)/python scripts/rows.py

format: $(INSTALLED)  ## format the code and repair what the linter can
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

coverage: $(INSTALLED)  ## branches of the pure part that no fast test takes (must be none)
	$(BIN)/coverage run -m pytest -q -m "$(FAST)" $(FAST_TESTS)
	$(BIN)/coverage report --fail-under=100 \
		--include='src/onward/model/*,src/onward/pipeline/*,src/onward/machine/*,src/onward/store/memory.py'

lock:  ## write both requirements files anew from pyproject.toml (needs uv)
	$(LOCK) --output-file requirements.txt
	$(LOCK) --extra dev --output-file requirements-dev.txt

clean:  ## remove everything these targets made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage build dist
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
