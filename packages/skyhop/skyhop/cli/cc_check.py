"""Checks of `skyhop cc check FILE`: compilation, hooks, and four runs.

The tests execute the same runs with every module of cc/ (every_module.rs of crates/sim). With
`--kernel`, the runs are in a guest, with a file or one of skyhop's congestion controls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from skyhop.cli.terminal import print_note
from skyhop.data.runs import Run

_PAYLOAD = 1448 / 1514
"""Ratio of TCP payload to bytes on the wire, for a full-sized packet."""

_FULL = 0.8
"""Least goodput on a clean link, as a share of its capacity."""

_RECOVERED = 0.7
"""Least goodput after an outage, from `_LATE_NS` on, as a share of the capacity."""

_LATE_NS = 23 * 10**9
"""Time in ns since the run's start from which recovery is checked: 10 s after the outage."""

_PROGRESS_BPS = 5e6
"""Least goodput in bit/s of each of two competing flows."""


@dataclass(frozen=True)
class Check:
    """Result of one check: a row of the printed table."""

    name: str
    result: str
    ok: bool = True

    def row(self) -> dict[str, Any]:
        """Return the check as a row of the printed table."""
        return {"check": self.name, "ok": "yes" if self.ok else "no", "result": self.result}


def check_file(file: Path) -> tuple[list[Check], Sequence[Mapping[str, Any]]]:
    """Check a file of the user, in C or Python.

    Returns:
        The checks; and per hook the counts of the kernel's verifier, empty if it did not run.

    Raises:
        InputError: the file is no congestion control: it does not compile, a hook is missing, …
        RunError: there is no compiler, or the kernel's verifier refuses the file.
    """
    from skyhop import _core

    if file.suffix == ".py":
        is_read = Check("is read by Python", "class CongestionControl with on_ack")
        return [is_read, *_runs(partial(_simulated, file))], []
    sys.stderr.write(_core.load_cc_file(str(file)))
    checks = [
        Check("compiles for the simulator", "as a shared object"),
        Check("has the hooks it needs", "and none that is never called"),
        *_runs(partial(_simulated, file)),
    ]
    problem, hooks = _core.check_cc_file(str(file))
    if problem is None:
        checks.append(Check("compiles for the kernel", "and this one's verifier takes it"))
    else:
        print_note(f"not tried in the kernel: {problem}")
    rows = [
        {"hook": hook, "instructions": instructions, "verified": verified}
        for hook, instructions, verified in hooks
    ]
    return checks, rows


def check_in_guest(name: str, kernel: str) -> list[Check]:
    """Run the checks in a guest with a built kernel.

    Args:
        name: one of skyhop's congestion controls, or a C file.
        kernel: name of the kernel, as in `skyhop linux kernel list`.

    Raises:
        InputError: the kernel or congestion control does not exist, or does not compile.
        RunError: a program is missing, the guest died, …
    """
    from skyhop.errors import InputError
    from skyhop.linux import find
    from skyhop.linux.modules import modules_of

    file = Path(name)
    cc = str(file.absolute()) if file.suffix == ".c" else f"skyhop:{name.removeprefix('skyhop:')}"
    found = find(kernel)
    if file.suffix not in ("", ".c") or not modules_of(found, [cc]):
        raise InputError(f"{name}: a guest needs a C file, or a name of skyhop cc list")
    compiles = Check("compiles as a module", f"of Linux {found.release}")
    return [compiles, *_runs(partial(_in_guest, cc, kernel))]


_Simulate = Callable[[Mapping[str, Any]], Run]


def _runs(simulate: _Simulate) -> Iterator[Check]:
    for check in (_fills, _recovers, _shares, _repeats):
        yield check(simulate)


def _in_guest(cc: str, kernel: str, given: Mapping[str, Any]) -> Run:
    from skyhop.linux import run

    flows = [{"cc": cc, **flow} for flow in given.get("flow", [{}])]
    return run({**given, "flow": flows}, kernel=kernel)


def _simulated(file: Path, given: Mapping[str, Any]) -> Run:
    from skyhop.simulation import sim

    flows = [{"cc": str(file.absolute()), **flow} for flow in given.get("flow", [{}])]
    return sim({**given, "flow": flows})


def _link(rate: str, rtt: str, queue: str, duration: str) -> dict[str, Any]:
    """Return a scenario with one link without loss or changes."""
    return {
        "path": {"kind": "fixed", "rtt": rtt},
        "link": {"rate": rate, "queue": queue},
        "run": {"duration": duration},
    }


def _fills(simulate: _Simulate) -> Check:
    run = simulate(_link("20 Mbit/s", "50 ms", "125 kB", "20 s"))
    share = run.summary["flows"][0]["goodput_bps"] / (20e6 * _PAYLOAD)
    result = f"{100 * share:.0f} % of 20 Mbit/s at 50 ms with a queue of one BDP"
    return Check("fills a clean link", result, ok=share > _FULL)


def _recovers(simulate: _Simulate) -> Check:
    outage = {"change": [{"at": "10 s", "outage": "3 s"}]}
    run = simulate({**_link("20 Mbit/s", "50 ms", "125 kB", "40 s"), **outage})
    times, goodputs = (run.flows[name].to_list() for name in ("t_ns", "goodput_bps"))
    late = [bps for t_ns, bps in zip(times, goodputs, strict=True) if t_ns > _LATE_NS]
    share = sum(late) / len(late) / (20e6 * _PAYLOAD) if late else 0.0
    result = f"{100 * share:.0f} % of the link from 10 s after one of 3 s on"
    return Check("recovers from an outage", result, ok=share > _RECOVERED)


def _shares(simulate: _Simulate) -> Check:
    flows = {"flow": [{}, {"start": "3 s"}]}
    run = simulate({**_link("50 Mbit/s", "40 ms", "250 kB", "60 s"), **flows})
    rates_bps = [flow["goodput_bps"] for flow in run.summary["flows"]]
    shown = " and ".join(f"{rate / 1e6:.1f}" for rate in rates_bps)
    return Check("shares with its like", f"{shown} of 50 Mbit/s", ok=min(rates_bps) > _PROGRESS_BPS)


def _repeats(simulate: _Simulate) -> Check:
    given = {
        **_link("20 Mbit/s", "30 ms", "75 kB", "8 s"),
        "signal": {"source": "path", "lead": "0.3 s", "error": "report-timing"},
        "change": [
            {"at": "2 s", "rtt": "45 ms", "outage": "80 ms"},
            {"at": "5 s", "loss": "1 %"},
        ],
        "flow": [{"count": 2}],
    }
    same = simulate(given).flows.equals(simulate(given).flows)
    result = "the same twice" if same else "twice the same seed, and two results"
    return Check("repeats itself", result, ok=same)
