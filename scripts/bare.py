"""Tests `make demo`, `make test` and the wheel on machines without any preparation; prints a table.

Each row is a layer over a minimal root file system of the current Debian stable, which mmdebstrap
builds once from Debian's packages; see `ROWS`. All rows together take about an hour and a half.
They need root and a machine that is otherwise idle. Usage: bare.py [ROW...]
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "bare"
"""Directory for root file systems, layers and logs."""

SUITE = "stable"
BARE = ("make", "python3", "git", "ca-certificates", "passwd")
"""Packages of every row: those that the README requires, and passwd to add a user."""
PACKAGES = (
    *("build-essential", "python3-venv", "pkg-config", "libelf-dev", "zlib1g-dev"),
    *("util-linux", "mount", "iproute2", "gzip"),
)
"""Packages that the set-up installs if it can become root, except clang and iperf3."""
USER = "tester"
HOME = f"/home/{USER}"

CLOSING = re.compile(r"^(\d+ passed, \d+ failed, \d+ skipped)$", re.MULTILINE)
WITHOUT = re.compile(r"^without (\w+): ", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """Machine on which the commands are tested."""

    title: str
    packages: Sequence[str] = ()
    """Packages installed before the commands run."""
    as_root: bool = False
    tun_mode: str = "666"
    rust: str = "newest"
    """"newest" is this machine's toolchain, "packaged" that of the Debian suite."""
    commands: Sequence[str] = field(default=("make demo", "make test"))
    later: str | None = None
    """Package that root installs after the commands; the next build has to use it."""
    refusal: str | None = None
    """Pattern of the line with which the set-up refuses this machine."""


ROWS = {
    "a": Row("root", as_root=True),
    "b": Row("a user without sudo, packages installed", (*PACKAGES, "clang", "iperf3")),
    "c": Row(
        "the same without clang, /dev/net/tun 0600",
        (*PACKAGES, "iperf3"),
        tun_mode="600",
        later="clang",
    ),
    "d": Row("newest Python and Rust", (*PACKAGES, "clang", "iperf3"), as_root=True),
    "e": Row(
        "the suite's own Rust, which is too old",
        ("rustc", "cargo"),
        as_root=True,
        rust="packaged",
        commands=("make demo",),
        refusal=r"^setup: cargo [^ ]+ .*is too old: .*; install one with rustup.*$",
    ),
    "wheel": Row("the wheel, without Rust and clang", ("python3-venv",), as_root=True),
}


@dataclass(frozen=True)
class Result:
    """Outcome of one command of a row."""

    row: str
    command: str
    ok: bool
    seconds: float
    versions: str
    remark: str


