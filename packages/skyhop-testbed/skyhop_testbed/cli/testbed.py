"""`skyhop testbed`: run experiments on the hosts of satellite terminals."""

from __future__ import annotations

import datetime as dt
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli.figures import Footer, Height, Width, figure_file_or_none
from skyhop.cli.options import Json, group
from skyhop.cli.stopping import until_signal
from skyhop.cli.terminal import print_note, print_rows
from skyhop_testbed.cli import testbed_admin, testbed_alerts, testbed_quota
from skyhop_testbed.cli.testbed_authority import approve, authority_app
from skyhop_testbed.cli.testbed_bucket import bucket
from skyhop_testbed.cli.testbed_events import print_events
from skyhop_testbed.cli.testbed_import import import_
from skyhop_testbed.cli.testbed_kernel import kernel
from skyhop_testbed.cli.testbed_release import release_app
from skyhop_testbed.cli.testbed_shared import (
    As,
    instant_ns,
    now_ns,
    opened,
    print_found,
    print_json,
    print_outcome,
    when,
)
from skyhop_testbed.cli.testbed_state import backup, restore
from skyhop_testbed.cli.testbed_triggers import trigger_app

if TYPE_CHECKING:
    from skyhop_testbed.api import (
        Conflict,
        Document,
        JobInfo,
        NodeInfo,
        Reservation,
        RunDocument,
        RunInfo,
    )
    from skyhop_testbed.serve import BoundPorts

app = group(
    "Run experiments on the hosts of satellite terminals.\n\n"
    "Operators: serve, invite, users. Hosts: enrol, agent, kernel, scavenger. Experimenters: "
    "check, submit, runs, fetch.\n\n"
    "Try it: skyhop testbed demo"
)
app.command("kernel")(kernel)
app.command("bucket")(bucket)
app.command("import")(import_)
app.command("backup")(backup)
app.command("restore")(restore)
app.command("approve")(approve)
app.add_typer(authority_app, name="authority")
app.add_typer(release_app, name="release")
testbed_admin.register(app)
testbed_alerts.register(app)
testbed_quota.register(app)
app.add_typer(trigger_app, name="trigger")

JobFile = Annotated[Path, typer.Argument(metavar="JOB.toml", help="A job file.")]
NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Name of a node.")]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="Name or id of a job.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="Id of a run, or its last letters.")]


@app.command()
def serve(
    state: Annotated[
        Path,
        typer.Option(
            "--state", metavar="DIR", help="State directory: keys, database, files and telemetry."
        ),
    ] = Path("testbed"),
    users: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address for users and enrolment.")
    ] = "127.0.0.1:7400",
    agents: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address for agents.")
    ] = "127.0.0.1:7401",
    web: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help='Address of the web pages; "" for no pages.'),
    ] = "127.0.0.1:7480",
    metrics: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Address of metrics for Prometheus; default: none."),
    ] = "",
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Name or address under which users and agents reach the testbed (repeatable); "
            "credentials contain the first.",
        ),
    ] = None,
) -> None:
    """Serve a testbed until Ctrl-C or SIGTERM: ports for users and agents, and the web pages.

    By default only this machine reaches the ports; --users 0.0.0.0:7400 opens one to others.

    The first start writes the administrator's credential to DIR/admin.json.

    Example: skyhop testbed serve --state /var/lib/skyhop-testbed --name testbed.example.org
    """
    from skyhop import logs
    from skyhop_testbed.clock import SYSTEM_CLOCK
    from skyhop_testbed.orchestrator.core import Orchestrator
    from skyhop_testbed.serve import Addresses, local_only_note, names_of
    from skyhop_testbed.serve import serve as serve_orchestrator

    logs.configure(otherwise=logs.SERVICE)
    addresses = Addresses(users, agents, web, metrics)
    note = local_only_note(addresses, name or [])
    if note:
        print_note(note)
    called = names_of(addresses, name or [])
    public = (name or [_reached(users)])[0]

    def ready(ports: BoundPorts) -> None:
        testbed_admin.write_addresses(orchestrator, public, ports)
        written = testbed_admin.write_first_credential(orchestrator, f"{public}:{ports.users}")
        if written:
            print_note(f"the administrator's credential: {written}")
        if ports.metrics:
            print_note(f"metrics at https://{public}:{ports.metrics}/metrics")
        said = f"serving users at {public}:{ports.users}, agents at {public}:{ports.agents}"
        print(
            f"{said}, the page at https://{public}:{ports.web}" if ports.web else said, flush=True
        )

    with until_signal():
        orchestrator = Orchestrator(state.absolute(), called, clock=SYSTEM_CLOCK)
        serve_orchestrator(orchestrator, addresses, ready=ready)


