"""Boot of a guest for one run: passes it the scenario, follows its progress, stores the run.

The guest sees this machine's files with the permissions of the user who started it (hostfs), and
has no access to this machine's network. Its clock jumps to the next event (`time-travel=inf-cpu`):
computing takes no time in the guest, and waiting takes none on this machine. The run is written to
the cache until it is complete.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from skyhop import _core
from skyhop.data.downloads import cache_directory, cache_error
from skyhop.data.files import Scratch
from skyhop.data.progress import Progress, ignore_progress, progress_bar
from skyhop.data.runs import Run
from skyhop.data.scenarios import Scenario, absolute_cc_name, forces_size, load_scenario
from skyhop.engines import Observer, Program
from skyhop.errors import InputError, InterruptedRunError, ProgramError, RunError
from skyhop.linux.child import child_process
from skyhop.linux.job import JOB, OUTCOME, PROGRESS, RUN
from skyhop.linux.kernels import Kernel, find, repair_hint
from skyhop.linux.modules import modules_of
from skyhop.linux.processor import own_processor

MEMORY_BYTES = 1 << 30
"""Memory of a guest in bytes; the host only allocates the part that is used."""
DEFAULT_START_S = 1_700_000_000
"""Unix time in s at which a guest boots if the path has no start; it is constant, so that runs are
equal.
"""
_LATEST_START_S = 230 * 365 * 86_400
"""Latest Unix time in s at which a guest may boot: 64-bit nanoseconds end in 2262."""
LAST_LINES = 12
"""Number of a guest's last output lines that are kept for the error message if the guest dies."""
_PANIC = "Kernel panic - not syncing: "
_REBOOT_LINE = re.compile(r"reboot: (Power down|System halted)\s*$")
"""Last message of a kernel; it may follow, on the same line, unterminated output of the program."""
_PROGRESS_LINE = re.compile(rf"{PROGRESS} (?P<done>\d+) (?P<total>\d+)")

_INIT = """\
#!/bin/sh
[ $$ = 1 ] || exit 1
mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /run
# Most kernels mount devtmpfs themselves.
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mkdir -p /dev/net /dev/shm /dev/pts
[ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
ip link set lo up
# Room for a whole window that arrives at a router at once.
echo 1000000 >/proc/sys/net/core/netdev_max_backlog
# The only entropy that the kernel gets, in addition to its command line.
{python} -SEc 'import fcntl
fcntl.ioctl(open("/dev/random", "wb"), {add_entropy}, bytes.fromhex("{entropy}"))'
stty -opost </dev/console 2>/dev/null
{environment}
# cat: the console is a terminal, but the user's output may be none.
{python} -m skyhop.linux.guest {directory} </dev/null 2>&1 | cat
{python} -SEc 'import ctypes, os; os.sync(); ctypes.CDLL(None).reboot({power_off})'
"""
_INIT_FILE = "/proc/self/cwd/init"
"""Path of the init script, relative to the kernel's working directory. The command line is part of
the kernel's entropy, so it must not differ between runs except for the seed. Until the guest mounts
its own /proc, this path is resolved in the host's /proc."""
_POWER_OFF = 0x4321_FEDC
"""Command LINUX_REBOOT_CMD_POWER_OFF of the system call reboot (linux/reboot.h)."""
_ADD_ENTROPY = 0x4008_5203
"""Number of the ioctl RNDADDENTROPY of linux/random.h."""
_ENTROPY = struct.pack("=ii32x", 256, 32)
"""Argument of RNDADDENTROPY: 32 bytes of zeros that are credited with 256 bits, enough to
initialise the kernel's generator.
"""
_FIXED_VARIABLES = {
    "TMPDIR": "/dev/shm",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    # Equal hash seeds, and so equal iteration orders of sets, in all runs.
    "PYTHONHASHSEED": "0",
    "POLARS_MAX_THREADS": "1",
}
_PASSED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
"""Environment variables passed to the guest, so that its programs find the same files."""
_PASSED_PATHS = ("XDG_CACHE_HOME", "PYTHONPATH")
"""Passed variables that hold paths, which may be relative to the working directory."""
_GUEST_MOUNTS = ("/dev", "/proc", "/run", "/sys")
"""Directories that the guest mounts itself, so that this machine's files there are not visible to
it.
"""


