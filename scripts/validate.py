"""Compares skyhop with Linux, other tools and papers; writes docs/results/validation.md."""

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
import skyhop
import three_engines
from skyhop.cli.terminal import print_note
from skyhop.errors import InputError, SkyhopError
from skyhop.figures import save

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "docs" / "results" / "validation.md"
LINUX_FIGURE = OUTPUT.with_name("validation-cwnd.png")
KERNEL_FIGURE = OUTPUT.with_name("validation-kernel.png")

SAN_DIEGO, NEW_YORK, SEATTLE = "32.881,-117.237", "40.845,-73.932", "47.608,-122.335"


@dataclass(frozen=True)
class Log:
    """Published path of LeoEM, with the parameters that LeoEM computed it with."""

    name: str
    from_: str
    to: str
    relay: str
    target_percent: float

    @property
    def file(self) -> str:
        """Name of the log among the reference files."""
        return f"leoem/{self.name}.log.gz"


GATEWAYS = "leoem/ground_stations.csv"
LOGS = (
    Log("SD_NY_15_ISL", SAN_DIEGO, NEW_YORK, "isl", 99),
    Log("SD_SEA_15_ISL", SAN_DIEGO, SEATTLE, "isl", 99),
    Log("SD_NY_15_BP", SAN_DIEGO, NEW_YORK, "bent-pipe", 93),
)


