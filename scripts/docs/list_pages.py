"""Documentation pages that list skyhop's data: constellations, films, studies, telemetry."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markup import code, page, sentence, table
from schema_pages import Schema, controllers_parts

ROOT = Path(__file__).resolve().parents[2]


def constellations_page() -> str:
    """Return the page of constellations, sites, relays and handover policies."""
    from skyhop import _core

    rows = [
        (
            code(e.name),
            e.satellites,
            span(e.altitudes_km),
            span(e.inclinations_deg),
            "yes" if e.isl else "no",
        )
        for e in _core.list_constellations()
    ]
    sources = [
        f"**{e.name}**: {sentence(e.description)} {e.source}" for e in _core.list_constellations()
    ]
    return page(
        "Constellations, sites and handover policies",
        "For everyone who computes a path: what a path can go over, with the source of each "
        "number.",
        "## Constellations\n\n"
        + table(
            ("constellation", "satellites", "altitude (km)", "inclination (deg)", "ISLs"), rows
        ),
        "A TOML file of the same form, `geo:LONGITUDE` and files of element sets work as well: "
        "[paths](../how-to/paths.md).",
        "### Sources\n\n" + "\n\n".join(sources),
        "## Sites\n\n" + entries(_core.list_sites()),
        "## Access profiles {#access-profiles}\n\n" + entries(_core.list_access()),
        "## Handover policies {#handover-policies}\n\n" + entries(_core.list_handovers()),
        "[Relays and handover policies](../explanation/relays-and-handovers.md) compares them.",
    )


def span(values: list[float]) -> str:
    """Return the range of values as text."""
    low, high = min(values), max(values)
    return f"{low:,g}" if low == high else f"{low:,g} - {high:,g}"


def entries(listed: list[Any]) -> str:
    """Return a table of names, descriptions and sources."""
    if all(entry.source == "built in" for entry in listed):
        return table(
            ("name", "what it is"), ((code(e.name), sentence(e.description)) for e in listed)
        )
    rows = ((code(e.name), sentence(e.description), e.source) for e in listed)
    return table(("name", "what it is", "source"), rows)


def video_page(schema: Schema) -> str:
    """Return the page of films, controllers and QoE models."""
    from skyhop import _core

    rows = [(f"[{e.name}](#{e.name})", sentence(e.description)) for e in _core.list_controllers()]
    return page(
        "Video: films, controllers, scores",
        "For everyone who plays films over a path: the films, the controllers with their "
        "parameters, and the scores.",
        "[Video over a path](../how-to/video.md) shows them at work.",
        "## Films\n\n" + entries(_core.list_films()),
        "## Qualities of experience\n\n" + entries(_core.list_qoes()),
        "## Controllers\n\n" + table(("controller", "what it does"), rows),
        *controllers_parts(schema),
    )


def cards() -> dict[str, Any]:
    """Return the policy cards that come with skyhop, each with the place of its weights."""
    from skyhop import _core

    found = {}
    for name, text in _core.policy_cards():
        card = tomllib.loads(text)
        ours = _core.policy_network(name) is not None
        found[name] = {
            **card,
            "weights": "come with skyhop" if ours else card["network"].get("published", "yours"),
        }
    return found


def rewards_page() -> str:
    """Return the page of rewards for training and of Linux profiles."""
    from skyhop import _core

    return page(
        "Rewards",
        "For everyone who trains a policy: the rewards of `skyhop policy train` and "
        "`skyhop_lab.gym`, per interval.",
        table(
            ("reward", "per interval"),
            ((code(name), sentence(about)) for name, about in _core.list_rewards()),
        ),
        "[Train a policy](../how-to/training.md) uses them.",
    )


def profiles_page() -> str:
    """Return the page of Linux profiles."""
    from skyhop import _core

    return page(
        "Linux profiles",
        "For everyone who compares the simulator with a kernel: the Linuxes whose TCP rules a "
        "simulated host can follow.",
        '`tcp.profile = "linux-6.12"` chooses one. Each row says how it differs from the next '
        "newer one.",
        entries(_core.list_profiles()),
        "`crates/tcp/src/rules.rs` holds each rule with the release that changed it.",
    )


def studies_page() -> str:
    """Return the page of studies and examples that come with skyhop."""
    from skyhop.data.shipped import list_examples

    studies = []
    for file in sorted((ROOT / "studies").glob("*.toml")):
        study = tomllib.loads(file.read_text("utf-8"))
        studies.append((code(file.stem), sentence(study["title"]), study.get("source", "")))
    examples = [(code(e.name), sentence(e.description)) for e in list_examples()]
    return page(
        "Studies and examples",
        "For everyone who wants a file to start from: the studies and the scenarios that come with "
        "skyhop.",
        "`skyhop study show NAME` prints what a study runs, `skyhop study run NAME -o DIR` runs "
        "it; `skyhop sim NAME -o DIR` "
        "and `skyhop live NAME -o DIR` run an example, and `skyhop list examples` says where their "
        "files are.",
        "## Examples\n\n" + table(("example", "what it shows"), examples),
        "## Studies\n\n" + table(("study", "title", "source"), studies),
    )


PERIODS = {
    "dish": "the terminal",
    "host": "counters of the node",
    "probe": "the node's own probe and flows",
    "orbit": "element sets",
    "model": "predictors",
    "clock": "the clock",
    "weather": "a weather source",
}


def telemetry_page() -> str:
    """Return the page of telemetry columns and of the formats that can be imported."""
    from skyhop.telemetry.fields import FIELDS
    from skyhop.telemetry.importers import formats

    sections = []
    for source, shown in PERIODS.items():
        rows = [
            (code(f.name), str(f.type.value), f.unit, sentence(f.help) if f.help else "")
            for f in FIELDS
            if f.origin.value == source
        ]
        period = next(f.period_s for f in FIELDS if f.origin.value == source)
        sections.append(
            f"## From {shown} {{#{source}}}\n\nEvery {period:g} s.\n\n"
            + table(("field", "type", "unit", "meaning"), rows)
        )
    listed: Any = formats()
    importers = listed.values() if isinstance(listed, Mapping) else listed
    rows = [(code(i.name), i.description, i.basis) for i in importers]
    return page(
        "Telemetry fields",
        "For dish owners, testbed users and researchers: every column of telemetry, as files, "
        "triggers and pages name it, and "
        "the formats that skyhop imports.",
        "A value that is not known is null; `time_ns` is the end of the second in UTC. A terminal "
        "that does not answer has the "
        "`state` `DISH_UNREACHABLE`. A throughput is the traffic that there was, not the traffic "
        "that there could be. "
        "[Telemetry](../how-to/telemetry.md) says how to record and read it, "
        "[triggers](../testbed/triggers.md) how to act on it.",
        *sections,
        "## Formats that are imported {#formats}\n\n"
        '"Made after" says what a reader was compared with: files that were published, the code '
        "that writes them, or their "
        "documentation alone.\n\n" + table(("format", "what it is", "made after"), rows),
    )