def run(
    scenario: Scenario,
    output: str | os.PathLike[str] | None = None,
    *,
    sets: Sequence[str] = (),
    kernel: str | None = None,
    program: Program | None = None,
    cc: str | None = None,
    force: bool = False,
    observer: Observer | None = None,
) -> Run:
    """Run a scenario on a Linux kernel in virtual time.

    Args:
        scenario: a file or an example's name, or its content as a dictionary.
        output: the run directory; by default a temporary one, removed with the result.
        sets: overrides, each "KEY=VALUE".
        kernel: name of a built kernel, as `linux.kernel` of the scenario.
        program: program to run instead of the scenario's flows; its output is printed here.
        cc: the default congestion control inside the namespaces; by default cubic.
        force: use `output` even if it is not empty.
        observer: receives the progress, unless a program runs; by default a progress bar.

    Raises:
        InputError: scenario, kernel, program or output is wrong.
        RunError: the guest died, the disk is full, …
        ProgramError: the program failed; the error has the run.
        InterruptedRunError: Ctrl-C or SIGTERM; nothing was written.
    """
    if program is not None and program.internet:
        raise InputError("a guest has no access to this machine's network: leave internet out")
    kernel_sets = [] if kernel is None else [f"linux.kernel={json.dumps(kernel)}"]
    loaded = load_scenario(scenario, [*sets, *kernel_sets])
    keep = Scratch() if output is None else None
    place = keep.path / RUN if keep else Path(os.fspath(output or ""))
    # Fail early if the output cannot be used, but create it only when the run is complete.
    _core.RunDirectory.reserve(str(place), force).abandon()
    with (
        _progress_of(observer, has_program=program is not None) as progress,
        _scratch_directory() as work,
    ):
        guest = _Guest(find(kernel_of(loaded)), work, progress, program is not None)
        status = guest.run(loaded, program, cc, requested=loaded)
        _move_run(work / RUN, place, force=force)
    finished = Run(place, keep, force_size=forces_size(loaded))
    if status:
        raise ProgramError(status, finished)
    return finished


def run_into(scenario: _core.Scenario, directory: Path, requested: _core.Scenario) -> None:
    """Run a scenario into an empty directory that the caller provides, like `engines.run_into`.

    Args:
        scenario: resolved scenario, whose path may be a file.
        directory: output, an existing empty directory.
        requested: scenario with its path as the user gave it, which may have a start.

    Raises:
        InputError: the guest refused the scenario.
        RunError: the guest died.
    """
    with _scratch_directory() as work:
        guest = _Guest(find(kernel_of(scenario)), work, ignore_progress, has_program=False)
        guest.run(scenario, requested=requested)
        for file in (work / RUN).iterdir():
            try:
                shutil.copyfile(file, directory / file.name)
            except OSError as error:
                raise RunError(f"{directory / file.name}: {error.strerror or error}") from error


def _move_run(finished: Path, place: Path, *, force: bool) -> None:
    """Move the files of a complete run into the output directory."""
    directory = _core.RunDirectory.reserve(str(place), force)
    try:
        directory.take(str(finished))
    except BaseException:
        directory.abandon()
        raise


def kernel_of(scenario: _core.Scenario) -> str | None:
    """Return the kernel that a scenario names (`linux.kernel`); `None` if it names none."""
    name: str | None = json.loads(scenario.to_json()).get("linux", {}).get("kernel")
    return name


@contextmanager
def _progress_of(observer: Observer | None, *, has_program: bool) -> Iterator[Progress]:
    """Yield the callback for progress: the observer's, or a progress bar's."""
    if observer is not None:
        yield observer.run
    elif has_program:
        # A progress bar would mix with the program's own output.
        yield ignore_progress
    else:
        with progress_bar("running") as bar:
            yield bar


