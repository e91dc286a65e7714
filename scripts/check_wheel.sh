#!/usr/bin/env bash
# Installs the wheel from dist/ on a system that has only Python, and uses it: runs, the kernel, a study, reports.
# Usage: check_wheel.sh ROOT [WHEEL]: ROOT is the directory of a bare root file system, which is not changed:
#   mmdebstrap --variant=apt --include=python3,python3-venv,ca-certificates trixie ROOT
# Needs root; only pip uses the network.
set -euo pipefail

fail() { printf 'check_wheel: %s\n' "$1" >&2; exit 1; }

step() { # COMMAND...
    printf '\n$ %s\n' "$*"
    "$@" || fail "failed: $*"
}

gives() { # PATTERN COMMAND...: runs a command, and fails unless its output has lines with the pattern
    local pattern=$1 output
    shift
    printf '\n$ %s\n' "$*"
    output=$("$@") || fail "failed: $*"
    grep -- "$pattern" <<< "$output" || fail "no $pattern in the output of: $*"
}

inside() {
    cd /check
    export PATH=/check/venv/bin:$PATH
    for tool in rustc cargo clang cc; do
        ! command -v "$tool" || fail "$tool is installed: this root file system is not bare"
    done
    step python3 -m venv venv
    step pip install --quiet --disable-pip-version-check skyhop-*.whl
    gives '^skyhop [0-9]' skyhop --version
    gives starlink-shell1 skyhop list constellations
    gives starlink-gateways skyhop list sites
    gives san-diego-new-york skyhop list examples
    gives satcp-table1 skyhop list studies
    gives 'site/index.html$' skyhop docs --path
    gives distinct skyhop study show satcp-table1
    gives '"flow":' python -c 'from skyhop import _core; print(_core.scenario_schema())'
    step skyhop path --from "San Diego" --to "New York" --relay bent-pipe --duration "10 min" \
        -o path.parquet --plot path.png

    # The demo's scenario, as root and as an unprivileged user.
    local announced=(--set signal.source=path --set "signal.lead=0.5 s")
    step skyhop live san-diego-new-york -o runs/live --set "run.duration=5 s"
    step skyhop live san-diego-new-york -o runs/live-satpipe --set "run.duration=5 s" \
        --set flow.0.cc=satpipe "${announced[@]}"
    step setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/tmp \
        skyhop live san-diego-new-york -o /tmp/live --set "run.duration=5 s"
    step skyhop live any-program -- true
    step skyhop sim san-diego-new-york -o runs/sim
    step skyhop sim san-diego-new-york -o runs/sim-satpipe --set flow.0.cc=satpipe "${announced[@]}"
    step skyhop report runs/live runs/live-satpipe runs/sim runs/sim-satpipe -o report.html
    [ -s report.html ] || fail "the report is empty"

    # Congestion controls of the user: one in Python runs; one in C fails and names the missing compiler.
    step skyhop cc new idea.py
    step skyhop cc check idea.py
    step skyhop cc new idea.c --from cubic
    local said
    said=$(skyhop cc check idea.c 2>&1) && fail "idea.c was compiled without a compiler"
    grep "install gcc" <<< "$said" || fail "cc check does not say what to install: $said"

    # The kernel.
    gives skyhop:cubic skyhop cc list
    gives satpipe_cong_control skyhop cc check satpipe
    local name
    name=$(skyhop cc load cubic) || fail "failed: skyhop cc load cubic"
    printf '\n$ skyhop cc load cubic\n%s\n' "$name"
    gives "$name " skyhop cc list
    step skyhop cc unload cubic

    cat > study.toml <<'STUDY'
title = "CUBIC and BBR with loss"
question = "Which of them fills a lossy link?"
repeats = 2

[scenario]
path = { kind = "fixed", rtt = "20 ms" }
link = { rate = "10 Mbit/s" }
flow = [{ cc = "cubic" }]
run = { duration = "3 s" }

[[axis]]
name = "cc"
key = "flow.0.cc"
values = ["cubic", "bbr"]

[[axis]]
name = "loss"
key = "link.loss"
values = ["0.1 %", "1 %"]
STUDY
    step skyhop study run study.toml -o runs/study
    # Both commands need modules that are generated when the wheel is built.
    printf 'id = "job"\nnodes = ["a"]\nlength = "5 s"\n[when]\nat = "now"\n[run]\nclient = ["true"]\n' >job.toml
    local lacking
    lacking=$(skyhop testbed check job.toml --offline 2>&1) && fail "the testbed's packages are installed without the extra"
    grep "skyhop\[testbed\]" <<< "$lacking" || fail "the command does not say what to install: $lacking"
    step pip install --quiet --disable-pip-version-check "$(ls skyhop-*.whl)[testbed]"
    step skyhop testbed check job.toml --offline
    local answer
    answer=$(skyhop dish status --address 127.0.0.1:9 2>&1) && fail "skyhop dish found a terminal at port 9"
    grep "no terminal answers" <<< "$answer" || fail "skyhop dish does not work: $answer"
    [ -s runs/study/report.html ] || fail "the study has no report"
    printf '\ncheck_wheel: %s works on a system with nothing but Python\n' "$(basename skyhop-*.whl)"
}

[ "${1:-}" != --inside ] || { inside; exit; }

[ -d "${1:-}" ] || fail "give the directory of a bare root file system: check_wheel.sh ROOT [WHEEL]"
[ "$(id -u)" = 0 ] || fail "needs root: it mounts file systems and loads modules into the kernel"
root=$(realpath "$1")
wheel=${2:-$(echo "$(dirname "$0")"/../dist/skyhop-*.whl)}
[ -f "$wheel" ] || fail "$wheel: no such wheel: run make wheel"
wheel=$(realpath "$wheel")
layer=$(mktemp -d "$root.XXXXXX")
trap 'rm -rf "$layer"' EXIT
mkdir -p "$layer/upper/check"
cp "$wheel" "$0" "$layer/upper/check/"
"$(dirname "$0")/in_root.sh" "$root" "$layer" /bin/bash /check/check_wheel.sh --inside
