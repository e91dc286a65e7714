# skyhop: make demo (the main job), make test, make lint, make bench, make reference, make validate, make reproduce.
PYTHON := .venv/bin/python
CARGO  := $(or $(shell command -v cargo),$(HOME)/.cargo/bin/cargo)

.PHONY: demo setup test lint bench reference validate reproduce schema clean

demo: setup
	$(PYTHON) scripts/demo.py

setup:
	@scripts/setup.sh

test:
	@scripts/setup.sh iperf3 clang
	$(CARGO) test --workspace --locked
	$(PYTHON) -m pytest

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(PYTHON) -m ruff check python tests scripts
	$(PYTHON) -m ruff format --check python tests scripts
	$(PYTHON) -m mypy

bench: setup
	$(CARGO) bench --locked -p skyhop-path -p skyhop-link --bench one_orbit --bench scale --bench link
	$(PYTHON) scripts/bench.py
	$(PYTHON) scripts/kernel_costs.py

# Downloads what others published for the tests to compare with: tests/reference.toml.
reference: setup
	$(PYTHON) scripts/reference.py

validate: setup
	$(PYTHON) scripts/validate.py

# Runs every study of studies/, finished runs apart, and writes docs/reproduced.md.
reproduce: setup
	$(PYTHON) scripts/reproduce.py

# The committed JSON Schemas of the scenario and study files, after a change of their types.
schema: setup
	$(PYTHON) -c "from skyhop import _core; print(_core.scenario_schema())" > docs/scenario.schema.json
	$(PYTHON) -c "import json; from skyhop.study.file import StudyFile as S; print(json.dumps(S.model_json_schema(by_alias=True), indent=2))" > docs/study.schema.json

clean:
	rm -rf target .venv runs build
