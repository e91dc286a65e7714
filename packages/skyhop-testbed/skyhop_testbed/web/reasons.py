"""Why a run ended as it did, in a sentence, and where to look for more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from skyhop_testbed.api import RunDocument, RunFile
from skyhop_testbed.words import Reason, Side, State

_SENTENCES = {
    Reason.EXIT: "The program ended with an error; its output says more.",
    Reason.SIGNAL: "A signal ended the program; its output may say more.",
    Reason.TIMEOUT: "The program was still running at the end of the run's time, and was ended.",
    Reason.DATA_CAP: "The run moved more bytes than its limit or the node's limit per month.",
    Reason.DISK: "The node's disk was full, or the run wrote more than its limit.",
    Reason.MEMORY: "The run used more memory than its limit, or the node had none left.",
    Reason.PROCESSES: "The run started more processes than its limit.",
    Reason.DEPLOY: "The node could not fetch the input files or the program.",
    Reason.SERVER: "The server's node was not ready in time, or its program ended early.",
    Reason.KERNEL: "The node's kernel service refused a request of the job.",
    Reason.UPLOAD: "The run's files could not be stored.",
    Reason.KILLED: "The run's supervising process on the node ended without a result.",
    Reason.RESTARTED: "The node's machine was restarted during the run.",
    Reason.REFUSED: "The policy of the node's owner does not allow this run.",
    Reason.NEEDS: "The node does not have what the job needs.",
    Reason.BUSY: "Another run occupied the node.",
    Reason.SCAVENGER: "The host's own traffic came first.",
    Reason.OFFLINE: "The node was not connected, and reported nothing in time.",
    Reason.NO_SLOT: "The calendar has no free time before the end of the job.",
    Reason.NEVER_FIRED: "The trigger's condition was never true within its window.",
    Reason.WINDOW_OVER: "The window in which the run could begin was over.",
    Reason.FENCED: "The run was claimed, moved or ended elsewhere.",
    Reason.JOB_ENDED: "The job was cancelled or changed.",
    Reason.USER: "The job's user or an administrator stopped the run.",
    Reason.OWNER: "The owner of the node stopped the run.",
}
_EXPLAINED = (State.FAILED, State.LOST, State.ABORTED, State.SKIPPED)
_OUTPUTS = ("stderr", "stdout")


@dataclass(frozen=True)
class Why:
    """Explanation of a run's end: a sentence, and links with their labels."""

    sentence: str
    links: Sequence[tuple[str, str]]


def why(run: RunDocument, files: Sequence[RunFile]) -> Why | None:
    """Return why a run did not complete; None for other runs.

    Args:
        run: the run.
        files: the files that the caller may read.
    """
    if run.reason is None or run.state not in _EXPLAINED:
        return None
    links = []
    if run.state is State.FAILED:
        side = Side.SERVER if run.reason is Reason.SERVER else Side.CLIENT
        links += _outputs(run, files, side)
        if run.server and side is Side.SERVER:
            links.append((f"the server's node {run.server}", f"/nodes/{run.server}"))
            links += _outputs(run, files, Side.CLIENT)
        elif run.server:
            links += _outputs(run, files, Side.SERVER)
    node = f"the node {run.client}"
    links.append((node, f"/nodes/{run.client}"))
    return Why(_SENTENCES[run.reason], links)


def _outputs(run: RunDocument, files: Sequence[RunFile], side: Side) -> list[tuple[str, str]]:
    """Return links to the output of one side of a run, errors first, if there is any."""
    sizes = {each.name: each.size for each in files if each.side is side}
    return [
        (f"{name} of the {side}", f"/runs/{run.id}/log/{side}/{quote(name)}")
        for name in _OUTPUTS
        if sizes.get(name)
    ]