@contextmanager
def _scratch_directory() -> Iterator[Path]:
    """Yield a temporary directory in the cache; also remove those that killed processes left."""
    guests = cache_directory() / "guests"
    try:
        guests.mkdir(parents=True, exist_ok=True)
        scratch = Scratch(guests)
    except OSError as error:
        raise cache_error(guests, error) from error
    with scratch as work:
        _check_visible(work)
        yield work


def _check_visible(directory: Path) -> None:
    """Check that the guest can see the files in a directory of this machine."""
    hidden = [place for place in _GUEST_MOUNTS if directory.resolve().is_relative_to(place)]
    if hidden:
        raise InputError(f"{directory}: a guest mounts its own {hidden[0]}; use another directory")


@dataclass
class _Guest:
    """Virtual machine of one run: its kernel and the directory of its job."""

    kernel: Kernel
    directory: Path
    """Directory with the files that `job.py` names; the guest writes the run here."""
    progress: Progress
    has_program: bool

    def run(
        self,
        scenario: _core.Scenario,
        program: Program | None = None,
        cc: str | None = None,
        *,
        requested: _core.Scenario,
    ) -> int | None:
        """Boot the guest and wait for its end.

        Return the program's exit status, or `None` without a program.
        """
        start_ns = _start_ns(json.loads(requested.to_json()))
        _check_visible(Path.cwd())
        options: _core.EngineOptions = {
            "client": list(program.client) if program else None,
            "server": program.server if program else None,
            "default_cc": None if cc is None else absolute_cc_name(cc),
            "internet": False,
            "guest": {
                "name": self.kernel.name,
                "source": self.kernel.source,
                "digest": self.kernel.digest,
                "hz": self.kernel.hz,
                "options": list(self.kernel.options),
            },
            "capture": None,
        }
        is_file = os.path.exists(scenario.origin)  # noqa: PTH110 - pathlib raises for some strings that are no paths
        job = {
            "scenario": scenario.to_json(),
            "origin": os.path.abspath(scenario.origin) if is_file else scenario.origin,  # noqa: PTH100
            "options": options,
            "working_directory": str(Path.cwd()),
            "modules": [str(file) for file in self._modules(scenario, options)],
        }
        self._write(JOB, json.dumps(job))
        last = self._boot(start_ns, json.loads(scenario.to_json())["run"]["seed"])
        return self._outcome(last)

    def _modules(self, scenario: _core.Scenario, options: _core.EngineOptions) -> list[Path]:
        """Return the kernel modules for those congestion controls of the run that are C sources."""
        if options["client"] is None:
            return modules_of(self.kernel, list(scenario.congestion_controls().values()))
        return modules_of(self.kernel, [options["default_cc"] or ""])

    def _boot(self, start_ns: int, seed: int) -> Sequence[str]:
        """Boot the guest and follow its output until it ends; return the last output lines."""
        self._write_init()
        command = [
            *_fixed_address_prefix(), str(self.kernel.binary), f"mem={MEMORY_BYTES >> 20}M",
            "rootfstype=hostfs", "rootflags=/", "rw", "quiet", "time-travel=inf-cpu",
            f"time-travel-start={start_ns}", f"init={_INIT_FILE}", "uml_dir=./",
            "con0=null,fd:1", "con=null", "panic=-1",
            f"skyhop.seed={seed}",
        ]  # fmt: skip
        last: deque[str] = deque(maxlen=LAST_LINES)
        try:
            with (
                own_processor() as processor,
                child_process(command, self._environment(), self.directory) as guest,
            ):
                if processor is not None:
                    os.sched_setaffinity(guest.pid, {processor})
                for line in _output_lines(guest):
                    self._handle_line(line, last)
        except KeyboardInterrupt:
            raise InterruptedRunError("interrupted; nothing was kept", None) from None
        return last

    def _handle_line(self, line: str, last: deque[str]) -> None:
        progress = _PROGRESS_LINE.fullmatch(line.strip())
        if progress is not None:
            self.progress(int(progress["done"]), int(progress["total"]))
            return
        if any(_PANIC in earlier for earlier in last):
            # Only registers and a call trace follow the kernel's panic message.
            return
        if line.strip():
            last.append(line.strip())
        if self.has_program:
            _print_output(_REBOOT_LINE.sub("", line))

    def _write_init(self) -> None:
        """Write the guest's init script, which also sets the environment of its programs."""
        passed = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
        paths = {name: os.environ[name] for name in _PASSED_PATHS if os.environ.get(name)}
        passed |= {name: os.pathsep.join(map(os.path.abspath, text.split(os.pathsep)))
                   for name, text in paths.items()}  # fmt: skip
        variables = passed | _FIXED_VARIABLES
        lines = (f"export {name}={shlex.quote(text)}" for name, text in variables.items())
        text = _INIT.format(
            environment="\n".join(lines),
            python=shlex.quote(sys.executable),
            directory=shlex.quote(str(self.directory)),
            power_off=_POWER_OFF,
            add_entropy=_ADD_ENTROPY,
            entropy=_ENTROPY.hex(),
        )
        self._write("init", text).chmod(0o700)

    def _write(self, name: str, text: str) -> Path:
        """Write a file for the guest into the job's directory; return its path."""
        file = self.directory / name
        try:
            file.write_text(text, "utf-8")
        except OSError as error:
            raise cache_error(file, error) from error
        return file

    def _environment(self) -> dict[str, str]:
        """Return the kernel process's environment; its memory file is in TMPDIR."""
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.directory)}
        try:
            free = os.statvfs("/dev/shm")
            has_room = free.f_bavail * free.f_frsize > 2 * MEMORY_BYTES
            is_usable = has_room and not free.f_flag & os.ST_NOEXEC
        except OSError:
            is_usable = False
        # User-Mode Linux puts its memory file in /dev/shm, but dies if that is full or mounted
        # noexec.
        return environment if is_usable else environment | {"TMPDIR": str(self.directory)}

    def _outcome(self, last: Sequence[str]) -> int | None:
        """Return the program's exit status, or raise the error that the guest reported."""
        file = self.directory / OUTCOME
        if not file.exists():
            name = self.kernel.name
            printed = " | ".join(last) or f"nothing (is it damaged? {repair_hint(name)})"
            raise RunError(
                f"the guest (Linux {self.kernel.release}) ended before its run; "
                f"it printed: {printed}"
            )
        outcome = json.loads(file.read_text("utf-8"))
        if outcome["error"] is None:
            status: int | None = outcome["status"]
            return status
        kind = InputError if outcome["error"] in ("InputError", "CompileError") else RunError
        raise kind(outcome["message"])


