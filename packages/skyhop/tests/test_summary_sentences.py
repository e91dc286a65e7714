"""Sentences that open reports: numbers, grammar, and the flows averaged under one name."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Skyhop

from skyhop.analysis.comparison import compare
from skyhop.analysis.flow_groups import flow_groups, link_mbps
from skyhop.analysis.path_timeline import path_timeline
from skyhop.analysis.run_page import runs_page
from skyhop.analysis.sentence_words import counted, listed
from skyhop.analysis.study_sentences import RankedValues, StudyOutcome, study_sentences
from skyhop.analysis.summary_sentences import PathFacts, run_summaries
from skyhop.data.reading import read_runs
from skyhop.data.run_headers import RunHeader
from synthetic_run import SyntheticRun

HANDOVERS = {"end": 2, "intermediate": 4, "reroute": 0}
NONE = {"end": 0, "intermediate": 0, "reroute": 0}
LINK = {"rate": "150 Mbit/s", "qdisc": "fifo", "queue": "1 BDP", "loss": "0 %"}


def flow(number: int = 0, cc: str = "cubic", mbps: float = 120.0, **changes: Any) -> dict[str, Any]:
    """Return a flow's entry of summary.json."""
    return {
        "id": number, "cc": cc, "start_s": 0.0, "stop_s": 20.0, "goodput_bps": mbps * 1e6,
        "srtt_mean_us": 49_400, "rtt_p95_us": 66_200, "base_rtt_mean_us": 40_900,
        "cwnd_mean_packets": 600.0, "retransmits": 10, "sent_packets": 1000, "completion_s": None,
        **changes,
    }  # fmt: skip


def run(
    *flows: dict[str, Any],
    name: str = "a",
    link: dict[str, Any] | None = None,
    scenario: dict[str, Any] | None = None,
    **summary: Any,
) -> RunHeader:
    """Return a run of 20 s with these flows."""
    of_link = {"utilisation": 0.9, "backlog_mean_bytes": 0, "drops": {}, "marks": 0}
    made = {
        "engine": "sim", "seed": 1, "virtual_s": 20.0, "wall_s": 1.0, "flows": list(flows),
        "probes": [], "apps": [], "link": of_link, "handovers": HANDOVERS, "warnings": [],
    } | summary  # fmt: skip
    whole = {
        "link": LINK if link is None else link,
        "flow": [{"cc": one["cc"]} for one in flows],
        **(scenario or {}),
    }
    return RunHeader(Path(name), name, {"scenario": whole}, made)


def drops(**counts: int) -> dict[str, Any]:
    """Return a link's part of the summary with these losses."""
    return {"utilisation": 0.9, "backlog_mean_bytes": 0, "drops": counts, "marks": 0}


def sentences(*runs: RunHeader, **facts: Any) -> tuple[str, ...]:
    """Return the only summary's sentences."""
    (summary,) = run_summaries(runs, [PathFacts(**facts)] * len(runs))
    assert len(summary.sentences) == 3
    for sentence in summary.sentences:
        assert re.fullmatch(r"[A-Z].*[^.;,: ]\.", sentence), sentence
        assert not re.search(r"  |None|nan|\b1 \w+s\b(?! and)|\(\)", sentence), sentence
    return summary.sentences


def test_one_flow_has_its_share_delay_and_losses() -> None:
    lost = drops(queue=49, outage=255, dismantled=309)
    first, second, third = sentences(run(flow()), outage_s=0.06)
    assert first == "In 20 s, cubic carried 120 Mbit/s, 80 % of the link's 150 Mbit/s."
    assert second == (
        "Its RTT was 49.4 ms on average and 66.2 ms at the 95th percentile, against 40.9 ms for "
        "the path alone."
    )
    assert (
        third == "The path had 6 handovers and was down for 60.0 ms in all; no packets were lost."
    )
    assert sentences(with_link(run(flow()), lost))[2] == (
        "The path had 6 handovers; 613 packets were lost: 309 in flight on a route that a handover "
        "took down, 255 while the path was down and 49 at the queue."
    )


def with_link(head: RunHeader, link: dict[str, Any]) -> RunHeader:
    """Return a run whose summary has this link."""
    return replace(head, summary={**head.summary, "link": link})


