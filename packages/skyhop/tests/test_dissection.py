"""Dissection recovers known delays along a route from noisy probes, in every format."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from conftest import Skyhop

from damaged import Trial
from reference_files import reference
from skyhop.analysis.dissection import Prefixes, dissect, one_way_ms, read_prefixes
from skyhop.errors import InputError
from skyhop.telemetry.traces import Hop, Trace, read_traces

ROUTE = ["192.168.1.1", "100.64.0.1", "172.16.249.6", "206.224.65.1", "149.19.108.9", "8.8.8.8"]
ONE_WAY_MS = np.array([0.4, 16.0, 0.9, 1.6, 2.5, 5.1])
SHARE = ONE_WAY_MS[1] / ONE_WAY_MS.sum()
FEW = 120
ROUTE6 = [
    "2605:59c8:1a00:4200::1", "2605:59c8:10a::1", "2620:134:b0fe:252::40", "2620:134:b0ff::30a",
    "2605:59c7:9001::13", "2001:4860:4860::8888",
]  # fmt: skip
"""Route over IPv6: router, gateway, backhaul, point of presence, border, destination."""

Floats = npt.NDArray[np.float64]


def route(rtt_ms: Floats, addresses: Sequence[str] = ROUTE) -> list[Trace]:
    """Return traces with these round trips in ms, shape (traces, hops); NaN is no answer."""
    known = [ipaddress.ip_address(address) for address in addresses]
    return [
        Trace(known[-1], tuple(
            Hop(place + 1, None, None) if np.isnan(rtt) else Hop(place + 1, address, float(rtt))
            for place, (address, rtt) in enumerate(zip(known, row, strict=True))
        ))
        for row in rtt_ms
    ]  # fmt: skip


def round_trips(count: int, seed: int) -> Floats:
    """Return round trips over a bent pipe whose delay moves in slots of 15 s, with jitter."""
    draw = np.random.default_rng(seed)
    rtt_ms = np.tile(2 * ONE_WAY_MS.cumsum(), (count, 1))
    slots = draw.normal(0, 4, -(-count // 15)).repeat(15)[:count]
    # Probes of one trace through the bent pipe share the slot's delay, but not the jitter.
    rtt_ms[:, 1:] += (slots - np.median(slots))[:, None]
    return rtt_ms + draw.exponential(0.1, rtt_ms.shape)


def test_known_delays_are_recovered_within_a_fifth_of_a_millisecond() -> None:
    for seed in range(5):
        found = dissect(route(round_trips(1200, seed)), seed=seed)
        assert [piece.name for piece in found.pieces] == ["S1", "S2", "S3", "S4", "S5", "S6"]
        assert [piece.addresses[0] for piece in found.pieces] == ROUTE
        for piece, one_way_ms_ in zip(found.pieces, ONE_WAY_MS, strict=True):
            assert piece.by_trace_ms == pytest.approx(one_way_ms_, abs=0.2)
            assert piece.of_medians_ms == pytest.approx(one_way_ms_, abs=0.2)
            assert piece.low_ms <= piece.by_trace_ms <= piece.high_ms
        pipe = found.pieces[1]
        assert pipe.share == pytest.approx(SHARE, abs=0.01)
        assert pipe.of_medians_share == pytest.approx(SHARE, abs=0.01)
        assert 0 < pipe.share_high - pipe.share_low < 0.05
        assert sum(piece.share for piece in found.pieces) == pytest.approx(1)


def test_medians_are_unbiased_under_real_jitter_and_traces_are_not() -> None:
    """Probes 12 ms apart differ by 4.5 ms in Victoria, so a minimum over six is biased low."""
    pings = np.loadtxt(reference("rtt/victoria_1.csv.gz"), delimiter=",")[:, 1]
    draw, count = np.random.default_rng(17), 7200
    starts = draw.integers(0, len(pings) - 20, count)
    rtt_ms = np.tile(2 * ONE_WAY_MS.cumsum(), (count, 1)) + draw.exponential(0.1, (count, 6))
    for hop in range(1, 6):
        # Each hop gets three successive probes.
        probes = starts[:, None] + 3 * hop + np.arange(3)
        rtt_ms[:, hop] += np.median(pings[probes], axis=1) - np.median(pings)
    found = dissect(route(rtt_ms))
    print(
        [(p.of_medians_ms, p.by_trace_ms, p.of_medians_share, p.share) for p in found.pieces], SHARE
    )
    for piece, one_way_ms_ in zip(found.pieces[1:], ONE_WAY_MS[1:], strict=True):
        assert piece.of_medians_ms == pytest.approx(one_way_ms_, abs=0.2)
    assert found.pieces[1].of_medians_share == pytest.approx(SHARE, abs=0.01)
    assert found.pieces[1].share == pytest.approx(SHARE, abs=0.01)
    assert 0.5 < ONE_WAY_MS[1] - found.pieces[1].by_trace_ms < 3


def test_medians_that_are_out_of_order_are_never_a_share(skyhop: Skyhop, tmp_path: Path) -> None:
    """Reproduce a run of the demo: the round trip drops while hops of few traces are probed."""
    rtt_ms = round_trips(11, 1)
    rtt_ms[:6, :2] += [0, 140]
    rtt_ms[:5, 2:] += 140
    (tmp_path / "traces.txt").write_text(traceroute(rtt_ms))
    found = dissect(route(rtt_ms))
    assert all(np.isnan(piece.of_medians_share) for piece in found.pieces)
    assert all(0 <= piece.share <= 1 for piece in found.pieces)
    assert "no latency of medians" in found.notes[-1]
    done = skyhop("dissect", "traces.txt", "-o", "x.png")
    assert done.returncode == 0, done.stderr
    assert "cannot be told" in done.stdout
    assert not re.search(r"(?<![\d.])-\d|\d{3}[\d.]* %|nan", done.stdout)
    # Hops that are out of order by no more than the jitter count as equally far.
    rtt_ms = round_trips(FEW, 1)
    rtt_ms[:, 3] -= 4
    shares = [piece.of_medians_share for piece in dissect(route(rtt_ms)).pieces]
    assert min(shares) == 0
    assert sum(shares) == pytest.approx(1)


def test_a_hop_is_no_further_away_than_later_hops() -> None:
    segments = one_way_ms(np.array([[5.0, 3.0, 4.0, 10.0]]))
    assert segments.tolist() == [[1.5, 0.0, 0.5, 3.0]]


def test_hops_that_do_not_answer_merge_into_the_next() -> None:
    rtt_ms = round_trips(FEW, 1)
    silent = rtt_ms.copy()
    silent[:, [0, 3]] = np.nan
    found = dissect(route(silent))
    # Hops of the operator are distinguished by their distance from the gateway.
    assert [piece.name for piece in found.pieces] == ["S1+S2", "S3", "S5", "S6"]
    assert found.notes == ("S1: no answer, so in S1+S2",)
    assert found.pieces[0].of_medians_ms == pytest.approx(16.4, abs=0.2)
    silent = rtt_ms.copy()
    silent[:, 1] = np.nan
    found = dissect(route(silent))
    assert [piece.name for piece in found.pieces] == ["S1", "S2+S3", "S6"]
    silent = rtt_ms.copy()
    silent[10:20, 1] = np.nan
    silent[:, 3] = np.where(np.arange(FEW) < 10, silent[:, 3], np.nan)
    found = dissect(route(silent))
    assert [piece.name for piece in found.pieces] == ["S1", "S2", "S3", "S4+S5", "S6"]
    assert (found.traces, found.used) == (FEW, FEW - 10)


def test_traces_without_the_destination_do_not_count() -> None:
    rtt_ms = round_trips(FEW, 1)
    rtt_ms[:30, 5] = np.nan
    assert dissect(route(rtt_ms)).used == FEW - 30
    rtt_ms[:, 5] = np.nan
    with pytest.raises(InputError, match="no trace reached its destination"):
        dissect(route(rtt_ms))


def test_a_host_behind_two_routers_and_private_addresses_is_still_home() -> None:
    addresses = ["172.17.0.1", "192.168.1.1", "100.64.0.1", "172.16.249.6", "72.14.1.1", "8.8.8.8"]
    found = dissect(route(round_trips(FEW, 1), addresses))
    assert [piece.name for piece in found.pieces] == ["S1", "S2", "S3", "S6"]
    assert found.pieces[0].addresses == ["192.168.1.1"]


def test_a_table_of_prefixes_assigns_hops_to_operators(tmp_path: Path) -> None:
    table = tmp_path / "prefixes.txt"
    table.write_text("# from a routing table\n206.224.64.0/19 AS15169\n206.224.65.0/24,14593\n"
                     "2001:db8::/32 S2\n100.64.0.0/10 S1\n192.168.0.0/16 operator\n")  # fmt: skip
    prefixes = read_prefixes(table)
    found = [prefixes.owner(ipaddress.ip_address(a)) for a in
             ("206.224.65.1", "206.224.66.1", "2001:db8::1", "100.64.0.1", "9.9.9.9")]  # fmt: skip
    assert found == ["operator", "S6", "S2", "S1", None]
    pieces = dissect(route(round_trips(FEW, 1)), prefixes).pieces
    assert [piece.name for piece in pieces][:1] == ["S1+S2+S3"]
    table.write_text("206.224.64.0/19\n")
    with pytest.raises(InputError, match="line 1: expected such as"):
        read_prefixes(table)


def traceroute(rtt_ms: Floats, addresses: Sequence[str] = ROUTE) -> str:
    lines = []
    for row in rtt_ms:
        end = addresses[-1]
        lines.append(f"traceroute to {end} ({end}), 30 hops max, 60 byte packets")
        for place, (address, rtt) in enumerate(zip(addresses, row, strict=True), 1):
            name = f"{address}" if place % 2 else f"host-{place}.example ({address})"
            lines.append(f"{place:2d}  {name}  {rtt:.3f} ms  {rtt + 0.2:.3f} ms *")
        lines += ["", "Tue Nov 24 00:00:00 UTC 2026"]
    return "\n".join(lines)


def mtr(rtt_ms: Floats, addresses: Sequence[str] = ROUTE) -> str:
    return "\n".join(
        json.dumps({"report": {
            "mtr": {"src": "host", "dst": addresses[-1], "tests": 10},
            "hubs": [{"count": place, "host": address, "Loss%": 0.0, "Snt": 10, "Last": rtt,
                      "Avg": round(rtt, 3), "Best": rtt, "Wrst": rtt, "StDev": 0.0}
                     for place, (address, rtt) in enumerate(zip(addresses, row, strict=True), 1)],
        }}, indent=1)
        for row in rtt_ms
    )  # fmt: skip


def scamper(rtt_ms: Floats, addresses: Sequence[str] = ROUTE) -> str:
    return "\n".join(
        json.dumps({"type": "trace", "version": "0.1", "dst": addresses[-1], "hops": [
            {"addr": address, "probe_ttl": place, "probe_id": 0, "rtt": round(rtt, 3)}
            for place, (address, rtt) in enumerate(zip(addresses, row, strict=True), 1)
        ]})
        for row in rtt_ms
    )  # fmt: skip


def atlas(rtt_ms: Floats, addresses: Sequence[str] = ROUTE) -> str:
    def hop(place: int, address: str, rtt: float) -> dict[str, object]:
        answer = {"from": address, "rtt": round(rtt, 3), "ttl": 64, "size": 28}
        return {"hop": place, "result": [answer, {"x": "*"}, {"late": 1, "from": "x", "rtt": 1e9}]}

    results = [
        {"fw": 5080, "prb_id": 7, "type": "traceroute", "dst_addr": addresses[-1],
         "result": [hop(place, address, rtt) for place, (address, rtt)
                    in enumerate(zip(addresses, row, strict=True), 1)]}
        for row in rtt_ms
    ]  # fmt: skip
    return json.dumps(results)


WRITERS = {"traceroute": traceroute, "mtr": mtr, "scamper": scamper, "atlas": atlas}


@pytest.mark.parametrize("addresses", [ROUTE, ROUTE6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_every_format_gives_the_same_segments(
    write: Callable[[Floats, Sequence[str]], str], addresses: Sequence[str], tmp_path: Path
) -> None:
    rtt_ms = round_trips(FEW, 3)
    (tmp_path / "traces").write_text(write(rtt_ms, addresses))
    traces = read_traces(tmp_path / "traces")
    assert len(traces) == FEW
    shift = 0.1 if write is traceroute else 0.0
    for trace, row in zip(traces, rtt_ms, strict=True):
        assert [str(hop.address) for hop in trace.hops] == addresses
        assert [hop.rtt_ms for hop in trace.hops] == pytest.approx(list(row + shift), abs=0.002)
    pieces = dissect(traces).pieces
    assert [piece.name for piece in pieces] == ["S1", "S2", "S3", "S4", "S5", "S6"]
    assert [piece.addresses[0] for piece in pieces] == addresses
    for piece, one_way_ms_ in zip(pieces, ONE_WAY_MS, strict=True):
        assert piece.of_medians_ms == pytest.approx(one_way_ms_, abs=0.3)


def test_hops_of_ipv6_split_as_those_of_ipv4() -> None:
    """Router and gateway share a prefix in IPv6: distance and round trip tell them apart."""

    def names(*addresses: str, silent: Sequence[int] = ()) -> list[str]:
        rtt_ms = round_trips(FEW, 1)
        rtt_ms[:, list(silent)] = np.nan
        return [piece.name for piece in dissect(route(rtt_ms, addresses)).pieces]

    router, gateway, backhaul, pop, border, end = ROUTE6
    every = ["S1", "S2", "S3", "S4", "S5", "S6"]
    assert names(*ROUTE6) == every
    # A host without a router: its first hop is the link-local address of the gateway.
    rtt_ms = round_trips(FEW, 1)[:, 1:]
    bypass = ["fe80::200:5eff:fe00:101", backhaul, pop, border, end]
    assert [p.name for p in dissect(route(rtt_ms, bypass)).pieces] == ["S1+S2", *every[2:]]
    # A silent gateway merges with the next hop, and is not mistaken for the router or the reverse.
    assert names(*ROUTE6, silent=[1]) == ["S1", "S2+S3", "S6"]
    assert names(*ROUTE6, silent=[0]) == ["S1+S2", *every[2:]]
    for local in ("fe80::1", "fd00::1", "2a0d:3344:3340:7700::1", "2406:2d40:4002:aa00::1"):
        assert names(local, "2a0d:3340:f4aa::1", backhaul, pop, border, end) == every
    assert names("192.0.0.1", "100.64.0.1", *ROUTE[2:]) == every
    translated = [f"64:ff9b::{address}" for address in ROUTE[2:]]
    assert names(router, gateway, *translated) == every


def test_the_users_table_decides_about_prefixes_of_subscribers(tmp_path: Path) -> None:
    table = tmp_path / "prefixes.txt"
    table.write_text("2605:59c8::/32 S1\n")
    found = dissect(route(round_trips(FEW, 1), ROUTE6), read_prefixes(table))
    assert [piece.name for piece in found.pieces] == ["S1", "S2+S3", "S6"]


@pytest.mark.parametrize("name", WRITERS)
def test_damaged_traces_are_refused_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Confidence intervals take most of the time, and do not depend on the damage.
    monkeypatch.setattr("skyhop.analysis.dissection._RESAMPLES", 10)

    def read(content: bytes) -> None:
        (tmp_path / "traces").write_bytes(content)
        dissect(read_traces(tmp_path / "traces"))

    rtt_ms = round_trips(4, 3)
    samples = [WRITERS[name](rtt_ms, addresses).encode() for addresses in (ROUTE, ROUTE6)]
    Trial(f"traces of {name}", samples, usual=80).run(read)


def test_damaged_prefixes_are_refused_in_one_line(tmp_path: Path) -> None:
    def read(content: bytes) -> None:
        (tmp_path / "table").write_bytes(content)
        table: Prefixes = read_prefixes(tmp_path / "table")
        table.owner(ipaddress.ip_address("206.224.64.1"))

    Trial("prefixes", [b"206.224.64.0/19 AS14593\n2001:db8::/32,S2 # x\n"], usual=60).run(read)


@pytest.mark.parametrize("filler", ["(", "x", "1 ", "9.9ms", "(a"])
def test_an_endless_line_is_refused_at_once(tmp_path: Path, filler: str) -> None:
    line = f" 1  {filler * 1_000_000}"
    (tmp_path / "traces").write_text(f"traceroute to 8.8.8.8 (8.8.8.8), 30 hops max\n{line}\n")
    with pytest.raises(InputError, match="longer than any"):
        read_traces(tmp_path / "traces")


def test_unusual_lines_of_traceroute(tmp_path: Path) -> None:
    (tmp_path / "traces").write_text(
        "traceroute to dns.google (8.8.8.8), 64 hops max, 52 byte packets\n"
        " 1  router (192.168.1.1)  0.884 ms  1.013 ms  0.993 ms\n"
        " 2  * * *\n"
        " 3  * 100.64.0.1  25.5 ms !X *\n"
        " 4  205.251.232.110  36.7 ms\n"
        "    205.251.232.112 (205.251.232.112)  32.0 ms\n"
        " 5  8.8.8.8  40 ms 41 ms 42 ms\n"
    )
    (trace,) = read_traces(tmp_path / "traces")
    assert [(hop.distance, str(hop.address), hop.rtt_ms) for hop in trace.hops] == [
        (1, "192.168.1.1", 0.993), (2, "None", None), (3, "100.64.0.1", 25.5),
        (4, "205.251.232.110", 36.7), (5, "8.8.8.8", 41.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "before",
    [
        "[2026-05-27 11:24:03.780892] ", "2026-05-27T11:24:03+00:00 ", "May 27 11:24:03 ",
        "1779873843.78 ", "11:24:03 ",
    ],
)  # fmt: skip
def test_times_before_the_lines_of_traceroute_are_ignored(tmp_path: Path, before: str) -> None:
    lines = [
        "traceroute to 192.0.2.1 (192.0.2.1), 30 hops max, 60 byte packets",
        " 1  192.168.1.1  0.5 ms  0.4 ms  0.6 ms",
        " 2  * * *",
        "10  192.0.2.1  31.5 ms  31 ms  32 ms",
    ]
    plain, timed = tmp_path / "plain", tmp_path / "timed"
    plain.write_text("\n".join(lines), "utf-8")
    timed.write_text("Start time: 1779873808735\n" + "\n".join(before + x for x in lines), "utf-8")
    assert read_traces(timed) == read_traces(plain)
    assert [hop.distance for hop in read_traces(plain)[0].hops] == [1, 2, 10]


TRACERT = """
Tracing route to dns.google [8.8.8.8]
over a maximum of 30 hops:

  1    <1 ms    <1 ms     3 ms  192.168.1.1
  2    25 ms     *       27 ms  host.example [100.64.0.1]
  3     *        *        *     Request timed out.
  4    28 ms    28 ms    31 ms  206.224.64.1
  5    30 ms    30 ms    29 ms  dns.google [8.8.8.8]

