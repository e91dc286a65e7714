"""The three packages, their commands and their extras; names of Cargo's profiles."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any
from unittest import mock

import pytest
import typer
from conftest import ROOT, Skyhop

from skyhop.cli import commands, packages
from skyhop.errors import RunError
from skyhop_testbed.addresses import is_loopback


def test_a_missing_package_is_named_with_the_extra_that_installs_it(skyhop: Skyhop) -> None:
    error = ModuleNotFoundError("No module named 'grpc'", name="grpc")
    with (
        mock.patch.object(commands, "_app_for", side_effect=error),
        mock.patch.object(sys, "argv", ["skyhop", "testbed", "nodes"]),
    ):
        done = skyhop("testbed", "nodes")
    assert done.returncode == 1
    assert done.stderr == (
        "skyhop: the Python package grpc is not installed: run pip install skyhop-testbed, or make "
        "setup in a checkout\n"
    )


def test_a_command_of_a_package_that_is_missing_names_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: EntryPoints())
    app, policy = typer.Typer(), typer.Typer()
    packages.add_commands(app, {"policy": policy})
    found = {
        command.name: command.callback
        for command in (*app.registered_commands, *policy.registered_commands)
    }
    # A missing group stands for all commands in it.
    assert sorted(map(str, found)) == sorted(
        name.rpartition(".")[2]
        for name in packages.PACKAGES
        if name.partition(".")[0] == "policy" or "." not in name
    )
    with pytest.raises(RunError, match=r"testbed comes with skyhop-testbed, .* pip install skyhop"):
        found["testbed"](None)


@pytest.mark.parametrize("module", ["nowhere", "skyhop_testbed.nowhere"])
def test_a_missing_module_of_skyhop_itself_is_not_taken_for_a_missing_package(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("testbed", f"{module}:app", packages.GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: EntryPoints([point]))
    app = typer.Typer()
    if module.startswith("skyhop_"):
        with pytest.raises(ModuleNotFoundError, match=module):
            packages.add_commands(app, {})
    else:
        packages.add_commands(app, {})
        assert "testbed" in {command.name for command in app.registered_commands}


def test_every_package_registers_the_commands_that_skyhop_says_it_has() -> None:
    registered = {
        name: f"{project['name']}"
        for project in map(project_of, ("skyhop-testbed", "skyhop-lab"))
        for name in project["entry-points"][packages.GROUP]
    }
    assert registered == {
        name: package.partition("[")[0] for name, package in packages.PACKAGES.items()
    }


def test_skyhop_has_twelve_dependencies_at_most_and_the_others_its_version() -> None:
    assert len(project_of("skyhop")["dependencies"]) <= 12
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    for name in ("skyhop-testbed", "skyhop-lab"):
        project = project_of(name)
        assert project["version"] == version
        assert f"skyhop=={version}" in project["dependencies"]


def project_of(package: str) -> dict[str, Any]:
    """Return the table [project] of a package's pyproject.toml."""
    text = (ROOT / "packages" / package / "pyproject.toml").read_text("utf-8")
    project: dict[str, Any] = tomllib.loads(text)["project"]
    return project


def test_every_build_names_a_profile_of_cargo() -> None:
    profiles = {"dev", "release", *tomllib.loads((ROOT / "Cargo.toml").read_text())["profile"]}
    scripts = [ROOT / "Makefile", *(ROOT / "scripts").glob("*.sh")]
    text = "\n".join(file.read_text() for file in scripts)
    named = re.findall(r"--profile[ =]([a-z]+)|\bPROFILE=([a-z]+)|PROFILE:-([a-z]+)", text)
    assert {name for match in named for name in match if name} <= profiles
    assert named


def _options(command: Any, words: str = "skyhop") -> Iterator[tuple[str, Any]]:
    """Yield all options of a command and of the commands in it, each with the command's words."""
    yield from ((words, option) for option in command.params)
    for name, inner in getattr(command, "commands", {}).items():
        yield from _options(inner, f"{words} {name}")


def test_by_default_every_service_listens_on_this_machine_alone() -> None:
    found = {
        f"{words} --{option.name}": option.default
        for words, option in _options(typer.main.get_command(commands.complete_app()))
        if option.metavar == "HOST:PORT" and option.default is not None
    }
    assert {"skyhop testbed serve --users", "skyhop dish serve --listen"} <= {*found}
    assert [name for name, address in found.items() if not is_loopback(address)] == []


def test_no_default_in_the_code_listens_on_all_addresses() -> None:
    everywhere = re.compile(r"""= *["'](?:0\.0\.0\.0|\[?::\]?):\d+["']""")
    files = [
        *ROOT.glob("packages/*/skyhop*/**/*.py"),
        *ROOT.glob("crates/*/src/**/*.rs"),
        *ROOT.glob("examples/**/*.toml"),
    ]
    assert len(files) > 500
    assert [file for file in files if everywhere.search(file.read_text("utf-8"))] == []
