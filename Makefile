# Two commands matter: `make run` and `make test`. Both set up what they need.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup run test check bench notebook lock

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Capline needs Python 3.11 or newer: make setup PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

run: setup
	$(BIN)/capline up

test: check
	$(BIN)/python -m pytest -n auto --dist loadfile

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	$(BIN)/python -m bench

notebook: setup
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) --LabApp.news_url=None \
		--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate notebooks

lock: setup
	$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --fork-strategy fewest \
		--generate-hashes --no-config --no-header --no-emit-index-url --quiet --upgrade --output-file requirements.lock
