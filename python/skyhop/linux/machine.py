"""Boots a guest for one run: hands the scenario over, follows it, and leaves nothing behind.

The guest sees this machine's files as the user who started it does (hostfs), and nothing of its
network. Its clock jumps to whatever is to happen next (`time-travel=inf-cpu`): computing takes no
time there, and waiting takes none here. What it makes lies in the cache until the run is whole.
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
from skyhop.data.scenarios import Scenario, load_scenario, whole_cc_name
from skyhop.engines import Observer, Program
from skyhop.errors import InputError, InterruptedRunError, ProgramError, RunError
from skyhop.linux.held import held
from skyhop.linux.job import JOB, OUTCOME, PROGRESS, RUN
from skyhop.linux.kernels import Kernel, find, how_to_mend
from skyhop.linux.modules import modules_of
from skyhop.linux.processor import own_processor
from skyhop.runs import Run

MEMORY_BYTES = 1 << 30
"""What a guest has."""
STARTS_S = 1_700_000_000
"""What a guest's clock shows as it boots where the scenario does not say when it is: two runs see
the same."""
_LATEST_S = 230 * 365 * 86_400
"""A kernel's clock ends in 2262, and has to have room for what it adds."""
LAST_LINES = 12
"""Of what a guest printed, so many are kept for when it dies."""
_PANIC = "Kernel panic - not syncing: "
_LAST_WORDS = re.compile(r"reboot: (Power down|System halted)\s*$")
"""A program's last line may lack its end, and have these behind it."""
_TOLD = re.compile(rf"{PROGRESS} (?P<done>\d+) (?P<total>\d+)")

_INIT = """\
#!/bin/sh
[ $$ = 1 ] || exit 1
mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /run
# Most kernels have mounted it by now.
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mkdir -p /dev/net /dev/shm /dev/pts
[ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
ip link set lo up
# A window that a router is sent at once finds room there.
echo 1000000 >/proc/sys/net/core/netdev_max_backlog
# The only chance that it has, beside its command line.
{python} -SEc 'import fcntl
fcntl.ioctl(open("/dev/random", "wb"), {add_entropy}, bytes.fromhex("{entropy}"))'
stty -opost </dev/console 2>/dev/null
{environment}
# The console is a terminal, whatever the user's output is.
{python} -m skyhop.linux.guest {directory} </dev/null 2>&1 | cat
{python} -SEc 'import ctypes, os; os.sync(); ctypes.CDLL(None).reboot({power_off})'
"""
_INIT_FILE = "/proc/self/cwd/init"
"""In the kernel's own directory: its command line goes into its random numbers, and is the same for
all runs but for their seeds. Until the guest mounts its own, /proc is this machine's."""
_POWER_OFF = 0x4321_FEDC
"""Of linux/reboot.h."""
_ADD_ENTROPY = 0x4008_5203
"""RNDADDENTROPY of linux/random.h."""
_ENTROPY = struct.pack("=ii32x", 256, 32)
"""As many bits, in as many bytes, as the kernel takes for enough: all zero."""
_ALWAYS = {
    "TMPDIR": "/dev/shm",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    # Two runs hash, and so order, alike.
    "PYTHONHASHSEED": "0",
    "POLARS_MAX_THREADS": "1",
}
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
"""What of this environment decides what programs in the guest find."""
_KEPT_PLACES = ("XDG_CACHE_HOME", "PYTHONPATH")
"""Likewise: directories, which may be given from where this process works."""
_OF_ITS_OWN = ("/dev", "/proc", "/run", "/sys")
"""Where a guest sees none of this machine's files."""


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
    """Run a scenario on a Linux kernel of your choice, in virtual time.

    Args:
        scenario: a file or an example's name, or its content as a dictionary.
        output: the run directory; a temporary one, removed with the result, where not given.
        sets: overrides, each "KEY=VALUE".
        kernel: its name, as `linux.kernel` of the scenario.
        program: what to run instead of the scenario's flows; what it prints is printed here.
        cc: the default congestion control inside the namespaces; cubic where not given.
        force: use `output` even if it is not empty.
        observer: is told how far the run is, but for a program's; a bar where not given.

    Raises:
        InputError: scenario, kernel, program or output are wrong.
        RunError: the guest died, the disk is full, …
        ProgramError: the program failed; carries what was measured.
        InterruptedRunError: Ctrl-C or SIGTERM; nothing was kept.
    """
    if program is not None and program.internet:
        raise InputError("a guest sees nothing of this machine's network: leave internet out")
    own = [] if kernel is None else [f"linux.kernel={json.dumps(kernel)}"]
    loaded = load_scenario(scenario, [*sets, *own])
    keep = Scratch() if output is None else None
    place = keep.path / RUN if keep else Path(os.fspath(output or ""))
    # A wrong place is found now; whoever is killed leaves none behind.
    _core.RunDirectory.reserve(str(place), force).abandon()
    with _watched(observer, has_program=program is not None) as progress, _workplace() as work:
        guest = _Guest(find(kernel_of(loaded)), work, progress, program is not None)
        status = guest.run(loaded, program, cc, asked=loaded)
        _take(work / RUN, place, force=force)
    whole = Run(place, keep)
    if status:
        raise ProgramError(status, whole)
    return whole


