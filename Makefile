# The newcomer's two commands are `make demo` and `make test`; CI runs the same.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
CPP := $(wildcard src/weft/*/core/*.cpp src/weft/*/core/*.hpp tests/core/*.cpp tests/core/*.hpp)
CLANG_FORMAT := $(shell command -v clang-format)
BUILD := pyproject.toml setup.py constraints.txt $(wildcard src/weft/*/core/*)

.PHONY: demo test check format docs dist installs sanitize sanitize-threads fuzz kills serve-checks scale-checks bench results peers pictures clean

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
	$(BIN)/python -m tests.site_checks site

# Source archive and wheel in dist/: the archive holds what git holds, the wheel works in an empty environment.
dist: $(VENV)/ready-dev
	rm -rf dist build
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m tests.dist sdist dist/*.tar.gz
	$(BIN)/python -m tests.dist wheel dist/*.whl

# Every way to install that the README names, in empty environments (a quarter of an hour; needs uv and dist/*.whl).
installs: $(VENV)/ready-dev
	$(BIN)/python -m tests.dist install dist/*.whl

# The tests of the engine and the chains with a core that checks every access (needs g++).
sanitize: $(VENV)/ready-dev
	tests/sanitize.sh $(BIN)/python

# The thread pool, a stream and a layer under ThreadSanitizer.
sanitize-threads:
	tests/sanitize_threads.sh

# Changed run directories, loaded for some minutes: only clear errors may come out.
fuzz: $(VENV)/ready-dev
	$(BIN)/python -m tests.fuzz_runs 300

# A hundred kills of training at random moments; resumed, every task ends in the same weights.
kills: $(VENV)/ready-dev
	$(BIN)/python -m tests.kill_runs 100

# The server for longer: schemathesis, 10,000 requests, clients that go away or send a byte a second, 10 minutes at 80% load.
serve-checks: $(VENV)/ready-dev
	$(BIN)/python -m tests.serve_soak schema 100
	$(BIN)/python -m tests.serve_soak requests 10000
	$(BIN)/python -m tests.serve_soak drops 100
	$(BIN)/python -m tests.serve_soak slow 30
	$(BIN)/python -m tests.serve_soak load 10

# Training with several workers: the same weights, kills, restarts, two hosts (some minutes).
scale-checks: $(VENV)/ready-dev
	$(BIN)/python -m tests.scale_checks

# On a machine where nothing else runs.
bench: $(VENV)/ready-dev
	$(BIN)/python -m benchmarks.engine

# The tasks on real data ($WEFT_DATA or ../shared/data); `make results ROW=cls/sst2` for one line.
results: $(VENV)/ready-dev
	$(BIN)/python -m benchmarks.results $(if $(ROW),"$(ROW)")

# The tools that users may choose instead, in an environment of their own; `make peers ROW=cls/sst2` for one row.
peers: $(VENV)/ready-dev
	$(BIN)/python -m benchmarks.peers $(if $(ROW),"$(ROW)")

# The pictures of the pages on looking inside, from small runs that it trains (about 10 minutes).
pictures: $(VENV)/ready-dev
	$(BIN)/python docs/pictures.py build/pictures

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
