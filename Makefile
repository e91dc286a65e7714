# skyhop: make demo (the main job), setup, lint, test, soak, bench, bare, reference, validate, reproduce, wheel.
PYTHON := .venv/bin/python
CARGO  := $(or $(shell command -v cargo),$(HOME)/.cargo/bin/cargo)
SETUP  := scripts/setup.sh

.PHONY: demo setup setup-soak setup-release test soak lint bench bare reference validate reproduce wheel check-wheel \
	schema bindings lock clean

# What the set-up could not have, and what does not work without it, closes both commands.
with_missing = status=0; $(1) || status=$$?; cat build/missing >&2; exit $$status

demo:
	@SKYHOP_BEGAN=$$(date +%s); export SKYHOP_BEGAN; $(SETUP) demo && { $(call with_missing,$(PYTHON) scripts/demo.py); }

# The whole development set-up: what lint and test need.
setup:
	@$(SETUP) dev

setup-soak:
	@$(SETUP) soak

# The core as other machines get it, optimised and without assertions: for measurements and for many long runs.
setup-release:
	@PROFILE=release $(SETUP) soak

# Logic and integration; minutes.
test: setup
	@$(call with_missing,$(PYTHON) scripts/tests.py)

# Logic, integration and what takes long: SOAK times the random cases and seconds of orbits, each command killed ten times
# SOAK times, and starved as often of descriptors, memory and disk; a table of it all at the end, after five hours at most.
# Its budgets of time and memory are about the core as others get it.
SOAK := 20
soak: setup-release
	SKYHOP_SOAK=$(SOAK) $(PYTHON) scripts/tests.py --soak --hours 5

# The two commands and the wheel on machines that have nothing: root, mmdebstrap and some hours. ROWS="a wheel"
bare: setup
	$(PYTHON) scripts/bare.py $(ROWS)

lint: setup
	$(CARGO) fmt --all --check
	. build/cargo-env && $(CARGO) clippy --workspace --all-targets --locked $$(cat build/features) -- -D warnings
	$(CARGO) run --quiet --locked -p skyhop-bindings -- --check
	$(PYTHON) -m ruff check python tests scripts
	$(PYTHON) -m ruff format --check python tests scripts
	$(PYTHON) -m mypy
	$(dir $(PYTHON))lint-imports --no-cache --no-logo

bench: setup-release
	$(CARGO) bench --locked -p skyhop-path -p skyhop-link --bench one_orbit --bench scale --bench link
	$(PYTHON) scripts/bench.py
	$(PYTHON) scripts/kernel_costs.py

# Downloads what others published for the tests to compare with: tests/reference.toml.
reference: setup
	$(PYTHON) scripts/reference.py

validate: setup-release
	$(PYTHON) scripts/validate.py

# Runs every study of studies/, finished runs apart, and writes docs/reproduced.md.
reproduce: setup-release
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

# crates/cc/src/bindings.rs, after a change of cc/skyhop_cc.h; needs libclang.
bindings:
	$(CARGO) run --quiet --locked -p skyhop-bindings

# requirements.lock, after a change of pyproject.toml: every extra and group, for every machine; UPGRADE=--upgrade
lock: setup
	.venv/bin/uv pip compile pyproject.toml --universal --python-version 3.11 --all-extras \
		--group build --group lint --group test --group soak --group wheel \
		--generate-hashes --no-header --no-annotate --no-emit-index-url $(UPGRADE) -o requirements.lock

clean:
	rm -rf target .venv runs build dist
