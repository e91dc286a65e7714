"""Long comparisons with other tools; writes docs/validation.md."""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path

import bench
import bench_sim
import films_in_browsers
import kernel_costs
import linux_chance
import linux_reference
import linux_short
import linux_traces
import reference
import satcp_table
import simulator_and_kernel
import three_engines

import skyhop
from skyhop.cli.terminal import print_note
from skyhop.errors import InputError, SkyhopError
from skyhop.figures import save

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "docs" / "validation.md"
LINUX_FIGURE = OUTPUT.with_name("validation-cwnd.png")
KERNEL_FIGURE = OUTPUT.with_name("validation-kernel.png")

SAN_DIEGO, NEW_YORK, SEATTLE = "32.881,-117.237", "40.845,-73.932", "47.608,-122.335"


@dataclass(frozen=True)
class Log:
    """A published LeoEM path and how it was made."""

    name: str
    from_: str
    to: str
    relay: str
    target_percent: float

    @property
    def file(self) -> str:
        """Its name among the reference files."""
        return f"leoem/{self.name}.log.gz"


GATEWAYS = "leoem/ground_stations.csv"
LOGS = (
    Log("SD_NY_15_ISL", SAN_DIEGO, NEW_YORK, "isl", 99),
    Log("SD_SEA_15_ISL", SAN_DIEGO, SEATTLE, "isl", 99),
    Log("SD_NY_15_BP", SAN_DIEGO, NEW_YORK, "bent-pipe", 93),
)


def compared(log: Log) -> str:
    """Return the table's row of a log: lines with the same nodes, and the delay's error."""
    logged = skyhop.import_path(needed(log.file), "leoem").frames
    started_s = time.monotonic()
    computed = skyhop.path(
        log.from_,
        log.to,
        relay=log.relay,
        constellation="leoem-starlink",
        compat="leoem",
        gateways=str(needed(GATEWAYS)),
        duration=f"{logged.num_rows} s",
    ).frames
    took_s = time.monotonic() - started_s
    nodes = zip(computed["nodes"].to_pylist(), logged["nodes"].to_pylist(), strict=True)
    same = sum(ours == theirs for ours, theirs in nodes)
    delays = zip(computed["delay_ns"].to_pylist(), logged["delay_ns"].to_pylist(), strict=True)
    errors_us = [abs(a - b) / 1e3 for a, b in delays if a is not None and b is not None]
    errors_us.sort()
    return (
        f"| {log.name} | {logged.num_rows} | {100 * same / logged.num_rows:.2f} % "
        f"| {log.target_percent} % | {statistics.median(errors_us):.2f} "
        f"| {errors_us[int(0.99 * len(errors_us))]:.0f} "
        f"| {1e3 * took_s / logged.num_rows:.2f} |"
    )


# Live paths: rate in Mbit/s and RTT in ms.
SCHEDULED = ((20, 40), (150, 50), (50, 600))


def punctuality(rate_mbps: int, rtt_ms: int, device: str) -> str:
    """Return the row about a live run: probe RTT and goodput against what was scheduled."""
    run = skyhop.live(
        {
            "path": {"kind": "fixed", "rtt": f"{rtt_ms} ms"},
            "link": {"rate": f"{rate_mbps} Mbit/s"},
            "flow": [{"kind": "probe", "stop": "5 s"}, {"cc": "cubic", "start": "6 s"}],
            "run": {"duration": "36 s"},
            "live": {"device": device},
        }
    )
    probe, flow = run.summary["probes"][0], run.summary["flows"][0]
    # TCP payload of a 1500-byte packet with timestamps, over its size on the wire.
    most_mbps = rate_mbps * 1448 / 1514
    return (
        f"| {rate_mbps} Mbit/s, {rtt_ms} ms | {device} | {probe['rtt_p50_us'] / 1e3:.2f} "
        f"| {flow['goodput_bps'] / 1e6:.1f} | {most_mbps:.1f} "
        f"| {run.summary['lateness_us']['p50']:.0f} | {run.summary['lateness_us']['p99']:.0f} "
        f"| {run.info['timing']['cpu_s']:.1f} |"
    )


