"""Files for users who get skyhop: the citation, the image, the wheels."""

from __future__ import annotations

import platform
import re
import subprocess
import tomllib

import pytest
import yaml
from conftest import ROOT

from needs import missing, needs_program

VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text("utf-8"))["workspace"]["package"]["version"]
CONTAINERFILE = (ROOT / "Containerfile").read_text("utf-8")


def test_the_citation_has_the_version_and_no_invented_identifier() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    # The keys that the format 1.2.0 requires.
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["authors"] == [{"name": "The skyhop authors"}]
    assert citation["version"] == VERSION
    assert {"doi", "identifiers", "date-released"} & citation.keys() == set()


def test_the_user_of_the_image_is_not_root() -> None:
    instructions = re.findall(r"^([A-Z]+) +(.*)$", CONTAINERFILE, re.MULTILINE)
    users = [words for name, words in instructions if name == "USER"]
    assert users
    assert "root" not in users
    # Nothing but dist/ is sent to the builder; the checkout has gigabytes.
    assert (ROOT / ".dockerignore").read_text("utf-8").split() == ["*", "!dist"]


@pytest.mark.soak
def test_the_image_is_built_from_the_wheels_and_runs() -> None:
    podman = needs_program("podman", "podman")
    if not list((ROOT / "dist").glob(f"skyhop-*_{platform.machine()}.whl")):
        missing("wheel", "dist/ has no wheel for this machine")
    base = re.findall("^FROM (.*)$", CONTAINERFILE, re.MULTILINE)[0]
    words = [podman, "run", "--rm", base, "true"]
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    if tried.returncode:
        missing("podman", f"it cannot fetch or run {base}: {tried.stderr.strip()[-300:]}")
    built = subprocess.run(
        [podman, "build", "--quiet", "--tag", "skyhop-test", str(ROOT)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr

    def inside(*words: str) -> str:
        return subprocess.run(
            [podman, "run", "--rm", *words], capture_output=True, text=True, check=True
        ).stdout

    try:
        assert inside("skyhop-test", "--version") == f"skyhop {VERSION}\n"
        assert "testbed" in inside("skyhop-test", "testbed", "--help")
        assert inside("--entrypoint", "id", "skyhop-test", "--user").strip() != "0"
    finally:
        subprocess.run([podman, "rmi", "--force", "skyhop-test"], capture_output=True, check=False)
