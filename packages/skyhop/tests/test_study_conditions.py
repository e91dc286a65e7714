"""Conditions of a study's runs: in the terminal, as JSON, and on its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Skyhop

from skyhop.study import load_study, run_study
from skyhop.study.conditions import Condition, conditions_of
from skyhop.study.metrics import QUEUES

_FLOW = [{"cc": "cubic"}]


def study(*axes: dict[str, Any], **scenario: Any) -> dict[str, Any]:
    base = {
        "path": {"kind": "fixed", "rtt": "40 ms"},
        "link": {"rate": "10 Mbit/s", "queue": "1 BDP"},
        "run": {"duration": "2 s"},
        "flow": _FLOW,
    }
    return {"title": "T", "question": "?", "repeats": 1, "keep": "rows",
            "scenario": base | scenario, "axis": list(axes)}  # fmt: skip


def axis(name: str, key: str, *values: Any) -> dict[str, Any]:
    return {"name": name, "key": key, "values": list(values)}


def rows(content: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Return runs and value of each condition of a study that did not run, by name."""
    loaded = load_study(content)
    return by_name(conditions_of(loaded, list(loaded.runs())))


def by_name(conditions: list[Condition]) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for condition in conditions:
        found.setdefault(condition.name, []).append((condition.runs, condition.value))
    return found


def test_what_all_runs_share_is_one_row() -> None:
    assert rows(study(axis("cc", "flow.0.cc", "cubic", "bbr"))) == {
        "path": [("all", "fixed, RTT 40 ms")],
        "rate": [("all", "10 Mbit/s")],
        "loss": [("all", "0 %")],
        "queue discipline": [("all", "fifo")],
        "queue": [("all", "1 BDP")],
        "duration": [("all", "2 s")],
        "engine": [("all", "sim")],
    }


def test_what_an_axis_varies_has_a_row_per_value_and_long_ones_a_range() -> None:
    few = axis("loss", "link.loss", "0 %", "1 %")
    many = axis("rate", "link.rate", *(f"{rate} Mbit/s" for rate in (20, 5, 900, 40, 60, 80)),
                "1 Gbit/s")  # fmt: skip
    kinds = {"PIE": "pie", "FQ": "fq_codel"}
    points = {
        f"{name}{', ECN' if ecn else ''}": {"link.qdisc": {"kind": kind, "ecn": ecn}}
        for name, kind in kinds.items()
        for ecn in (False, True)
    }
    found = rows(study(few, many, {"name": "qdisc", "points": points}))
    assert found["loss"] == [("loss = 0 %", "0 %"), ("loss = 1 %", "1 %")]
    assert found["rate"] == [("all", "5 Mbit/s to 1 Gbit/s (7 values)")]
    assert found["queue discipline"] == [
        ("qdisc = PIE", "pie"), ("qdisc = PIE, ECN", "pie (ecn)"),
        ("qdisc = FQ", "fq_codel (no ecn)"), ("qdisc = FQ, ECN", "fq_codel"),
    ]  # fmt: skip


def test_a_condition_of_some_runs_says_that_the_others_lack_it() -> None:
    def rate_back(*rates: int) -> list[tuple[str, str]]:
        some = {f"{rate}": {"link.back.rate": f"{rate} Mbit/s"} for rate in rates}
        points = {"no": {"link.loss": "0 %"}, **some}
        return rows(study({"name": "back", "points": points}))["rate back"]

    assert rate_back(1) == [("back = no", "none"), ("back = 1", "1 Mbit/s")]
    merged = "1 Mbit/s to 7 Mbit/s (7 values); none in the others"
    assert rate_back(*range(1, 8)) == [("all", merged)]


def test_losses_in_bursts_have_their_keys() -> None:
    bursts = {"kind": "gilbert-elliott", "good": "9 s", "bad": "1 s"}
    points = {"alone": {"link.loss": "1 %"}, "bursts": {"link.loss": bursts}}
    links = {"a": {"loss": {**bursts, "bad_loss": "50 %"}}}
    found = rows(study({"name": "loss", "points": points}, links=links))
    assert [value for _, value in found["loss"]] == [
        "1 %", "gilbert-elliott (bad 1 s, bad_loss 100 %, good 9 s, good_loss 0 %)",
    ]  # fmt: skip
    ((_, further),) = found["link a"]
    kind = "gilbert-elliott"
    assert further.endswith(f"loss {kind} (bad 1 s, bad_loss 50 %, good 9 s, good_loss 0 %)")


def test_a_discipline_by_its_name_alone_is_told_from_one_with_other_parameters() -> None:
    front = {"kind": "fifo", "drop": "front"}
    qdiscs: dict[str, Any] = {
        "tail": "fifo", "front": front, "time": {**front, "max_sojourn": "90 ms"},
        "codel": "codel", "marks": {"kind": "codel", "ecn": True},
    }  # fmt: skip
    points = {name: {"link.qdisc": qdisc} for name, qdisc in qdiscs.items()}
    assert rows(study({"name": "q", "points": points}))["queue discipline"] == [
        ("q = tail", "fifo"), ("q = front", "fifo (drop front)"),
        ("q = time", "fifo (drop front, max_sojourn 90 ms)"),
        ("q = codel", "codel"), ("q = marks", "codel (ecn)"),
    ]  # fmt: skip


