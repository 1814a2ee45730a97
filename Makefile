# Everything a newcomer needs: `make run` and `make test` set up .venv themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEEDS ?= 1000
FUZZ_SECONDS ?= 60
TEST ?= tests

.DEFAULT_GOAL := help
.PHONY: help run test check format bench soak docs cities web clean system-packages

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(VENV)/.run: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "GeoMQ needs Python 3.11 or newer; set PYTHON=")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[spark,fast]' --group dev
	@touch $@

run: $(VENV)/.run ## Start three linked brokers with demo clients; Ctrl-C stops them
	$(BIN)/geomq up

test: check system-packages ## Lint, type-check and run all tests
	$(BIN)/python -m pytest -n 4 --dist worksteal $(TEST)

check: $(VENV)/.dev ## Lint, types, layers
	$(BIN)/ruff check src tests bench tools
	$(BIN)/ruff format --check src tests bench tools
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## Put the code into its one format
	$(BIN)/ruff check --fix src tests bench tools
	$(BIN)/ruff format src tests bench tools

soak: $(VENV)/.dev ## Long runs: faults simulated (SEEDS=1000), whole brokers too, and in real processes, hopping clients, fuzzing, 200 kills under load, partitions, power failures (as root)
	$(BIN)/python -m geomq.sim.soak --whole --seeds $(SEEDS)
	$(BIN)/python -m geomq.sim.soak --whole --storm --seeds $(SEEDS)
	$(BIN)/python -m geomq.sim.soak --whole --workers 2 --seeds $(SEEDS)
	$(BIN)/python -m geomq.sim.soak --planted
	$(BIN)/python -m geomq.sim.soak --seeds $(SEEDS)
	$(BIN)/python -m geomq.testbed.soak --runs 3 --seconds 60
	$(BIN)/python -m geomq.testbed.soak --hop --runs 10 --seconds 60
	$(BIN)/python -m pip install --quiet --group fuzz
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)
	$(BIN)/python -m geomq.testbed.kills
	$(BIN)/python -m geomq.testbed.kills --workers 2
	$(BIN)/python -m geomq.testbed.soak --partitions 100
	$(BIN)/python -m geomq.testbed.restart
	test "$$(id -u)" != 0 || $(BIN)/python -m geomq.testbed.kills --power --kills 50 --messages 250000

bench: $(VENV)/.dev ## Measure against other brokers
	$(BIN)/python -m bench

docs: $(VENV)/.dev ## Write the generated reference pages and build the documentation into site/; a broken link fails
	$(BIN)/python -m geomq.cli.page > docs/reference/cli.md
	$(BIN)/python -m geomq.broker.config.page > docs/reference/config.md
	$(BIN)/python -m geomq.broker.operations.metrics_page > docs/reference/metrics.md
	$(BIN)/python -m geomq.routing.messages_page > docs/reference/messages.md
	$(BIN)/python -m geomq.dashboard.diagram docs/topics/strategies/images
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/mkdocs build --strict --quiet

cities: $(VENV)/.dev ## Write the tables of cities from those of GeoNames
	$(BIN)/python -m pip install --quiet --group cities
	$(BIN)/python -m tools.cities

web: ## Check, test and build the dashboard's page from web/ into the package; needs Node 20 or newer
	cd web && npm install --no-save --silent --no-audit --no-fund && npm run --silent check && npm run --silent test && npm run --silent build

# The tests talk to a real Mosquitto, to mqtt.js and to a page in Chromium; without the means to install them they are
# skipped, and say so.
system-packages:
	@command -v mosquitto >/dev/null || test -x /usr/sbin/mosquitto || { $(call apt-install,mosquitto,mosquitto mosquitto-clients); }
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	  || test -n "$$GEOMQ_CHROMIUM" || { $(call apt-install,chromium,chromium fonts-dejavu-core); }
	@test -d $(VENV)/js/node_modules/mqtt || { \
	  if command -v npm >/dev/null; then \
	    npm install --silent --no-audit --no-fund --prefix $(VENV)/js mqtt >/dev/null 2>&1 \
	      || echo "mqtt.js could not be installed: its tests will be skipped"; \
	  else echo "npm is not installed: the tests with mqtt.js will be skipped"; fi; }

define apt-install
if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
  (apt-get update -qq && apt-get install -y -qq $(2)) >/dev/null 2>&1 \
    || echo "$(1) could not be installed: its tests will be skipped"; \
else echo "$(1) is not installed: its tests will be skipped"; fi
endef

clean: ## Remove everything that was built
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
