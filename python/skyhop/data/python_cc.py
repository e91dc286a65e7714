"""Congestion controls in Python: `cc = "./idea.py"`, for the simulator.

The file defines a class `CongestionControl`. The core makes one for each end of each connection,
calls its `on_ack`, `on_loss` and `on_timeout`, and takes `cwnd`, `ssthresh` and `pacing_rate_bps`
from it (crates/python/src/python_cc.rs). docs/first-cc.md is the user's side of it.

A card of a policy may name a file in the place of its network, which defines `decide(seen)`
(crates/python/src/python_policy.rs, docs/policies.md).
"""

from __future__ import annotations

import importlib.util
import math
import random
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from skyhop.errors import InputError, SkyhopError

CLASS = "CongestionControl"
DECIDE = "decide"
_NOT_PARAMETERS = ("cwnd", "ssthresh", "pacing_rate_bps", "mss_bytes", "random")


def read_class(file: str) -> type[Any]:
    """Run a file and return the class of congestion controls that it defines.

    Raises:
        InputError: it cannot be run, or defines none.
    """
    try:
        found = getattr(_run(file), CLASS, None)
    except (Exception, SystemExit) as error:
        raise InputError(describe(error, file)) from None
    if not isinstance(found, type):
        raise InputError(f"{file}: defines no class {CLASS}")
    if not callable(getattr(found, "on_ack", None)):
        raise InputError(f"{file}: {CLASS} lacks on_ack(self, ack)")
    return found


def read_decide(file: str) -> Any:
    """Run a file and return the function `decide` of a policy that it defines.

    Raises:
        InputError: it cannot be run, or defines none.
    """
    try:
        found = getattr(_run(file), DECIDE, None)
    except (Exception, SystemExit) as error:
        raise InputError(describe(error, file)) from None
    if not callable(found):
        raise InputError(f"{file}: defines no function {DECIDE}(seen)")
    return found


def new(
    made: type[Any], file: str, given: Sequence[tuple[str, str]], seed: int, mss_bytes: int
) -> Any:
    """Return the congestion control of a connection.

    Args:
        made: its class.
        file: where it is from.
        given: parameters, name and text.
        seed: of its random numbers.
        mss_bytes: payload of a full packet.

    Raises:
        InputError: there is no such parameter, or it cannot be that.
    """
    values = {name: _value(made, Path(file).stem, name, text) for name, text in given}
    try:
        instance: Any = object.__new__(made)
        state = {"cwnd": 10.0, "ssthresh": math.inf, "pacing_rate_bps": None}
        own = {"mss_bytes": mss_bytes, "random": random.Random(seed)}
        for name, value in {**state, **own, **values}.items():
            setattr(instance, name, value)
        instance.__init__()
    except Exception as error:
        raise InputError(describe(error, file)) from None
    return instance


def describe(error: BaseException, file: str, where: str = "") -> str:
    """Return one line: where in the file, what, and what it was doing."""
    line: int | None = None
    if isinstance(error, SyntaxError) and error.filename == file:
        line, what = error.lineno, f"SyntaxError: {error.msg}"
    else:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        line = frames[-1].lineno if frames else None
        what = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, SkyhopError):
        what = str(error)
    place = _shown(file) if line is None else f"{_shown(file)}:{line}"
    return " ".join(f"{place}: {what}{where}".split())


def _run(file: str) -> ModuleType:
    """Run a file as a module of its own, anew each time: it may have been edited."""
    path = Path(file)
    spec = importlib.util.spec_from_file_location(f"skyhop_cc_{path.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        # Behind what is installed: its own helpers are found, and replace nothing.
        sys.path.append(str(path.parent))
    sys.modules[spec.name] = module
    code = compile(path.read_bytes(), file, "exec")
    exec(code, module.__dict__)
    return module


def _value(made: type, table: str, name: str, text: str) -> object:
    """Return a parameter's value, of the kind that the class gives it."""
    usual = parameters(made).get(name)
    if usual is None:
        known = ", ".join(parameters(made)) or "none"
        raise InputError(f'{table} has no parameter "{name}"; it has: {known}')
    if isinstance(usual, str):
        return text
    if isinstance(usual, bool) and text in ("true", "false"):
        return text == "true"
    try:
        return type(usual)(text) if not isinstance(usual, bool) else _refused()
    except ValueError:
        kind = {bool: "true or false", int: "a whole number"}.get(type(usual), "a number")
        raise InputError(f'{table}.{name} = "{text}": expected {kind}') from None


def parameters(made: type) -> dict[str, bool | int | float | str]:
    """Return the parameters of a class with their defaults: its numbers, truth values, texts."""
    return {
        name: value
        for parent in reversed(made.__mro__)
        for name, value in vars(parent).items()
        if isinstance(value, bool | int | float | str)
        and not name.startswith("_")
        and name not in _NOT_PARAMETERS
    }


def _refused() -> bool:
    raise ValueError


def _shown(file: str) -> str:
    """Return a file's name as a user in this directory would write it."""
    path = Path(file)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
