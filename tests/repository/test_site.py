"""The documentation: `skyhop docs`, and the pages that scripts/docs generates."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import ROOT, Skyhop

from skyhop import _core
from skyhop.cli.docs import find_page
from skyhop.data import shipped
from skyhop.errors import InputError

SCENARIO = json.loads((ROOT / "docs" / "scenario.schema.json").read_text("utf-8"))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a small site, which `skyhop docs` takes for its own."""
    pages = (
        "index", "how-to/index", "how-to/telemetry", "reference/commands/telemetry",
        "reference/python", "how-to/python",
    )  # fmt: skip
    for name in pages:
        file = tmp_path / "site" / f"{name}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name, "utf-8")
    monkeypatch.setattr(shipped, "site_directory", lambda: tmp_path / "site")
    return tmp_path / "site"


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("index", "index"),
        ("how-to", "how-to/index"),
        ("telemetry", "how-to/telemetry"),
        ("reference/commands/telemetry", "reference/commands/telemetry"),
        ("docs/how-to/python.md", "how-to/python"),
    ],
)
def test_a_page_is_found_by_its_name(site: Path, name: str, page: str) -> None:
    assert find_page(site, name) == site / f"{page}.html"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("nothing", 'no page "nothing"'), ("python", "give one of how-to/python, reference/python")],
)
def test_what_is_no_page_is_told(site: Path, name: str, reason: str) -> None:
    with pytest.raises(InputError, match=re.escape(reason)):
        find_page(site, name)


def test_docs_opens_the_page_and_prints_its_file(
    site: Path, skyhop: Skyhop, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: bool(opened.append(address)))
    done = skyhop("docs", "telemetry")
    assert done.returncode == 0
    assert done.stdout == f"{site}/how-to/telemetry.html\n"
    assert opened == [f"file://{site}/how-to/telemetry.html"]
    assert "open that file in one" in done.stderr
    assert skyhop("docs", "--path").stdout == f"{site}/index.html\n"
    assert len(opened) == 1


def test_a_checkout_without_the_site_says_which_command_builds_it(
    skyhop: Skyhop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "packages" / "skyhop" / "skyhop"
    monkeypatch.setattr("skyhop.data.shipped._PACKAGE", package)
    done = skyhop("docs")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "skyhop: docs: the site is not built here: run make docs in the checkout"
    ]
    (package / "site").mkdir(parents=True)
    (package / "site" / "index.html").touch()
    assert skyhop("docs", "--path").stdout.endswith("/site/index.html\n")


def test_every_key_of_a_scenario_has_a_section() -> None:
    from schema_pages import applications_page, qdiscs_page, scenario_page

    page = scenario_page(SCENARIO)
    for section in SCENARIO["properties"]:
        assert f"{{#{section}}}" in page, section
    for key in ("path.relay", "link.queue", "flow.N.cc", "signal.lead", "path.jitter.every"):
        assert f"\n### {key} {{#" in page, key
    anchors = re.findall(r"\{#(\S+)\}", page)
    assert len(anchors) == len(set(anchors))
    entries = _core.list_qdiscs()
    queues = qdiscs_page(SCENARIO)
    for entry in entries:
        for name, _ in entry.parameters:
            assert f"### {entry.name}.{name} " in queues, (entry.name, name)
    apps = {entry.name: entry.description for entry in _core.list_apps()}
    shown = applications_page(SCENARIO, apps)
    assert [name for name in apps if f"\n## {name}\n" not in shown] == []


def test_every_key_of_a_study_says_what_it_is() -> None:
    from schema_pages import read, study_page

    page = study_page(read(ROOT / "docs" / "study.schema.json"))
    assert all(f"## [{table}]" in page for table in ("prediction", "video", "browser"))
    sections = re.split(r"\n### ", page.partition("\n## [prediction]")[0])[1:]
    assert len(sections) > 100
    silent = [s.split(" ")[0] for s in sections if len(s.split("\n\n## ")[0].split("\n\n")) < 3]
    assert silent == []


def test_every_command_has_a_section_with_its_options() -> None:
    from command_pages import command_pages

    pages = command_pages()
    assert {"index", "sim", "live", "testbed", "docs"} <= set(pages)
    assert "`--set KEY=VALUE`" in pages["sim"]
    assert "## skyhop cc load {#skyhop-cc-load}" in pages["cc"]
    assert "[skyhop cc load](cc.md#skyhop-cc-load)" in pages["index"]


def test_every_public_name_of_the_package_has_a_section() -> None:
    from python_page import python_page

    import skyhop as sh

    page = python_page()
    for name in sh.__all__:
        assert name == "__version__" or f"### skyhop.{name} {{#" in page, name


@pytest.mark.integration
def test_every_congestion_control_has_its_parameters() -> None:
    """The tables are compiled, by a compiler of its own."""
    from cc_page import cc_page
    from list_pages import cards

    from needs import needs_program

    needs_program("cc")
    page = cc_page(cards())
    for name, _ in _core.own_cc():
        assert f"## {name} {{#{name}}}" in page, name
    assert re.search(r"^\| `beta` \| `0\.7\d*` \| ", page, re.MULTILINE)
    assert re.search(r"^\| `probe_wait` \| `2000` ms \| ", page, re.MULTILINE)
    for name, _ in _core.policy_cards():
        assert f"| `{name}` |" in page, name


@pytest.mark.parametrize(("page", "most"), [("README.md", 350), ("docs/index.md", 400)])
def test_the_first_pages_stay_short(page: str, most: int) -> None:
    assert 200 < len((ROOT / page).read_text("utf-8").split()) <= most