def run_aside(scenario: _core.Scenario, directory: Path, asked: _core.Scenario) -> None:
    """Run into an empty directory of the caller's, as `engines.run_aside` does.

    Args:
        scenario: what is run.
        directory: where the run comes to.
        asked: the scenario with its path as the user gave it, which may say when it begins.

    Raises:
        InputError: the guest refused the scenario.
        RunError: the guest died.
    """
    with _workplace() as work:
        guest = _Guest(find(kernel_of(scenario)), work, ignore_progress, has_program=False)
        guest.run(scenario, asked=asked)
        for file in (work / RUN).iterdir():
            try:
                shutil.copyfile(file, directory / file.name)
            except OSError as error:
                raise RunError(f"{directory / file.name}: {error.strerror or error}") from error


def _take(whole: Path, place: Path, *, force: bool) -> None:
    """Put a whole run's files into its directory."""
    directory = _core.RunDirectory.reserve(str(place), force)
    try:
        directory.take(str(whole))
    except BaseException:
        directory.abandon()
        raise


def kernel_of(scenario: _core.Scenario) -> str | None:
    """Return the kernel that a scenario names; None where it names none."""
    name: str | None = json.loads(scenario.to_json()).get("linux", {}).get("kernel")
    return name


@contextmanager
def _watched(observer: Observer | None, *, has_program: bool) -> Iterator[Progress]:
    """Yield who is told how far the run is: a bar where there is no observer."""
    if observer is not None:
        yield observer.run
    elif has_program:
        # It writes to the terminal itself.
        yield ignore_progress
    else:
        with progress_bar("running") as bar:
            yield bar


@contextmanager
def _workplace() -> Iterator[Path]:
    """Yield a directory in the cache; where this is killed, the next one removes it."""
    guests = cache_directory() / "guests"
    try:
        guests.mkdir(parents=True, exist_ok=True)
        scratch = Scratch(guests)
    except OSError as error:
        raise cache_error(guests, error) from error
    with scratch as work:
        _check_seen(work)
        yield work


def _check_seen(directory: Path) -> None:
    """Make sure that a guest sees a directory's files."""
    hidden = [place for place in _OF_ITS_OWN if directory.resolve().is_relative_to(place)]
    if hidden:
        raise InputError(f"{directory}: a guest has {hidden[0]} of its own; use another directory")


