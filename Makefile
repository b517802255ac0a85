# LaterMQ: every command a developer or CI runs. Bare `make` lists them.
# Needs Python 3.11 or newer and, for Spark, Java 17 or 21. Everything else goes into .venv.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL: # the suites start brokers and a JVM; on two cores they only slow each other down
MAKEFLAGS += --no-builtin-rules --no-print-directory

PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3.11)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# The lines of pip itself, which pips older than it can check too. What has a hash in constraints.txt
# is checked; `--no-require-hashes` says that this directory, editable, needs none.
PIP_PIN := sed -n '/^pip==/,/[^\\]$$/p'
SOURCES := broker client tests proto/latermq_h2 proto/latermq_text

# As many workers as cores that we get: tests/support/machine.py looks.
PYTEST := $(BIN)/python -m pytest
MOSTLY_WAIT := --numprocesses=auto --workers-per-core=3
IMAGE ?= latermq:latest
DATA_DIR ?= data
ROUNDS ?= 10000
SEED ?= 1
SEEDS ?= 100000
MINUTES ?= 60
LISTEN ?= 127.0.0.1:8081
NATIVE_DIR := .native
# Named after the files there are: one that is gone is noticed, too, and a __pycache__ is not.
NATIVE_STAMP := $(NATIVE_DIR)/.built-$(shell find broker/latermq_broker client proto -name '*.py' | LC_ALL=C sort | cksum | cut -d' ' -f1)
READY := $(STAMP)
TESTS_PATH := tests
# NATIVE=1 with a target that runs a broker: the compiled one.
ifeq ($(NATIVE),1)
export NATIVE
SITE := $(CURDIR)/$(NATIVE_DIR)/site
READY += $(NATIVE_STAMP)
TESTS_PATH := $(SITE):tests
export PYTHONPATH := $(SITE)
endif

.PHONY: help
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# --- to run it ------------------------------------------------------------------------------

.PHONY: demo
demo: $(READY) ## one story from an order to a dead letter and back, with a broker of its own (< 90 s)
	@exec $(BIN)/latermq demo

.PHONY: setup
setup: $(STAMP) ## create .venv with the broker, the SDK, Spark and the tools; instant the second time

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "make setup: needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Creating $(VENV) (one to three minutes the first time: Spark is a 456 MB download)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_PIN) constraints.txt >$(VENV)/pip.txt
	@$(INSTALL) --upgrade --require-hashes --requirement $(VENV)/pip.txt
	@LATERMQ_NATIVE=0 $(INSTALL) --no-require-hashes --constraint constraints.txt --build-constraint constraints.txt \
		--editable '.[broker,console,spark]' --group dev
	@touch $@
	@echo "Ready: $(BIN)/latermq"

.PHONY: native
native: $(NATIVE_STAMP) ## compile the broker, twice as fast (needs gcc and Python's headers); run it with NATIVE=1