PAGE = """\
# Validation

Written by `make validate`; do not edit.

## LeoEM's published paths, recomputed

One orbit each, `compat = "leoem"`: lines with the same nodes, and the total one-way delay's error
against the log.

| log | lines | same nodes | target | median error (us) | p99 error (us) | ms per step |
|---|---|---|---|---|---|---|
{leoem}

Lines that differ are ones in which two routes are almost equally long or a satellite is at the very
edge of coverage: the last digits of the satellites' positions decide.

## Simulated TCP against Linux

{linux_was} went through these scenarios in
virtual time, and so does the simulator (`tcp = {{ profile = "linux-6.12", hz = 100 }}`).
Tolerances: goodput 2 %, mean srtt 3 % (5 % with random loss), retransmits and marks 25 % and {more}
more, a flow's share {share} points, times of short transfers and answers 5 %. What misses has its
reason in the last column, or is open. The tests hold the same (crates/sim/tests/sim/oracle.rs).

| scenario | Linux Mbit/s | ours | differ by | Linux srtt ms | ours | differ by \
| Linux rexmit | ours | Linux cwnd | ours | within |
|---|---|---|---|---|---|---|---|---|---|---|---|
{linux}

Linux's time begins with an established connection, ours with the SYN: over 600 ms that is 1 % of
the goodput.

### Three engines

The same scenarios in the simulator, on Linux in virtual time (`skyhop linux`, every kernel that was
built here; packets are carried by its own disciplines), and live on this machine's kernel with its
own ticks: goodput in Mbit/s, mean srtt in ms, retransmits, and how far goodput and srtt are apart.

{engines}

### Our congestion controls in both

The same C file in the simulator and as a module of Linux in virtual time: 10 s over 50 Mbit/s with
a queue of one BDP, means of nine round trips from 38 to 42 ms, over this project's link. A single
packet decides which others slow start loses, and that what follows: the simulator's Vegas keeps
a queue of some packets or of half a buffer, one over 39.5 ms and the other over 39. Linux's own
reno, cubic, bbr, vegas and hybla come there to what ours do as modules: what differs is the TCP
around them. For Hybla it is acknowledgements, which it counts in place of packets: while the window
opens the simulator's receiver sent 37 for 44 packets, the guest's over this project's link 24,
likely since packets from its device take more memory there. In a run with
`linux.link = "tc"` Hybla differs by 0.2 % in srtt.

{modules}

### Random loss

Which packets are lost is drawn, and thereby how many. Both are therefore compared at equal
realised loss, the part of the segments sent that are sent again: over all draws the logarithm of
goodput is fitted as a line over the logarithm of the loss, with the same slope for Linux's draws
and ours, and the distance of the two lines is the difference (an analysis of covariance). Srtt is
compared by its mean. Intervals are 95 %, by Student's t. "Perhaps" is a difference beyond the
tolerance with an interval that is not: Linux's draws cannot tell.

| scenario | draws: Linux, ours | Linux Mbit/s | ours | Linux loss | ours | goodput differs by \
| srtt differs by | Linux rexmit | ours | within |
|---|---|---|---|---|---|---|---|---|---|---|
{losses}

Of one of Linux's draws it is known in which tenth of a second each packet was sent again. A test
(crates/tcp/tests/tcp/oracle.rs) loses packets in the same tenths, and holds CUBIC's mean goodput
over 20 placements within them to 2 %. Where in its tenth each was lost moves a single run by 5 %.

### Two flows

The second begins some 20 s after the first; which of them a full queue hits depends on where in
the other's cycle it starts, so Linux was asked for {starts} starts, {apart} ms apart, and so is
the simulator. Given is the first one's share of what both sent. Over whole lives it is alone for
20 of its 120 s, and equal sharing after that is 53.8 %. From {converged} s on both have converged;
of Linux one run is known by time, so that its row only says whether that could be one of ours. The
share by time is that of cwnd over srtt, and intervals are as above. All starts lie in one part of
the first flow's cycle: recorded earlier in another guest (tests/linux) they were at 57.9 %, sd 3.2.

| scenario | when | draws: Linux, ours | Linux | sd | ours | sd | differ by | within |
|---|---|---|---|---|---|---|---|---|
{shares}

### Queue disciplines

Two flows, the second from some 5 s on, both until 60 s, with as many starts in both: means. Srtt is
that of the flow which differs more, within 5 %; with ECN marks are compared, else retransmits.

| scenario | draws: Linux, ours | Linux Mbit/s, both | differ by | Linux share | differs by \
| srtt differs by | what is counted | Linux | ours | within |
|---|---|---|---|---|---|---|---|---|---|---|
{disciplines}

### Short transfers and answers

Over fresh connections, from connect() on: until it returned, the server had read all, the client
had the answer. Then 300 B that are answered with 20 kB, a hundred times over one connection. After
a second of silence CUBIC begins with 10 packets anew.

| what | Linux ms | ours | differ by | within |
|---|---|---|---|---|
{short}

### Paths that misbehave

Live runs over this project's links on Linux 6.18 with 250 ticks per second, and the simulator with
its profile. Packets that overtake by less (reordering) and by more (dsack) than RACK waits for; a
round trip that becomes longer than the timeout, with nothing lost; ten minutes of outage; an ACK
path of 300 kbit/s. tests/python/test_linux_traces.py holds them to 2 % of goodput, 3 % of srtt, and
25 % and 20 more of the retransmits. Open: in the outage srtt stands for 650 s at what the last
acknowledgement left of it, which in the kernel's run was some 116 ms, and 104 here.

| path | Linux Mbit/s | differ by | Linux srtt ms | differ by | Linux rexmit | ours |
|---|---|---|---|---|---|---|
{traces}

### SatPipe and BBRv3

Linux ran their authors' modules, ours are written after the paper and the draft, and here they run
once: no tolerance. crates/sim/tests/sim/oracle.rs holds BBRv3's mean over ten draws (20 in
queues of its own) to 3 % of goodput, 5 % of srtt and a factor of 1.5 of retransmits, with what
draws differ by.

| scenario | Linux Mbit/s | ours | differ by | Linux srtt ms | ours | differ by \
| Linux rexmit | ours | Linux cwnd | ours |
|---|---|---|---|---|---|---|---|---|---|---|
{readings}

### Compared by tests alone

These rows but for `copa`'s are compared by crates/sim/tests/sim/oracle.rs, which holds the
tolerances and fails where one is missed. `copa` is compared nowhere: it loses fractions of packets,
so that its window ends at 64.

| congestion control, queue | scenarios |
|---|---|
{not_modelled}

Linux ran each once, ours is the mean over seeds and starts:

- bbr3 in queues of its own ignores marks, as its patch does without a route's `ecn_low`. A flow
  that overestimates its share keeps a queue, takes whatever the other leaves for a moment, and so
  keeps overestimating, for 5 to 55 s: marks of 30 draws are 17,776 +- 7,791 with fq_codel (Linux
  15,002) and 114,892 +- 48,963 with cake (167,574), srtt 86 +- 13 and 46 +- 6 ms (79 and 50), and
  85 +- 14 and 71 +- 17 ms (95 and 95).
- copafrac's least RTT begins anew with any sample once it is ten seconds old.
  `single-copafrac-50m-40ms-1bdp` is 4 % below Linux in srtt, and
  `handover-copafrac-50m-40ms-1bdp` 3 % in goodput.
- Open: `mixed-cubic-copafrac-50m-40ms-1bdp` has Linux's goodput and srtt within 4 %, but 80,000
  to 970,000 retransmits for 7,312. Where CUBIC has just filled the queue as the least RTT begins
  anew, Copa takes the full queue for an empty one and loses a part of what it sends until it
  begins anew again. Linux's run came to that in its last eight seconds.
- Open: `handover-leocc-aligned-50m-40ms-1bdp`, 12 % above Linux in goodput with 5,400 retransmits
  for 2,982: LeoCC looks out up to the moment at which the path changes, and for starts within
  0.3 s ours comes to 40 to 47 Mbit/s (Linux: 41).

The windows of the runs above, of ours the first seed and start. Random losses fall on other
packets, and what follows a draw of chance (BBR's first phase, which flow a full queue hits) goes
its own way from there. Over 600 ms the curves are a round trip apart: time begins with the
connection or the SYN.

![cwnd of Linux and of the simulator](validation-cwnd.png)

## SaTCP's Table I, San Diego to New York

One orbit (5,731 s) of the published path, bent pipes, 150 Mbit/s, a queue of 5 MB,
`compat = "leoem"`. The hold is 2 T_err + 0.3 s, the report T_err early and wrong as in SaTCP's
Figure 4; SatPipe is told without error. "Times CUBIC" is what the announcements bring.

| sender | published Mbit/s | ours | of the rate | published: times CUBIC | ours | srtt ms \
| rexmit |
|---|---|---|---|---|---|---|---|
{satcp}

The paper ran Linux 5.4 over an emulator with an interface and a queue at every hop; here one queue
stands for the path, and a link that is taken down is back at once but for the user's own. The order
of the rows and the gain with the hold are the paper's; CUBIC gets somewhat more here.

The contrast hangs on LeoEM's habits. Its delay to the ground leaves the height out, and it
chooses routes by that delay, so that they change far more often: 4,253 links to the ground are
joined or left in an orbit with skyhop's gateways, but 1,576 with the same constellation and true
distances; with 72 planes of 22 satellites it is 3,379 and 1,263. Between true distances CUBIC has
time to recover: 132 Mbit/s from San Diego to New York ([reproduced.md](reproduced.md), "72 x
22"), and SaTCP gains 8 %. SatPipe's advantage over BBR on access paths does not come out either;
reproduced.md says what was tried.

## The simulator against this machine's kernel

One flow for 60 s over 50 Mbit/s and 40 ms with a queue of one BDP, three times each: seeds in the
simulator, repetitions live, over each device that can carry packets here (`live.device`). A live
run that finds itself late is repeated; "late" counts those that were late at the last attempt too.
Lateness is the median of the runs', CPU the mean of what the engine and its traffic took.

{fixed}

The same C files in both: two minutes of the published path from San Diego to New York, bent
pipes, 150 Mbit/s, a queue of 5 MB, `compat = "leoem"`. In the kernel ours run as eBPF. SaTCP,
SatPipe and LeoCC are told of every handover 0.5 s before it, without error. Tolerance: goodput
within {orbit_tolerance:.0f} %.

| cc | device | simulated Mbit/s | kernel | differ by | within | late | what they said they did: \
simulator and kernel |
|---|---|---|---|---|---|---|---|
{orbit}

Twenty seconds of these runs. The bars at the top are where SaTCP holds its window, and where
SatPipe closes it to drain and to see the new path.

![cwnd in the simulator and in the kernel](validation-kernel.png)

## What ours cost in the kernel

CPU of both ends over a veth pair, transfers of 2 GB in interleaved pairs: the ratio of ours to
the kernel's own with a 95 % confidence interval (limit 1.10; above it
for certain is what has all of its interval there). Then the time from the moment at
which the signal service announces a handover to the ACK at which SaTCP acts on it (limit 1 ms).

{costs}

## Published tables and figures

[reproduced.md](reproduced.md), written by `make reproduce`, sets what five papers
published beside ours, with a verdict on each claim.

## How fast

What `make bench` says about paths and simulations on this machine: whole calls, files included.
LeoEM's own scripts take 14 minutes (bent pipe) and 50 minutes (ISL) for an orbit of one pair,
Hypatia's satgenpy 17.8 s for a step of all pairs. ns-3.37 simulates some 7,100 packets per second.

{orbits}

{pairs}

{simulations}

## Live runs against what was scheduled

A probe on an idle fixed path, then one CUBIC flow for 30 s on this machine's kernel. "Most" is the
payload's share of the wire rate.

| path | device | probe RTT p50 (ms) | goodput (Mbit/s) | most (Mbit/s) | lateness p50 (us) \
| p99 (us) | CPU (s) |
|---|---|---|---|---|---|---|---|
{live}

## A film in virtual time and in a browser

The same film with the same controller, RobustMPC, over fixed paths with a queue of two BDP: in
Chromium with dash.js over a live run (`skyhop video watch`), over the simulator's TCP (`dash`), and
over the rate alone (`skyhop video play`, of which 95.6 % is payload, and a round trip per chunk).
Tolerances: mean bitrate 5 %, time that the picture stands still 1 s. Over 1 Mbit/s the lowest
track has more than the link. The fair comparison is that over TCP, which has the handshake, slow
start and the queue of the browser's connection. Over the rate a chunk is as fast as the link from
its first byte on; what that adds at the beginning grows with the BDP, and counts in films as short
as these. Start-up is not compared: the browser's has that of dash.js in it.

{films}
"""


