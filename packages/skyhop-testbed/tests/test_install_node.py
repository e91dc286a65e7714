"""The installer of a node, in a mount namespace with small wheels and without a network."""

from __future__ import annotations

import platform
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

from needs import needs_namespaces, needs_program

EXAMPLES = ROOT / "examples" / "testbed"
_STUBS = {
    "systemctl": 'echo "systemctl $*" >>"$LOG"',
    # The namespace has one user: the real command would change the owner of files.
    "useradd": 'echo "useradd $*" >>"$LOG"; echo "skyhop:x:0:0::/:/bin/false" >>/etc/passwd',
    "apt-get": 'echo "apt-get $*" >>"$LOG"',
}


def write_wheel(place: Path, name: str, tag: str, version: str, code: str) -> None:
    """Write a wheel with one module and, for skyhop, its command."""
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(place / f"{name}-{version}-{tag}.whl", "w") as wheel:
        wheel.writestr(f"{name}_fake.py", code)
        wheel.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(f"{about}/WHEEL", f"Wheel-Version: 1.0\nGenerator: x\nTag: {tag}\n")
        if name == "skyhop":
            wheel.writestr(
                f"{about}/entry_points.txt", "[console_scripts]\nskyhop=skyhop_fake:main\n"
            )
        wheel.writestr(f"{about}/RECORD", "")


def write_wheels(place: Path, version: str, *, machine: str = "", works: bool = True) -> None:
    for old in place.glob("*.whl"):
        old.unlink()
    tag = f"py3-none-linux_{machine or platform.machine()}"
    code = f"def main():\n    print('skyhop {version}')\n    return {0 if works else 1}\n"
    write_wheel(place, "skyhop", tag, version, code)
    write_wheel(place, "skyhop_testbed", "py3-none-any", version, "")


class Machine:
    """Directories that stand for those of a machine, and the installer's calls in a namespace."""

    def __init__(self, place: Path) -> None:
        needs_namespaces()
        needs_program("mount")
        self.place, self.node, self.stubs = place, place / "node", place / "stubs"
        for name in ("node", "stubs", "opt", "lib", "etc", "work"):
            (place / name).mkdir()
        for name in ("install-node.sh", "skyhop-agent.service"):
            shutil.copy(EXAMPLES / name, self.node)
        for name, body in _STUBS.items():
            (self.stubs / name).write_text(f"#!/bin/sh\n{body}\n")
            (self.stubs / name).chmod(0o755)

    def install(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run the installer, as root of a namespace."""
        etc, work = self.place / "etc", self.place / "work"
        script = (
            f"mount -t overlay overlay -o lowerdir=/etc,upperdir={etc},workdir={work} /etc &&"
            f"mount --bind {self.place}/opt /opt && mount --bind {self.place}/lib /var/lib &&"
            f"PATH={self.stubs}:$PATH LOG={self.place}/log exec {self.node}/install-node.sh "
            + " ".join(options)
        )
        command = [needs_program("unshare"), "-rm", "bash", "-c", script]
        return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)

    @property
    def current(self) -> str:
        """Name of the directory to which /opt/skyhop points."""
        return (self.place / "opt" / "skyhop").readlink().name

    @property
    def versions(self) -> set[str]:
        """Names of the installed directories."""
        return {p.name for p in (self.place / "opt").iterdir() if not p.is_symlink()}

    def unit(self) -> str:
        """Return the text of the installed service."""
        return (self.place / "etc" / "systemd" / "system" / "skyhop-agent.service").read_text()


@pytest.mark.soak
def test_the_installer_of_a_node(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    write_wheels(machine.node, "1.0", machine="sparc64")
    done = machine.install("--no-packages")
    assert (done.returncode, machine.versions) == (1, set())
    assert f"has 0 wheels of skyhop for {platform.machine()}" in done.stderr

    write_wheels(machine.node, "1.0")
    done = machine.install("--dish", "192.168.100.1:9200", "--interface", "eth0")
    assert done.returncode == 0, done.stderr
    assert "skyhop 1.0 is installed" in done.stdout
    assert "enrol NODE.invitation --state /var/lib/skyhop-agent" in done.stdout
    options = "--state /var/lib/skyhop-agent --dish 192.168.100.1:9200 --interface eth0"
    started = f"ExecStart=/opt/skyhop/bin/python -m skyhop_testbed.launcher {options}\n"
    assert started in machine.unit()
    log = (tmp_path / "log").read_text()
    assert "python3-venv" in log
    assert "systemctl enable systemd-time-wait-sync.service" in log
    assert (tmp_path / "lib" / "skyhop-agent").stat().st_mode & 0o777 == 0o700
    first = machine.current

    # An upgrade keeps the service's options, and the former version. A service of an earlier
    # installer gets the launcher.
    unit = tmp_path / "etc" / "systemd" / "system" / "skyhop-agent.service"
    earlier = "/opt/skyhop/bin/skyhop testbed agent"
    unit.write_text(unit.read_text().replace(started.partition(" --")[0][10:], earlier))
    assert f"ExecStart={earlier} {options}\n" in machine.unit()
    write_wheels(machine.node, "1.1")
    done = machine.install("--no-packages")
    assert "skyhop 1.1 is installed" in done.stdout, done.stderr
    assert started in machine.unit()
    second = machine.current
    assert machine.versions == {first, second}

    # A version that does not start, or cannot be installed, leaves the present one.
    write_wheels(machine.node, "1.2", works=False)
    done = machine.install("--no-packages")
    assert done.returncode == 1
    assert "the old one stays in use" in done.stderr
    (wheel,) = machine.node.glob("skyhop-1*.whl")
    wheel.write_bytes(b"damaged")
    assert machine.install("--no-packages").returncode != 0
    assert (machine.current, machine.versions) == (second, {first, second})

    done = machine.install("--back")
    assert "skyhop 1.0 is in use again" in done.stdout, done.stderr
    assert machine.current == first
    write_wheels(machine.node, "1.3")
    assert machine.install("--no-packages").returncode == 0
    assert machine.versions == {first, machine.current}
    assert (tmp_path / "log").read_text().count("useradd") == 1
