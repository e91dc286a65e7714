"""What the tests share: the command line as a user runs it, and what this machine allows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Reference input that is not part of the project lies beside the checkout.
SHARED = ROOT.parent / "shared"

Skyhop = Callable[..., "subprocess.CompletedProcess[str]"]


def skyhop_command() -> list[str]:
    """Return the command that starts skyhop in this environment."""
    script = Path(sys.executable).with_name("skyhop")
    return [str(script)]


@pytest.fixture
def skyhop(tmp_path: Path) -> Skyhop:
    """Run skyhop in an empty directory and return what it printed."""

    def run(*arguments: object, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*skyhop_command(), *map(str, arguments)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    return run


@pytest.fixture
def shared() -> Path:
    """Return the directory of reference input, or skip."""
    if not SHARED.is_dir():
        pytest.skip("no reference input: the directory shared beside the checkout is missing")
    return SHARED


def namespaces_missing() -> str | None:
    """Return why live runs are not possible here, if they are not."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return "no unshare command to find out"
    made = subprocess.run([unshare, "-rn", "true"], capture_output=True, text=True, check=False)
    return made.stderr.strip() or "user namespaces are not allowed" if made.returncode else None


@pytest.fixture
def namespaces() -> None:
    """Skip where live runs are not possible."""
    missing = namespaces_missing()
    if missing:
        pytest.skip(missing)
