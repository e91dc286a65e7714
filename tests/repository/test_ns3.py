"""Comparison with ns-3: what its program reports, and that a nanosecond shows."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import skyhop
from needs import missing
from skyhop.errors import RunError
from validation import pages, validate
from validation.ns3 import packets, program
from validation.ns3.cases import CITIES, FAST, SLOW
from validation.ns3.description import SATELLITES, Flow, Network

OUTPUT = """\
returned 0 0 100 700
lost 0 1 200 350 1158 -1
lost 1 0 100 420 7 41
run 0.25 9
"""
LONDON, NEW_YORK = CITIES["London"], CITIES["New York"]
SIZE_BYTES = 1000


def small(interval_ns: int = 500_000) -> Network:
    """Return two cities of which one sends more than its laser carries."""
    sites = {"London": LONDON, "New York": NEW_YORK}
    flow = Flow(0, 1, 5, interval_ns, SIZE_BYTES, 400)
    return Network(sites, SLOW, FAST, FAST, [flow], 2)


def needs_ns3() -> None:
    if not program.HEADER.exists() or not shutil.which("g++"):
        missing("ns3", "no g++, or no headers of ns-3")


def test_the_output_of_the_program_is_read() -> None:
    fates = program.read(OUTPUT.splitlines())
    assert fates.rtts_ns == {(0, 0): 600}
    assert fates.lost == {(0, 1), (1, 0)}
    assert fates.losses == [(350, 0, 1158, -1), (420, 1, 7, 41)]
    assert (fates.cpu_s, fates.arrivals) == (0.25, 9)
    with pytest.raises(RunError, match="unknown kind: gone 0 0 0 0"):
        program.read(["gone 0 0 0 0"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("returned 0 0 100 700", "returned 0 0 100 701"),
        ("returned 0 0 100 700", "lost 0 0 100 700 7 41"),
        ("350 1158 -1", "351 1158 -1"),
        ("350 1158 -1", "350 1159 -1"),
        ("lost 1 0", "lost 1 1"),
        ("lost 1 0 100 420 7 41\n", ""),
    ],
)
def test_any_difference_is_noticed(before: str, after: str) -> None:
    ours = program.read(OUTPUT.splitlines())
    theirs = program.read(OUTPUT.replace(before, after).splitlines())
    assert packets.compare(ours, ours).is_equal
    assert not packets.compare(ours, theirs).is_equal
    assert not packets.compare(theirs, ours).is_equal


def test_links_have_their_ends() -> None:
    ends = packets.link_ends(small())
    assert ends["satellite 7 - 41", "forward"] == (7, 41)
    assert ends["satellite 7 - 41", "back"] == (41, 7)
    assert ends["satellite 7 - sites", "forward"] == (7, -1)
    assert ends["New York - satellites", "forward"] == (SATELLITES + 1, -1)


def test_a_description_has_the_links_and_routes_of_the_path() -> None:
    lines = [line.split() for line in small().description().splitlines()]
    kinds = [line[0] for line in lines]
    path = skyhop.path(
        "51.51,-0.13", "40.71,-74.01",
        constellation="kuiper-630-hypatia", compat="hypatia", relay="isl", duration="1 s",
        step="1 s",
    )  # fmt: skip
    hops = path.frames["hop_delay_ns"].to_list()[0]
    assert sum(int(line[3]) for line in lines if line[0] in {"laser", "sight"}) == sum(hops)
    assert (kinds.count("sight"), kinds.count("laser")) == (2, len(hops) - 2)
    assert (kinds.count("air"), kinds.count("route")) == (len(hops) + 1, 2 * len(hops))
    assert lines[-1] == ["flow", "0", "1156", "1157", "5", "500000", "1042", "400"]


def test_a_section_that_lacks_a_program_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def lacking() -> str:
        raise pages.MissingError("apt-get install it")

    page, template = tmp_path / "page.md", tmp_path / "template.jinja"
    page.write_text("# Page\n\nold\n\n## A\n\nmeasured\n\n## B\n\nold\n", "utf-8")
    template.write_text("# Page\n\nnew\n\n## A\n\n{{ a() }}\n\n## B\n\nnew\n", "utf-8")
    monkeypatch.setattr(validate, "PAGE", page)
    monkeypatch.setattr(validate, "TEMPLATE", template)
    validate.write({"a": lacking}, [])
    assert page.read_text("utf-8") == "# Page\n\nnew\n\n## A\n\nmeasured\n\n## B\n\nnew\n"
    assert "A stays as it is: apt-get install it" in capsys.readouterr().err


@pytest.mark.integration
def test_the_order_of_simultaneous_arrivals_decides_about_twins(tmp_path: Path) -> None:
    needs_ns3()
    sites = {f"{name} {k}": CITIES[name] for k in (1, 2) for name in ("London", "New York")}
    flows = [Flow(client, client + 1, 5, 1_000_000, SIZE_BYTES, 400) for client in (2, 0)]
    network = Network(sites, SLOW, FAST, FAST, flows, 2)
    built, description = program.build(tmp_path), network.description()
    ours = packets.fates(network, skyhop.sim(network.scenario()))
    equal = [
        packets.compare(ours, program.run(built, description, order)).is_equal
        for order in program.ORDERS
    ]
    assert equal == [True, False, False]


@pytest.mark.integration
def test_packets_are_those_of_ns3_and_a_nanosecond_shows(tmp_path: Path) -> None:
    needs_ns3()
    built, network = program.build(tmp_path), small()
    description = network.description()
    ours = packets.fates(network, skyhop.sim(network.scenario()))
    equal = packets.compare(ours, program.run(built, description))
    assert equal.is_equal, equal
    assert equal.sent == network.flows[0].count
    assert min(equal.lost[0], equal.returned[0]) > 50, "the comparison has both fates"

    laser = next(line for line in description.splitlines() if line.startswith("laser"))
    _, first, second, *_ = laser.split()
    moved = network.description((int(first), int(second), 1))
    other = packets.compare(ours, program.run(built, moved))
    assert not other.is_equal
    assert other.most_apart_ns == 2, "a nanosecond on the way there, and one on the way back"

    shorter = replace(network, lasers=replace(SLOW, queue_packets=SLOW.queue_packets - 1))
    other = packets.compare(ours, program.run(built, shorter.description()))
    assert other.lost[1] == other.lost[0] + 1, "the queue has room for one packet less"
