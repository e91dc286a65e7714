"""What `skyhop cc check FILE` does: the file as a congestion control, step by step.

The runs are those that the tests make with every module of cc/: every_module.rs of crates/sim. With
`--kernel` they are made in a guest, by skyhop's own and by files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from skyhop.cli.terminal import print_note
from skyhop.runs import Run

_PAYLOAD = 1448 / 1514
"""Of a full packet on the wire."""

_FULL = 0.8
"""The share of a clean link that counts as filled."""

_RECOVERED = 0.7
"""Likewise after an outage, from _LATE_NS on."""

_LATE_NS = 23 * 10**9
"""Ten seconds after the outage's end."""

_PROGRESS_BPS = 5e6
"""What each of two flows has to get."""


@dataclass(frozen=True)
class Check:
    """Something that was looked at, and what was found."""

    name: str
    result: str
    ok: bool = True

    def row(self) -> dict[str, Any]:
        """Return it for a table."""
        return {"check": self.name, "ok": "yes" if self.ok else "no", "result": self.result}


def check_file(file: Path) -> tuple[list[Check], Sequence[Mapping[str, Any]]]:
    """Return what was found, and the hooks as this kernel's verifier saw them, if it was asked.

    Raises:
        InputError: it is no congestion control: it does not compile, a hook is missing, …
        RunError: there is no compiler, or the kernel's verifier refuses it.
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
    """Return what was found in a guest with the kernel of this name.

    Args:
        name: one of skyhop's own, or a file in C.
        kernel: its name, as `skyhop linux kernel list` has it.

    Raises:
        InputError: there is no such kernel or congestion control, or it does not compile.
        RunError: a program is missing, the guest died, …
    """
    from skyhop.errors import InputError
    from skyhop.linux import find
    from skyhop.linux.modules import modules_of

    file = Path(name)
    cc = str(file.absolute()) if file.suffix == ".c" else f"skyhop:{name.removeprefix('skyhop:')}"
    found = find(kernel)
    if file.suffix not in ("", ".c") or not modules_of(found, [cc]):
        raise InputError(f"{name}: a guest takes files in C, and skyhop's own: skyhop cc list")
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
    from skyhop.engines import sim

    flows = [{"cc": str(file.absolute()), **flow} for flow in given.get("flow", [{}])]
    return sim({**given, "flow": flows})


def _link(rate: str, rtt: str, queue: str, duration: str) -> dict[str, Any]:
    """Return a scenario of one clean link."""
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
    times, goodputs = (run.flows[name].to_pylist() for name in ("t_ns", "goodput_bps"))
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
