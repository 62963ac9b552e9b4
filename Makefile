# Everything that a checkout needs: `make demo` and `make test` set up all the rest by themselves.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Tests start hundreds of processes: without byte code on disk each would compile all its imports anew.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help setup check test demo torture bench docs reference lock clean

help: ## Show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

setup: $(READY) ## Create .venv with all that is needed (again only when the lock changed)

$(READY): requirements.lock pyproject.toml .ci/install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Isthmus needs Python 3.11 or newer; set PYTHON=... if $(PYTHON) is older or missing." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@.ci/install
	@$(BIN)/python -c "from isthmus.wire import alike, column_kernels, kernels, row_kernels; kernels.warm()"
	@touch $(READY)

check: $(READY) ## Format, lint, types, layers, unit and property tests (under 90 s)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q -n 2 tests/unit tests/property

test: $(READY) ## Everything: check, then tests with real brokers, Spark and faults
	@{ $(BIN)/isthmus quicken; $(BIN)/python -m tests.versions; } >/dev/null 2>&1 & # what tests would fetch themselves
	@$(MAKE) --no-print-directory check
	$(BIN)/pytest tests -n 2 --dist loadfile --no-loadscope-reorder --durations=20 --ignore=tests/unit --ignore=tests/property

demo: $(READY) ## Two clusters, a replication, a kill in the middle, a proof
	$(BIN)/isthmus demo

torture: $(READY) ## Faults of every kind for MINUTES=10 against a flow between two clusters, and a proof
	$(BIN)/isthmus torture --minutes $(or $(MINUTES),10)

bench: $(READY) ## Isthmus and MirrorMaker 2 side by side
	$(BIN)/isthmus bench

docs: $(READY) ## The documentation as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

reference: $(READY) ## Pages that the program writes itself (docs/reference, benchmarks, JSON Schema)
	$(BIN)/python -m tools.reference

lock: $(READY) ## Pin all dependencies anew in requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --all-extras \
	  --upgrade pyproject.toml -o requirements.lock

clean: ## Remove .venv, caches and what runs left behind
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist \
	  spark-warehouse metastore_db derby.log
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
