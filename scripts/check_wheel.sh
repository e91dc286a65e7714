#!/usr/bin/env bash
# Installs the wheels from dist/ one by one on a system that has only Python, prints the dependencies and sizes, and uses each:
# runs, the kernel, a study, reports; then the testbed; then the lab.
# Usage: check_wheel.sh ROOT: ROOT is the directory of a bare root file system, which is not changed:
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

add() { # WHEEL [MOST_MB]: installs a wheel; prints its dependencies and the size of all installed packages; limits what it adds
    local before after
    before=$(megabytes)
    step pip install --quiet --disable-pip-version-check --find-links . "$1"
    after=$(megabytes)
    printf '%s: %s direct dependencies, %s MB installed, %s MB in all, %s packages\n' "$1" \
        "$(unzipped "$1" | grep -c '^Requires-Dist: [^;]*$')" "$((after - before))" "$after" "$(pip list 2>/dev/null | tail -n +3 | wc -l)"
    unzipped "$1" | grep '^Requires-Dist: [^;]*$'
    ((after - before < ${2:-1000})) || fail "$1 adds $((after - before)) MB; less than ${2:-1000} are wanted"
}

megabytes() { # prints the size of all installed files in MB, without the bytecode that pip compiles from them
    find venv -type f -not -name '*.pyc' -printf '%s\n' | awk '{ bytes += $1 } END { printf "%d", bytes / 1e6 }'
}

unzipped() { # WHEEL: prints the wheel's metadata
    python3 -c 'import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); print(z.read(next(n for n in z.namelist() if n.endswith("/METADATA"))).decode())' "$1"
}

lacks() { # PACKAGE COMMAND...: runs a command that fails, and names the package that it lacks
    local package=$1 said
    shift
    printf '\n$ %s\n' "$*"
    said=$("$@" 2>&1) && fail "works without $package: $*"
    grep "pip install .*$package" <<< "$said" || fail "the command does not say what to install: $said"
}

inside() {
    cd /check
    export PATH=/check/venv/bin:$PATH
    for tool in rustc cargo clang cc; do
        ! command -v "$tool" || fail "$tool is installed: this root file system is not bare"
    done
    step python3 -m venv venv
    add skyhop-[0-9]*.whl 400
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
    lacks skyhop_testbed skyhop testbed check job.toml --offline
    lacks skyhop_lab skyhop policy rewards
    add skyhop_testbed-*.whl
    step skyhop testbed check job.toml --offline
    local answer
    answer=$(skyhop dish status --address 127.0.0.1:9 2>&1) && fail "skyhop dish found a terminal at port 9"
    grep "no terminal answers" <<< "$answer" || fail "skyhop dish does not work: $answer"
    lacks "skyhop_lab-.*\[dish\]" skyhop testbed demo
    add skyhop_lab-*.whl
    gives Example skyhop testbed demo --help
    gives leo skyhop policy rewards
    gives xgboost skyhop predict train --help
    [ -s runs/study/report.html ] || fail "the study has no report"
    printf '\ncheck_wheel: the three wheels work on a system with nothing but Python\n'
}

[ "${1:-}" != --inside ] || { inside; exit; }

[ -d "${1:-}" ] || fail "give the directory of a bare root file system: check_wheel.sh ROOT"
[ "$(id -u)" = 0 ] || fail "needs root: it mounts file systems and loads modules into the kernel"
root=$(realpath "$1")
# dist may also have wheels of other architectures.
wheels=("$(dirname "$0")"/../dist/skyhop-*_"$(uname -m)".whl "$(dirname "$0")"/../dist/skyhop_*.whl)
[ "${#wheels[@]}" = 3 ] || fail "dist has not the three wheels: run make wheel"
layer=$(mktemp -d "$root.XXXXXX")
trap 'rm -rf "$layer"' EXIT
mkdir -p "$layer/upper/check"
cp "${wheels[@]}" "$0" "$layer/upper/check/"
"$(dirname "$0")/in_root.sh" "$root" "$layer" /bin/bash /check/check_wheel.sh --inside
