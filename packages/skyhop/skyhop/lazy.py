"""Names of packages that are imported at their first use.

A package's `__init__.pyi` is the only list of its names, for type checkers and at run time. Each
line is `from MODULE import NAME as NAME`; if MODULE is the package itself, NAME is a package in it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module


def lazy_names(
    package: str, file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose `__init__.py` is `file`."""
    with open(f"{file}i", encoding="utf-8") as stub:  # noqa: PTH123 - pathlib is slow to import
        imports = [line.split() for line in stub if line.startswith("from ")]
    homes = {name: module for _, module, _, name, _, _ in imports}

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if homes[name] == package:
            return import_module(f"{package}.{name}")
        loaded: object = getattr(import_module(homes[name]), name)
        return loaded

    return load, lambda: list(homes), list(homes)
