# Everything a developer needs. Nothing but Python 3.11+ has to be on the machine.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DEMO_STAMP := .venv/.installed-demo
# `make test` is repeatable: another SEED is another order of the tests, with other random data. Other targets use a new one each time.
SEEDS = --randomly-seed=$(or $(SEED),20261119) --hypothesis-seed=$(or $(SEED),20261119)
SOURCES := src tests $(wildcard benchmarks)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-versions test-cluster soak check bench bench-gate bench-baseline golden docs site screenshots dist fuzz fuzz-types tpch

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' Makefile

setup: $(STAMP)  ## virtual environment with the tested versions (quick the second time)

$(STAMP): pyproject.toml constraints.txt scripts/setup.py src/pgtrickle/__init__.py
	@command -v $(PYTHON) >/dev/null || { echo "setup: $(PYTHON) not found; install Python 3.11 or later" >&2; exit 1; }
	@MAKE_GOAL=$(firstword $(MAKECMDGOALS)) $(PYTHON) scripts/setup.py dev
	@touch $@ $(DEMO_STAMP)

$(DEMO_STAMP): pyproject.toml constraints.txt scripts/setup.py src/pgtrickle/__init__.py
	@command -v $(PYTHON) >/dev/null || { echo "setup: $(PYTHON) not found; install Python 3.11 or later" >&2; exit 1; }
	@MAKE_GOAL=demo $(PYTHON) scripts/setup.py demo
	@touch $@

demo: $(DEMO_STAMP)  ## embedded PostgreSQL + Spark + a shop that keeps writing, live (DEMO_SECONDS=30 to limit it)
	@$(BIN)/pgtrickle demo

test: $(STAMP)  ## all tests, in the order and with the random data of SEED (POSTGRES=/usr/lib/postgresql/15 on another version of PostgreSQL)
	$(if $(POSTGRES),PGTRICKLE_TEST_POSTGRES=$(POSTGRES)) $(BIN)/python -m pytest -n 2 --dist loadfile $(SEEDS)

soak: $(STAMP)  ## what takes too long for every run; SOAK_MINUTES=60 for the long one, which draws build/soak.png
	$(BIN)/python -m pytest -m soak

test-long: $(STAMP)  ## what takes too long for `make test` (tests/long.py): kills, TPC-H on Spark, dbt, every hostile attempt in every arena
	EVERY_ARENA=1 $(BIN)/python -m pytest -n 2 --dist loadfile -m "long or attempts"

test-versions: $(STAMP)  ## a quick part of tests/postgres on PostgreSQL 13, 14 and 17, from wheels (VERSIONS=14 for one)
	$(BIN)/python scripts/test_versions.py $(VERSIONS)

test-cluster: $(STAMP)  ## refreshes on a standalone Spark cluster with two workers, and on local-cluster
	$(BIN)/python -m pytest -m "cluster or spark" tests/spark/test_cluster.py

check: $(STAMP)  ## format, lint, types, import contracts, quick unit tests: under a minute
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports --no-logo && $(BIN)/python -m pytest -q -n 2 -m "not slow and not soak" tests/unit tests/golden

bench: $(STAMP)  ## every benchmark; each prints one JSON line last
	@status=0; for b in $(sort $(wildcard benchmarks/*.py)); do echo "== $$b"; $(BIN)/python $$b || status=1; done; exit $$status

bench-gate: $(STAMP)  ## ratios of the quick benchmarks against benchmarks/baseline.json; fails if one is worse
	@$(BIN)/python scripts/bench_gate.py

bench-baseline: $(STAMP)  ## writes benchmarks/baseline.json anew: on a quiet machine
	@$(BIN)/python scripts/bench_gate.py --update

golden: $(STAMP)  ## rewrite the golden files; review the difference before you commit it
	UPDATE_GOLDEN=1 $(BIN)/python -m pytest -q tests/golden

docs: $(STAMP)  ## generate the reference pages
	$(BIN)/python scripts/docs.py

site: docs  ## the documentation as a web site in site/; a broken link is an error
	$(BIN)/mkdocs build --strict

screenshots: $(STAMP)  ## take the pictures of the documentation again, by the tests of the web UI (needs chromium)
	SCREENSHOTS=build/screenshots $(BIN)/python -m pytest -q tests/browser
	for picture in docs/images/web-*.png; do cp build/screenshots/$$(basename $$picture) $$picture; done

dist: $(STAMP)  ## wheel, source archive, bill of materials and licences in dist/
	$(BIN)/python -m build --no-isolation --outdir dist . && $(BIN)/python scripts/sbom.py --out dist

fuzz: $(STAMP)  ## N random queries x random changes against PostgreSQL (SEED=1 to begin elsewhere, ENGINE=spark); failures end up minimised in OUT
	$(BIN)/python -m tests.fuzz -n $(or $(N),1000) --seed $(or $(SEED),1) --out $(or $(OUT),/tmp/fuzz-failures) --engine $(or $(ENGINE),postgres)

fuzz-types: $(STAMP)  ## the same over types with their own equality, as their authors see them (SERVER=/usr/lib/postgresql/15 for collations)
	$(BIN)/python -m tests.fuzz.equality -n $(or $(N),1000) --seed $(or $(SEED),1) --out $(or $(OUT),/tmp/fuzz-types-failures) $(if $(SERVER),--home $(SERVER))

tpch: $(STAMP)  ## the 22 TPC-H queries as stream tables, at once and one by one
	$(BIN)/python -m pytest -q tests/tpch