def main(names: Sequence[str]) -> int:
    """Test the named rows, or all rows, and print the table."""
    unknown = set(names) - set(ROWS)
    if unknown:
        return complain(f"no row {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    for program in ("mmdebstrap", "unshare"):
        if shutil.which(program) is None:
            return complain(
                f"missing {program}: run 'sudo apt-get install {program}', then run this again"
            )
    results = []
    for name in names or ROWS:
        results += try_row(name, ROWS[name])
        print_table(results)
    return int(not all(result.ok for result in results))


def complain(what: str) -> int:
    """Print an error in the arguments or of the machine; return the exit code 2."""
    print(f"bare: {what}", file=sys.stderr)
    return 2


def try_row(name: str, row: Row) -> list[Result]:
    """Run all commands of a row, one after the other, in the same layer."""
    base = root_file_system(row.packages)
    if name == "wheel":
        return [check_wheel(base)]
    layer = PLACE / f"layer-{name}"
    shutil.rmtree(layer, ignore_errors=True)
    checkout = layer / "upper" / HOME.strip("/") / "skyhop"
    checkout.parent.mkdir(parents=True)
    subprocess.run(["git", "clone", "--quiet", ROOT, checkout], check=True)
    owner = f"useradd --create-home --shell /bin/bash {USER} 2>&1; chown -R {USER}: {HOME}"
    run_inside(base, layer, row, ["sh", "-c", owner], PLACE / f"{name}.log")
    results = []
    for command in row.commands:
        results.append(run_command(name, row, base, layer, command))
        if not results[-1].ok:
            break
    if row.later and all(result.ok for result in results):
        results.append(install_later(name, row, base, layer))
    if all(result.ok for result in results):
        shutil.rmtree(layer)
    return results


def install_later(name: str, row: Row, base: Path, layer: Path) -> Result:
    """Install the row's `later` package, repeat the set-up, and load a module into the kernel.

    The kernel's verifier checks the module.
    """
    install = f"apt-get update -qq && apt-get install -qq --no-install-recommends {row.later}"
    run_inside(base, layer, row, ["sh", "-c", install], PLACE / f"{name}-{row.later}.log")
    again = run_command(name, row, base, layer, "make setup")
    log = PLACE / f"{name}-check.log"
    check = f"cd {HOME}/skyhop && .venv/bin/skyhop cc check reno"
    status = run_inside(base, layer, row, ["sh", "-c", check], log)
    remark = log.read_text("utf-8", errors="replace").strip().splitlines()
    ok = again.ok and status == 0
    command = f"{row.later} installed: make setup, sudo skyhop cc check reno"
    return Result(
        name, command, ok, again.seconds, again.versions, remark[-1] if not ok else "verified"
    )


def run_command(name: str, row: Row, base: Path, layer: Path, command: str) -> Result:
    """Run one command in a row's checkout."""
    log = PLACE / f"{name}-{command.replace(' ', '-')}.log"
    print(f"bare: {name}: {command} ({row.title}); its output is in {log}", flush=True)
    versions = 'echo "versions: $(python3 --version), $(rustc --version | cut -d" " -f1-2)"'
    script = f"cd {HOME}/skyhop && {versions}; {command}"
    user = ["env", "HOME=/root"]
    if not row.as_root:
        user = [
            "setpriv",
            f"--reuid={USER}",
            f"--regid={USER}",
            "--init-groups",
            "env",
            f"HOME={HOME}",
        ]
    began = time.monotonic()
    status = run_inside(base, layer, row, [*user, "bash", "-c", script], log)
    text = log.read_text("utf-8", errors="replace")
    versions = next((line for line in text.splitlines() if line.startswith("versions: ")), "")
    remark = [*CLOSING.findall(text)[-1:], *(f"without {what}" for what in WITHOUT.findall(text))]
    ok = status == 0
    if row.refusal:
        refused = re.search(row.refusal, text, re.MULTILINE)
        ok = status != 0 and refused is not None
        remark.append(refused[0] if refused else "the set-up did not refuse this machine")
    elif status != 0:
        remark.append(f"status {status}: {text.strip().splitlines()[-1]}")
    took_s = time.monotonic() - began
    return Result(name, command, ok, took_s, versions[len("versions: ") :], "; ".join(remark))


def run_inside(base: Path, layer: Path, row: Row, command: Sequence[str], log: Path) -> int:
    """Run a command in a row's file system, with its output in a log; return its exit status."""
    toolchain = {"IN_ROOT_BIND": newest_rust()} if row.rust == "newest" else {}
    environment = {**os.environ, "IN_ROOT_TUN": row.tun_mode, **toolchain}
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(
            [ROOT / "scripts" / "in_root.sh", base, layer, *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    return done.returncode


def newest_rust() -> str:
    """Return the directory of this machine's stable Rust toolchain."""
    found = subprocess.run(
        ["rustc", "--print", "sysroot"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def check_wheel(base: Path) -> Result:
    """Build the wheel; install and use it in a bare file system (check_wheel.sh)."""
    log = PLACE / "wheel.log"
    print(f"bare: wheel: make wheel, make check-wheel; their output is in {log}", flush=True)
    began = time.monotonic()
    with log.open("w", encoding="utf-8") as output:
        for command in (["make", "wheel"], ["make", "check-wheel", f"ROOT={base}"]):
            done = subprocess.run(
                command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False
            )
            if done.returncode != 0:
                break
    last = log.read_text("utf-8", errors="replace").strip().splitlines()[-1]
    took_s = time.monotonic() - began
    return Result("wheel", "pip install", done.returncode == 0, took_s, "", last)


def root_file_system(packages: Sequence[str]) -> Path:
    """Return a minimal root file system with these packages; build it if it does not exist."""
    digest = hashlib.sha256(" ".join((*BARE, *packages)).encode()).hexdigest()[:8]
    place = PLACE / f"root-{digest}"
    if place.is_dir():
        return place
    print(f"bare: making a root file system with {' '.join(packages) or 'no packages'}", flush=True)
    PLACE.mkdir(parents=True, exist_ok=True)
    partial = place.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    include = f"--include={','.join((*BARE, *packages))}"
    command = ["mmdebstrap", "--quiet", "--variant=apt", include, SUITE, partial, mirror()]
    subprocess.run(command, check=True)
    return partial.rename(place)


def mirror() -> str:
    """Return the address from which this machine gets Debian's packages."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=True,
    )
    archives = [line for line in listed.stdout.split() if line.rstrip("/").endswith("/debian")]
    if not archives:
        sys.exit("bare: apt on this machine has no archive of Debian's packages")
    return archives[0]


def print_table(results: Sequence[Result]) -> None:
    """Print the table with the results so far."""
    table = Table(title="The two commands on bare machines", title_justify="left")
    for heading in ("row", "machine", "versions", "command", "result", "min", "messages"):
        table.add_column(heading, overflow="fold")
    for result in results:
        outcome, minutes = "passed" if result.ok else "failed", f"{result.seconds / 60:.1f}"
        title = ROWS[result.row].title
        table.add_row(
            result.row, title, result.versions, result.command, outcome, minutes, result.remark
        )
    Console(width=max(120, Console().width)).print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
