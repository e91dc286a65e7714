"""What has to be there before a run's program can start: its files, its program, its rights."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyhop.errors import RunError, SkyhopError
from skyhop.testbed.agent.life import Life
from skyhop.testbed.agent.node import Node
from skyhop.testbed.executor.assignment import Assignment, KernelAccess
from skyhop.testbed.words import Backend, Network, Side

if TYPE_CHECKING:
    from skyhop.testbed.job import Job

_LARGEST_INPUT = 16_000_000
_PIECE_BYTES = 1 << 20


class MissingError(RunError):
    """A run's files are not to be had."""


class KernelError(RunError):
    """The kernel service is not there, or refuses what a run asks for."""


def lacking(job: dict[str, Any], side: Side, kernel: str | None) -> str | None:
    """Return in words what this node lacks for a job; `None` where it has all.

    Args:
        job: as the schedule has it.
        side: which side it would be.
        kernel: the kernel service's socket.
    """
    run = job["spec"].get("run", {})
    backend = run.get("backend", Backend.PROCESS.value)
    if backend != Backend.PROCESS and not shutil.which(backend):
        return f"there is no {backend} here"
    command = run.get("client" if side is Side.CLIENT else "serve")
    if command and backend == Backend.PROCESS:
        program = str(command[0])
        brought = {name.removeprefix("./") for name in job.get("files", {})}
        if program.removeprefix("./") not in brought and not shutil.which(program):
            return f"there is no {program[:100]} here"
    wants_kernel = side is Side.CLIENT and run.get("network") == Network.VETH
    if wants_kernel and not serves(kernel):
        return 'network = "veth" needs the kernel service, which does not run here'
    return None


def serves(kernel: str | None) -> bool:
    """Return whether the kernel service answers."""
    if kernel is None:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(kernel)
        except OSError:
            return False
    return True


def fetch_inputs(node: Node, life: Life) -> Path | None:
    """Have a run's files in its directory, those that are here already from here.

    Raises:
        MissingError: one cannot be had, or is another than the orchestrator signed for.
        OSError: the disk refuses.
    """
    if not life.files:
        return None
    place = life.directory(node.runs) / "inputs"
    for name, said in sorted(life.files.items()):
        target = place / name
        if target.resolve().is_relative_to(place.resolve()) and not Path(name).is_absolute():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(cached(node, life.job, name, said), target)
            # Jobs bring programs too; the sandbox is what keeps them in.
            target.chmod(0o755)
        else:
            raise MissingError(f"{name}: leaves the run's directory")
    return place


def cached(node: Node, job: str, name: str, said: dict[str, Any]) -> Path:
    """Return a job's file, by its digest; it is fetched where it is not here yet.

    Raises:
        MissingError: it cannot be had, or is another than the one signed for.
    """
    digest, size = str(said["sha256"]), int(said["size"])
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
                raise MissingError(f"{name}: is another file than the one that was submitted")
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


def assignment_of(node: Node, life: Life, inputs: Path | None) -> Assignment:
    """Return what a run's executor is told.

    Raises:
        InputError: the job is none of this version's.
        KernelError: the kernel service is not there, or refuses.
    """
    from skyhop.testbed.job import job_of

    job = job_of(life.spec, f"job {life.job}")
    others: dict[str, Any] = {
        "run": life.run,
        "node": node.name,
        "deadline_ns": life.deadline_ns,
        "server": life.server_address,
        "server_node": life.server,
        "port": life.port,
        "cc": (job.kernel.cc or "").removeprefix("skyhop:"),
        "inputs": str(inputs) if inputs else None,
        "limits": node.policy.limits,
    }
    if life.side is Side.SERVER and job.run.network is Network.VETH:
        # Who serves has to be reached from outside, which a device behind this node cannot.
        others["network"] = Network.HOST
    elif job.run.network is Network.VETH:
        others["kernel"] = _access(node, life, job)
    return Assignment.of(job, life.side, **others)


def _access(node: Node, life: Life, job: Job) -> KernelAccess:
    """Open a run at the kernel service, with a token of its own and no more than the job asks.

    Raises:
        KernelError: it is not there, or refuses.
    """
    from skyhop.testbed.kernel.client import KernelClient

    if node.kernel is None:
        raise KernelError("this node has no kernel service")
    access = KernelAccess.of(job, node.kernel, secrets.token_urlsafe(32))
    try:
        client = KernelClient(node.kernel)
        try:
            client.open(life.run, access.token, access.grants())
        finally:
            client.close()
    except SkyhopError as error:
        raise KernelError(str(error)) from None
    return access


def prefetch(node: Node, job: str, files: dict[str, dict[str, Any]]) -> bool:
    """Have a job's files here before its time comes, when nobody may answer; return if they are.

    What fails is tried again.
    """
    try:
        for name, said in files.items():
            cached(node, job, name, said)
    except (SkyhopError, OSError) as error:
        node.say(f"job {job}: {error}")
        return False
    return True