def test_singular_and_zero() -> None:
    one = with_link(run(flow(), handovers={**NONE, "end": 1}), drops(queue=1))
    assert sentences(one)[2] == "The path had 1 handover; 1 packet was lost, at the queue."
    none = run(flow(mbps=0.0, srtt_mean_us=None, rtt_p95_us=None), handovers=NONE)
    assert sentences(none) == (
        "In 20 s, cubic carried 0 Mbit/s, 0 % of the link's 150 Mbit/s.",
        "No round trip was measured.",
        "The path had no handovers; no packets were lost.",
    )
    marked = with_link(run(flow()), {**drops(), "marks": 1})
    assert sentences(marked)[2].endswith("no packets were lost, and 1 packet was marked (ECN).")


def test_numbers_that_are_not_known_are_left_out() -> None:
    assert sentences(run(flow(rtt_p95_us=None, base_rtt_mean_us=0), link={}))[:2] == (
        "In 20 s, cubic carried 120 Mbit/s.",
        "Its RTT was 49.4 ms on average.",
    )
    measured = run(flow(mbps=40.0), link={})
    assert "50 % of the link's 80 Mbit/s" in sentences(measured, rate_mbps=80.0)[0]
    assert sentences(run(handovers=NONE)) == (
        "In 20 s, no TCP flow ran over the link.",
        "Nothing was measured but the link.",
        "The path had no handovers; no packets were lost.",
    )


def test_the_links_rate_is_that_of_the_flows_direction_and_the_mean_of_changes() -> None:
    back = {**LINK, "back": {"rate": "15 Mbit/s"}}
    upload = run(flow(mbps=12.0), link=back, scenario={"flow": [{"cc": "cubic", "from": "to"}]})
    assert "80 % of the link's 15 Mbit/s" in sentences(upload)[0]
    change = [{"at": "10 s", "rate": "50 Mbit/s"}]
    changed = run(flow(mbps=50.0), scenario={"change": change})
    assert link_mbps(changed, 0) == pytest.approx(100)
    assert "50 % of the link's mean rate of 100 Mbit/s" in sentences(changed)[0]


def test_a_few_flows_are_named_and_many_are_not_listed() -> None:
    two = sentences(run(flow(0, mbps=30.0), flow(1, "bbr", mbps=90.0, srtt_mean_us=41_000)))
    assert two[0] == (
        "In 20 s, of the link's 150 Mbit/s, cubic got 30.0 Mbit/s (20 %) and bbr got 90.0 Mbit/s "
        "(60 %)."
    )
    assert "49.4 ms (cubic) and 41.0 ms (bbr) on average, and 66.2 ms at the" in two[1]
    many = [flow(i, ("cubic", "bbr")[i % 2], mbps=1 + i / 10) for i in range(40)]
    first, second, _ = sentences(run(*many))
    assert "40 flows carried 118 Mbit/s together, 79 % of the link's 150 Mbit/s" in first
    assert "the 20 flows of cubic 2.90 Mbit/s and the 20 flows of bbr 3.00 Mbit/s each" in first
    assert max(len(first), len(second)) < 200


def test_a_flow_that_ran_for_a_while_says_so() -> None:
    part = run(flow(start_s=5.0, stop_s=10.0))
    assert sentences(part)[0].endswith("of the link's 150 Mbit/s while it ran (5 s).")
    whole = run(flow(completion_s=3.2))
    assert sentences(whole)[0].endswith("of the link's 150 Mbit/s, complete after 3.20 s.")


CALL = {"id": 1, "kind": "call", "completed": 120, "failed": 0, "mos_mean": 4.4, "mos_least": 3.06,
        "latency_p50_us": 99_000, "latency_p95_us": 99_000, "latency_p99_us": 99_000}  # fmt: skip
FILM = {"id": 0, "kind": "dash", "completed": 30, "failed": 0, "mean_bitrate_bps": 10.5e6,
        "startup_ns": 589e6, "stalls": 1, "stall_ns": 2.5e9, "qoe": 9.86}  # fmt: skip
