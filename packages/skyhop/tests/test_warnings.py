"""Warnings of runs: in the summary, on the terminal, and in reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Skyhop

import skyhop as sh
from skyhop.data.toml import toml_text

FIXED = {"kind": "fixed", "rtt": "40 ms"}
OVER = {"from": "Seattle", "to": "New York", "outage": "80 ms"}
UNTOLD = 'satcp: gets no handover announcements: [signal] source = "none"'


def warnings(path: dict[str, object], cc: str = "cubic", **more: object) -> list[str]:
    """Return the warnings of a short run over a path."""
    run = sh.sim({
        "path": path, "link": {"rate": "5 Mbit/s"}, "flow": [{"cc": cc}],
        "run": {"duration": "3 s"}, **more,
    })  # fmt: skip
    found: list[str] = run.summary["warnings"]
    return found


@pytest.mark.parametrize("cc", ["satcp", "satpipe"])
def test_a_control_without_its_announcements_warns(cc: str) -> None:
    (warning,) = warnings(FIXED, cc)
    assert warning.startswith(f'{cc}: gets no handover announcements: [signal] source = "none"')
    (warning,) = warnings(FIXED, cc, signal={"source": "path"})
    assert (
        warning == f"{cc}: gets no handover announcements: "
        '[signal] source = "path" finds none during the run'
    )


@pytest.mark.parametrize(("cc", "lead"), [("satcp", "500 ms"), ("satpipe", "1 s")])
def test_the_warning_says_what_to_type(cc: str, lead: str) -> None:
    handover = [{"at": "2 s", "rtt": "60 ms"}]
    (warning,) = warnings(FIXED, cc, change=handover)
    assert warning.endswith(f"; add --set signal.source=path --set signal.lead='{lead}'")
    sets = ["signal.source=path", f"signal.lead='{lead}'"]
    scenario = {"path": FIXED, "flow": [{"cc": cc}], "run": {"duration": "3 s"}, "change": handover}
    typed = sh.sim(scenario, sets=sets)
    assert typed.summary["warnings"] == []
    default = sh.sim(scenario, sets=sets[:1])
    assert default.info["scenario"]["signal"]["lead"] == lead
    assert default.summary["flows"] == typed.summary["flows"]


def test_the_longest_lead_that_a_sender_needs_is_the_default() -> None:
    def lead(*flows: dict[str, object]) -> str:
        scenario = {"path": FIXED, "flow": list(flows), "run": {"duration": "1 s"}}
        return str(sh.sim(scenario).info["scenario"]["signal"]["lead"])

    assert lead({"cc": "cubic"}) == "0 s"
    assert lead({"cc": "satcp"}, {"cc": "satpipe"}) == "1 s"
    assert lead({"cc": "satpipe", "satpipe": {"lead": "3 s"}}) == "3 s"


def test_tables_and_figures_mark_a_control_that_is_told_of_nothing(
    skyhop: Skyhop, tmp_path: Path
) -> None:
    from skyhop.analysis.flow_groups import flow_groups
    from skyhop.data.run_headers import read_run_headers

    for cc, more in (("satpipe", {}), ("cubic", {}), ("satcp", {"signal": {"source": "path"}})):
        scenario = {
            "path": FIXED,
            "link": {"rate": "5 Mbit/s"},
            "flow": [{"cc": cc}],
            "run": {"duration": "2 s"},
            "change": [{"at": "1 s", "rtt": "60 ms"}],
            **more,
        }
        (tmp_path / f"{cc}.toml").write_text(toml_text(scenario), "utf-8")
        done = skyhop("sim", f"{cc}.toml", "-o", cc)
        # In the sentence and in the table.
        assert done.stdout.count("told of") == 2 * (cc == "satpipe"), done.stdout
    runs = read_run_headers([tmp_path / name for name in ("satpipe", "cubic", "satcp")])
    names = [group.name for group in flow_groups(runs)]
    assert names[0].startswith("satpipe (")
    assert ["told of nothing" in name for name in names] == [True, False, False]
    skyhop("report", "satpipe", "cubic", "-o", "page.html")
    assert "satpipe (told of nothing)" in (tmp_path / "page.html").read_text("utf-8")


def test_values_of_the_user_that_replace_measured_ones_are_said(
    skyhop: Skyhop, tmp_path: Path
) -> None:
    (tmp_path / "drive.trace").write_text("".join(f"{ms}\n" for ms in range(1, 1000)), "ascii")
    sh.import_path(tmp_path / "drive.trace", "mahimahi", rtt="50 ms").write(tmp_path / "m.parquet")
    trace = {"kind": "trace", "file": str(tmp_path / "m.parquet"), "loop": True}
    assert warnings(trace, link={}) == []
    (warning,) = warnings(trace)
    assert warning.startswith(
        'link.rate = "5 Mbit/s" replaces the rate of the path file, whose mean'
    )
    study = tmp_path / "s.toml"
    scenario = {"path": trace, "link": {"rate": "5 Mbit/s"}, "flow": [{"cc": "cubic"}],
                "run": {"duration": "1 s"}}  # fmt: skip
    study.write_text(toml_text({"title": "", "question": "", "scenario": scenario}), "utf-8")
    assert warning in skyhop("study", "show", "s.toml").stderr
    own = toml_text({"title": "", "question": "", "scenario": scenario | {"link": {}}})
    study.write_text(own, "utf-8")
    assert "replaces" not in skyhop("study", "show", "s.toml").stderr


def test_a_control_with_announcements_or_without_need_does_not_warn() -> None:
    told = {"change": [{"at": "1 s", "rtt": "60 ms"}], "signal": {"source": "path"}}
    assert warnings(FIXED, "satcp", **told) == []
    assert warnings(FIXED, "cubic") == []


def test_a_control_with_its_own_schedule_does_not_warn() -> None:
    assert warnings(FIXED, "leocc") == []
    (warning,) = warnings(FIXED, flow=[{"cc": "leocc", "leocc": {"source": "announced"}}])
    assert warning.startswith("leocc: gets no handover announcements")


def test_announcements_are_about_the_link_of_the_path() -> None:
    (warning,) = warnings(
        FIXED,
        links={"other": {"rtt": "20 ms", "rate": "5 Mbit/s"}},
        change=[{"at": "1 s", "rtt": "60 ms"}],
        signal={"source": "path"},
        flow=[{"cc": "satcp", "via": ["other"]}, {"cc": "satcp"}],
    )
    assert "the link of [path], which it does not cross" in warning


def test_a_path_that_ends_before_the_run_warns(tmp_path: Path) -> None:
    sh.path("Seattle", "New York", relay="isl", duration="2 s").write(tmp_path / "short.parquet")
    short = {"kind": "trace", "file": str(tmp_path / "short.parquet")}
    (warning,) = warnings(short)
    assert warning.startswith("the path covers 2 s of the run's 3 s; its last state is kept")
    assert warnings({**short, "loop": True}) == []


def test_a_path_repeats_itself(tmp_path: Path) -> None:
    once = sh.path("Seattle", "New York", relay="isl", duration="2 s")
    once.write(tmp_path / "once.parquet")
    path = {"kind": "trace", "file": str(tmp_path / "once.parquet"), "loop": True}
    run = sh.sim({"path": path, "flow": [{"cc": "cubic"}], "run": {"duration": "5 s"}})
    copied = sh.read_path(run.directory / "path.parquet")
    assert copied.header["duration_ns"] == 5 * 10**9
    assert copied.frames["t_ns"].to_list() == [k * 10**9 for k in range(5)]
    delays = copied.frames["delay_ns"].to_list()
    assert delays[:2] == once.frames["delay_ns"].to_list()[:2]
    assert delays == [delays[k % 2] for k in range(5)]
    assert run.info["scenario"]["path"]["loop"]


ALONE = 'relay = "access" without access.profile is geometry alone'


@pytest.mark.parametrize(
    ("constellation", "relay", "expected"),
    [
        ("starlink-shell1", "access", ALONE),
        ("starlink-shell1", "starlink", ""),
        ("starlink-shell1", "isl", ""),
        ("kuiper", "isl", ""),
        ("kuiper", "bent-pipe", 'gateways = "starlink-gateways" are not known to serve kuiper'),
        ("kuiper", "starlink", 'gateways = "starlink-gateways" and pops = "starlink-pops" are not'),
        ("oneweb", "isl", "oneweb has no links between satellites"),
    ],
)
def test_paths_over_missing_parts_of_a_constellation_warn(
    constellation: str, relay: str, expected: str
) -> None:
    # The profile of relay "starlink" has rates, which a given one would replace with a note.
    link = {} if relay == "starlink" else {"rate": "5 Mbit/s"}
    # It has holes of its own, next to which an outage is an error.
    own = {"outage": "none"} if relay == "starlink" else {}
    found = warnings({**OVER, "constellation": constellation, "relay": relay, **own}, link=link)
    assert len(found) == bool(expected)
    assert all(text.startswith(expected) for text in found)
    trace = sh.path(constellation=constellation, relay=relay, from_="Seattle", to="New York",
                    duration="2 s")  # fmt: skip
    assert trace.notes == found


@pytest.mark.usefixtures("pictures")
def test_warnings_are_on_the_terminal_and_in_the_report(skyhop: Skyhop, tmp_path: Path) -> None:
    scenario = {
        "path": FIXED, "link": {"rate": "5 Mbit/s"}, "flow": [{"cc": "satcp"}],
        "run": {"duration": "2 s"},
    }  # fmt: skip
    (tmp_path / "x.toml").write_text(toml_text(scenario), "utf-8")
    for seed in (1, 2):
        done = skyhop("sim", "x.toml", "-o", f"run/seed-{seed}", "--seed", seed)
        assert done.stderr.count(f"warning: {UNTOLD}") == 1
    assert skyhop("sim", "x.toml", "-o", "other", "--set", "flow.0.cc=cubic").returncode == 0
    done = skyhop("report", "run", "other", "-o", "page.html")
    assert f"warning: seed-1, seed-2: {UNTOLD}" in done.stderr
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "satcp: gets no handover announcements" in page
    ends = ("--from", "Seattle", "--to", "New York", "--duration", "2 s", "-o", "p.parquet")
    computed = skyhop("path", "compute", *ends, "--relay", "isl", "--constellation", "oneweb")
    assert "warning: oneweb has no links between satellites" in computed.stderr


def test_durations_of_measurements_are_rounded_in_warnings(tmp_path: Path) -> None:
    rows = [(0, 40), (2_000_000_000, 60), (4_000_255_115, 60), (4_801_255_115, 60)]
    lines = [f"{1_700_000_000_000_000_000 + at_ns},{rtt_ms}" for at_ns, rtt_ms in rows]
    (tmp_path / "rtt.csv").write_text("\n".join(lines), "utf-8")
    sh.import_path(tmp_path / "rtt.csv", "csv").write(tmp_path / "rtt.parquet")
    trace = {"kind": "trace", "file": str(tmp_path / "rtt.parquet")}
    lasts_s = sh.read_path(tmp_path / "rtt.parquet").header["duration_ns"] / 1e9
    assert lasts_s != round(lasts_s, 3)
    (warning,) = warnings(trace, run={"duration": "1 s"})
    assert f"the whole path of {round(lasts_s, 3):g} s, whose mean base RTT is" in warning
    (warning,) = warnings(trace, run={"duration": "9 s"})
    assert warning.startswith(f"the path covers {round(lasts_s, 3):g} s of the run's 9 s; its last")
