# skyhop: make demo (the main job), setup, lint, test, soak, docs, bench, bare, reference, validate, reproduce, wheel.
PYTHON := .venv/bin/python
CARGO  := $(or $(shell command -v cargo),$(HOME)/.cargo/bin/cargo)
SETUP  := scripts/setup.sh

.PHONY: demo setup setup-soak setup-release test soak lint docs bench bare reference validate reproduce wheel check-wheel \
	schema bindings lock clean

# Both commands end with the missing packages and the features that do not work without them.
with_missing = status=0; $(1) || status=$$?; cat build/missing >&2; exit $$status

demo:
	@SKYHOP_BEGAN=$$(date +%s); export SKYHOP_BEGAN; $(SETUP) demo && { $(call with_missing,$(PYTHON) scripts/demo.py); }

# The development set-up: everything that lint and test need.
setup:
	@$(SETUP) dev

setup-soak:
	@$(SETUP) soak

# The core as in wheels, optimised and without assertions: for measurements and long runs.
setup-release:
	@PROFILE=release $(SETUP) soak

# Tests of the tiers logic and integration; takes minutes.
test: setup
	@$(call with_missing,$(PYTHON) scripts/tests.py)

# All tests: SOAK times the random cases and seconds of orbits, 10 x SOAK kills of each command, and as many runs short of
# descriptors, memory and disk; prints a table of these trials, after five hours at most. Its limits of time and memory
# apply to the optimised core.
SOAK := 20
soak: setup-release
	SKYHOP_SOAK=$(SOAK) $(PYTHON) scripts/tests.py --soak --hours 5

# demo, test and the wheel on machines without preparation; needs root, mmdebstrap and some hours. ROWS="a wheel"
bare: setup
	$(PYTHON) scripts/bare.py $(ROWS)

lint: setup
	$(CARGO) fmt --all --check
	. build/cargo-env && $(CARGO) clippy --workspace --all-targets --locked $$(cat build/features) -- -D warnings
	$(CARGO) run --quiet --locked -p skyhop-bindings -- --check
	$(PYTHON) -m ruff check conftest.py packages tests scripts validation
	$(PYTHON) -m ruff format --check conftest.py packages tests scripts validation
	$(PYTHON) -m mypy
	$(dir $(PYTHON))lint-imports --no-cache --no-logo
	$(PYTHON) scripts/words.py
	$(BUILD_DOCS)

# The documentation in build/docs, a site that works from files. A broken link or anchor is an error.
BUILD_DOCS = NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict
docs: setup
	$(BUILD_DOCS)
	@echo "docs: build/docs/index.html; .venv/bin/skyhop docs opens it"

bench: setup-release
	$(CARGO) bench --locked -p skyhop-path -p skyhop-link --bench one_orbit --bench scale --bench link
	$(PYTHON) -m validation bench
	$(PYTHON) -m validation kernel-costs

# Downloads the published files that tests compare with (tests/reference.toml).
reference: setup
	$(PYTHON) -m validation reference

validate: setup-release
	$(PYTHON) -m validation validate

# Runs the unfinished runs of all studies of studies/, and writes docs/results/reproduced.
reproduce: setup-release
	$(PYTHON) -m validation reproduce

# Builds the wheels of the three packages in dist/, for machines without Rust and clang. skyhop's is for this architecture,
# and for those of TARGETS="aarch64-unknown-linux-gnu x86_64-unknown-linux-gnu".
wheel:
	@scripts/wheel.sh $(TARGETS)

# Installs the wheels one by one and uses each in a layer over ROOT, the directory of a bare root file system.
check-wheel:
	@scripts/check_wheel.sh "$(ROOT)"

# Regenerates the JSON Schemas of scenario and study files after a change of their types.
schema: setup
	$(PYTHON) -c "from skyhop import _core; print(_core.scenario_schema())" > docs/scenario.schema.json
	$(PYTHON) -c "import json; from skyhop.study.file import StudyFile as S; print(json.dumps(S.model_json_schema(by_alias=True), indent=2))" > docs/study.schema.json

# Regenerates crates/cc/src/bindings.rs after a change of cc/skyhop_cc.h; needs libclang.
bindings:
	$(CARGO) run --quiet --locked -p skyhop-bindings

# Regenerates requirements.lock after a change of pyproject.toml: all extras and groups, all platforms; UPGRADE=--upgrade
lock: setup
	.venv/bin/uv pip compile packages/*/pyproject.toml --universal --python-version 3.11 --all-extras \
		$(foreach group,build lint test docs soak wheel,--group pyproject.toml:$(group)) \
		$(foreach package,skyhop skyhop-testbed skyhop-lab,--no-emit-package $(package)) \
		--generate-hashes --no-header --no-annotate --no-emit-index-url $(UPGRADE) -o requirements.lock

clean:
	rm -rf target .venv runs build dist