PAGE = {"id": 0, "kind": "page", "completed": 8, "failed": 1, "latency_p50_us": 622_000,
        "latency_p95_us": 2_171_000, "latency_p99_us": 2_171_000}  # fmt: skip


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (4.39, "; calls had about the same MOS (4.39 to 4.40)."),
        (4.4, "; calls had about the same MOS (4.40)."),
        (3.1, "; calls had the best MOS with cubic (4.40) and the worst with bbr (3.10)."),
    ],
)
def test_differences_too_small_to_notice_are_no_ranking(other: float, expected: str) -> None:
    runs = [
        run(flow(cc=cc), name=cc, apps=[{**CALL, "mos_mean": mos}])
        for cc, mos in (("cubic", 4.4), ("bbr", other))
    ]
    (summary,) = run_summaries(runs, [PathFacts(), PathFacts()])
    assert expected in " ".join(summary.sentences)


def test_applications_are_told_by_what_their_users_notice() -> None:
    call = sentences(run(flow(), apps=[CALL]))
    assert call[0].startswith("In 20 s, the bulk flow (cubic) carried 120 Mbit/s")
    assert (
        "; the call had a MOS of 4.40 on average and 3.06 at worst (5 is best), 99.0 ms" in call[1]
    )
    alone = sentences(run(apps=[CALL], scenario={"flow": [{"kind": "call"}]}))
    assert alone[0].startswith("In 20 s, the call had a MOS of 4.40")
    assert alone[1] == "No TCP flow ran next to it."
    assert sentences(run(flow(), apps=[FILM]))[0] == (
        "In 20 s, the film played at 10.5 Mbit/s on average, began after 589 ms and stalled once, "
        "for 2.50 s (QoE 9.86)."
    )
    assert sentences(run(flow(), apps=[PAGE]))[0] == (
        "In 20 s, 8 pages were loaded, half of them within 622 ms and 95 % within 2.17 s; 1 failed."
    )
    none = {**PAGE, "completed": 0, "failed": 2, "latency_p50_us": None, "latency_p95_us": None}
    assert sentences(run(flow(), apps=[none]))[0] == "In 20 s, no pages were loaded; 2 failed."


def test_announcements_are_told_where_there_were_any() -> None:
    signal = {"signal": {"source": "path", "lead": "500 ms"}}
    assert "6 handovers (announced 500 ms ahead)" in sentences(run(flow(), scenario=signal))[2]
    blind = {"signal": {"source": "blind"}}
    assert "6 handovers (announced by blind)" in sentences(run(flow(), scenario=blind))[2]
    assert "announced" not in sentences(run(flow(), handovers=NONE, scenario=signal))[2]


def test_runs_are_compared_by_what_sets_them_apart() -> None:
    queues = [
        run(flow(cc=cc, mbps=mbps), name=f"{cc}-{qdisc}", link={**LINK, "qdisc": qdisc})
        for cc, qdisc, mbps in (("cubic", "fifo", 140.0), ("cubic", "fq_codel", 87.0),
                                ("bbr", "fifo", 139.0))
    ]  # fmt: skip
    queues[0] = with_link(queues[0], drops(queue=7, loss=1))
    first, second, third = sentences(*queues)
    assert first == (
        "In 20 s, cubic (fifo) carried 140 Mbit/s (93 % of the link's 150 Mbit/s), bbr (fifo) "
        "139 Mbit/s (93 %) and cubic (fq_codel) 87.0 Mbit/s (58 %)."
    )
    assert second.startswith("RTTs were about the same, 49.4 ms on average; the path alone takes")
    assert third == (
        "Each run had 6 handovers; cubic-fq_codel lost fewest packets (0) and cubic-fifo most "
        "(8, mainly at the queue)."
    )
    assert sentences(queues[0], queues[1])[2] == (
        "Each run had 6 handovers; cubic-fq_codel lost fewer packets (0) than cubic-fifo "
        "(8, mainly at the queue)."
    )


def test_many_compared_senders_are_ranked() -> None:
    senders = ("reno", "cubic", "bbr", "vegas", "hybla", "satcp")
    runs = [
        run(flow(cc=cc, mbps=90 + 10 * place, srtt_mean_us=50_000 + 5000 * place), name=cc)
        for place, cc in enumerate(senders)
    ]
    first, second, _ = sentences(*runs)
    assert first == (
        "In 20 s, satcp carried most of 6, 140 Mbit/s (93 % of the link's 150 Mbit/s), and reno "
        "least, 90.0 Mbit/s (60 %)."
    )
    assert "shortest for reno, 50.0 ms on average" in second
    assert "longest for satcp, 75.0 ms" in second


