# The two commands of a newcomer are `make demo` and `make test`; each sets up what it needs in .venv.
# PYTHON=/path/to/python3.12 chooses the interpreter. GNU make 3.81 or newer.

DEMO = .venv/bin/python -m pallas.cli demo --all-in-one

BIN = .venv/bin
SHELL = /bin/sh
export PYTHON
unexport VIRTUAL_ENV PYTHONHOME PYTHONPATH PIP_USER PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV

.DEFAULT_GOAL = help
.PHONY: help demo test lint format chaos mutants bench clean ready-demo ready-test ready-bench

help:
	@echo 'make demo    install, start everything on this machine, watch simulated accounts being answered'
	@echo 'make test    install, check the code, run all tests'
	@echo 'make lint    the checks alone'
	@echo 'make format  put the code into its one format'
	@echo 'make chaos   the fault matrix with its long runs, and a table of it'
	@echo 'make mutants the product broken in each way, and whether a test notices'
	@echo 'make bench   our figures against a baseline measured in the same run'
	@echo 'make clean   remove .venv and caches (never ./pallas-data)'

demo: ready-demo
	@$(DEMO)

test: lint
	@sh scripts/browser.sh .venv/browser
	@PALLAS_TEST_BROWSER="$${PALLAS_TEST_BROWSER:-$$(cat .venv/browser)}" $(BIN)/python -m pytest -n 2

lint: ready-test
	@echo '[pallas] checking: ruff, format, mypy --strict, import layers, dependencies, Lua'
	@$(BIN)/python -m ruff check --quiet .
	@$(BIN)/python -m ruff format --quiet --check . || { echo '[pallas] some files are not formatted; run: make format'; exit 1; }
	@$(BIN)/python -m mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m deptry .
	@$(BIN)/python scripts/lint_lua.py

format: ready-test
	@$(BIN)/python -m ruff check --quiet --fix-only .
	@$(BIN)/python -m ruff format .

chaos: ready-test
	@$(BIN)/python -m pytest -m "chaos or row" --timeout 1800

mutants: ready-test
	@$(BIN)/python -m tests.mutants

bench: ready-bench
	@$(BIN)/python -m bench all

ready-demo ready-test ready-bench:
	@sh scripts/setup.sh $(patsubst ready-%,%,$@)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find pallas shard federate webui tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} +