def main() -> int:
    """Compare, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "sections",
        nargs="*",
        metavar="SECTION",
        help="how headings begin of what is made anew; the rest of the page stays; or all",
    )
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time (default 2)")
    given = parser.parse_args()
    try:
        with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as executor:
            write(Made(executor), given.sections)
    except SkyhopError as error:
        print_note(f"validate: {error}")
        return 1
    return 0


HEADING = re.compile(r"^(?=#+ )", re.MULTILINE)
"""What begins a section: one of its subsections is another."""


def write(made: Made, wanted: Sequence[str]) -> None:
    """Make sections anew, or all of them, and write the page after each."""
    there = {_heading(text): text for text in HEADING.split(_page()) if text}
    sections = {_heading(text): text for text in HEADING.split(PAGE) if text}
    for name in wanted:
        if not any(heading.startswith(name) for heading in sections):
            raise InputError(f"{name}: no section; there are {', '.join(sections)}")
    for heading, text in sections.items():
        if wanted and not any(heading.startswith(name) for name in wanted):
            continue
        print_note(f"validate: {heading}")
        there[heading] = text.format_map(made)
        OUTPUT.write_text("".join(there[name] for name in sections if name in there), "utf-8")


def _heading(section: str) -> str:
    return section.split("\n", 1)[0].lstrip("# ")


def _page() -> str:
    return OUTPUT.read_text("utf-8") if OUTPUT.exists() else ""


class Made(dict[str, str | int | float]):
    """What the page has in it by name, each made when it is first asked for."""

    def __init__(self, executor: Executor) -> None:
        """Make it with these processes."""
        super().__init__(
            more=linux_reference.RETRANSMITS_MORE,
            share=round(100 * linux_reference.SHARE),
            starts=linux_chance.STARTS,
            apart=linux_chance.STARTS_APART_MS,
            converged=linux_chance.CONVERGED_S,
            orbit_tolerance=100 * simulator_and_kernel.ORBIT_TOLERANCE,
        )
        self._executor = executor

    def __missing__(self, name: str) -> str:
        """Make it: by the method of its name."""
        self[name] = made = str(getattr(self, f"_{name}")())
        return made

    def _leoem(self) -> str:
        return "\n".join(compared(log) for log in LOGS)

    def _orbits(self) -> str:
        return markdown([bench.orbit_row(relay) for relay in bench.LEOEM_S])

    def _pairs(self) -> str:
        return markdown([bench.pairs_row()])

    def _simulations(self) -> str:
        return markdown([bench_sim.simulation_row(one) for one in bench_sim.SIMULATIONS])

    # --- against Linux: kernels that are built run first what the rest is compared with ---

    def _linux_was(self) -> str:
        return three_engines.anew()

    @cached_property
    def _rows(self) -> list[linux_reference.Row]:
        _ = self["linux_was"]
        return linux_reference.rows(self._executor)

    @cached_property
    def _shared(self) -> dict[str, list[linux_reference.Outcome]]:
        _ = self["linux_was"]
        return linux_chance.sharing(self._executor)

    def _linux(self) -> str:
        return linux_reference.table(self._rows)

    def _engines(self) -> str:
        _ = self["linux_was"]
        return three_engines.table(self._executor)

    def _modules(self) -> str:
        return three_engines.modules_table()

    def _losses(self) -> str:
        _ = self["linux_was"]
        return linux_chance.loss_table(linux_chance.lossy(self._executor))

    def _shares(self) -> str:
        return linux_chance.share_table(self._shared)

    def _disciplines(self) -> str:
        return linux_chance.disciplines_table(self._shared)

    def _short(self) -> str:
        _ = self["linux_was"]
        return linux_short.table(self._executor)

    def _traces(self) -> str:
        return linux_traces.table()

    def _readings(self) -> str:
        return linux_reference.reading_table(self._rows)

    def _not_modelled(self) -> str:
        save(linux_reference.draw(self._rows), LINUX_FIGURE)
        return linux_reference.not_modelled()

    # --- against published values, and this machine's kernel ---

    def _satcp(self) -> str:
        return satcp_table.table(self._executor, needed(GATEWAYS))

    def _fixed(self) -> str:
        return simulator_and_kernel.fixed_table(self._executor)

    def _orbit(self) -> str:
        pairs = simulator_and_kernel.orbit_pairs(needed(GATEWAYS))
        save(simulator_and_kernel.draw(pairs), KERNEL_FIGURE)
        return simulator_and_kernel.orbit_table(pairs)

    def _costs(self) -> str:
        return kernel_costs.table()

    def _films(self) -> str:
        return films_in_browsers.table()

    def _live(self) -> str:
        devices = simulator_and_kernel.devices()
        return "\n".join(punctuality(*path, device) for path in SCHEDULED for device in devices)


def needed(name: str) -> Path:
    """Return a reference file."""
    path = reference.found(name)
    if path is None:
        raise InputError(f"no {reference.folder() / name}; run make reference")
    return path


def markdown(rows: list[dict[str, object]]) -> str:
    """Return rows with the same keys as a table."""
    head = f"| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}"
    return "\n".join([head, *(f"| {' | '.join(map(_cell, row.values()))} |" for row in rows)])


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


if __name__ == "__main__":
    sys.exit(main())
