"""Congestion controls in Python: `cc = "./idea.py"`, for the simulator.

The file defines a class `CongestionControl`. The core creates an instance for each end of each
connection, calls its `on_ack`, `on_loss` and `on_timeout`, and reads `cwnd`, `ssthresh` and
`pacing_rate_bps` from it (crates/python/src/python_cc.rs). docs/tutorials/first-cc.md explains it
to users.

The card of a policy may name a Python file instead of a network; that file defines `decide(seen)`
(crates/python/src/python_policy.rs, docs/reference/policy-card.md).
"""

from __future__ import annotations

import ast
import importlib.util
import math
import os
import random
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from skyhop.data.own_modules import MAIN, OwnModules
from skyhop.errors import InputError, SkyhopError

CLASS = "CongestionControl"
DECIDE = "decide"
_ANY_MSS_BYTES = 1448
_NOT_PARAMETERS = ("cwnd", "ssthresh", "pacing_rate_bps", "mss_bytes", "random")


def read_class(file: str) -> type[Any]:
    """Run a file and return its class `CongestionControl`.

    Raises:
        InputError: the file fails to run, or defines no such class.
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
    """Run a file and return its function `decide`, which makes the decisions of a policy.

    Raises:
        InputError: the file fails to run, or defines no such function.
    """
    try:
        found = getattr(_run(file), DECIDE, None)
    except (Exception, SystemExit) as error:
        raise InputError(describe(error, file)) from None
    if not callable(found):
        raise InputError(f"{file}: defines no function {DECIDE}(seen)")
    return found


def new(
    cc_class: type[Any], file: str, given: Sequence[tuple[str, str]], seed: int, mss_bytes: int
) -> Any:
    """Return a new congestion control for one end of a connection.

    Args:
        cc_class: class of the congestion control.
        file: file that defines the class.
        given: parameters set in the scenario, each as name and text.
        seed: seed of the congestion control's random numbers.
        mss_bytes: payload of a full-sized packet in bytes.

    Raises:
        InputError: a parameter does not exist or cannot have that value, or `__init__` fails.
    """
    values = {name: _value(cc_class, Path(file).stem, name, text) for name, text in given}
    try:
        instance: Any = object.__new__(cc_class)
        state = {"cwnd": 10.0, "ssthresh": math.inf, "pacing_rate_bps": None}
        own = {"mss_bytes": mss_bytes, "random": random.Random(seed)}
        for name, value in {**state, **own, **values}.items():
            setattr(instance, name, value)
        instance.__init__()
    except Exception as error:
        raise InputError(describe(error, file)) from None
    return instance


def describe(error: BaseException, file: str, where: str = "") -> str:
    """Return an error as one line: file and line, the error, then the context `where`."""
    line: int | None = None
    if isinstance(error, SyntaxError) and error.filename == file:
        line, what = error.lineno, f"SyntaxError: {error.msg}"
    else:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        line = frames[-1].lineno if frames else None
        what = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, SkyhopError):
        what = str(error)
    shown = _relative_name(file)
    place = shown if line is None else f"{shown}:{line}"
    return " ".join(f"{place}: {what}{where}".split())


def own_modules(file: str | Path) -> list[Path]:
    """Run a file; return its own modules and the data that it reads.

    Data counts if the file opens it when it is run or when a congestion control with the default
    parameters is made, or if a text in the file is its name.

    Raises:
        InputError: the file fails to run.
    """
    try:
        module, own = _run_with_modules(str(file))
    except (Exception, SystemExit) as error:
        raise InputError(describe(error, str(file))) from None
    found = getattr(module, CLASS, None)
    # The run itself reports what `__init__` raises.
    with own.noting_data(), suppress(InputError):
        if isinstance(found, type):
            new(found, str(file), [], 0, _ANY_MSS_BYTES)
    files = {Path(os.path.normpath(each)) for each in own.files} - {Path(file)}
    return sorted(each for each in files if os.access(each, os.R_OK))


def _run(file: str) -> ModuleType:
    return _run_with_modules(file)[0]


def _run_with_modules(file: str) -> tuple[ModuleType, OwnModules]:
    """Execute a file as a module; without caching, because the user may have edited the file."""
    path = Path(file)
    spec = importlib.util.spec_from_file_location(f"{MAIN}{path.stem}", file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    source = path.read_bytes()
    code = compile(source, file, "exec", dont_inherit=True)
    own = OwnModules(path)
    try:
        own.run(code, ast.parse(source), module.__dict__)
    finally:
        own.take_added_path()
    return module, own


def _value(cc_class: type, table: str, name: str, text: str) -> object:
    """Return a parameter's value, converted to the type of its default."""
    default = parameters(cc_class).get(name)
    if default is None:
        known = ", ".join(parameters(cc_class)) or "none"
        raise InputError(f'{table} has no parameter "{name}"; it has: {known}')
    if isinstance(default, str):
        return text
    if isinstance(default, bool) and text in ("true", "false"):
        return text == "true"
    try:
        return type(default)(text) if not isinstance(default, bool) else _reject()
    except ValueError:
        kind = {bool: "true or false", int: "a whole number"}.get(type(default), "a number")
        raise InputError(f'{table}.{name} = "{text}": expected {kind}') from None


def parameters(cc_class: type) -> dict[str, bool | int | float | str]:
    """Return the parameters of a class with their defaults: its public class attributes."""
    return {
        name: value
        for parent in reversed(cc_class.__mro__)
        for name, value in vars(parent).items()
        if isinstance(value, bool | int | float | str)
        and not name.startswith("_")
        and name not in _NOT_PARAMETERS
    }


def _reject() -> bool:
    raise ValueError


def _relative_name(file: str) -> str:
    """Return a file's name, relative to the current directory if the file is below it."""
    path = Path(file)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
