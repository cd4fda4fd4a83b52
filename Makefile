# Archiver: `make up` runs it, `make test` checks it. Each target prepares .venv by itself, and nothing is done twice.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
JOBS   ?= 2

.DEFAULT_GOAL := help
.PHONY: help up demo test check chaos bench clean format

help:  ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

$(VENV)/.run: pyproject.toml requirements.lock requirements-dev.lock scripts/setup
	@PYTHON="$(PYTHON)" scripts/setup $(VENV) "."
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@PYTHON="$(PYTHON)" scripts/setup $(VENV) ".[dev]"
	@touch $@

up: $(VENV)/.run  ## start everything: http://127.0.0.1:8080
	@exec $(BIN)/archiver up

demo: $(VENV)/.run  ## a sample organisation in ./data-demo, archived before your eyes
	@exec $(BIN)/archiver demo

check: $(VENV)/.dev  ## formatting, lint, types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check  ## everything above, then all tests against the real parts
	@scripts/test-packages
	$(BIN)/pytest -n $(JOBS) --dist loadfile $(ARGS) || \
	{ echo "*** once more, by themselves, those that failed beside others:"; $(BIN)/pytest --last-failed --last-failed-no-failures none $(ARGS); }

chaos: $(VENV)/.dev  ## the long tests: hundreds of rounds of killing things (an hour)
	$(BIN)/pytest -m chaos $(ARGS)

bench: $(VENV)/.dev  ## measure; BENCH=name runs one of benchmarks/*.py
	@$(BIN)/python -m benchmarks $(BENCH)

fuzz: $(VENV)/.dev  ## hostile mail for SECONDS=60 against everything that reads mail; guided by coverage with atheris
	@$(BIN)/python -m tests.fuzz $(or $(SECONDS),60)

format: $(VENV)/.dev  ## rewrite the code in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove what was built; the archive in ./data stays
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache artefacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
