# Every command a person or CI runs. Plain `make` lists them.

PYTHON ?= python3
UV := uv==0.13.9

VENV := .venv
RUN := $(VENV)/bin/python
PACKAGES := schemas largesse services
COMPILED := build/compiled

# Processes that tests start, and pytest with its rewritten asserts, would compile all modules again each time.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup docs fmt check quick test durations live demo up down secrets topics sim replay rooms schemas page vendor compile bench replay-corpus figures sustained lock clean

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## Make .venv with everything locked in requirements.lock (PYTHON=python3.12 chooses the interpreter)

# A Python that was asked for, and is not the one in .venv, makes it anew; one that was not asked for leaves it alone.
version_of = $(shell $(1) -c 'import sys; print(sys.version_info[:2])' 2>/dev/null)
ifneq ($(origin PYTHON),file)
ifneq ($(call version_of,$(PYTHON)),$(call version_of,$(RUN)))
.PHONY: $(VENV)/.ready
endif
endif

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Largesse needs Python 3.11 or later: make setup PYTHON=python3.12")'
	@test "$(call version_of,$(PYTHON))" = "$(call version_of,$(RUN))" || rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r requirements.lock
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@echo "ready: $(VENV)/bin/largesse (its cores are interpreted; make compile gives a wheel that needs about half the time)"
	@touch $@

fmt: setup ## Format the code and mend what ruff can mend
	$(RUN) -m ruff check --fix --quiet . || true
	$(RUN) -m ruff format .

check: setup ## Formatting, lint, types, the house, drift of published schemas
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(RUN) -m pytest -q tests/house
	$(RUN) -m schemas.export --check
	$(RUN) -m services.cli.settings_page --check
	$(RUN) -m services.cli.records_page --check
	$(RUN) -m services.cli.rights_page --check
	$(RUN) -m services.cli.kafka_rights_page --check
	$(RUN) -m services.cli.strimzi_resources --check
	$(RUN) -m tests.attacks.page --check

# Each test goes to the next process that is free, groups of tests to one (tests/conftest.py).
SPREAD := --dist loadgroup --no-loadscope-reorder
# ALL=1 takes every test, all else what tests/tiers.py leaves for every day.
TIER = $(if $(ALL),,--daily)

quick: setup ## Unit and house tests, without the slow ones
	$(RUN) -m pytest -q -n logical $(SPREAD) --daily -m "not slow" tests/unit tests/house

test: setup ## Every law and contract, no Docker needed (ALL=1: every campaign, whole trace and case too)
	$(RUN) -m pytest -n auto $(SPREAD) $(TIER) --durations 30 --durations-min 5 -m "not docker"

durations: setup ## Run everything and write tests/durations.json, by which the longest tests start first
	$(RUN) -m pytest -n auto $(SPREAD) --record-durations -m "not docker"

live: setup ## The cell in containers, brought up, killed and ended (needs Docker), and the bus on Kafka
	$(RUN) -m pytest -m "docker or kafka"

demo: setup ## A cell on this machine, end to end
	$(RUN) -m services.cli.main demo

COMPOSE = docker compose$(if $(SECURE), --file docker-compose.yml --file docker-compose.secure.yml)

up: $(if $(SECURE),secrets) ## A cell in containers on this machine: http://127.0.0.1:8642 (SECURE=1: where everybody proves who they are)
	LARGESSE_COMMIT=$$(git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null) \
	  $(COMPOSE) up --build --detach --wait

down: ## End that cell and keep its data (DATA=1: not even that; SECURE=1 as with up)
	$(COMPOSE) --profile observability --profile edge --profile cells down $(if $(DATA),--volumes)

secrets: setup ## Make the folder `secrets` with passwords and certificates for up SECURE=1; what is there stays
	$(RUN) -m services.cli.secrets_folder secrets

topics: setup ## Make the topics of a Kafka cluster, or mend them (KAFKA=host:port, CELLS=1, GROW=1 adds partitions, FLUSH=1, ACLS=1 sets rights, PRUNE=1)
	@test -n "$(KAFKA)" || { echo "which cluster? make topics KAFKA=host:port" >&2; exit 2; }
	$(RUN) -m largesse.bus.kafka.topics_admin --bootstrap "$(KAFKA)" --cells $(or $(CELLS),1) $(if $(GROW),--grow) $(if $(FLUSH),--flush) \
	  $(if $(ACLS),--acls) $(if $(PRUNE),--prune)

sim: setup ## One random workload in virtual time under every preset and two hash seeds (SEED=7 repeats one; SEEDS=100 JOBS=2: whole cells under faults)
	$(RUN) $(if $(SEEDS),-m tests.faults --seeds $(SEEDS) --jobs $(or $(JOBS),1),-m services.simulator) $(if $(SEED),--seed $(SEED))

