"""Anchor of a container's network: a second container that holds the network namespace.

A container program starts a job's program in the moment in which it makes the namespace. The fence
has to be there before. The anchor therefore runs first, with this machine's own `sleep` in the
job's image; its namespace gets the device and the fence, and the job's container joins it.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from skyhop.errors import RunError
from skyhop_testbed import linux
from skyhop_testbed.executor.sandbox import AttachDevice
from skyhop_testbed.executor.user_network import Namespaces, setup_of
from skyhop_testbed.fence import Fence

_SLEEP = "/usr/bin/sleep"
_SYSTEM = ("/usr", "/bin", "/lib", "/lib64")
"""Directories of this machine with `sleep` and its libraries, visible in the anchor alone."""
_START_S = 300.0
"""Longest time in s for the start of an anchor, which may have to download the image."""
_ASK_S = 30.0


def anchor_of(container: str) -> str:
    """Return the name of a container's anchor."""
    return f"{container}_network"


def start_anchor(
    program: str,
    container: str,
    image: str,
    options: list[str],
    *,
    fence: Fence,
    attach_device: AttachDevice,
) -> int:
    """Start an anchor with a fenced network; return the pid of its process.

    Args:
        program: the container program, podman or docker.
        container: name of the job's container.
        image: the job's image.
        options: further options of the container program's `run`.
        fence: the run's fence.
        attach_device: puts the run's device into the namespace.

    Raises:
        RunError: the container program or the kernel refuses.
    """
    name = anchor_of(container)
    words = [program, "run", "--detach", "--rm", "--name", name, "--network", "none", "--read-only"]
    words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--pull", "missing"]
    for directory in _SYSTEM:
        if Path(directory).exists():
            words += ["--volume", f"{os.path.realpath(directory)}:{directory}:ro"]
    _call([*words, *options, "--entrypoint", _SLEEP, "--", image, "infinity"], _START_S)
    said = _call([program, "inspect", "--format", "{{.State.Pid}}", name], _ASK_S)
    try:
        pid = int(said)
        _fence_network(pid, fence, attach_device)
    except (ValueError, OSError) as error:
        raise RunError(f"{program}: the container's network cannot be entered: {error}") from None
    return pid


def _fence_network(pid: int, fence: Fence, attach_device: AttachDevice) -> None:
    names = ["net"] if os.geteuid() == 0 else ["net", "user"]
    opened: list[int] = []
    try:
        for each in names:
            opened.append(os.open(f"/proc/{pid}/ns/{each}", os.O_RDONLY | os.O_CLOEXEC))
        namespaces = Namespaces(*opened)
        attach_device(namespaces)
        linux.call_inside(namespaces.kinds(), setup_of(fence).apply)
    finally:
        for descriptor in opened:
            with suppress(OSError):
                os.close(descriptor)


def _call(command: list[str], patience_s: float) -> str:
    """Run a container program; return what it prints.

    Raises:
        RunError: it fails; the message is its last line.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=patience_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"{command[0]}: {error}") from None
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise RunError(f"{command[0]}: {said[-1] if said else 'it prints no error'}")
    return done.stdout.strip()
