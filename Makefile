# skyhop: make demo (the main job), make test, make soak, make lint, make bench, make bare, make reference,
# make validate, make reproduce, make wheel.
PYTHON := .venv/bin/python
CARGO  := $(or $(shell command -v cargo),$(HOME)/.cargo/bin/cargo)

.PHONY: demo setup test soak lint bench bare reference validate reproduce wheel check-wheel schema clean

# What the set-up could not have, and what does not work without it, closes both commands.
with_missing = status=0; $(1) || status=$$?; cat build/missing >&2; exit $$status

demo: setup
	@$(call with_missing,$(PYTHON) scripts/demo.py)

setup:
	@scripts/setup.sh $(LOCKS)

test: setup
	@$(call with_missing,$(PYTHON) scripts/tests.py)

# What takes long: all tests with SOAK times their random cases and seconds of orbits, each command killed ten times SOAK
# times, and starved as often of descriptors, memory and disk; a table of it all at the end, after five hours at most.
SOAK := 20
soak: setup
	SKYHOP_SOAK=$(SOAK) $(PYTHON) scripts/tests.py --hours 5

# The two commands and the wheel on machines that have nothing: root, mmdebstrap and some hours. ROWS="a wheel"
bare: setup
	$(PYTHON) scripts/bare.py $(ROWS)

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --workspace --all-targets --locked $$(cat build/features) -- -D warnings
	$(PYTHON) -m ruff check python tests scripts
	$(PYTHON) -m ruff format --check python tests scripts
	$(PYTHON) -m mypy
	$(dir $(PYTHON))lint-imports --no-cache --no-logo

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

# dist/skyhop-*.whl, for machines without Rust and clang.
wheel:
	@scripts/wheel.sh

# Installs that wheel under a layer over ROOT, the directory of a bare root file system, and uses it there.
check-wheel:
	@scripts/check_wheel.sh "$(ROOT)"

# The committed JSON Schemas of the scenario and study files, after a change of their types.
schema: setup
	$(PYTHON) -c "from skyhop import _core; print(_core.scenario_schema())" > docs/scenario.schema.json
	$(PYTHON) -c "import json; from skyhop.study.file import StudyFile as S; print(json.dumps(S.model_json_schema(by_alias=True), indent=2))" > docs/study.schema.json

clean:
	rm -rf target .venv runs build dist
