# Stratalog.  `make` alone prints what there is to make.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PY := .venv/bin/python
# Tests that need Java take Apache Kafka from here (tools/kafka_peer.py fills it); two workers, one for each core.
WORKERS ?= 2
ARGS ?=
# Brokers, Kafka and Spark share two cores with each other: what then had no time passes alone, what is wrong fails again.
AGAIN = What failed above is run once more, without anything beside it.

.PHONY: help serve demo test fast lint types schema golden bench figures fuzz docs lock clean setup setup-dev

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:
	@tools/setup_venv core

setup-dev:
	@tools/setup_venv dev

serve: setup  ## set up and start a broker on 127.0.0.1:9092, data in ./stratalog-data (ARGS="--help" for options)
	@exec .venv/bin/stratalog serve $(ARGS)

demo: setup-dev  ## set up and take the tour: embedded broker, a stream, Spark jobs over it
	@exec .venv/bin/stratalog demo $(ARGS)

test: setup-dev  ## set up and run all tests; those that need Java run where Java 17 and Maven are
	@$(PY) tools/kafka_peer.py --quiet || true
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup $(ARGS) || \
	    { [ $$? -eq 1 ] && echo "$(AGAIN)" && $(PY) -m pytest --lf --lfnf none $(ARGS); }
	@$(PY) tests/fuzz/run.py

fast: setup-dev  ## the tests without Java, Spark and the slow ones
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup -m "not java and not spark and not slow" $(ARGS)

lint: setup-dev  ## ruff, and the layers of the design
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check --quiet . || (echo "run: .venv/bin/ruff format ." && exit 1)
	@said=$$(.venv/bin/lint-imports --no-cache 2>&1) && echo "$$said" | tail -n 4 || { echo "$$said"; exit 1; }

types: setup-dev  ## mypy, strict
	@.venv/bin/mypy

schema: setup-dev  ## compare our message classes with the definitions inside Kafka's jars
	@$(PY) tools/schema_check.py

golden: setup-dev  ## record the golden files again with the real Java classes
	@tools/golden/record
	@$(PY) tools/golden_records/record.py

bench: setup-dev  ## measure, side by side with the peers (quiet machine, please)
	@$(PY) -m bench $(ARGS)

figures: setup-dev  ## write docs/FIGURES.md and the README's table from the history of the benches
	@$(PY) -m bench.figures

fuzz: setup-dev  ## fuzz what comes from the network and from files (EXECUTIONS=100000)
	@$(PY) tests/fuzz/run.py --executions $${EXECUTIONS:-1000000}

docs: setup-dev  ## check the documents: links, file map, ids of invariants
	@$(PY) tools/check_docs.py

lock:  ## resolve pyproject.toml again into requirements/*.txt
	@tools/lock

clean:  ## remove what the targets made, but no data
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache build dist
