"""Congestion controls of a run: the kernel's own, and skyhop's, loaded under a private name.

The kernel has one global list of congestion controls, and a default per network namespace. A module
of skyhop is compiled with the run's parameters and loaded as BPF under a name that only its run
knows. It becomes the default of the run's namespace, never of the host's.
"""

from __future__ import annotations

import re
import secrets
import sys
from contextlib import suppress
from pathlib import Path

from skyhop import _core
from skyhop.data.near_names import did_you_mean
from skyhop.data.templates import template
from skyhop.errors import InputError, RunError
from skyhop_testbed.kernel.journal import ChangeJournal, ModuleChange
from skyhop_testbed.kernel.network import Namespace
from skyhop_testbed.kernel.programs import call
from skyhop_testbed.kernel.requests import Answer
from skyhop_testbed.packages import import_path

_OURS = "skyhop:"
_DEFAULT = "tcp_congestion_control"
_AVAILABLE = "tcp_available_congestion_control"
_NAME_LETTERS = 8
_PRIVATE = re.compile(r"[a-z0-9_]{1,8}_r[0-9a-f]{5}")
"""Form of names that `private_name` makes. Names that live runs of skyhop use have six digits and
no "r".
"""
_START = "from skyhop.cli import main; main()"
_EACH_ENDS = re.compile(r"\s+(congctl \S+|linkdown)")


def private_name(module: str) -> str:
    """Return a module's private name for one run, of at most 15 characters (TCP_CA_NAME_MAX)."""
    return f"{module[:_NAME_LETTERS]}_r{secrets.randbits(20):05x}"


class Congestion:
    """Congestion controls of a run.

    Args:
        run: id of the run.
        namespace: the run's network namespace.
        directory: directory for the sources that are compiled.
        changes: journal that records a load before it happens.
    """

    def __init__(
        self, run: str, namespace: Namespace, directory: Path, changes: ChangeJournal
    ) -> None:
        self._run, self._namespace, self._changes = run, namespace, changes
        self._directory = directory
        self._own: dict[str, str] = {}
        self._routed: str | None = None
        """Congestion control set on the namespace's routes, which takes precedence over its
        default.
        """
        self._loaded: tuple[str, dict[str, str]] | None = None

    def choice(self) -> Answer:
        """Return the available congestion controls, those loaded for this run, and the default."""
        others = [name for name in self._available() if not _PRIVATE.fullmatch(name)]
        return {
            "kernel": others,
            "skyhop": [f"{_OURS}{name}" for name in sorted(dict(_core.own_cc()))],
            "loaded": dict(self._own),
            "default": self._routed or self._namespace.read(_DEFAULT),
        }

    def set(self, name: str) -> str:
        """Make a congestion control the namespace's default; return its name in the kernel.

        Raises:
            InputError: no congestion control has that name, or it belongs to another run.
            RunError: the kernel refuses it.
        """
        if name.startswith(_OURS):
            return self.load(name, {})
        if name not in self._available() or (_PRIVATE.fullmatch(name) and name not in self._own):
            known = ", ".join(self.choice()["kernel"])
            raise InputError(f"cc {name}: this kernel has {known}; skyhop's begin with {_OURS}")
        self._make_default(name)
        return name

    def load(self, name: str, parameters: dict[str, str]) -> str:
        """Load a module of skyhop with parameters, and make it the default; return its name.

        Raises:
            InputError: no module has that name, or a parameter or value is wrong.
            RunError: this machine cannot load it.
        """
        module = name.removeprefix(_OURS)
        if module not in dict(_core.own_cc()):
            known = sorted(dict(_core.own_cc()))
            hint = did_you_mean(module, known)
            raise InputError(f"cc {name}: unknown{hint}; skyhop has {', '.join(known)}")
        private = private_name(module)
        file = self._directory / f"{private}.c"
        self._changes.record(self._run, {"kind": "cc", "name": private, "file": str(file)})
        file.write_text(template(file, module), encoding="utf-8")
        sets = [word for key, text in parameters.items() for word in ("--set", f"{key}={text}")]
        # Compilation takes seconds, so it happens in a separate process, which dies with this
        # thread.
        try:
            call(
                "setpriv", "--pdeathsig", "KILL", sys.executable, "-c", _START, "cc", "load",
                str(file), *sets, environment=_environment(self._directory),
            )  # fmt: skip
        except RunError as error:
            file.unlink(missing_ok=True)
            raise RunError(f"cc {name}: {_without(str(error), private, module)}") from None
        self._own[private] = module
        self._loaded = (module, dict(parameters))
        self._make_default(private)
        return private

    def change_parameter(self, module: str, parameter: str, value: str) -> str:
        """Load a module again with one parameter changed, which applies to later connections.

        Raises:
            InputError, RunError: as for `load`.
        """
        before = self._loaded[1] if self._loaded and self._loaded[0] == module else {}
        return self.load(module, {**before, parameter: value})

    def _available(self) -> list[str]:
        return self._namespace.read(_AVAILABLE).split()

    def _make_default(self, name: str) -> None:
        try:
            self._namespace.write(_DEFAULT, name)
        except PermissionError:
            # A namespace's default must be in tcp_allowed_congestion_control; routes may use any.
            self._put_on_routes(name)
        except OSError as error:
            raise RunError(f"cc {name}: {error.strerror}") from None
        else:
            if self._routed is not None:
                self._put_on_routes(None)

    def _put_on_routes(self, name: str | None) -> None:
        routes = self._namespace.call("ip", "-4", "route", "show").splitlines()
        choice = "" if name is None else f" congctl {name}"
        lines = [f"route replace {_EACH_ENDS.sub('', route)}{choice}" for route in routes]
        self._namespace.call("ip", "-batch", "-", text="\n".join(lines) + "\n")
        self._routed = name


def _environment(directory: Path) -> dict[str, str]:
    return {
        "PYTHONPATH": import_path(),
        "XDG_CACHE_HOME": str(directory / "cache"),
        "HOME": str(directory),
    }


def _without(message: str, private: str, module: str) -> str:
    """Return a message with the module's public name in place of the private one."""
    return message.partition("skyhop: ")[2].replace(private, module) or message


def undo_load(change: ModuleChange) -> None:
    """Unload a module, given the journal's record of its load for a run."""
    name, file = change["name"], Path(change["file"])
    if not _PRIVATE.fullmatch(name):
        return
    # The module may never have been loaded, or may be unloaded already.
    with suppress(InputError):
        _core.unload_cc(name)
    file.unlink(missing_ok=True)