@dataclass
class _Guest:
    """A kernel, and what it is booted for."""

    kernel: Kernel
    directory: Path
    """Where the job lies, and the run comes to."""
    progress: Progress
    has_program: bool

    def run(
        self,
        scenario: _core.Scenario,
        program: Program | None = None,
        cc: str | None = None,
        *,
        asked: _core.Scenario,
    ) -> int | None:
        """Boot, and wait for the end; return the program's exit status, None without one."""
        starts_ns = _starts_ns(json.loads(asked.to_json()))
        _check_seen(Path.cwd())
        options: _core.EngineOptions = {
            "client": list(program.client) if program else None,
            "server": program.server if program else None,
            "default_cc": None if cc is None else whole_cc_name(cc),
            "internet": False,
            "guest": {
                "name": self.kernel.name,
                "source": self.kernel.source,
                "digest": self.kernel.digest,
                "hz": self.kernel.hz,
                "options": list(self.kernel.options),
            },
        }
        is_file = os.path.exists(scenario.origin)  # noqa: PTH110 - a word may be no path's name
        job = {
            "scenario": scenario.to_json(),
            "origin": os.path.abspath(scenario.origin) if is_file else scenario.origin,  # noqa: PTH100
            "options": options,
            "working_directory": str(Path.cwd()),
            "modules": [str(file) for file in self._modules(scenario, options)],
        }
        self._write(JOB, json.dumps(job))
        last = self._boot(starts_ns, json.loads(scenario.to_json())["run"]["seed"])
        return self._outcome(last)

    def _modules(self, scenario: _core.Scenario, options: _core.EngineOptions) -> list[Path]:
        """Return the modules with the congestion controls in C that the run uses."""
        if options["client"] is None:
            return modules_of(self.kernel, list(scenario.congestion_controls().values()))
        return modules_of(self.kernel, [options["default_cc"] or ""])

    def _boot(self, starts_ns: int, seed: int) -> Sequence[str]:
        """Boot, and follow until the guest has ended; return its last lines."""
        self._write_init()
        command = [
            *_at_fixed_addresses(), str(self.kernel.binary), f"mem={MEMORY_BYTES >> 20}M",
            "rootfstype=hostfs", "rootflags=/", "rw", "quiet", "time-travel=inf-cpu",
            f"time-travel-start={starts_ns}", f"init={_INIT_FILE}", "uml_dir=./",
            "con0=null,fd:1", "con=null", "panic=-1",
            f"skyhop.seed={seed}",
        ]  # fmt: skip
        last: deque[str] = deque(maxlen=LAST_LINES)
        try:
            with (
                own_processor() as processor,
                held(command, self._environment(), self.directory) as guest,
            ):
                if processor is not None:
                    os.sched_setaffinity(guest.pid, {processor})
                for line in _lines(guest):
                    self._follow(line, last)
        except KeyboardInterrupt:
            raise InterruptedRunError("interrupted; nothing was kept", None) from None
        return last

    def _follow(self, line: str, last: deque[str]) -> None:
        told = _TOLD.fullmatch(line.strip())
        if told is not None:
            self.progress(int(told["done"]), int(told["total"]))
            return
        if any(_PANIC in earlier for earlier in last):
            # Nothing comes after it but where it happened.
            return
        if line.strip():
            last.append(line.strip())
        if self.has_program:
            _pass_on(_LAST_WORDS.sub("", line))

    def _write_init(self) -> None:
        """Write the guest's first program."""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        places = {name: os.environ[name] for name in _KEPT_PLACES if os.environ.get(name)}
        kept |= {name: os.pathsep.join(map(os.path.abspath, text.split(os.pathsep)))
                 for name, text in places.items()}  # fmt: skip
        lines = (f"export {name}={shlex.quote(text)}" for name, text in (kept | _ALWAYS).items())
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
        """Write a file that the guest reads, and return where it is."""
        file = self.directory / name
        try:
            file.write_text(text, "utf-8")
        except OSError as error:
            raise cache_error(file, error) from error
        return file

    def _environment(self) -> dict[str, str]:
        """Return the kernel's own environment: where its memory is, above all."""
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.directory)}
        try:
            free = os.statvfs("/dev/shm")
            has_room = free.f_bavail * free.f_frsize > 2 * MEMORY_BYTES
            is_fit = has_room and not free.f_flag & os.ST_NOEXEC
        except OSError:
            is_fit = False
        # Its own choice is /dev/shm; a full one, or one where nothing may be run, would kill it.
        return environment if is_fit else environment | {"TMPDIR": str(self.directory)}

    def _outcome(self, last: Sequence[str]) -> int | None:
        """Return the program's exit status, or raise what the guest raised."""
        file = self.directory / OUTCOME
        if not file.exists():
            name = self.kernel.name
            said = " | ".join(last) or f"nothing (is it damaged? {how_to_mend(name)})"
            raise RunError(
                f"the guest (Linux {self.kernel.release}) ended before its run; it said: {said}"
            )
        outcome = json.loads(file.read_text("utf-8"))
        if outcome["error"] is None:
            status: int | None = outcome["status"]
            return status
        kind = InputError if outcome["error"] in ("InputError", "CompileError") else RunError
        raise kind(outcome["message"])


def _at_fixed_addresses() -> Sequence[str]:
    """Return what a command begins with so that its memory is laid out alike each time.

    The guest's is as large as the layout leaves it. Some containers do not allow it.
    """
    command = ["setarch", "-R"]
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return command


def _starts_ns(scenario: dict[str, Any]) -> int:
    """Return what the guest's clock shows as it boots: when its path begins, if that is known."""
    start = scenario["path"].get("start") if "path" in scenario else None
    try:
        at_s = int(datetime.fromisoformat(str(start)).timestamp())
    except ValueError:
        at_s = STARTS_S
    if not 0 <= at_s < _LATEST_S:
        raise InputError(f"path.start: {start}: a guest's clock can only show 1970 to 2200")
    return at_s * 1_000_000_000


def _lines(guest: subprocess.Popen[str]) -> Iterator[str]:
    """Yield what a guest prints, whatever its lines end in, and also what is no text."""
    if isinstance(guest.stdout, io.TextIOWrapper):
        guest.stdout.reconfigure(encoding="utf-8", errors="surrogateescape", newline="")
    yield from guest.stdout or ()


def _pass_on(text: str) -> None:
    """Print what a program has printed."""
    try:
        if hasattr(sys.stdout, "buffer"):
            sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        else:
            # A notebook's takes text alone.
            sys.stdout.write(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        sys.stdout.flush()
    except BrokenPipeError:
        # Nobody reads on; the run is wanted all the same.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
