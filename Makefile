# The newcomer's two commands are `make demo` and `make test`; CI runs the same.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
BUILD := pyproject.toml constraints.txt

.PHONY: demo test check format clean

demo: $(VENV)/ready
	$(BIN)/weft demo

test: $(VENV)/ready-dev
	$(BIN)/python -m pytest -n auto

check: $(VENV)/ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) test

format: $(VENV)/ready-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/ready: $(BUILD)
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/ready-dev: $(VENV)/ready
	$(PIP) --editable ".[dev]"
	touch $@
