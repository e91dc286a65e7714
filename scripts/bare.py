"""The README's two commands, and the wheel, where nothing was installed before: one table.

Each row is a layer over a minimal root file system of the current Debian stable, which mmdebstrap
makes once from the packages' usual home; see `ROWS`. The whole takes about an hour and a half, and
wants root and a machine that is otherwise idle. Usage: bare.py [ROW...]
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
"""Root file systems, layers and logs."""

SUITE = "stable"
BARE = ("make", "python3", "git", "ca-certificates", "passwd")
"""What every row has: what the README asks for, and a tool to add a user."""
PACKAGES = (
    *("build-essential", "python3-venv", "pkg-config", "libelf-dev", "zlib1g-dev"),
    *("util-linux", "mount", "iproute2", "gzip"),
)
"""What the set-up installs where it may, clang and iperf3 apart."""
USER = "somebody"
HOME = f"/home/{USER}"

CLOSING = re.compile(r"^(\d+ passed, \d+ failed, \d+ skipped)$", re.MULTILINE)
WITHOUT = re.compile(r"^without (\w+): ", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """A machine to try the two commands on."""

    title: str
    packages: Sequence[str] = ()
    """Installed before."""
    as_root: bool = False
    tun_mode: str = "666"
    rust: str = "newest"
    """"newest": this machine's toolchain; "packaged": that of the suite."""
    commands: Sequence[str] = field(default=("make demo", "make test"))
    later: str | None = None
    """A package that root installs after that: the next build has to notice."""


ROWS = {
    "a": Row("root", as_root=True),
    "b": Row("a user without sudo, packages there", (*PACKAGES, "clang", "iperf3")),
    "c": Row(
        "the same without clang, /dev/net/tun 0600",
        (*PACKAGES, "iperf3"),
        tun_mode="600",
        later="clang",
    ),
    "d": Row("Python and Rust as new as can be", (*PACKAGES, "clang", "iperf3"), as_root=True),
    "e": Row("the suite's own Rust", ("rustc", "cargo"), as_root=True, rust="packaged"),
    "wheel": Row("the wheel, without Rust and clang", ("python3-venv",), as_root=True),
}


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    row: str
    command: str
    ok: bool
    seconds: float
    versions: str
    said: str


def main(names: Sequence[str]) -> int:
    """Try the rows, and print the table."""
    unknown = set(names) - set(ROWS)
    if unknown:
        return complain(f"no row {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    for program in ("mmdebstrap", "unshare"):
        if shutil.which(program) is None:
            return complain(
                f"missing {program}: run 'sudo apt-get install {program}', then this again"
            )
    results = []
    for name in names or ROWS:
        results += tried(name, ROWS[name])
        print_table(results)
    return int(not all(result.ok for result in results))


def complain(what: str) -> int:
    """Say in one line what is wrong with the call or the machine."""
    print(f"bare: {what}", file=sys.stderr)
    return 2


def tried(name: str, row: Row) -> list[Result]:
    """Try the commands of a row, each in the state that the one before it left."""
    base = root_file_system(row.packages)
    if name == "wheel":
        return [wheel(base)]
    layer = PLACE / f"layer-{name}"
    shutil.rmtree(layer, ignore_errors=True)
    checkout = layer / "upper" / HOME.strip("/") / "skyhop"
    checkout.parent.mkdir(parents=True)
    subprocess.run(["git", "clone", "--quiet", ROOT, checkout], check=True)
    owner = f"useradd --create-home --shell /bin/bash {USER} 2>&1; chown -R {USER}: {HOME}"
    inside(base, layer, row, ["sh", "-c", owner], PLACE / f"{name}.log")
    results = []
    for command in row.commands:
        results.append(ran(name, row, base, layer, command))
        if not results[-1].ok:
            break
    if row.later and all(result.ok for result in results):
        results.append(arrived(name, row, base, layer))
    if all(result.ok for result in results):
        shutil.rmtree(layer)
    return results


def arrived(name: str, row: Row, base: Path, layer: Path) -> Result:
    """Install what was missing, set up again, and show a module to the kernel's verifier."""
    install = f"apt-get update -qq && apt-get install -qq --no-install-recommends {row.later}"
    inside(base, layer, row, ["sh", "-c", install], PLACE / f"{name}-{row.later}.log")
    again = ran(name, row, base, layer, "make setup")
    log = PLACE / f"{name}-check.log"
    check = f"cd {HOME}/skyhop && .venv/bin/skyhop cc check reno"
    status = inside(base, layer, row, ["sh", "-c", check], log)
    said = log.read_text("utf-8", errors="replace").strip().splitlines()
    ok = again.ok and status == 0
    command = f"{row.later} arrives: make setup, sudo skyhop cc check reno"
    return Result(
        name, command, ok, again.seconds, again.versions, said[-1] if not ok else "verified"
    )


def ran(name: str, row: Row, base: Path, layer: Path, command: str) -> Result:
    """Run one command of a row in its checkout."""
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
    status = inside(base, layer, row, [*user, "bash", "-c", script], log)
    text = log.read_text("utf-8", errors="replace")
    versions = next((line for line in text.splitlines() if line.startswith("versions: ")), "")
    said = [*CLOSING.findall(text)[-1:], *(f"without {what}" for what in WITHOUT.findall(text))]
    if status != 0:
        said.append(f"status {status}: {text.strip().splitlines()[-1]}")
    took_s = time.monotonic() - began
    return Result(
        name, command, status == 0, took_s, versions[len("versions: ") :], "; ".join(said)
    )


def inside(base: Path, layer: Path, row: Row, command: Sequence[str], log: Path) -> int:
    """Run a command in a row's file system; what it prints goes into a file."""
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
    """Return where this machine's stable toolchain is."""
    found = subprocess.run(
        ["rustc", "--print", "sysroot"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def wheel(base: Path) -> Result:
    """Install the wheel of dist/ and use it, with what checks that."""
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
    """Return a minimal root file system with these packages, made where it is not there yet."""
    digest = hashlib.sha256(" ".join((*BARE, *packages)).encode()).hexdigest()[:8]
    place = PLACE / f"root-{digest}"
    if place.is_dir():
        return place
    print(
        f"bare: making a root file system with {' '.join(packages) or 'nothing more'}", flush=True
    )
    PLACE.mkdir(parents=True, exist_ok=True)
    partial = place.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    include = f"--include={','.join((*BARE, *packages))}"
    command = ["mmdebstrap", "--quiet", "--variant=apt", include, SUITE, partial, mirror()]
    subprocess.run(command, check=True)
    return partial.rename(place)


def mirror() -> str:
    """Return where this machine gets Debian's packages from."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=True,
    )
    homes = [line for line in listed.stdout.split() if line.rstrip("/").endswith("/debian")]
    if not homes:
        sys.exit("bare: apt on this machine names no home of Debian's packages")
    return homes[0]


def print_table(results: Sequence[Result]) -> None:
    """Print what is known so far."""
    table = Table(title="The two commands on bare machines", title_justify="left")
    for heading in ("row", "machine", "with", "command", "ended", "min", "it said"):
        table.add_column(heading, overflow="fold")
    for result in results:
        ended, minutes = "well" if result.ok else "badly", f"{result.seconds / 60:.1f}"
        title = ROWS[result.row].title
        table.add_row(
            result.row, title, result.versions, result.command, ended, minutes, result.said
        )
    Console(width=max(120, Console().width)).print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