def _reached(address: str) -> str:
    host = address.rpartition(":")[0]
    return "127.0.0.1" if host in ("0.0.0.0", "::", "[::]", "") else host


@app.command()
def enrol(
    invitation: Annotated[
        Path, typer.Argument(metavar="INVITATION", help="Invitation file from the operator.")
    ],
    state: Annotated[
        Path, typer.Option("--state", metavar="DIR", help="State directory of the agent.")
    ] = Path("agent"),
) -> None:
    """Enrol this machine as a node: generate its key and obtain a certificate.

    The invitation is valid once, within fifteen minutes. A directory that is enrolled as this node
    keeps its results and gets a new identity, for example after its certificate has expired; stop
    its agent before.
    """
    from skyhop_testbed.agent import enrol as enrol_node

    node = enrol_node(invitation, state.absolute())
    print(f"{node} is enrolled; start it with: skyhop testbed agent --state {state}")


@app.command()
def agent(
    state: Annotated[
        Path, typer.Option("--state", metavar="DIR", help="State directory that enrol created.")
    ] = Path("agent"),
    dish: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Address of the terminal, usually 192.168.100.1:9200."
        ),
    ] = None,
    terminal: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead of --dish: JSON file with a terminal's values, rewritten each second.",
        ),
    ] = None,
    interface: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Interface towards the terminal; its traffic is counted."
        ),
    ] = None,
    kernel_service: Annotated[
        Path | None,
        typer.Option(
            "--kernel",
            metavar="SOCKET",
            help="Socket of skyhop testbed kernel, if that service runs.",
        ),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Settings: location of the node, and whether to record satellites and weather; "
            "default: DIR/agent.toml, if it exists.",
        ),
    ] = None,
) -> None:
    """Run the agent of a node until Ctrl-C or SIGTERM; runs outlive it.

    It makes only outgoing connections. Exit status 75 asks for a restart, into a new version.

    Example: skyhop testbed agent --dish 192.168.100.1:9200 --interface eth0
    """
    from skyhop import logs
    from skyhop_testbed.agent import run_agent
    from skyhop_testbed.agent.service import Options
    from skyhop_testbed.launcher import RESTART_STATUS

    logs.configure(otherwise=logs.SERVICE)
    options = Options(
        dish=dish,
        terminal=terminal,
        interface=interface,
        kernel=str(kernel_service) if kernel_service else None,
        settings=settings,
    )
    with until_signal():
        restarts = run_agent(state.absolute(), options=options)
    if restarts:
        raise typer.Exit(RESTART_STATUS)


@app.command()
def submit(file: JobFile, credential: As = None, as_json: Json = False) -> None:
    """Submit a job; if it conflicts with other jobs, print these jobs and change nothing."""
    with opened(credential) as testbed:
        made = testbed.submit(file)
    begin = f", the first at {when(made.first.start_ns)} UTC" if made.first else ""
    said = f"job {made.name} ({made.id}): {made.runs} runs planned{begin}"
    print_outcome(made, said, as_json)


