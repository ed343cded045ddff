# Targets with a "##" comment are listed by `make help`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?=
VENV := .venv
PY := $(VENV)/bin/python
# With PYTHON given, an environment of another Python is made anew.
OTHER_PYTHON := $(if $(PYTHON),$(shell scripts/same_python.sh $(VENV) $(PYTHON) || echo other-python))
LIB := ie/lib/libie_cpu.so
LIB_SOURCES := $(shell find kernels_c core_laws -type f) scripts/build_kernels.py
STEP := scripts/step.sh

export PROMPT ?= Name three primary colours and one thing of each.
# What is asked is taken as it stands: a $ in it is no variable of make's.
override PROMPT := $(value PROMPT)
MODEL ?= smollm2-135m-instruct
TESTS ?=

BENCH ?= -p 512 -n 128 -r 5

DRAFT_MODEL = $(firstword $(wildcard tiny_models/trained/*.gguf))
export DRAFT_PROMPT ?= def read_table(path, separator=","):
override DRAFT_PROMPT := $(value DRAFT_PROMPT)

.PHONY: help setup run demo-draft test test-models test-aarch64 test-sanitized bench check docs wheel clean distclean other-python

help:  ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):[^#]*##  *\(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do printf '%-20s %s\n' "$$name" "$$text"; done
	@echo
	@echo '  PYTHON=/path/to/python3   the interpreter for .venv (3.11 or newer)'
	@echo '  PROMPT="..." MODEL=...    what "make run" asks, and whom (scripts/fetch_model.py --list)'
	@echo '  DRAFT_PROMPT="..."        what "make demo-draft" continues'
	@echo '  TESTS="tests/unit -k x"   what "make test" runs'
	@echo '  BENCH="-p 0 -n 64"        what "make bench" measures (ie-bench --help)'

setup: $(VENV)/.installed  ## virtual environment in .venv, dependencies, compiled kernels

run: setup  ## fetch a small model if it is not there, and let it answer a question
	@model="$$($(PY) scripts/fetch_model.py $(MODEL))"; printf '\n> %s\n' "$$PROMPT"; $(VENV)/bin/ie-run "$$model" -cnv -p "$$PROMPT" -n 256 --temp 0 </dev/null

demo-draft: setup  ## continue a program with the small trained model, without and with drafts
	@test -n "$(DRAFT_MODEL)" || { echo "make demo-draft: no model in tiny_models/trained" >&2; exit 1; }
	@echo 'A model this small gains little time: a step costs hardly more than its overhead. Look at the tokens per step.'
	@for drafts in 0 7; do printf '\n--- --draft %s\n' $$drafts; printf '%s\n' "$$DRAFT_PROMPT" | $(VENV)/bin/ie-run $(DRAFT_MODEL) -n 200 --temp 0 --draft $$drafts; done

test: setup  ## all tests that need no GPU and no model download
	@$(PY) -m pytest -q $(TESTS)

test-models: setup  ## tests with downloaded models and vocabularies (0.9 GB)
	@$(PY) scripts/fetch_model.py --all >/dev/null
	@$(PY) scripts/fetch_vocabs.py >/dev/null
	@$(PY) -m pytest -q -rP -m model $(TESTS)

test-aarch64: setup  ## the kernels for aarch64 under qemu-user (compiles them first)
	@$(STEP) "building for aarch64" kernels-aarch64 $(PY) scripts/build_kernels.py --target aarch64 --program tests/cpu/replay.c
	@$(PY) -m pytest -q tests/cpu/test_aarch64.py $(TESTS)

test-sanitized: setup  ## the kernels under AddressSanitizer and UndefinedBehaviorSanitizer (needs clang 16 or newer)
	@$(PY) -m tests.sanitized

bench: setup  ## measure the model's speed here, and keep the result in benchmarks/
	@$(PY) scripts/bench.py "$$($(PY) scripts/fetch_model.py $(MODEL))" $(BENCH)

check: setup  ## style, types, import order, house rules, generated files
	@$(STEP) "ruff" ruff $(PY) -m ruff check .
	@$(STEP) "format of C" c-format $(PY) scripts/check_c_format.py
	@$(STEP) "mypy" mypy $(PY) -m mypy
	@$(STEP) "import order" imports $(PY) scripts/check_imports.py
	@$(STEP) "house rules" rules $(PY) scripts/check_rules.py
	@$(STEP) "generated files" generated $(PY) scripts/check_generated.py

docs: setup  ## write the generated files and pages anew
	@$(STEP) "generating" docs $(PY) scripts/write_generated.py

wheel: setup  ## build a wheel into dist/
	@$(STEP) "building the wheel" wheel $(PY) -m build --wheel --no-isolation --outdir dist .
	@ls dist/*.whl

clean:  ## remove what was built, except .venv and downloaded models
	@rm -rf build dist ie/lib *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
	@rm -f $(VENV)/.installed

distclean: clean  ## remove .venv too
	@rm -rf $(VENV)

$(VENV)/.dependencies: requirements.txt requirements-dev.txt scripts/setup_venv.sh $(OTHER_PYTHON)
	@$(STEP) "setting up $(VENV)" setup scripts/setup_venv.sh $(VENV) $(PYTHON)
	@touch $@

$(LIB): $(LIB_SOURCES) $(VENV)/.dependencies
	@$(STEP) "building kernels" kernels $(PY) scripts/build_kernels.py --out $(@D)
	@touch $@

$(VENV)/.installed: pyproject.toml setup.py $(LIB)
	@$(STEP) "installing ie" install $(PY) -m pip install --disable-pip-version-check --no-input -e . --no-build-isolation --no-deps
	@touch $@
