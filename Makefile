# The newcomer's two commands are `make demo` and `make test`; CI runs the same.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
CPP := $(wildcard src/weft/*/core/*.cpp src/weft/*/core/*.hpp tests/core/*.cpp tests/core/*.hpp)
CLANG_FORMAT := $(shell command -v clang-format)
BUILD := pyproject.toml setup.py constraints.txt $(wildcard src/weft/*/core/*)

.PHONY: demo test check format docs dist bench results peers long clean

demo: $(VENV)/ready
	$(BIN)/weft demo

# The test processes share the cores, so threads that wait for work sleep; and they share the byte code of the package.
# `make test FILE=tests/unit/test_config.py` runs one file, or some with -k: FILE="tests/unit -k config".
test: $(VENV)/ready-dev
	OMP_WAIT_POLICY=passive PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(if $(FILE),$(FILE),-n auto --dist worksteal)

check: $(VENV)/ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(if $(CLANG_FORMAT),$(CLANG_FORMAT) --dry-run -Werror $(CPP),@echo "clang-format is not installed: C++ is not checked")

format: $(VENV)/ready-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(if $(CLANG_FORMAT),$(CLANG_FORMAT) -i $(CPP),@echo "clang-format is not installed: C++ is not formatted")

# The documentation site, in site/: open site/index.html. Warnings are errors, links and the search are checked.
docs: $(VENV)/ready-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python -m tools.site_checks site

# Source archive and wheel in dist/: the archive holds what git holds, the wheel works in an empty environment.
dist: $(VENV)/ready-dev
	rm -rf dist build
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m tools.dist sdist dist/*.tar.gz
	$(BIN)/python -m tools.dist wheel dist/*.whl

# Programs of minutes, an hour and a half in all: `make long RUN=kills` for one; `python -m tests.long --list` says what each proves.
long: $(VENV)/ready-dev
	$(BIN)/python -m tests.long $(RUN)

# On a machine where nothing else runs.
bench: $(VENV)/ready-dev
	$(BIN)/python -m benchmarks.speed.engine

# The tasks on real data ($WEFT_DATA or ../shared/data); `make results ROW=cls/sst2` for one line.
results: $(VENV)/ready-dev
	$(BIN)/python -m benchmarks.quality.results $(if $(ROW),"$(ROW)")

# The tools that users may choose instead, in an environment of their own; `make peers ROW=cls/sst2` for one row.
peers: $(VENV)/ready-dev
	$(BIN)/python -m benchmarks.peers $(if $(ROW),"$(ROW)")

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/ready: $(BUILD)
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(VENV)/ready-dev: $(VENV)/ready
	$(PIP) --editable ".[dev]"
	touch $@

$(VENV)/ready-docs: $(VENV)/ready
	$(PIP) --editable ".[docs]"
	touch $@