$(NATIVE_STAMP): Makefile pyproject.toml constraints.txt broker/native_build.py \
		$(shell find broker/latermq_broker client proto -name '*.py') | $(STAMP)
	@echo "Compiling the broker (about two minutes on two idle cores)"
	@rm -rf $(NATIVE_DIR).new
	@LATERMQ_NATIVE=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check \
		--no-deps --build-constraint constraints.txt --wheel-dir $(NATIVE_DIR).new/dist .
	@$(INSTALL) --no-deps --target $(NATIVE_DIR).new/site $(NATIVE_DIR).new/dist/*.whl
	@PYTHONPATH=$(NATIVE_DIR).new/site $(BIN)/python -m latermq_broker --version | grep compiled
	@rm -rf $(NATIVE_DIR) && mv $(NATIVE_DIR).new $(NATIVE_DIR)
	@touch $@
	@echo "Ready: make serve NATIVE=1, or pip install $(NATIVE_DIR)/dist/*.whl"

.PHONY: serve
serve: $(READY) ## run a broker in the foreground (LISTEN=127.0.0.1:8081 DATA_DIR=data)
	@exec $(BIN)/latermq serve --listen $(LISTEN) --data-dir $(DATA_DIR)

.PHONY: bench
bench: $(READY) ## measure sends, receives, delays, start and memory into docs/benchmarks.md (BENCH=full: longer)
	@$(BIN)/python tests/bench/run.py $(if $(filter full,$(BENCH)),--full)
	@$(BIN)/python tests/bench/transport.py --half $(if $(filter full,$(BENCH)),,--passes 1)

# The wheels are made from the sdist, so it is known to be whole; what builds them is in $(VENV).
.PHONY: dist
dist: $(STAMP) ## sdist, a pure wheel and one compiled for this platform, in dist/ (three minutes)
	@$(INSTALL) --no-require-hashes --constraint constraints.txt --group dist
	@rm -rf dist
	@LATERMQ_NATIVE=0 $(BIN)/python -m build --no-isolation --outdir dist
	@echo "Compiling (about two minutes on two idle cores)"
	@LATERMQ_NATIVE=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-build-isolation \
		--no-deps --wheel-dir dist dist/*.tar.gz
	$(BIN)/python -m twine check --strict dist/*

.PHONY: dist-test
dist-test: $(STAMP) ## install what `make dist` built in clean environments, and use it (four minutes)
	$(PYTEST) tests/wheels

PUBLISHED := .cache/published
.PHONY: published
published: $(STAMP) ## build what is published but for the compiled wheel, install it where nothing else is, use it (two minutes)
	@$(INSTALL) --no-require-hashes --constraint constraints.txt --group dist
	@rm -rf $(PUBLISHED)
	@LATERMQ_NATIVE=0 $(BIN)/python -m build --no-isolation --outdir $(PUBLISHED)
	$(BIN)/python -m twine check --strict $(PUBLISHED)/*
	PUBLISHED=$(PUBLISHED) $(PYTEST) --numprocesses=auto --dist=loadfile tests/wheels

DOCS_STAMP := $(VENV)/.docs
$(DOCS_STAMP): $(STAMP)
	@$(INSTALL) --no-require-hashes --constraint constraints.txt --group docs
	@touch $@

.PHONY: docs
docs: $(DOCS_STAMP) ## the guides and the reference as a site of its own, in site/; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@! grep -rlE '(src|href)="https?://[^"]*\.(css|js|woff2?|png|svg)"' site || \
		{ echo "make docs: these pages ask others for parts" >&2; exit 1; }

.PHONY: bench-worker
bench-worker: $(STAMP) $(NATIVE_STAMP) ## the SDK and @app.listener beside Celery, dramatiq and arq (ten minutes; needs redis-server)
	@command -v redis-server >/dev/null || \
		{ echo "make bench-worker: needs redis-server (apt install redis-server)" >&2; exit 1; }
	@$(BIN)/python tests/bench/worker/run.py

LETTERS ?= 1000000
.PHONY: bench-letters
bench-letters: $(READY) ## a page of a group with a million dead letters: under 300 ms (five minutes)
	PYTHONPATH=$(TESTS_PATH) $(BIN)/python tests/bench/letters.py --letters $(LETTERS)

.PHONY: bench-groups
bench-groups: $(READY) ## 10,000 groups: each call of a page under 300 ms; a scrape each 5 s under 1 % of a core (two minutes)
	PYTHONPATH=$(TESTS_PATH) $(BIN)/python tests/bench/groups.py

.PHONY: bench-tabs
bench-tabs: $(READY) ## a console with 20 open tabs: under 2 % of a core of each shard (a quarter of an hour)
	PYTHONPATH=$(TESTS_PATH) $(BIN)/python tests/bench/tabs.py

GB ?= 10
PAIRS ?= 5
.PHONY: bench-backup
bench-backup: $(READY) ## a send's p99 beside a backup: under 1.2 times (GB=10 PAIRS=5; OPTIONS of `latermq backup`; an hour)
	PYTHONPATH=$(TESTS_PATH) $(BIN)/python tests/bench/backup.py --gb $(GB) --pairs $(PAIRS) -- $(OPTIONS)

.PHONY: bench-neighbour
bench-neighbour: $(STAMP) $(NATIVE_STAMP) ## a user's sends beside another's lasting work: p99 under twice that of alone (OPTIONS="--size 1 --pairs 5"; half an hour)
	PYTHONPATH=$(TESTS_PATH) $(BIN)/python -m bench.neighbour.run --page $(OPTIONS)

NODES ?= 1
SIZE ?= 300
.PHONY: bench-cluster
bench-cluster: $(READY) ## shards and replicas: CPU a send, replay, idle (NODES=1 SIZE=300 PARTS=shards; twelve minutes; Java 17, Maven)
	PYTHONPATH=$(TESTS_PATH) $(BIN)/python -m bench.cluster.run --nodes $(NODES) --size $(SIZE) $(PARTS)

.PHONY: image
image: ## build the Docker image (IMAGE=latermq:latest)
	@docker info >/dev/null 2>&1 || \
		{ echo "make image: needs a running Docker engine; none answers here" >&2; exit 1; }
	docker build --file docker/Dockerfile --target broker --tag $(IMAGE) .

# --- to change it ---------------------------------------------------------------------------

.PHONY: test
test: check published abuse-compiling beside native-test ## every test that CI runs

.PHONY: check
check: lint types layers drift unit property ## format, lint, types, layers, generated code, unit and property tests

# Attacks mostly wait for what they did to pass: the broker is compiled beside them, behind them in
# line for the cores.
.PHONY: abuse-compiling
abuse-compiling: $(STAMP)
	@mkdir -p .cache
	@if $(BIN)/python tests/support/machine.py roomy; then \
		set -m; nice -n 19 $(MAKE) native >.cache/native.log 2>&1 & compiling=$$!; \
		trap 'kill -- -$$compiling 2>/dev/null || true' EXIT; \
		$(MAKE) abuse; \
		wait $$compiling || { cat .cache/native.log; exit 1; }; \
	else \
		$(MAKE) abuse; \
	fi

# These suites mostly wait; beside them the compiled broker is soaked. On a machine without room for
# both, one after the other: a soak that gets no time tells nothing.
.PHONY: beside
beside: $(STAMP)
	@mkdir -p .cache
	@if $(BIN)/python tests/support/machine.py roomy; then \
		set -m; $(MAKE) soak-short NATIVE=1 >.cache/soak.log 2>&1 & soak=$$!; \
		trap 'kill -- -$$soak 2>/dev/null || true' EXIT; \
		$(MAKE) integration console-test transports spark kafka crash; \
		wait $$soak || { cat .cache/soak.log; exit 1; }; \
		cat .cache/soak.log; \
	else \
		$(MAKE) integration console-test transports spark kafka crash; \
		$(MAKE) soak-short NATIVE=1; \
	fi

.PHONY: native-test
native-test: $(STAMP) ## the compiled broker: units, models, official clients
	$(MAKE) unit property abuse interop NATIVE=1 \
		UNIT="$(addprefix tests/unit/,store delivery schedule engine transport background)"

.PHONY: fmt
fmt: $(STAMP) ## format the code and apply the safe fixes
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

.PHONY: lint
lint: $(STAMP) ## formatting and lint rules
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)

.PHONY: types
types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

.PHONY: layers
layers: $(STAMP) ## who may import whom
	$(BIN)/lint-imports

.PHONY: rooms
rooms: $(STAMP) ## lines, files, rooms, floors and arrows of the broker's packages, as a table
	@$(BIN)/python tests/support/rooms.py

.PHONY: drift
drift: $(STAMP) ## the generated code is what the .proto files say
	$(BIN)/python proto/generate.py --check

UNIT ?= tests/unit
.PHONY: unit
unit: $(READY) ## tests without a socket or a sleep
	$(PYTEST) --numprocesses=auto $(UNIT)

.PHONY: property
property: $(READY) ## the core against models, by hypothesis
	$(PYTEST) --numprocesses=auto -o timeout=300 tests/property

.PHONY: worker-model
worker-model: $(READY) ## the SDK's worker against a broker of leases: ROUNDS=10000 histories from SEED=1 on
	PYTHONPATH=$(TESTS_PATH) $(BIN)/python -m property.test_worker_model $(SEED) $(ROUNDS)

# SEED has a default for others; here a new one is drawn unless it was asked for.
SECONDS ?= 600
.PHONY: models
models: $(READY) ## the same by random seeds, on all cores: a finding ends it with 1 (SECONDS=600 SEED=… REPEAT="…")
	@PYTHONPATH=$(TESTS_PATH) $(BIN)/python -m property.models \
		$(if $(REPEAT),--repeat $(REPEAT),--seconds $(SECONDS) $(if $(filter file,$(origin SEED)),,--seed $(SEED)))

.PHONY: hostile
hostile: $(READY) ## changed data directories and manifests, sealed or not, and all that reads them (SECONDS=600 SEED=…)
	@PYTHONPATH=$(TESTS_PATH) $(BIN)/python -m hostile.run --seconds $(SECONDS) \
		$(if $(filter file,$(origin SEED)),,--seed $(SEED))

# The console is not compiled, and attacked once.
.PHONY: abuse
abuse: $(READY) ## attacks on a broker and on a console: memory, a neighbour, recovery (ALL=1: variations; PAGE=1: the table)
	@if [ -n "$(PAGE)" ]; then PYTHONPATH=$(TESTS_PATH) $(BIN)/python -m abuse.run --page; \
	else ALL=$(ALL) $(PYTEST) $(if $(filter 1,$(NATIVE)),tests/abuse/test_abuse.py,tests/abuse); fi

.PHONY: mutations
mutations: $(READY) ## put mended faults back, one at a time: the models must find each (fifteen minutes)
	PYTHONPATH=tests $(BIN)/python -m property.mutations

# `make integration TRANSPORT=grpcio` and `make interop TRANSPORT=grpcio`: the same on grpc.aio.
TRANSPORT ?= lean
ON_TRANSPORT := LATERMQ_SERVER_TRANSPORT=$(TRANSPORT)

.PHONY: integration
integration: $(READY) ## our client and command line against a broker process; the README's first lines
	$(ON_TRANSPORT) $(PYTEST) $(MOSTLY_WAIT) --dist=loadfile tests/integration

.PHONY: interop
interop: $(READY) ## official clients against a broker, and their matrix (ALL=1: not only Python and Node.js)
	PYTHONPATH=$(TESTS_PATH) $(ON_TRANSPORT) $(BIN)/python -m interop.run $(if $(ALL),--clients all --page)

.PHONY: interop-mass
interop-mass: $(READY) ## 400 official consumers of five languages in one group: once, or never lost
	PYTHONPATH=$(TESTS_PATH) $(BIN)/python -m interop.mass

.PHONY: transports
transports: $(READY) ## what clients see most, once more on grpc.aio, the other transport, of broker and SDK
	LATERMQ_SERVER_TRANSPORT=grpcio $(PYTEST) --numprocesses=auto --dist=loadfile \
		tests/integration/test_wire_messaging.py tests/interop/test_send_message.py \
		tests/interop/test_simple_consumer.py
	LATERMQ_TRANSPORT=grpcio $(PYTEST) --numprocesses=auto --dist=loadfile \
		tests/integration/test_sdk_send.py tests/integration/test_sdk_simple_consumer.py \
		tests/integration/test_sdk_push_consumer.py tests/integration/test_sdk_lite.py

.PHONY: worker-ends
worker-ends: $(READY) ## 50 workers asked to end under load: nothing lost, no attempt burnt (ENDS=50; three minutes)
	ENDS=$(or $(ENDS),50) $(PYTEST) -s -o timeout=900 tests/integration/test_worker.py -k asked_to_end

.PHONY: worker-away
worker-away: $(READY) ## a worker under load whose broker is killed or stopped for a minute: nothing lost, two lines (AWAY=60; five minutes)
	AWAY=$(or $(AWAY),60) $(PYTEST) -s -o timeout=900 tests/integration/test_worker.py -k away_under_load

.PHONY: crash
crash: $(READY) ## kill -9, power loss, full and failing disks: nothing acknowledged is lost (< 6 min)
	$(PYTEST) --numprocesses=auto tests/crash

.PHONY: crash-long
crash-long: $(READY) ## the same for hours, seed by seed, and a table (ROUNDS=10000 SEED=1; it goes on where it stopped)
	PYTHONPATH=$(TESTS_PATH) ROUNDS=$(ROUNDS) SEED=$(SEED) nice $(BIN)/python -m crash.long

.PHONY: replication-long
replication-long: $(READY) ## who owns a replicated log, by 100,000 seeds: a quarter of an hour (SEEDS=100000 SEED=1)
	PYTHONPATH=$(TESTS_PATH) SEEDS=$(SEEDS) SEED=$(SEED) nice $(BIN)/python -m property.fence_long

.PHONY: backup-drill
backup-drill: $(READY) ## 100 backups under load and kills, each restored and compared, and a table (BACKUPS=100 SEED=1; 5 min)
	PYTHONPATH=$(TESTS_PATH) BACKUPS=$(BACKUPS) SEED=$(SEED) nice $(BIN)/python -m crash.backup_drill

.PHONY: soak
soak: $(READY) ## everything at once for an hour, and a table: flat memory, nothing leaked or lost (MINUTES=60 SEED=1)
	REPLACEMENTS=50 $(PYTEST) tests/interop/test_replacement.py
	PYTHONPATH=$(TESTS_PATH) $(BIN)/python tests/soak/run.py --minutes $(MINUTES) --seed $(SEED)

.PHONY: soak-short
soak-short: $(READY) ## the same for five minutes, without replacements
	PYTHONPATH=$(TESTS_PATH) $(BIN)/python tests/soak/run.py --minutes 5 --seed $(SEED)

.PHONY: game-day
game-day: $(READY) ## six faults in a broker that a Prometheus watches: which alert fires (6 min; PAGE=1: the table)
	PAGE=$(PAGE) $(PYTEST) -x -rs tests/gameday

.PHONY: spark
spark: $(READY) ## the Spark source (needs Java 17 or 21)
	$(PYTEST) tests/spark

.PHONY: kafka
kafka: $(READY) ## what works with Kafka, against a node of it (needs Java 17 and Maven)
	$(PYTEST) -rs tests/kafka

.PHONY: kafka-long
kafka-long: $(READY) ## records of Kafka through kill -9 of workers, brokers and nodes (RECORDS=100000 KILLS=20 ORDERED=1)
	PYTHONPATH=$(TESTS_PATH) nice $(BIN)/python -m kafka.long

# FAILOVERS=200 is half an hour, the other scenarios with TIMES=5 five minutes.
.PHONY: cluster-long
cluster-long: $(READY) ## fail-overs on three nodes of Kafka under load, and a table (FAILOVERS=200 TIMES=5 SEED=1 CALM=1 NODES=3; root, two hours)
	PYTHONPATH=$(TESTS_PATH) nice $(BIN)/python -m cluster.long

.PHONY: compose-test
compose-test: $(READY) ## docker compose up of both files, brokers killed (root and Docker's engine; half an hour the first time)
	$(PYTEST) -rs -s -o timeout=7200 tests/docker

.PHONY: console-test
console-test: $(READY) ## the console in a headless Chromium: a stranger's way, keys, phones, axe-core
	$(PYTEST) -rs tests/console

.PHONY: screenshots
screenshots: $(STAMP) ## take the pictures of docs/console.md anew (needs Chromium)
	PYTHONPATH=tests $(BIN)/python tests/console/screenshots.py docs/pictures

.PHONY: conformance
conformance: $(READY) ## h2spec and gRPC's interop client against our transport, clear text and TLS (built with Go)
	$(PYTEST) tests/unit/transport
	$(BIN)/python tests/conformance/run.py

.PHONY: proto
proto: $(STAMP) ## generate proto/latermq_proto from the .proto files
	$(BIN)/python proto/generate.py

.PHONY: hashes
hashes: $(STAMP) ## ask for the hashes of the pinned versions that have none
	$(BIN)/python .ci/hashes.py

.PHONY: clean
clean: ## remove .venv, caches and build products; never a broker's data
	rm -rf $(VENV) $(NATIVE_DIR) $(NATIVE_DIR).new .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf build dist site spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