def test_paths_name_constellation_relay_and_places_or_the_file() -> None:
    places = {"from": "San Diego", "to": "New York", "relay": "bent-pipe"}
    points = {
        "computed": {"path": places},
        "fixed": {"path": {"kind": "fixed", "rtt": "9 ms"}},
        "trace": {"path": {"kind": "trace", "file": "a.parquet", "offset": "30 s"}},
    }
    content = study({"name": "path", "points": points}, link={"queue": "1 BDP"})
    del content["scenario"]["path"]
    found = rows(content)
    arrow = "\N{RIGHTWARDS ARROW}"
    assert found["path"] == [
        ("path = computed", f"starlink-shell1, bent-pipe, San Diego {arrow} New York"),
        ("path = fixed", "fixed, RTT 9 ms"),
        ("path = trace", "a.parquet, from 30 s on"),
    ]
    assert found["handovers"][0] == ("path = computed", "outage leoem")
    (_, measured), (_, lost) = found["rate"][-1], found["loss"][-1]
    assert measured.startswith("of the path file, else ")
    assert lost == "of the path file, else 0 %"
    given = load_study(content, sets=["link.rate=7 Mbit/s"])
    assert by_name(conditions_of(given, list(given.runs())))["rate"] == [("all", "7 Mbit/s")]


def test_outages_in_the_middle_of_a_path_are_named() -> None:
    places = {"from": "San Diego", "to": "New York", "relay": "bent-pipe"}
    assert rows(study(axis("compat", "path.compat", "none", "leoem"), path=places))[
        "handovers"
    ] == [
        ("compat = none", "outage leoem"),
        ("compat = leoem", "outage leoem, intermediate 25 ms"),
    ]


def test_further_links_that_are_alike_are_one_row() -> None:
    link = {"rate": "1 Gbit/s", "queue": "9 packets", "loss": "1 %"}
    content = study(links={"a": link, "b": link, "c": {**link, "rate": "2 Gbit/s"}})
    content["scenario"]["flow"] = [{"cc": "cubic", "via": ["path", "a", "b", "c"]}]
    found = rows(content)
    assert found["link a, b"] == [("all", "1 Gbit/s, fifo, queue 9 packets, loss 1 %")]
    assert found["link c"] == [("all", "2 Gbit/s, fifo, queue 9 packets, loss 1 %")]


def test_the_queue_is_the_simulated_one_also_without_run_directories(tmp_path: Path) -> None:
    varied = axis("rtt", "path.rtt", "40 ms", "80 ms")
    done = run_study(load_study(study(varied)), tmp_path / "out", jobs=1)
    assert by_name(list(done.conditions))["queue"] == [
        ("rtt = 40 ms", "1 BDP = 50.0 kB, 33 packets (10 Mbit/s x 40.0 ms)"),
        ("rtt = 80 ms", "1 BDP = 100 kB, 66 packets (10 Mbit/s x 80.0 ms)"),
    ]
    assert QUEUES not in done.results.frame.columns
    both = study(varied, axis("queue", "link.queue", "1 BDP", "2 BDP"))
    done = run_study(load_study(both), tmp_path / "both", jobs=1)
    assert by_name(list(done.conditions))["queue"] == [
        ("all", "1 BDP, 2 BDP = 50.0 kB to 200 kB, 33 to 132 packets")
    ]


@pytest.mark.usefixtures("pictures")
def test_terminal_json_and_page_show_the_conditions(skyhop: Skyhop, tmp_path: Path) -> None:
    text = """
        title = "T"
        question = "?"
        [scenario]
        path = { kind = "fixed", rtt = "40 ms" }
        link = { rate = "10 Mbit/s", queue = "1 BDP" }
        run = { duration = "1 s" }
        flow = [{ cc = "cubic" }]
    """
    (tmp_path / "s.toml").write_text(text)
    shown = skyhop("study", "show", "s.toml")
    assert [line.split() for line in shown.stdout.splitlines() if line.startswith("queue ")] == [
        ["queue", "discipline", "all", "fifo"], ["queue", "all", "1", "BDP"],
    ]  # fmt: skip
    described = json.loads(skyhop("study", "show", "s.toml", "--json").stdout)
    assert {"condition": "rate", "runs": "all", "value": "10 Mbit/s"} in described["conditions"]
    done = skyhop("study", "run", "s.toml", "-o", "out")
    assert done.returncode == 0, done.stderr
    assert "= 50.0 kB, 33 packets" in " ".join(done.stdout.split())
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "Conditions of the runs" in page
    assert "1 BDP = 50.0 kB, 33 packets (10 Mbit/s x 40.0 ms)" in page
