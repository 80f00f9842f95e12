# From a fresh clone: `make demo` runs the Switchboard recipe on a synthetic corpus, `make test` runs all tests.
# Both make the environment .venv first; Python 3.10 or newer is all they need: make setup PYTHON=python3.12

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup demo test lint clean

setup: $(STAMP)

# The stamp is written last; an environment without one was not finished, and is made anew.
$(STAMP): setup.py constraints/cpu.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 10) or sys.exit("error: $(PYTHON) is Python %d.%d, 3.10 or newer is needed; name one: make setup PYTHON=python3.12" % v[:2])'
	@if [ -e $(STAMP) ]; then echo "== updating .venv"; \
	else echo "== making .venv with $$($(PYTHON) --version)"; $(PYTHON) -m venv --clear .venv; fi
	@rm -f $(STAMP)
	@echo "== installing torch, lhotse and what else setup.py names into .venv: minutes, and about 1.5 GB"
	@$(BIN)/python -m pip install --quiet --constraint constraints/cpu.txt --editable '.[dev]'
	@touch $(STAMP)
	@echo "== .venv is ready: source .venv/bin/activate"

demo: setup
	@echo "== running recipes/swbd on the mini corpus; a stage that is done is not run again"
	@$(BIN)/asrtool run

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@if command -v shellcheck > /dev/null; then echo shellcheck; shellcheck .ci/run recipes/*/run.sh; \
	else echo "shellcheck is not installed: shell scripts are not checked"; fi

# Runs (recipes/*/exp) stay: they may hold weeks of training.
clean:
	rm -rf .venv *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