def test_repeats_are_averaged_and_engines_are_compared() -> None:
    repeats = [run(flow(mbps=mbps), name=f"seed-{mbps}", seed=mbps) for mbps in (30, 40, 50)]
    assert sentences(*repeats)[0] == (
        "In 20 s, cubic carried 40.0 Mbit/s (27 % of the link's 150 Mbit/s) on average over 3 "
        "runs, from 30.0 to 50.0 Mbit/s."
    )
    engines = [run(flow(), name="sim"), run(flow(mbps=126.0), name="live", engine="live")]
    first, _, third = sentences(*engines)
    assert "cubic (live) carried 126 Mbit/s" in first
    assert (
        "the same sender's goodput differs by at most 5 % and its mean RTT by at most 0 %" in third
    )


def test_runs_of_different_duration_have_sentences_each() -> None:
    summaries = run_summaries([run(flow()), run(flow(), virtual_s=300.0), run(flow(cc="bbr"))])
    assert [summary.heading for summary in summaries] == ["2 runs", "1 run"]
    assert run_summaries([run(flow())])[0].heading == ""


def test_groups_never_hold_different_links_queues_or_applications() -> None:
    """Twelve flows of two senders have twelve names."""
    runs = []
    for cc in ("cubic", "bbr"):
        for qdisc in ("fifo", "fq_codel"):
            flows = [flow(0, cc), flow(1, cc), flow(2, cc)]
            entries = [
                {"cc": cc}, {"cc": cc, "app": {"kind": "page"}}, {"cc": cc, "from": "to"},
            ]  # fmt: skip
            runs.append(
                run(*flows, name=f"{cc}-{qdisc}", link={**LINK, "qdisc": qdisc},
                    apps=[{**PAGE, "id": 1}], scenario={"flow": entries})
            )  # fmt: skip
    groups = flow_groups(runs)
    assert all(len(group.flows) == 1 for group in groups)
    names = [group.name for group in groups]
    assert len(set(names)) == 12
    assert {"cubic (forward, fifo, bulk)", "bbr (forward, fq_codel, page)"} <= set(names)
    for key, value in (("rate", "20 Mbit/s"), ("queue", "4 BDP"), ("loss", "1 %")):
        pair = [run(flow(), name="a"), run(flow(), name="b", link={**LINK, key: value})]
        assert len({group.name for group in flow_groups(pair)}) == 2, key
    hidden = [run(flow(), name=n, scenario={"path": {"start": n}}) for n in ("a", "b")]
    assert [group.name for group in flow_groups(hidden)] == ["cubic (a #0)", "cubic (b #0)"]
    seeds = [run(flow(), name=str(seed), seed=seed) for seed in range(9)]
    assert [(group.name, len(group.flows)) for group in flow_groups(seeds)] == [("cubic", 9)]


def test_flows_of_a_network_are_named_by_their_sites_unless_there_are_many() -> None:
    def between(sites: int) -> list[tuple[str, int]]:
        pairs = [f"site {number}" for number in range(sites)]
        entries = [
            {"between": [name, "hub"], "cc": cc} for name in pairs for cc in ("cubic", "bbr")
        ]
        flows = [flow(number, str(entry["cc"])) for number, entry in enumerate(entries)]
        one = run(*flows, name="a", scenario={"flow": entries})
        return [(group.name, len(group.flows)) for group in flow_groups([one])]

    few = between(2)
    assert few == [
        (f"{cc} ({name} \N{RIGHTWARDS ARROW} hub)", 1)
        for name in ("site 0", "site 1")
        for cc in ("cubic", "bbr")
    ]
    assert between(9) == [("cubic", 9), ("bbr", 9)]


