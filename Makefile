# Every step prints what it does and how long it took. One environment, .venv, that grows: `make demo` installs the
# small set (no torch), `make setup` completes it to the developer's set.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCKS  := deploy/locks
# ONNX Runtime reports usage from some builds unless told not to; one thread per process, and none that spin.
export ORT_DISABLE_TELEMETRY := 1
export OMP_WAIT_POLICY := PASSIVE
export OMP_NUM_THREADS ?= 1
STEP = @set -e; start=$$(date +%s); printf '\n== %s\n' $(1); $(2); printf '== done in %s s\n' "$$(( $$(date +%s) - start ))"

.PHONY: help setup demo demo-loop check test test-full bench proto locks format clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(BIN)/pip:
	$(call STEP,"creating $(VENV)",$(PYTHON) -m venv $(VENV))

$(VENV)/.has-dev: $(LOCKS)/dev.txt pyproject.toml | $(BIN)/pip
	$(call STEP,"installing the developer set (about 6 GB with torch: a few minutes)",\
	  $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(LOCKS)/dev.txt && \
	  $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .)
	@touch $(VENV)/.has-dev $(VENV)/.has-demo

$(VENV)/.has-demo: $(LOCKS)/demo.txt pyproject.toml | $(BIN)/pip
	$(call STEP,"installing the demo set (no torch: about a minute)",\
	  $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(LOCKS)/demo.txt && \
	  $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .)
	@touch $(VENV)/.has-demo

setup: $(VENV)/.has-dev  ## complete the environment for development and tests

demo: $(VENV)/.has-demo  ## all tiers live, measured, and a report: out/demo (SOURCE=video.mp4 BUNDLES=dir: your own)
	$(call STEP,"the demo",$(BIN)/fovea demo --out out/demo \
	  $(if $(SOURCE),--source '$(SOURCE)') $(if $(BUNDLES),--bundles '$(BUNDLES)'))

demo-loop: $(VENV)/.has-dev  ## a day-only fleet meets night, learns and gets better: out/demo-loop (needs torch; < 20 minutes)
	$(call STEP,"the demo of the loop (under 20 minutes on two cores)",$(BIN)/fovea demo-loop --out out/demo-loop)

format: setup  ## rewrite the code in the project's format
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

check: setup  ## format, lint, types, import contracts, proto drift, unit and contract tests
	$(call STEP,"format and lint",$(BIN)/ruff format --check . && $(BIN)/ruff check .)
	$(call STEP,"types",$(BIN)/mypy)
	$(call STEP,"import contracts",$(BIN)/lint-imports)
	$(call STEP,"generated messages are up to date",$(BIN)/python -m protos.generate --check)
	$(call STEP,"unit and contract tests",$(BIN)/pytest -q tests/unit tests/contract)

test: check  ## check, then the system tests with real processes, files and models
	$(call STEP,"system tests",$(BIN)/pytest -q tests/system tests/real)

test-full: test  ## the long lanes, by hand
	$(call STEP,"long tests",$(BIN)/pytest -q tests/full)

bench: setup  ## the published figures of this machine, one JSON file each in out/bench
	$(call STEP,"benchmarks",for name in sim quantize zoo; do $(BIN)/fovea bench $$name --json out/bench/$$name.json; done)

proto: setup  ## generate the messages again after a change in protos/*.proto
	$(BIN)/python -m protos.generate

locks: setup  ## resolve the locks again after a change of a dependency
	$(LOCKS)/make_locks.sh

clean:  ## remove what tools and runs left behind, but not the environment
	rm -rf out .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
