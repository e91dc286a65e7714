"""Job files of the demo's three experiments."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from skyhop.errors import RunError
from skyhop_lab.testbed_demo import plan

EXPERIMENT, FAR_END = (Path(__file__).with_name(f"{name}.py") for name in ("experiment", "far_end"))
SCHEDULED, TRIGGERED, PREEMPTED = "look-around", "spike", "upload"
TRIGGER = "pop_ping_latency_ms >= 2 * before_avg(pop_ping_latency_ms, 5 s)"
_SANDBOX_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Search path of programs in sandboxes."""
_LOAD_BPS = 6e6


@dataclass(frozen=True)
class Programs:
    """Programs of this machine that the demo's runs use."""

    python: str
    has_iperf3: bool

    @classmethod
    def find_installed(cls) -> Programs:
        """Find the programs on this machine.

        Raises:
            RunError: no python3 is on the path of sandboxes.
        """
        if shutil.which("python3", path=_SANDBOX_PATH) is None:
            raise RunError("the demo's runs need a python3 in /usr/bin: install python3")
        return cls("python3", shutil.which("iperf3", path=_SANDBOX_PATH) is not None)


def job_files(
    directory: Path, lengths: plan.Lengths, programs: Programs, now_ns: int
) -> dict[str, Path]:
    """Write the three job files and their input files; return the paths by name of the job."""
    directory.mkdir(parents=True, exist_ok=True)
    for brought in (EXPERIMENT, FAR_END):
        shutil.copyfile(brought, directory / brought.name)
    begin = [programs.python, "-B", EXPERIMENT.name]
    more = ["--iperf3"] if programs.has_iperf3 else []
    # The program is passed as text, because a server's side may not have the job's input files.
    serve = [programs.python, "-c", FAR_END.read_text("utf-8"), "{port}", *more]
    end = dt.datetime.fromtimestamp(now_ns / 1e9 + 900, dt.UTC).isoformat(timespec="seconds")
    texts = {
        SCHEDULED: _job(
            SCHEDULED,
            plan.SCHEDULED,
            lengths.job_s,
            'at = "now"',
            [*begin, "measure", "{server}", "{port}", f"{lengths.scheduled_s:g}", *more],
            serve,
        ),
        TRIGGERED: _job(
            TRIGGERED,
            plan.TRIGGERED,
            lengths.job_s,
            f'trigger = "{TRIGGER}"\nmax_runs = 1\nend = "{end}"',
            [*begin, "hops", plan.SERVER, f"{lengths.triggered_s:g}"],
        ),
        PREEMPTED: _job(
            PREEMPTED,
            plan.PREEMPTED,
            lengths.preempted_job_s,
            f'at = "now"\nend = "{end}"',
            _upload(begin, f"{lengths.preempted_s:g}", programs),
            serve,
        ),
    }
    files = {name: directory / f"{name}.toml" for name in texts}
    for name, text in texts.items():
        files[name].write_text(text)
    return files


def _upload(begin: list[str], seconds: str, programs: Programs) -> list[str]:
    bps, where = f"{_LOAD_BPS:.0f}", ("{server}", "{port}")
    if programs.has_iperf3:
        return ["iperf3", "-c", where[0], "-p", where[1], "-t", seconds, "-b", bps, "--json"]
    return [*begin, "upload", *where, seconds, bps]


def _job(  # noqa: PLR0917 (one for each line of the file)
    name: str,
    site: plan.Site,
    length_s: float,
    when: str,
    client: list[str],
    serve: list[str] | None = None,
) -> str:
    """Return the text of a job file. A job without a server's side has `overhead = false`."""
    server = "" if serve is None else f'server = "{plan.SERVER_NODE}"\n'
    serving = "" if serve is None else f"serve = {json.dumps(serve)}\n"
    overhead = "false" if serve is None else "true"
    transport = "" if serve is None else 'transport = "tcp"\n'
    return f"""\
id = "{name}"
nodes = ["{site.name}"]
{server}length = "{length_s:g} s"
overhead = {overhead}

[when]
{when}

[run]
client = {json.dumps(client)}
{serving}network = "host"
files = ["{EXPERIMENT.name}", "{FAR_END.name}"]
keep = ["*", "telemetry"]
{transport}"""
