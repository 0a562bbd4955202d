# make demo, make test: each sets up what it needs. PYTHON picks the interpreter, 3.11 or newer.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow lint format clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,hf,tpu]'
	touch $@

demo: $(READY)
	$(BIN)/tpubench run resnet --mode eager,compile --backend embedded --steps 15 --out results/demo
	$(BIN)/tpubench compare results/demo --format md --plot results/demo/compare.png > results/demo/compare.md
	@echo 'table: results/demo/compare.md'

test: $(READY)
	$(BIN)/pytest -m 'not slow'

test-slow: $(READY)
	$(BIN)/pytest -m slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build *.egg-info
