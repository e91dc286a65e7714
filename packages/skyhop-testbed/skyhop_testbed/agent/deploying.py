"""Deployment of a run: its input files, its program, and its access to the kernel service."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from skyhop.errors import RunError, SkyhopError
from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.agent.node import Node
from skyhop_testbed.executor.assignment import Assignment
from skyhop_testbed.executor.cgroup_traffic import missing_for_groups
from skyhop_testbed.fence import Fence
from skyhop_testbed.job import Job
from skyhop_testbed.kernel.access import KernelAccess
from skyhop_testbed.schedule import InputFile, ScheduledJob
from skyhop_testbed.words import Backend, Network, Side

_LARGEST_INPUT = 16_000_000
_PIECE_BYTES = 1 << 20


class MissingError(RunError):
    """An input file of a run cannot be fetched, or is not the file that was submitted."""


class KernelError(RunError):
    """The kernel service is unreachable, or refuses a run's requests."""


def missing_requirement(node: Node, job: ScheduledJob, side: Side, network: Network) -> str | None:
    """Return, as text, what a job needs and this node does not have; `None` if nothing is missing.

    Args:
        node: this node.
        job: the job.
        side: the side of the run (client or server) that this node would execute.
        network: the network that this side uses.
    """
    run = job.spec.run
    if run.backend is not Backend.PROCESS and not shutil.which(run.backend):
        return f"{run.backend} is not installed on this node"
    command = run.client if side is Side.CLIENT else run.serve
    if command and run.backend is Backend.PROCESS:
        program = command[0]
        input_names = {name.removeprefix("./") for name in job.files}
        if program.removeprefix("./") not in input_names and not shutil.which(program):
            return f"{program[:100]} is not installed on this node"
    if network is Network.INTERNET and (lacking := node.internet_lacks()):
        return lacking
    if network is Network.VETH and not kernel_answers(node.kernel):
        return 'network = "veth" needs the kernel service, which does not run on this node'
    return None


def uncounted_traffic(job: ScheduledJob, network: Network, *, is_allowed: bool) -> str | None:
    """Return, as text, which traffic of a job this node could not count; `None` if it can.

    Args:
        job: the job.
        network: the network that this node's side uses.
        is_allowed: whether the node's owner allows uncounted traffic.
    """
    run = job.spec.run
    loads_link = job.spec.overhead and (run.client is not None or run.engine == "live")
    if network is not Network.HOST or is_allowed or not loads_link or run.transport == "tcp":
        return None
    if run.backend is not Backend.PROCESS:
        why = f"{run.backend} has control groups of its own"
    elif not (why := missing_for_groups() or ""):
        return None
    return (
        f'network = "host": this node cannot count UDP there ({why}): give the run a network of '
        'its own, or set transport = "tcp" if it uses no UDP'
    )


def kernel_answers(kernel: str | None) -> bool:
    """Return whether the kernel service accepts connections at the socket path `kernel`."""
    if kernel is None:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(kernel)
        except OSError:
            return False
    return True


def fetch_inputs(node: Node, local_run: LocalRun) -> Path | None:
    """Copy a run's input files from the cache into the run's directory.

    Download missing ones first.

    Returns:
        the directory of the copies; `None` if the run has no input files.

    Raises:
        MissingError: a file cannot be fetched, or its digest is not the signed one.
        OSError: a file cannot be written.
    """
    if not local_run.files:
        return None
    place = local_run.directory(node.runs) / "inputs"
    for name, entry in sorted(local_run.files.items()):
        target = place / name
        if target.resolve().is_relative_to(place.resolve()) and not Path(name).is_absolute():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(cached_input(node, local_run.job, name, entry), target)
            # Input files may be programs; the sandbox confines them.
            target.chmod(0o755)
        else:
            raise MissingError(f"{name}: its path leaves the run's directory")
    return place