def log_row(log: Log) -> str:
    """Return the table's row of a log: share of lines with the same nodes, and error of delays."""
    logged = skyhop.import_path(required_file(log.file), "leoem").frames
    started_s = time.monotonic()
    computed = skyhop.path(
        log.from_,
        log.to,
        relay=log.relay,
        constellation="leoem-starlink",
        compat="leoem",
        gateways=str(required_file(GATEWAYS)),
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


# Paths of live runs: rate in Mbit/s and RTT in ms.
SCHEDULED = ((20, 40), (150, 50), (50, 600))


def punctuality_row(rate_mbps: int, rtt_ms: int, device: str) -> str:
    """Return the row of a live run: probe RTT and goodput against those of the path."""
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
    # TCP payload of a 1500-byte packet with timestamps, divided by its size on the wire.
    most_mbps = rate_mbps * 1448 / 1514
    return (
        f"| {rate_mbps} Mbit/s, {rtt_ms} ms | {device} | {probe['rtt_p50_us'] / 1e3:.2f} "
        f"| {flow['goodput_bps'] / 1e6:.1f} | {most_mbps:.1f} "
        f"| {run.summary['lateness_us']['p50']:.0f} | {run.summary['lateness_us']['p99']:.0f} "
        f"| {run.info['timing']['cpu_s']:.1f} |"
    )


PAGE = """\
# Validation

For reviewers and researchers: comparisons of paths, the simulated TCP, live runs and films with
Linux, with other tools and with published results. Each difference is explained or marked as open.
`make validate` writes this page; do not edit it. Columns named "simulator" or "skyhop" are
skyhop's results. "Within" says whether a row is within the tolerances that its section states.

## LeoEM's published paths, recomputed

Each path was computed for one orbit with `compat = "leoem"`, and compared line by line with
LeoEM's log: the share of lines with the same nodes, and the error of the total one-way delay.

| log | lines | same nodes | target | median error (us) | p99 error (us) | ms per step |
|---|---|---|---|---|---|---|
{leoem}

In the lines that differ, two routes are almost equally long, or a satellite is at the edge of
coverage, so that the last digits of the satellites' positions decide.

## Simulated TCP against Linux

{linux_was} ran these scenarios in
virtual time. The simulator runs the same scenarios with
`tcp = {{ profile = "linux-6.12", hz = 100 }}`. The tolerances are: goodput 2 %; mean smoothed RTT
(srtt) 3 %, with random loss 5 %; retransmits and marks 25 % plus {more}; a flow's share {share}
percentage points; times of short transfers and answers 5 %. For a row out of tolerance, the last
column gives the reason, or marks it as open. The tests check the same tolerances
(crates/sim/tests/sim/oracle.rs).

| scenario | Linux Mbit/s | simulator | differ by | Linux srtt ms | simulator | differ by \
| Linux rexmit | simulator | Linux cwnd | simulator | within |
|---|---|---|---|---|---|---|---|---|---|---|---|
{linux}

Linux's time begins when the connection is established, the simulator's with the SYN. Over 600 ms
this difference is 1 % of the goodput.

### Three engines

The same scenarios ran in three engines: in the simulator; on Linux in virtual time
(`skyhop linux`, with every kernel that is built on this machine; Linux's queue disciplines carry
the packets); and live on this machine's kernel with its own tick rate. A cell has goodput in
Mbit/s, mean srtt in ms, and retransmits. The last two columns are differences of goodput and srtt
from Linux 6.12: those of the simulator, and the largest of the other kernels.

{engines}

### Our congestion controls in both

The same C file ran in the simulator, and as a kernel module in a guest (Linux in virtual time),
for 10 s over skyhop's link of 50 Mbit/s with a queue of one BDP. Each value is the mean of nine
runs with RTTs from 38 to 42 ms. Single runs vary, because one packet decides which packets slow
start loses, and these losses determine the rest of the run: the simulator's Vegas keeps a queue of
a few packets with an RTT of 39.5 ms, but of half a buffer with 39 ms. In the guest, Linux's own
reno, cubic, bbr, vegas and hybla have the same results as skyhop's modules, so the remaining
differences come from the TCP around them. Hybla differs because it counts acknowledgements in
place of packets: while the window opens, the simulator's receiver sent 37 acknowledgements for 44
packets, and the guest's receiver 24 over skyhop's link, probably because packets from that device
take more memory. In a run with `linux.link = "tc"` Hybla's srtt differs by 0.2 %.

{modules}

### Random loss

With random loss, both the lost packets and their number are random. Linux and the simulator are
therefore compared at equal realised loss, which is the share of sent segments that are
retransmitted. The comparison is an analysis of covariance: over all draws, the logarithm of
goodput is fitted as a line over the logarithm of the loss, with the same slope for Linux and the
simulator, and the distance of the two lines is the difference. Srtt is compared by its mean.
Intervals are 95 % confidence intervals (Student's t). "Perhaps" means that the difference exceeds
the tolerance, but its interval reaches into the tolerance, so Linux's draws do not decide.

| scenario | draws: Linux, simulator | Linux Mbit/s | simulator | Linux loss | simulator \
| goodput differs by | srtt differs by | Linux rexmit | simulator | within |
|---|---|---|---|---|---|---|---|---|---|---|
{losses}

For one of Linux's draws, the tenth of a second in which each packet was retransmitted is known. A
test (crates/tcp/tests/tcp/oracle.rs) loses packets in the same tenths, at 20 random placements
within them, and requires that CUBIC's mean goodput is within 2 % of Linux's. The placement within
the tenths changes a single run by 5 %.

### Two flows

The second flow begins about 20 s after the first. Which flow loses packets in a full queue depends
on the phase of the first flow's cycle at that time. Linux and the simulator therefore each ran
{starts} starts of the second flow, {apart} ms apart. The tables give the first flow's share of the
data of both flows. "Whole lives" includes the first 20 of its 120 s, in which the first flow is
alone; with equal sharing after that, its share is 53.8 %. From {converged} s on both flows have
converged. For that time only one run of Linux has a time series, so the row says only whether
Linux's run could be one of the simulator's. The share over time is computed from cwnd / srtt.
Intervals are as above. All starts lie in one part of the first flow's cycle; an earlier recording
in another guest (tests/linux) had a share of 57.9 %, with a standard deviation of 3.2.

| scenario | when | draws: Linux, simulator | Linux | sd | simulator | sd | differ by | within |
|---|---|---|---|---|---|---|---|---|
{shares}

### Queue disciplines

Two flows share the link until 60 s; the second begins at about 5 s. Values are means over the same
number of starts in Linux and in the simulator. The srtt is that of the flow that differs more,
with a tolerance of 5 %. With ECN the marks are compared, otherwise the retransmits.

| scenario | draws: Linux, simulator | Linux Mbit/s, both flows | differ by | Linux share \
| differs by | srtt differs by | what is counted | Linux | simulator | within |
|---|---|---|---|---|---|---|---|---|---|---|
{disciplines}

### Short transfers and answers

Transfers use new connections. The times run from the call of connect() until it returned
("connected"), until the server had read all data ("received"), and until the client had the answer
("replied"). The last rows are requests of 300 B with answers of 20 kB, a hundred times over one
connection, with a pause before each request. After a pause of one second CUBIC starts with a
window of 10 packets.

| what | Linux ms | simulator | differ by | within |
|---|---|---|---|---|
{short}

### Paths that misbehave

Linux 6.18 with 250 ticks per second ran live over skyhop's links, and the simulator with the
profile of that kernel. The paths are: packets that overtake others by less (reordering) or by more
(dsack) than RACK's reordering window; a round trip that becomes longer than the retransmission
timeout, without loss (spurious-timeout); ten minutes of outage; and an ACK path of 300 kbit/s
(ack-bottleneck). test_linux_traces.py checks tolerances of 2 % for goodput, 3 % for
srtt, and 25 % plus 20 for retransmits. Open: during the outage, srtt keeps for 650 s its value
after the last acknowledgement, which is about 116 ms in the kernel's run and 104 ms in the
simulator.

| path | Linux Mbit/s | differ by | Linux srtt ms | differ by | Linux rexmit | simulator |
|---|---|---|---|---|---|---|
{traces}

### SatPipe and BBRv3

Linux ran the modules of the authors. skyhop's SatPipe follows the paper, and skyhop's BBRv3
follows the draft. Each scenario ran once, so the table has no tolerance.
crates/sim/tests/sim/oracle.rs checks BBRv3's mean over ten draws (20 with a queue per flow)
against tolerances of 3 % for goodput, 5 % for srtt and a factor of 1.5 for retransmits, with an
allowance for the spread of the draws.

| scenario | Linux Mbit/s | simulator | differ by | Linux srtt ms | simulator | differ by \
| Linux rexmit | simulator | Linux cwnd | simulator |
|---|---|---|---|---|---|---|---|---|---|---|
{readings}

### Compared by tests alone

crates/sim/tests/sim/oracle.rs compares all of these rows except those of `copa`, and fails if a
row is out of tolerance. `copa` is not compared: the authors' module rounds its window to whole
packets, so that the window never exceeds 64.

| congestion control, queue | scenarios |
|---|---|
{not_modelled}

Linux ran each scenario once; the simulator's value is the mean over seeds and starts:

- With a queue per flow, bbr3 ignores ECN marks, as the authors' patch does without `ecn_low` on
  the route. A flow that overestimates its share keeps a queue. It takes the rate that the other
  flow leaves for a moment, and so continues to overestimate, for 5 to 55 s. The spread of 30 draws
  is therefore large. Marks: 17,776 +- 7,791 with fq_codel (Linux 15,002) and 114,892 +- 48,963
  with cake (Linux 167,574). Srtt of the two flows: 86 +- 13 and 46 +- 6 ms with fq_codel (Linux 79
  and 50), and 85 +- 14 and 71 +- 17 ms with cake (Linux 95 and 95).
- When copafrac's minimum RTT is ten seconds old, the next sample replaces it, whatever its value.
  `single-copafrac-50m-40ms-1bdp` is 4 % below Linux in srtt, and `handover-copafrac-50m-40ms-1bdp`
  3 % in goodput.
- Open: `mixed-cubic-copafrac-50m-40ms-1bdp` is within 4 % of Linux in goodput and srtt, but has
  80,000 to 970,000 retransmits; Linux has 7,312. If CUBIC has just filled the queue when the
  minimum RTT is replaced, Copa takes the full queue for an empty one, and loses a part of its
  packets until the next replacement. Linux's run did the same in its last eight seconds.
- Open: `handover-leocc-aligned-50m-40ms-1bdp` is 12 % above Linux in goodput, with 5,400
  retransmits (Linux 2,982). LeoCC expects a change of the path only up to the time at which it
  happens. For starts within 0.3 s the simulator reaches 40 to 47 Mbit/s (Linux 41).

The figure shows the windows of the runs above; for the simulator, those of the first seed and
start. The curves of Linux and the simulator diverge after a random event: random losses hit other
packets, BBR draws the phase of its first cycle, and chance decides which flow loses packets in a
full queue. Over 600 ms the curves are a round trip apart, because Linux's time begins with the
established connection and the simulator's with the SYN.

![cwnd of Linux and of the simulator](validation-cwnd.png)

## SaTCP's Table I, San Diego to New York

The runs cover one orbit (5,731 s) of the published bent-pipe path with 150 Mbit/s, a queue of 5 MB
and `compat = "leoem"`. SaTCP holds its window for 2 T_err + 0.3 s. Its announcements arrive T_err
early, with the timing errors of SaTCP's Figure 4; SatPipe's announcements have no error. "Times
CUBIC" is the goodput divided by CUBIC's.

| sender | published Mbit/s | skyhop | of the rate | published: times CUBIC | skyhop | srtt ms \
| rexmit |
|---|---|---|---|---|---|---|---|
{satcp}

The paper ran Linux 5.4 over an emulator with an interface and a queue at every hop. Here one queue
stands for the whole path, and a link that goes down is up again at once, except the user's own
link. The order of the rows and the gain from a longer hold agree with the paper; CUBIC has
somewhat more goodput here.

The large differences between senders depend on a simplification of LeoEM. Its delay to the ground
ignores the satellite's height, and it chooses routes by that delay, so that routes change far more
often. With skyhop's gateways, 4,253 links to the ground are joined or left in an orbit, but 1,576
with the same constellation and true distances; with 72 planes of 22 satellites the numbers are
3,379 and 1,263. With true distances CUBIC has time to recover: it reaches 132 Mbit/s from San
Diego to New York ([SaTCP](reproduced/satcp.md), "72 x 22"), and SaTCP gains 8 %. SatPipe's
advantage over BBR on access paths could not be reproduced either; [SatPipe](reproduced/satpipe.md)
lists the attempts.

## The simulator against this machine's kernel

One flow runs for 60 s over 50 Mbit/s and 40 ms with a queue of one BDP: three times in the
simulator, with different seeds, and three times live over each kind of device that works on this
machine (`live.device`). A live run that warns of its own lateness is repeated; "late" is the
number of runs that were late in their last attempt too. Lateness is the median over the runs. CPU
is the mean CPU time of the engine and its traffic.

{fixed}

In the second table the same C files run in the simulator and, as eBPF, in the kernel, over two
minutes of the published bent-pipe path from San Diego to New York with 150 Mbit/s, a queue of 5 MB
and `compat = "leoem"`. SaTCP, SatPipe and LeoCC get an announcement of every handover, 0.5 s ahead
and without error. The tolerance of goodput is {orbit_tolerance:.0f} %. The last column counts the
phases that the modules reported, and those whose starts are within 50 ms of each other.

| cc | device | simulated Mbit/s | kernel | differ by | within | late | reported phases: \
simulator and kernel |
|---|---|---|---|---|---|---|---|
{orbit}

The figure shows twenty seconds of these runs. The bars at the top mark the times in which SaTCP
holds its window, and in which SatPipe closes its window to drain the queue and to measure the new
path.

![cwnd in the simulator and in the kernel](validation-kernel.png)

## What ours cost in the kernel

The first two lines compare skyhop's modules with the kernel's own: CPU time of both ends over a
veth pair, for transfers of 2 GB in interleaved pairs, and the ratio with its 95 % confidence
interval. The limit of the ratio is 1.10; it is exceeded with certainty only if the whole interval
is above 1.10. The third line is the time from an announcement by the signal service to the ACK at
which SaTCP acts on it (limit 1 ms).

{costs}

## Published tables and figures

[Reproduced papers](reproduced/index.md), written by `make reproduce`, compares the published
values of five papers with skyhop's, with a verdict on each claim.

## How fast

These are the figures of `make bench` for paths and simulations on this machine. They measure whole
calls, including the writing of files; "before" is the previous release. For comparison: LeoEM's
own scripts take 14 minutes (bent pipe) and 50 minutes (ISL) for an orbit of one pair, Hypatia's
satgenpy takes 17.8 s for a step of all pairs, and ns-3.37 simulates about 7,100 packets per
second.

{orbits}

{pairs}

{simulations}

## Live runs against what was scheduled

Each live run has a probe on the idle fixed path, and then one CUBIC flow of this machine's kernel
for 30 s. "Most" is the highest possible goodput, the payload's share of the wire rate.

| path | device | probe RTT p50 (ms) | goodput (Mbit/s) | most (Mbit/s) | lateness p50 (us) \
| p99 (us) | CPU (s) |
|---|---|---|---|---|---|---|---|
{live}

## A film in virtual time and in a browser

The same film with the same controller, RobustMPC, is played over fixed paths with a queue of two
BDP in three ways: in Chromium with dash.js over a live run (`skyhop video watch`), over the
simulator's TCP (the application `dash`), and over the rate alone (`skyhop video play`, with a
payload of 95.6 % of the rate, and one round trip per chunk). The tolerances are 5 % of the mean
bitrate and 1 s of stalls. On the path with 1 Mbit/s the lowest track exceeds the link's rate. The
appropriate comparison with the browser is the one over TCP, because both have a handshake, slow
start and a queue. Over the rate alone, each chunk arrives at the full rate from its first byte on;
this advantage at the beginning grows with the BDP, and matters in films as short as these.
Start-up times are not compared, because the browser's include the start-up of dash.js.

{films}
"""


def main() -> int:
    """Run the comparisons, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "sections",
        nargs="*",
        metavar="SECTION",
        help="prefixes of the headings of sections to update; others stay; default: all",
    )
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time (default 2)")
    given = parser.parse_args()
    try:
        with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as executor:
            write(PageValues(executor), given.sections)
    except SkyhopError as error:
        print_note(f"validate: {error}")
        return 1
    return 0


HEADING = re.compile(r"^(?=#+ )", re.MULTILINE)
"""Start of a section; a subsection is a section of its own."""


def write(values: PageValues, wanted: Sequence[str]) -> None:
    """Update the wanted sections, or all, and write the page after each."""
    written = {_heading(text): text for text in HEADING.split(_page()) if text}
    sections = {_heading(text): text for text in HEADING.split(PAGE) if text}
    for name in wanted:
        if not any(heading.startswith(name) for heading in sections):
            raise InputError(f"{name}: no section; there are {', '.join(sections)}")
    for heading, text in sections.items():
        if wanted and not any(heading.startswith(name) for name in wanted):
            continue
        print_note(f"validate: {heading}")
        written[heading] = text.format_map(values)
        page = "".join(written[name] for name in sections if name in written)
        OUTPUT.write_text(page, "utf-8")


def _heading(section: str) -> str:
    return section.split("\n", 1)[0].lstrip("# ")


def _page() -> str:
    return OUTPUT.read_text("utf-8") if OUTPUT.exists() else ""


class PageValues(dict[str, str | int | float]):
    """Values of the page's placeholders by name; each is computed at its first use."""

    def __init__(self, executor: Executor) -> None:
        """Set the constants; `executor` runs the simulations."""
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
        """Compute a value with the method `_NAME`."""
        self[name] = value = str(getattr(self, f"_{name}")())
        return value

    def _leoem(self) -> str:
        return "\n".join(log_row(log) for log in LOGS)

    def _orbits(self) -> str:
        return markdown([bench.orbit_row(relay) for relay in bench.LEOEM_S])

    def _pairs(self) -> str:
        return markdown([bench.pairs_row()])

    def _simulations(self) -> str:
        return markdown([bench_sim.simulation_row(one) for one in bench_sim.SIMULATIONS])

    # --- against Linux: built kernels run their scenarios before the other comparisons ---

    def _linux_was(self) -> str:
        return three_engines.run_kernels()

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
        return satcp_table.table(self._executor, required_file(GATEWAYS))

    def _fixed(self) -> str:
        return simulator_and_kernel.fixed_table(self._executor)

    def _orbit(self) -> str:
        pairs = simulator_and_kernel.orbit_pairs(required_file(GATEWAYS))
        save(simulator_and_kernel.draw(pairs), KERNEL_FIGURE)
        return simulator_and_kernel.orbit_table(pairs)

    def _costs(self) -> str:
        return kernel_costs.table()

    def _films(self) -> str:
        return films_in_browsers.table()

    def _live(self) -> str:
        devices = simulator_and_kernel.devices()
        return "\n".join(punctuality_row(*path, device) for path in SCHEDULED for device in devices)


def required_file(name: str) -> Path:
    """Return a reference file; an error if this machine does not have it."""
    path = reference.found(name)
    if path is None:
        raise InputError(f"no {reference.folder() / name}; run make reference")
    return path


def markdown(rows: list[dict[str, object]]) -> str:
    """Return a Markdown table of rows with the same keys."""
    head = f"| {' | '.join(rows[0])} |\n|{'---|' * len(rows[0])}"
    return "\n".join([head, *(f"| {' | '.join(map(_cell, row.values()))} |" for row in rows)])


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


if __name__ == "__main__":
    sys.exit(main())