@app.command()
def check(
    file: JobFile,
    credential: As = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Check only the file, without a testbed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check a job without submitting it. Exit status 1 if it conflicts with other jobs."""
    from skyhop_testbed.client import read_files

    text, _ = read_files(file)
    if offline:
        print(f"{file}: is a valid job file")
        return
    with opened(credential) as testbed:
        found = testbed.check(text)
    if as_json:
        print_json(found)
    else:
        first_ns = found.first.start_ns if found.first else None
        print(f"job {found.job}: its first time is {when(first_ns)} UTC")
        if found.conflicts:
            rows = [_conflict(each) for each in found.conflicts[:20]]
            print_rows(rows, as_json=False, title=f"{found.conflicts_total:,} conflicts")
    if found.conflicts_total:
        raise typer.Exit(1)


def _conflict(each: Conflict) -> dict[str, object]:
    return {
        "time (UTC)": when(each.mine.start_ns),
        "meets": each.job or "itself",
        "of": each.owner,
        "from (UTC)": when(each.theirs.start_ns),
        "to (UTC)": when(each.theirs.end_ns),
        "on": ", ".join(each.nodes),
    }


@app.command()
def modify(
    job: JobName,
    file: JobFile,
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Replace a job by a job file; runs in progress continue as before."""
    with opened(credential) as testbed:
        made = testbed.modify(job, file)
    said = f"job {made.name} ({made.id}): {made.runs} runs planned"
    print_outcome(made, said, as_json)


@app.command()
def cancel(
    job: JobName,
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Cancel a job: skip planned runs, and abort runs in progress."""
    with opened(credential) as testbed:
        made = testbed.cancel(job)
    print_outcome(made, f"job {made.name} is cancelled", as_json)


@app.command()
def jobs(
    credential: As = None,
    node: Annotated[str, typer.Option(help="Only those on this node.")] = "",
    user: Annotated[str, typer.Option(help="Only those of this user.")] = "",
    ended: Annotated[bool, typer.Option("--all", help="Include finished jobs.")] = False,
    as_json: Json = False,
) -> None:
    """List your jobs, and those on your nodes."""
    with opened(credential) as testbed:
        found = testbed.jobs(node=node, user=user, ended=ended)
    print_found(found, _job_row, as_json, "no jobs")


@app.command()
def job(
    name: JobName,
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Print a job as a job file, to read, change or submit it elsewhere."""
    import tomli_w

    from skyhop.errors import InputError

    with opened(credential) as testbed:
        listed = testbed.jobs(ended=True)
    found = [each for each in listed if name in (each.id, each.name)]
    if not found:
        raise InputError(f"there is no job {name} of yours: skyhop testbed jobs --all lists them")
    # Jobs are in order, the latest first; prefer an active job to finished ones of the same name.
    made = min(found, key=lambda each: each.state != "active")
    spec = made.as_json()["spec"]
    assert isinstance(spec, dict)
    print_outcome(made, tomli_w.dumps(spec).rstrip("\n"), as_json)


def _job_row(each: JobInfo) -> dict[str, object]:
    spec = each.spec
    at = spec.when.at
    text = spec.when.cron or spec.when.trigger or (when(at) if isinstance(at, int) else at)
    return {
        "job": each.name,
        "of": each.owner,
        "state": each.state,
        "when": text,
        "length_(s)": spec.length_s,
        "nodes": ", ".join(spec.nodes),
        "server": spec.server,
        "overhead": "yes" if each.overhead else "no",
    }


@app.command()
def runs(
    credential: As = None,
    job: Annotated[str, typer.Option(help="Only those of this job.")] = "",
    node: Annotated[str, typer.Option(help="Only those on this node.")] = "",
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only those in this state.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Largest number of runs to list, latest first.")] = 50,
    as_json: Json = False,
) -> None:
    """List runs, latest first; of planned runs only the next of each job on each node.

    Example: skyhop testbed runs --state planned
    """
    with opened(credential) as testbed:
        found = testbed.runs(job=job, node=node, states=state or [], limit=limit)
    print_found(found, _run_row, as_json, "no runs")


def _run_row(each: RunInfo) -> dict[str, object]:
    return {
        "run": each.id,
        "job": each.job_name.partition("~")[0],
        "node": each.client,
        "server": each.server,
        "start_(UTC)": when(each.start_ns),
        "state": each.state,
        "reason": each.reason,
    }


@app.command()
def run(
    name: RunName,
    credential: As = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Print each change until the run has ended.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a run's events and files. With --wait, exit status 1 if it did not complete."""
    with opened(credential) as testbed:
        found = testbed.run(name)
        shown = 0
        if wait:
            for found in testbed.watch(name):
                if not as_json:
                    print_events(found.events, shown)
                    shown = len(found.events)
    if as_json:
        print_json(found)
    else:
        print_events(found.events, shown)
        files = [{"side": f.side, "file": f.name, "bytes": f.size} for f in found.files]
        if files:
            print_rows(files, as_json=False, title=_files_title(found))
    if wait and found.state != "complete":
        raise typer.Exit(1)


def _files_title(found: RunDocument) -> str:
    count = found.file_count or len(found.files)
    listed = f"{count:,} files" if count <= len(found.files) else f"first of {count:,} files"
    return f"{listed}: skyhop testbed fetch {found.id}"


@app.command()
def fetch(
    name: RunName,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="DIR", help="Directory for the files; default: RUN."
        ),
    ] = None,
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Download a run's files; files that exist already are not downloaded again."""
    from skyhop.data.files import as_argument

    directory = output or Path(name)
    with opened(credential) as testbed:
        paths = testbed.fetch(name, directory)
    found = {"directory": str(directory), "files": [str(path) for path in paths]}
    print_outcome(found, f"{len(paths)} files in {directory}", as_json)
    for path in paths:
        if path.name == "summary.json" and not as_json:
            print(f"a skyhop run directory: skyhop report {as_argument(path.parent)}")


@app.command()
def abort(
    name: RunName,
    reason: Annotated[str, typer.Option(help="Reason, recorded in the run's events.")] = "",
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Abort a run, planned or in progress."""
    with opened(credential) as testbed:
        found = testbed.abort(name, reason)
    print_outcome(found, f"run {name} is {found.state}", as_json)


@app.command()
def reschedule(
    name: RunName,
    begin: Annotated[
        str | None,
        typer.Option("--from", metavar="INSTANT", help="Earliest start; default: in half an hour."),
    ] = None,
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Move a planned run of a job with `at` to the nearest time at which its nodes are free."""
    from_ns = instant_ns(begin, 0)
    with opened(credential) as testbed:
        found = testbed.reschedule(name, from_ns)
    said = dt.datetime.fromtimestamp(found.start_ns / 1e9, dt.UTC).isoformat(timespec="seconds")
    print_outcome(found, f"run {found.id} replaces it, at {said}", as_json)


@app.command()
def nodes(
    credential: As = None,
    active: Annotated[
        bool, typer.Option("--active", help="Only nodes that reported recently.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List nodes: location, whether online, and whether runs yield to the host's traffic."""
    with opened(credential) as testbed:
        found = testbed.nodes(active=active)
    print_found(found, _node_row, as_json, "no nodes")


def _node_row(each: NodeInfo) -> dict[str, object]:
    health = each.health
    free, load = health.get("disk_free_bytes"), health.get("load")
    return {
        "node": each.name,
        "owner": each.owner,
        "online": "yes" if each.online else "no",
        "alerts": ", ".join(each.alerts),
        "last_heard_(UTC)": when(each.last_seen_ns),
        "version": each.version + (", must upgrade" if each.upgrade else ""),
        "free_disk": f"{free / 1e9:.1f} GB" if isinstance(free, int | float) else "",
        "load": f"{load:.2f}" if isinstance(load, int | float) else "",
        "clock": _clock(each.clock_off_ms),
        "scavenger": each.scavenger_mode + (", making room" if each.scavenger_active else ""),
        "latitude_(deg)": each.latitude_deg,
        "longitude_(deg)": each.longitude_deg,
        "serves": "yes" if each.serves else "no",
        "certificate": "expired, approve it" if each.is_waiting else "",
    }


def _clock(off_ms: float | None) -> str:
    """Return the offset of a node's clock as text for the table; "" if the offset is small."""
    return "" if off_ms is None else f"{off_ms:+.0f} ms off"


@app.command()
def calendar(
    node: NodeName,
    credential: As = None,
    begin: Annotated[
        str | None, typer.Option("--from", metavar="INSTANT", help="Start; default: now.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="INSTANT", help="End; default: 24 h after start.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show reservations of a node, by default for the next 24 hours."""
    from_ns = instant_ns(begin, now_ns())
    to_ns = instant_ns(end, from_ns + 86_400 * 1_000_000_000)
    with opened(credential) as testbed:
        found = testbed.calendar([node], from_ns, to_ns)
    print_found(found, _calendar_row, as_json, f"{node} is free")


def _calendar_row(each: Reservation) -> dict[str, object]:
    return {
        "from_(UTC)": when(each.start_ns),
        "to_(UTC)": when(each.end_ns),
        "of": each.owner,
        "job": each.job_name,
        "state": each.state,
        "reserves": "yes" if each.reserves else "no",
    }


@app.command("next")
def next_(
    node: Annotated[list[str], typer.Argument(metavar="NODE...", help="Names of nodes.")],
    length: Annotated[
        str, typer.Option(metavar="TIME", help='Length of the free time, such as "10 min".')
    ] = "10 min",
    begin: Annotated[
        str | None, typer.Option("--from", metavar="INSTANT", help="Earliest start; default: now.")
    ] = None,
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Print the next time at which all given nodes are free."""
    from skyhop.data.quantities import seconds
    from skyhop.errors import InputError

    try:
        length_ns = round(seconds(length) * 1e9)
    except ValueError as error:
        raise InputError(f"--length: {error}") from None
    from_ns = instant_ns(begin, now_ns())
    with opened(credential) as testbed:
        slot = testbed.next_slot(node, length_ns, from_ns)
    if slot is None:
        raise InputError(f"{', '.join(node)}: no free time of {length}")
    said = dt.datetime.fromtimestamp(slot / 1e9, dt.UTC).isoformat(timespec="seconds")
    print_outcome({"nodes": node, "length_ns": length_ns, "start_ns": slot}, said, as_json)


@app.command()
def scavenger(
    node: NodeName,
    mode: Annotated[
        str,
        typer.Argument(
            metavar="on|off|auto",
            help="When to yield: always, never, or while the host has traffic.",
        ),
    ],
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Set whether runs on a node yield to its host's own traffic."""
    with opened(credential) as testbed:
        found = testbed.set_scavenger(node, mode)
    print_outcome(found, f"{node}: {found.scavenger_mode}", as_json)


@app.command("map")
def map_(
    node: NodeName,
    credential: As = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FIGURE", help="Draw the map: PNG, SVG or PDF."),
    ] = None,
    width: Width = "page",
    height: Height = None,
    footer: Footer = True,
) -> None:
    """Draw the newest obstruction map of a node's terminal, or print it as grpcurl's JSON.

    Example: skyhop testbed map bcn-1 -o sky.png
    """
    figure = figure_file_or_none(output, width, height, footer=footer)
    with opened(credential) as testbed:
        found = json.dumps(testbed.obstruction_map(node))
    if figure is None:
        print(found)
        return
    from skyhop.figures.obstruction import draw_obstruction
    from skyhop.telemetry.maps import parse_map

    seen = parse_map(found.encode(), node)
    figure.write(partial(draw_obstruction, seen, f"Obstruction map of {node}"))


@app.command()
def policy(
    node: NodeName,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="POLICY.json", help="Policy to set; without it, the current one is printed."
        ),
    ] = None,
    credential: As = None,
    as_json: Json = False,  # noqa: ARG001
) -> None:
    """Show or set the policy of a node: allowed programs, hours, networks, limits."""
    from skyhop.errors import InputError

    with opened(credential) as testbed:
        if file is None:
            found = testbed.node(node)
            if found.policy is None:
                raise InputError(f"{node} is not your node")
        else:
            values = _read_policy(file, node)
            found = testbed.set_policy(node, values)
    print(json.dumps(found.policy, indent=2))


def _read_policy(file: Path, node: str) -> Document:
    from skyhop.errors import InputError

    try:
        values = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise InputError(
            f"{file}: not a JSON object; skyhop testbed policy {node} prints the present policy"
        )
    return values