replay: setup ## Decide a recorded log again and compare (LOG=path)
	@test -n "$(LOG)" || { echo "which log? make replay LOG=path" >&2; exit 2; }
	$(RUN) -m services.cli.main replay "$(LOG)" --verify

rooms: setup ## Print the rooms of the code floor by floor: who may stand on whom
	$(RUN) -m tests.house.floors

schemas: setup ## Write schemas/published from the models; refuses an incompatible change
	$(RUN) -m schemas.export

NPM := cd tests/page && npm ci --ignore-scripts --no-audit --no-fund --silent

page: setup ## Types and lint of the page in services/gateway/page (needs Node; says so where there is none)
	@command -v npm >/dev/null || { echo "no npm here (Debian: apt-get install npm): types and lint of the page are left out"; exit 0; }; \
	  ($(NPM)) || { echo "npm cannot fetch its tools here: types and lint of the page are left out"; exit 0; }; \
	  $(RUN) -m pytest -q tests/page

vendor: setup ## Fetch the libraries of the page anew, as tests/page/package-lock.json has them (needs Node; CHECK=1 only compares)
	$(RUN) -m tests.page.vendor $(if $(CHECK),--check)

docs: setup ## Write docs/settings.md, records.md, rights.md, kafka-rights.md and attacks.md, and the topics and users of infra/kubernetes
	$(RUN) -m services.cli.settings_page
	$(RUN) -m services.cli.records_page
	$(RUN) -m services.cli.rights_page
	$(RUN) -m services.cli.kafka_rights_page
	$(RUN) -m services.cli.strimzi_resources
	$(RUN) -m tests.attacks.page

compile: $(COMPILED)/.ready ## Compile the cores: a wheel in dist/, unpacked in build/compiled (needs a C compiler and Python's headers)

$(COMPILED)/.ready: setup.py pyproject.toml $(VENV)/.ready $(shell find $(PACKAGES) -name '*.py')
	@command -v cc >/dev/null || { echo "no C compiler: install gcc (Debian: apt-get install gcc python3-dev)" >&2; exit 2; }
	rm -rf $(COMPILED) build/lib.* build/bdist.* dist
	LARGESSE_COMPILE=1 $(RUN) -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --target $(COMPILED) dist/*.whl
	@touch $@

bench: setup ## Time the hot paths, with compiled cores where there is a C compiler (PURE=1: as they stand)
	@test -n "$(PURE)" || $(MAKE) --no-print-directory compile || echo "left as they stand"
	PYTHONSAFEPATH=1 PYTHONPATH=$$(test -z "$(PURE)" && test -f $(COMPILED)/.ready && echo $(COMPILED):)$(CURDIR) \
	  $(RUN) -m benchmarks.run

replay-corpus: setup ## Decide the kept logs of all earlier rules again, and say what these rules decide otherwise
	@for log in tests/golden/*.jsonl.gz; do $(VENV)/bin/largesse replay $$log --verify --across-rules || true; done

figures: setup ## What presets give on the workloads in TRACES=folder, as factors over drf (MINUTES=90 of CPU time)
	@test -n "$(TRACES)" || { echo "make figures TRACES=FOLDER: the folder with A-4.jsonl.gz, A.pool.json and so on" >&2; exit 2; }
	@test -n "$(PURE)" || $(MAKE) --no-print-directory compile || echo "left as they stand"
	PYTHONSAFEPATH=1 PYTHONPATH=$$(test -z "$(PURE)" && test -f $(COMPILED)/.ready && echo $(COMPILED):)$(CURDIR) \
	  $(RUN) -m benchmarks.figures "$(TRACES)" --minutes $(or $(MINUTES),90) --keep build/figures

sustained: setup ## Full load for a long time, and what grows (MINUTES=60, KAFKA=host:port for a cell on Kafka)
	$(RUN) -m benchmarks.sustained --minutes $(or $(MINUTES),60) $(if $(KAFKA),--kafka "$(KAFKA)")

lock: ## Resolve requirements.lock, and the image's parts of it, anew from pyproject.toml
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --disable-pip-version-check $(UV)
	$(VENV)-lock/bin/uv pip compile pyproject.toml --quiet --all-extras --universal --python-version 3.11 --upgrade --no-build \
	  --generate-hashes --no-emit-index-url --custom-compile-command "make lock" --output-file requirements.lock
	$(VENV)-lock/bin/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --no-build \
	  --generate-hashes --no-emit-index-url --custom-compile-command "make lock" --constraints requirements.lock --output-file infra/requirements.lock
	$(VENV)-lock/bin/uv pip compile pyproject.toml --quiet --extra compile --universal --python-version 3.11 --no-build \
	  --generate-hashes --no-emit-index-url --custom-compile-command "make lock" --constraints requirements.lock --output-file infra/compile.lock
	rm -rf $(VENV)-lock

clean: ## Remove .venv, caches and builds
	rm -rf $(VENV) $(VENV)-lock build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