def test_the_comparison_has_an_entry_for_each_queue(tmp_path: Path) -> None:
    for number in range(8):
        made = SyntheticRun(("cubic",), 3.0, seed=number)
        place = made.write(tmp_path / f"seed-{number}")
        text = (place / "run.json").read_text()
        if number % 2:
            (place / "run.json").write_text(text.replace('"fifo"', '"fq_codel"'))
    shown = compare(read_runs([tmp_path]))
    assert len(shown.groups) == 2
    assert [len(group.goodputs_mbps) for group in shown.groups] == [4, 4]
    assert "cubic (fq_codel)" in {group.name for group in shown.groups}


def test_axes_begin_at_zero(tmp_path: Path) -> None:
    place = SyntheticRun(("cubic", "bbr"), 12.0).write(tmp_path / "a")
    (record,) = read_runs([place])
    assert record.path is not None
    for panel in path_timeline(record.path).panels:
        assert panel.span is not None
        assert panel.span[0] == 0, panel.what
    page = runs_page([record])
    for figure in page.figures:
        view = figure.view()
        panels = getattr(view, "panels", [getattr(view, "goodput", None)])
        for panel in panels:
            assert panel.span is not None
            assert panel.span[0] == 0 or panel.is_log, (figure.name, panel.what)


def study(**changes: Any) -> StudyOutcome:
    """Return a study's numbers."""
    ranked = RankedValues("goodput", "Mbit/s", "cc", 2, ("loss",), "bbr", 9.36, "cubic", 7.51,
                          (1.35, 2.32))  # fmt: skip
    numbers: dict[str, Any] = {
        "ranked": ranked, "holding": 3, "failing": 1, "undecided": 1, "within_chance": 1,
        "finished": 12, "planned": 12, "failed": 0, "warnings": 0,
    } | changes  # fmt: skip
    return StudyOutcome(**numbers)


def test_a_study_tells_best_worst_claims_and_what_is_missing() -> None:
    assert study_sentences(study()) == [
        "Of 2 values of cc, bbr has the highest goodput (9.36 Mbit/s) and cubic the lowest "
        "(7.51 Mbit/s), averaged over loss: a difference of 1.85 Mbit/s (95 % interval 1.35 to "
        "2.32).",
        "3 of 5 claims hold, 1 does not hold and 1 cannot be told; 1 verdict is within chance.",
        "All 12 runs finished, and none has a warning.",
    ]
    ranked = replace(study().ranked, count=5, interval=(-1.0, 2.0), averaged=())  # type: ignore[type-var]
    best, claims, missing = study_sentences(
        study(ranked=ranked, holding=1, failing=0, undecided=0, within_chance=0, finished=9,
              failed=2, warnings=1)
    )  # fmt: skip
    assert "within chance, not corrected for the choice of these two)." in best
    assert claims == "1 of 1 claim holds."
    assert missing == "9 of 12 runs finished, 2 failed and 1 is missing; 1 warning is listed below."
    failing = study_sentences(study(holding=0, failing=1, undecided=0, within_chance=0))[1]
    assert failing == "0 of 1 claim holds and 1 does not hold."
    empty = study(ranked=None, holding=0, failing=0, undecided=0, finished=0, planned=1, failed=1)
    assert study_sentences(empty) == [
        "No finished run has numbers that can be compared.",
        "The study makes no claims.",
        "0 of 1 run finished, 1 failed.",
    ]


def test_a_report_prints_and_opens_with_them(
    skyhop: Skyhop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from blank_figures import leave_blank

    leave_blank(monkeypatch)
    SyntheticRun(("cubic",), 3.0).write(tmp_path / "a")
    done = skyhop("report", str(tmp_path / "a"), "-o", str(tmp_path / "r.html"))
    assert done.returncode == 0, done.stderr
    printed = " ".join(done.stdout.split())
    assert printed.startswith("In 3 s, cubic carried ")
    page = (tmp_path / "r.html").read_text("utf-8")
    assert page.index('class="summary"') < page.index("<figure>")
    assert page.index("In 3 s, cubic carried ") < page.index('class="facts"')


def test_lists_and_counts() -> None:
    assert [listed(words) for words in (["a"], ["a", "b"], ["a", "b", "c"])] == [
        "a", "a and b", "a, b and c",
    ]  # fmt: skip
    assert [counted(count, "run") for count in (0, 1, 2000)] == ["0 runs", "1 run", "2,000 runs"]
