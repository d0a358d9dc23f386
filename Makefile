# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CORE   := $(VENV)/.installed-core
DEV    := $(VENV)/.installed-dev

.PHONY: demo test tests check browser screenshots bench clean help

help:           ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/bin/pip:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "evenhand needs Python 3.11 or newer; try: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

$(CORE): pyproject.toml | $(VENV)/bin/pip
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[web]'
	@touch $@

$(DEV): pyproject.toml | $(VENV)/bin/pip
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(CORE)

demo: $(CORE)   ## judge the sample pairs with the default judge, on this machine
	@$(BIN)/evenhand demo

check: $(DEV)   ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test:           ## lint, types and all tests, beside each other
	@$(MAKE) --no-print-directory -j 2 check tests

# The tests start many processes: each would compile the package anew where Python may not keep what it compiled.
# Many of them wait for such a process, so there is one worker more than there are cores.
tests: export PYTHONDONTWRITEBYTECODE =
tests: $(DEV) browser ## all tests
	$(BIN)/pytest -n $$($(BIN)/python -c 'import os; print((os.cpu_count() or 1) + 1)') --dist loadgroup --durations 15

# The tests of the web page drive a Chromium that is there. Where none is and none can be installed, they are skipped,
# and pytest says so; with CI=true that is a failure.
browser:        ## Chromium for the tests of the web page, where apt may install it
	@if [ -n "$$EVENHAND_CHROMIUM" ] || command -v chromium chromium-browser google-chrome chrome >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing chromium"; (apt-get update -qq && apt-get install -y -qq chromium >/dev/null) \
	  || echo "chromium could not be installed: the tests in a browser will be skipped"; \
	else echo "no chromium, and apt needs root: the tests in a browser will be skipped"; fi

screenshots: $(DEV) browser ## pictures of the web page, into docs/images
	$(BIN)/python docs/make_screenshots.py

bench: $(CORE)  ## prompt speed beside llama.cpp's own
	$(BIN)/python benchmarks/prompt_speed.py

clean:          ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