Trace complete.
"""


@pytest.mark.parametrize("more", [{}, {
    "Tracing route to": "Трассировка маршрута к", " ms": " мс", "Trace complete": "Готово",
    "over a maximum of 30 hops": "с максимальным числом прыжков 30",  # noqa: RUF001
    "Request timed out": "Превышен интервал ожидания для запроса",
}])  # fmt: skip
def test_tracert_of_windows_is_read_in_any_language(more: dict[str, str], tmp_path: Path) -> None:
    text = TRACERT
    for english, other in more.items():
        text = text.replace(english, other)
    (tmp_path / "tracert.txt").write_bytes((text * 3).replace("\n", "\r\n").encode())
    traces = read_traces(tmp_path / "tracert.txt")
    assert len(traces) == 3
    assert {str(trace.destination) for trace in traces} == {"8.8.8.8"}
    hops = [(str(hop.address), hop.rtt_ms) for hop in traces[0].hops]
    assert hops == [("192.168.1.1", 0.5), ("100.64.0.1", 26), ("None", None),
                    ("206.224.64.1", 28), ("8.8.8.8", 30)]  # fmt: skip
    (tmp_path / "tracert.txt").write_text(TRACERT.replace("206.224.64.1", "router.example"))
    with pytest.raises(InputError, match="line 8: names no address: run tracert -d"):
        read_traces(tmp_path / "tracert.txt")


def test_a_name_in_mtrs_report_is_not_silence(tmp_path: Path) -> None:
    hub = {"count": 1, "host": "_gateway", "Loss%": 0.0, "Avg": 0.3}
    report = {"report": {"mtr": {"dst": "192.0.2.1"}, "hubs": [hub]}}
    (tmp_path / "mtr.json").write_text(json.dumps(report), "utf-8")
    with pytest.raises(InputError, match=r"hop 1 names no address: run mtr -n"):
        read_traces(tmp_path / "mtr.json")


def test_the_command_prints_a_table_json_and_a_figure(skyhop: Skyhop, tmp_path: Path) -> None:
    (tmp_path / "traces.txt").write_text(traceroute(round_trips(FEW, 3)))
    printed = skyhop("dissect", "traces.txt", "-o", "segments.png")
    assert printed.returncode == 0, printed.stderr
    assert "S2       bent pipe" in printed.stdout
    assert (tmp_path / "segments.png").stat().st_size > 10_000
    found = json.loads(skyhop("dissect", "traces.txt", "--json").stdout)
    assert found["used"] == FEW
    assert found["segments"][1]["share"] == pytest.approx(SHARE, abs=0.01)
    assert skyhop("dissect", "missing.txt").returncode == 2
