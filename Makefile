# From nothing: `make demo` shows the lab at work, `make test` proves it.
PYTHON ?= $(firstword $(shell command -v python3.11) $(shell command -v python3.12) python3)
BIN := .venv/bin
WORKERS ?= 3

.PHONY: demo test lint bench notebooks clean

demo: .venv/.installed
	$(BIN)/lab demo

# three files of tests at a time on two cores, since one alone waits for more than a third of its time
test: lint
	$(BIN)/python -m pytest -m "not timed" -n $(WORKERS) --dist loadfile --no-loadscope-reorder
	$(BIN)/python -m pytest -m timed

lint: .venv/.installed-for-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

notebooks: .venv/.installed-for-tests
	$(BIN)/python -m notebooks.build

bench: .venv/.installed-for-tests
	$(BIN)/python -m tests.benchmarks --write

$(BIN)/python:
	$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/.installed-for-tests: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@ .venv/.installed

clean:
	rm -rf .venv build *.egg-info