def cached_input(node: Node, job: str, name: str, entry: InputFile) -> Path:
    """Return the path of a job's input file in the cache; download the file first if necessary.

    Raises:
        MissingError: the file cannot be fetched, or its digest is not the signed one.
    """
    digest, size = entry.sha256, entry.size
    file = node.inputs / hashlib.sha256(digest.encode()).hexdigest()
    with node.fetching[file.name]:
        if file.exists() and _digest(file) == digest:
            file.touch()
            return file
        node.inputs.mkdir(parents=True, exist_ok=True)
        aside = file.with_suffix(f".{secrets.token_hex(4)}")
        try:
            node.link.fetch(job, name, aside, min(size, _LARGEST_INPUT))
            if aside.stat().st_size != size or _digest(aside) != digest:
                raise MissingError(f"{name}: is not the file that was submitted")
            aside.replace(file)
        except RunError as error:
            raise MissingError(str(error)) from None
        finally:
            aside.unlink(missing_ok=True)
    return file


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while piece := stream.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def assignment_of(node: Node, local_run: LocalRun, inputs: Path | None) -> Assignment:
    """Return the assignment for a run's executor.

    Raises:
        KernelError: the kernel service does not run, or refuses.
    """
    job, access = local_run.spec, None
    network = node.policy.network_of(job.run, local_run.side)
    if network is Network.VETH:
        access = _access(node, local_run, job)
    signals = None
    if node.signals is not None:
        signals = node.signals.open(local_run, local_run.directory(node.runs), node.policy)
    return Assignment.of(
        job,
        local_run.side,
        run=local_run.run,
        node=node.name,
        deadline_ns=local_run.deadline_ns,
        network=network,
        server=local_run.server_address,
        server_node=local_run.server,
        port=local_run.port,
        cc=(job.kernel.cc or "").removeprefix("skyhop:"),
        inputs=str(inputs) if inputs else None,
        limits=node.policy.limits,
        fence=_fence(node, local_run, network),
        data_cap_bytes=_least(job.data_cap, node.allowance.left_bytes()),
        kernel=access,
        signals=str(signals) if signals else None,
    )


def _fence(node: Node, local_run: LocalRun, network: Network) -> Fence:
    """Return what a run reaches, and the ports on which others reach it."""
    if network not in (Network.INTERNET, Network.VETH) or node.reach is None:
        return Fence()
    listen, server = list(node.policy.listen), None
    if local_run.side is Side.CLIENT:
        server = (local_run.server_address, local_run.port) if local_run.server_address else None
    elif local_run.port:
        listen.append(str(local_run.port))
    needs_resolvers = network is Network.VETH
    return node.reach.fence(node.policy.reach, listen, server, needs_resolvers=needs_resolvers)


def _least(*limits: int | None) -> int | None:
    """Return the smallest limit; `None` if there is none."""
    return min((each for each in limits if each is not None), default=None)


def _access(node: Node, local_run: LocalRun, job: Job) -> KernelAccess:
    """Register a run at the kernel service, with its own token and only the job's permissions.

    Raises:
        KernelError: the service does not run, or refuses.
    """
    from skyhop_testbed.kernel.client import KernelClient

    if node.kernel is None:
        raise KernelError("this node has no kernel service")
    access = job.kernel.access(node.kernel, secrets.token_urlsafe(32))
    try:
        client = KernelClient(node.kernel)
        try:
            client.open(local_run.run, access.token, access.grants())
        finally:
            client.close()
    except SkyhopError as error:
        raise KernelError(str(error)) from None
    return access


def prefetch(node: Node, job: str, files: Mapping[str, InputFile]) -> bool:
    """Download a job's input files into the cache ahead of its runs; return whether all are there.

    The link may be down when a run starts. The caller tries again after a failure.
    """
    try:
        for name, entry in files.items():
            cached_input(node, job, name, entry)
    except (SkyhopError, OSError) as error:
        node.say(f"job {job}: {error}")
        return False
    return True
