"""The three packages, their commands and their extras; names of Cargo's profiles."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer
from conftest import ROOT, Skyhop

from skyhop import install
from skyhop.cli import commands, packages
from skyhop.errors import RunError
from skyhop_testbed.addresses import is_loopback


def project_of(package: str) -> dict[str, Any]:
    """Return the table [project] of a package's pyproject.toml."""
    text = (ROOT / "packages" / package / "pyproject.toml").read_text("utf-8")
    project: dict[str, Any] = tomllib.loads(text)["project"]
    return project


def test_a_missing_package_is_named_with_the_extra_that_installs_it(skyhop: Skyhop) -> None:
    error = ModuleNotFoundError("No module named 'grpc'", name="grpc")
    with (
        mock.patch.object(commands, "_app_for", side_effect=error),
        mock.patch.object(sys, "argv", ["skyhop", "testbed", "nodes"]),
    ):
        done = skyhop("testbed", "nodes")
    assert done.returncode == 1
    assert done.stderr == (
        "skyhop: the Python package grpc is not installed: run make setup in the checkout\n"
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
    with pytest.raises(RunError, match=r"testbed comes with skyhop-testbed, .*: run make"):
        found["testbed"](None)


EXTRAS = [
    f"{name}[{extra}]" if extra else name
    for name in ("skyhop-testbed", "skyhop-lab")
    for extra in ("", *project_of(name).get("optional-dependencies", ()))
]


@pytest.mark.parametrize("package", EXTRAS)
def test_what_to_run_installs_the_package_in_a_checkout_and_from_wheels(
    package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name, _, extra = package.rstrip("]").partition("[")
    said = install.how_to_install(package)
    if said == "make setup in the checkout":
        set_up = (ROOT / "scripts" / "setup.sh").read_text("utf-8")
        found = re.search(rf"dev\).+?MEMBERS=\"[^\"]*{name}(\[([\w,]+)\])?", set_up, re.DOTALL)
        assert found
        assert extra in ("", *(found[2] or "").split(","))
    else:
        assert said.endswith(f"-e 'packages/{package}' in the checkout")
    monkeypatch.setattr(install, "_CHECKOUT", tmp_path)
    line = install.how_to_install(package).removesuffix(
        " where the wheels of skyhop are (make wheel builds them)"
    )
    command, word, *files = shlex.split(line)
    assert (command, word) == ("pip", "install")
    version = project_of(name)["version"]
    assert files[-1] == f"{name.replace('-', '_')}-{version}-py3-none-any.whl" + (
        f"[{extra}]" if extra else ""
    )
    # A package of ours that the extra needs is a file as well: pip must not look for it elsewhere.
    needed = project_of(name).get("optional-dependencies", {}).get(extra, [])
    ours = [each.partition("=")[0] for each in needed if each.startswith("skyhop")]
    assert files[:-1] == [f"{each.replace('-', '_')}-{version}-py3-none-any.whl" for each in ours]


FROM_AN_INDEX = re.compile(
    r"\bpip\s+install\s+(?:-\S+\s+)*['\"]?(skyhop(?:[-_](?:testbed|lab))?(?![\w.*/-])|\{)"
)
"""A line that installs skyhop by a name, or by one that the program fills in."""


def test_no_page_and_no_message_installs_skyhop_from_an_index() -> None:
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/**/*.md")]
    files += [*ROOT.glob("examples/**/*"), *ROOT.glob("scripts/**/*"), ROOT / "Containerfile"]
    files += [file for file in ROOT.glob("packages/**/*.py") if "tests" not in file.parts]
    found = {
        f"{file.relative_to(ROOT)}: {match[0]}"
        for file in files
        if file.is_file() and file.suffix != ".pyc"
        for match in FROM_AN_INDEX.finditer(file.read_text("utf-8", errors="replace"))
    }
    # The only place that fills in names gives files of wheels.
    assert found == {"packages/skyhop/skyhop/install.py: pip install {"}


def test_the_pages_name_the_wheels_of_this_version() -> None:
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/README.md")]
    named = {
        name for page in pages for name in re.findall(r"skyhop\w*-(\d[\w.]*)-", page.read_text())
    }
    assert named == {version}


def test_the_extra_of_the_message_about_ray_is_the_packages() -> None:
    (wanted,) = project_of("skyhop")["optional-dependencies"]["ray"]
    texts = [ROOT / "docs/how-to/studies.md", ROOT / "packages/skyhop/skyhop/study/cluster.py"]
    assert all(f"pip install '{wanted}'" in text.read_text("utf-8") for text in texts)


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
        if option.metavar == "HOST:PORT" and option.default
    }
    assert {"skyhop testbed serve --users", "skyhop dish serve --listen"} <= {*found}
    assert [name for name, address in found.items() if not is_loopback(address)] == []


def test_every_command_that_draws_a_figure_has_its_width_height_and_footer() -> None:
    of_commands: dict[str, set[str]] = {}
    drawing = re.compile(r"PNG, SVG or PDF|Figure of")
    for words, option in _options(typer.main.get_command(commands.complete_app())):
        names = of_commands.setdefault(words, set())
        help_text = getattr(option, "help", None) or ""
        names |= {option.name} | ({"figure"} if drawing.search(help_text) else set())
    drawn = {words: names for words, names in of_commands.items() if names & {"figure", "width"}}
    assert {"skyhop path compute", "skyhop signal timing", "skyhop dish map"} <= {*drawn}
    shape = {"width", "height", "footer"}
    assert [words for words, names in drawn.items() if not shape <= names] == []


def test_no_default_in_the_code_listens_on_all_addresses() -> None:
    everywhere = re.compile(r"""= *["'](?:0\.0\.0\.0|\[?::\]?):\d+["']""")
    files = [
        *ROOT.glob("packages/*/skyhop*/**/*.py"),
        *ROOT.glob("crates/*/src/**/*.rs"),
        *ROOT.glob("examples/**/*.toml"),
    ]
    assert len(files) > 500
    assert [file for file in files if everywhere.search(file.read_text("utf-8"))] == []
