# Archiver: `make up` runs it, `make test` tests it. Each target prepares .venv if needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# One more than two cores: many tests wait for processes.
JOBS   ?= 3
# Whole files, in their order: those that take minutes (acceptance, browser) first, thousands of quick unit tests last.
SPREAD := --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help up demo test quick check chaos coverage bench bench-full fuzz soak clean format

help:  ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 16

$(VENV)/.run: pyproject.toml requirements.lock requirements-dev.lock scripts/setup
	@PYTHON="$(PYTHON)" scripts/setup $(VENV) "."
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@PYTHON="$(PYTHON)" scripts/setup $(VENV) ".[dev]"
	@touch $@

up: $(VENV)/.run  ## start everything at http://127.0.0.1:8080
	@exec $(BIN)/archiver up

demo: $(VENV)/.run  ## archive a sample organisation in ./data-demo
	@exec $(BIN)/archiver demo

check: $(VENV)/.dev  ## check formatting, lint, types and import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check  ## run check, then all tests against real servers
	@scripts/test-packages
	$(BIN)/pytest -n $(JOBS) $(SPREAD) -m "not chaos and not alone" $(ARGS)
	$(BIN)/pytest -m alone $(ARGS)

quick: $(VENV)/.dev  ## run the unit and contract tests, without those marked slow
	$(BIN)/pytest -n $(JOBS) $(SPREAD) -m "not chaos and not alone and not slow" tests/unit tests/contract $(ARGS)

chaos: $(VENV)/.dev  ## run the long tests, which kill processes hundreds of times (an hour)
	$(BIN)/pytest -m chaos $(ARGS)

soak: $(VENV)/.dev  ## archive for MINUTES=30 while parts are killed: flat memory, no leak, nothing lost
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),30)

coverage: $(VENV)/.dev  ## run the tests and show which branches they reach; ARGS=tests/unit for a part
	@$(BIN)/coverage --version > /dev/null 2>&1 || $(BIN)/pip install --quiet "coverage>=7.10"
	@$(BIN)/coverage erase
	-$(BIN)/coverage run -m pytest -n $(JOBS) $(SPREAD) -m "not chaos and not alone" $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet
	$(BIN)/coverage report | tail -n 1

bench: $(VENV)/.dev  ## compare with mu and notmuch on the same mail; BENCH=name runs another one of benchmarks/*.py
	@$(BIN)/python -m benchmarks $(or $(BENCH),peers)

bench-full: $(VENV)/.dev  ## run all benchmarks, and the comparison on 20,000 messages (hours)
	@$(BIN)/python -m benchmarks.peers --messages 20000 --fsyncs
	@$(BIN)/python -m benchmarks

fuzz: $(VENV)/.dev  ## fuzz everything that parses mail for SECONDS=60; guided by coverage if atheris is installed
	@$(BIN)/python -m tests.fuzz $(or $(SECONDS),60)

format: $(VENV)/.dev  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove build results and caches; the archive in ./data stays
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache artefacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
