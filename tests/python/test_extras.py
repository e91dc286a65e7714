"""Messages of commands whose package, an extra, is not installed."""

from __future__ import annotations

from unittest import mock

from conftest import Skyhop

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
