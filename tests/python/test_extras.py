"""Packages and build profiles: messages about missing extras, names of Cargo's profiles."""

from __future__ import annotations

import re
import tomllib
from unittest import mock

from conftest import ROOT, Skyhop

from skyhop.cli import commands


def test_a_missing_package_is_named_with_the_extra_that_installs_it(skyhop: Skyhop) -> None:
    error = ModuleNotFoundError("No module named 'grpc'", name="grpc")
    with mock.patch.object(commands, "app", side_effect=error):
        done = skyhop("testbed", "nodes")
    assert done.returncode == 1
    assert done.stderr == (
        "skyhop: the Python package grpc is not installed: the testbed and terminals need it; "
        "run pip install 'skyhop[testbed]', or make setup in a checkout\n"
    )


def test_every_build_names_a_profile_of_cargo() -> None:
    profiles = {"dev", "release", *tomllib.loads((ROOT / "Cargo.toml").read_text())["profile"]}
    scripts = [ROOT / "Makefile", *(ROOT / "scripts").glob("*.sh")]
    text = "\n".join(file.read_text() for file in scripts)
    named = re.findall(r"--profile[ =]([a-z]+)|\bPROFILE=([a-z]+)|PROFILE:-([a-z]+)", text)
    assert {name for match in named for name in match if name} <= profiles
    assert named
