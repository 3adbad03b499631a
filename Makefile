# Every target sets up what it needs first, in .venv and in the examples' own environments.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SEEDS ?= 100
FIRST ?= 1
MINUTES ?= 3
export UV_PYTHON_DOWNLOADS := never

.PHONY: help setup demo dev test check format package clean requirements bench soak simulate mutations

help: ## Show what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(READY): requirements/setup.txt requirements/dev.txt pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is too old; Tidemill needs Python 3.11 or newer (make PYTHON=python3.12 …)" >&2; exit 2; }
	@echo "setting up .venv" >&2
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/setup.txt
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements/dev.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(READY) ## Make .venv and the environments of the examples
	@$(BIN)/python examples/environments.py

demo: setup ## Build a real SQLBuild and a real dbt project on schedule, here and now
	@$(BIN)/python examples/demo.py

dev: setup ## Run the local stack on the dbt example until Ctrl-C
	@cd examples/coffee_dbt && ../../$(BIN)/tidemill dev

test: setup ## Run the tests
	@$(BIN)/pytest -n 2 --dist worksteal

bench: $(READY) ## Run a benchmark: NAME=ticks, scale, idle, latency, claims, burst, recovery or soak; JSON=1 prints one object
	@$(BIN)/python -m bench $(NAME) $(if $(JSON),--json)

soak: $(READY) ## Load the local stack for MINUTES while its parts are killed; SEED repeats what was asked and killed
	@$(BIN)/python -m bench soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

simulate: $(READY) ## Play SEEDS histories of the simulator, from FIRST on
	@$(BIN)/python -m tests.simulation seeds --seeds $(SEEDS) --first $(FIRST)

mutations: $(READY) ## Show that every checker of the simulator can fail
	@$(BIN)/python -m tests.simulation mutations

check: $(READY) ## Formatting, lint, types, direction of imports
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(READY) ## Format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix --quiet .

package: $(READY) ## Package the Lambdas into build/package
	@mkdir -p build && AWS_DEFAULT_REGION=$${AWS_DEFAULT_REGION:-eu-central-1} $(BIN)/chalice package --stage prod --pkg-format cloudformation build/package

requirements: $(READY) ## Pin the requirements again, newest versions
	@for pair in setup.in:setup.txt lambda.in:../requirements.txt dev.in:dev.txt; do \
	  $(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --universal --generate-hashes --no-emit-index-url --no-header \
	    requirements/$${pair%%:*} -o requirements/$${pair##*:} || exit 1; done

clean: ## Remove what was made here
	@rm -rf .venv .bench build dist .demo examples/*/.venv examples/*/.tidemill *.egg-info
