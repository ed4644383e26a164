# Everything a developer needs. Nothing but Python 3.11+ has to be on the machine.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
SOURCES := src tests $(wildcard benchmarks)

.DEFAULT_GOAL := help
.PHONY: help setup demo test soak check bench golden docs fuzz fuzz-types tpch

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' Makefile

setup: $(STAMP)  ## virtual environment with the tested versions (quick the second time)

$(STAMP): pyproject.toml constraints.txt scripts/setup.py
	@command -v $(PYTHON) >/dev/null || { echo "setup: $(PYTHON) not found; install Python 3.11 or later" >&2; exit 1; }
	@MAKE_GOAL=$(firstword $(MAKECMDGOALS)) $(PYTHON) scripts/setup.py
	@touch $@

demo: $(STAMP)  ## embedded PostgreSQL + Spark + a shop that keeps writing, live (DEMO_SECONDS=30 to limit it)
	@$(BIN)/pgtrickle demo

test: $(STAMP)  ## all tests
	$(BIN)/python -m pytest -n 2 --dist loadfile

soak: $(STAMP)  ## what takes too long for every run
	$(BIN)/python -m pytest -m soak

check: $(STAMP)  ## format, lint, types, import contracts, unit tests: under a minute
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports --no-logo && $(BIN)/python -m pytest -q -n 2 tests/unit tests/golden

bench: $(STAMP)  ## every benchmark; each prints one JSON line last
	@status=0; for b in $(sort $(wildcard benchmarks/*.py)); do echo "== $$b"; $(BIN)/python $$b || status=1; done; exit $$status

golden: $(STAMP)  ## rewrite the golden files; review the difference before you commit it
	UPDATE_GOLDEN=1 $(BIN)/python -m pytest -q tests/golden

docs: $(STAMP)  ## generate the reference pages
	$(BIN)/python scripts/docs.py

fuzz: $(STAMP)  ## N random queries x random changes against PostgreSQL (SEED=1 to begin elsewhere); failures end up minimised in OUT
	$(BIN)/python -m tests.fuzz -n $(or $(N),1000) --seed $(or $(SEED),1) --out $(or $(OUT),/tmp/fuzz-failures)

fuzz-types: $(STAMP)  ## the same over types with their own equality, as their authors see them (SERVER=/usr/lib/postgresql/15 for collations)
	$(BIN)/python -m tests.fuzz.equality -n $(or $(N),1000) --seed $(or $(SEED),1) --out $(or $(OUT),/tmp/fuzz-types-failures) $(if $(SERVER),--home $(SERVER))

tpch: $(STAMP)  ## the 22 TPC-H queries as stream tables, at once and one by one
	$(BIN)/python -m pytest -q tests/tpch