def _fixed_address_prefix() -> Sequence[str]:
    """Return the command prefix that disables address space randomisation.

    The size of the guest's physical memory depends on the memory layout of its process. The prefix
    is empty where a container forbids the system call.
    """
    command = ["setarch", "-R"]
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return command


def _start_ns(scenario: dict[str, Any]) -> int:
    """Return the time in ns since 1970 at which the guest boots: the path's start, if any."""
    start = scenario["path"].get("start") if "path" in scenario else None
    try:
        at_s = int(datetime.fromisoformat(str(start)).timestamp())
    except ValueError:
        at_s = DEFAULT_START_S
    if not 0 <= at_s < _LATEST_START_S:
        raise InputError(f"path.start: {start}: a guest's clock can only show 1970 to 2200")
    return at_s * 1_000_000_000


def _output_lines(guest: subprocess.Popen[str]) -> Iterator[str]:
    """Yield a guest's output lines with their original line ends.

    Bytes that are not UTF-8 are kept.
    """
    if isinstance(guest.stdout, io.TextIOWrapper):
        guest.stdout.reconfigure(encoding="utf-8", errors="surrogateescape", newline="")
    yield from guest.stdout or ()


def _print_output(text: str) -> None:
    """Print the program's output, byte for byte."""
    try:
        if hasattr(sys.stdout, "buffer"):
            sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        else:
            # A notebook's standard output accepts only text.
            sys.stdout.write(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of standard output is gone; the run continues without output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
