"""Modules and data that a Python file of a user reads.

Modules are the file's own if they are below its directory, or below a directory that it adds to
`sys.path`. Each file gets modules of its own: two files in different directories may both import
`helper`, and a file that is read again gets its modules as they are now. Python's usual import
would keep the first `helper` until the process ends, and would take compiled code from
`__pycache__`, which it recognises by time and size.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import resolve_name, source_from_cache
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from skyhop.data.opened_files import is_data, noting_opens

MAIN = "skyhop_cc_"
"""Beginning of the names of the users' files themselves in `sys.modules`."""


class OwnModules:
    """Modules of one file, and the data that they read.

    Attributes:
        files: source files of the modules that have been imported, or that an import statement in
            one of them or in the file names; and files that their code has opened, or that a text
            in it names.
    """

    def __init__(self, file: Path) -> None:
        self._directory = file.parent
        self._path_before = list(sys.path)
        self._added: list[str] = []
        self._modules: dict[str, ModuleType] = {}
        self._installed = _installed_below(self._directory)
        self.files: set[Path] = set()

    def run(self, code: CodeType, tree: ast.AST, namespace: dict[str, Any]) -> None:
        """Execute the code of the file or of one of its modules in a module's namespace."""
        # Import statements call the `__import__` of their module's builtins, also much later.
        namespace["__builtins__"] = {**vars(builtins), "__import__": self._import}
        with self._active():
            with self.noting_data():
                exec(code, namespace)
            self._note_named(tree, str(namespace.get("__package__") or ""))

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: object = None
    ) -> ModuleSpec | None:
        """Find a module below the directory, unless one of this name is installed elsewhere."""
        # The directory comes last, so that its modules cannot shadow installed ones.
        places = [*sys.path, *self._added, str(self._directory)] if path is None else path
        spec = PathFinder.find_spec(name, places)
        if spec is None or not self._is_own(spec):
            return None
        if isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.name, str(spec.origin), self)
        return spec

    def is_own_file(self, file: str | None) -> bool:
        """Return whether a file is below the file's places, and not in a directory of packages."""
        if file is None:
            return False
        places = [str(self._directory)]
        if self._added or sys.path != self._path_before:
            places += map(os.path.realpath, [*self._added, *self._new_path()])
        return _is_below(file, places) and not _is_below(file, self._installed)

    def take_added_path(self) -> None:
        """Remove from `sys.path` what the file has added: other files must not find its modules."""
        added = self._new_path()
        self._added = list(dict.fromkeys([*self._added, *added]))
        sys.path[:] = [path for path in sys.path if path not in added]

    def _new_path(self) -> list[str]:
        return [path for path in sys.path if path not in self._path_before]

    @contextmanager
    def noting_data(self) -> Iterator[None]:
        """Add the files that the code of the file and its modules opens in the `with` block."""
        with noting_opens(self._note_opened):
            yield

    def _note_opened(self, file: Path) -> None:
        if file.suffix == ".pyc":
            file = Path(source_from_cache(file))
        is_installed = _is_below(str(file), _installed_places(file.suffix))
        if (self.is_own_file(str(file)) or not is_installed) and self._is_running():
            self.files.add(file)

    def _is_running(self) -> bool:
        """Return whether the file's code runs, and not an installed module that it imports."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if self.is_own_file(code.co_filename):
                return True
            # What an installed module opens when it is first imported is not data of the file.
            if code.co_name == "<module>":
                return False
            frame = frame.f_back
        return False

    def _is_own(self, spec: ModuleSpec) -> bool:
        if spec.has_location:
            return self.is_own_file(spec.origin)
        return any(map(self.is_own_file, spec.submodule_search_locations or ()))

    def _import(
        self,
        name: str,
        globals_: Mapping[str, object] | None = None,
        locals_: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        loaded = self._loaded(name, globals_ or {}, fromlist or (), level)
        if loaded is not None:
            return loaded
        known = sys.modules.get(name)
        if level == 0 and known is not None and not self._has(known):
            return builtins.__import__(name, globals_, locals_, fromlist, level)
        with self._active():
            return builtins.__import__(name, globals_, locals_, fromlist, level)

    def _loaded(
        self, name: str, globals_: Mapping[str, object], fromlist: Sequence[str], level: int
    ) -> ModuleType | None:
        """Return what an import statement gets from modules that are loaded: `on_ack` has some."""
        package = str(globals_.get("__package__") or "")
        full = resolve_name("." * level + name, package) if level and package else name
        if full in self._modules and not fromlist:
            return self._modules.get(full.partition(".")[0])
        module = self._modules.get(full)
        return module if all(hasattr(module, each) for each in fromlist) else None

    @contextmanager
    def _active(self) -> Iterator[None]:
        """Let imports find this file's modules, instead of those of other files."""
        if self in sys.meta_path:
            yield
            return
        hidden = {name: module for name, module in sys.modules.items() if self._has(module)}
        for name in hidden:
            del sys.modules[name]
        sys.modules.update(self._modules)
        place = next((i for i, f in enumerate(sys.meta_path) if f is PathFinder), 0)
        sys.meta_path.insert(place, self)
        importlib.invalidate_caches()
        # A module that the code loads by its path has another loader, which would write bytecode.
        writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            yield
        finally:
            sys.dont_write_bytecode = writes_none
            sys.meta_path.remove(self)
            own = {name: module for name, module in sys.modules.items() if self._has(module)}
            self._modules.update(own)
            for name in own:
                del sys.modules[name]
            sys.modules.update(hidden)
            self.files.update(Path(file) for file in map(_file_of, own.values()) if file)

    def _has(self, module: ModuleType) -> bool:
        file = _file_of(module)
        if file is not None:
            is_main = module.__name__ == "__main__" or module.__name__.startswith(MAIN)
            return not is_main and self.is_own_file(file)
        places = getattr(module, "__path__", ())
        return bool(places) and all(map(self.is_own_file, places))

    def _note_named(self, tree: ast.AST, package: str) -> None:
        """Add the files that import statements and texts name, also in functions."""
        self.files.update(self._named_data(tree))
        for name in _named(tree, package):
            with suppress(ImportError, ValueError, AttributeError):
                spec = self.find_spec(name) if "." not in name else self._submodule(name)
                origin = None if spec is None else spec.origin
                if origin is None or Path(origin) in self.files or not origin.endswith(".py"):
                    continue
                self.files.add(Path(origin))
                with suppress(SyntaxError, OSError):
                    inner = name if spec and spec.submodule_search_locations else _above(name)
                    self._note_named(ast.parse(Path(origin).read_bytes()), inner)

    def _named_data(self, tree: ast.AST) -> Iterator[Path]:
        """Yield the existing files whose whole name is a text in the code."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
                for place in (self._directory, Path.cwd()):
                    with suppress(OSError, ValueError):
                        named = Path(os.path.normpath(place / node.value))
                        if named.is_file() and is_data(named):
                            yield named

    def _submodule(self, name: str) -> ModuleSpec | None:
        path: Sequence[str] | None = None
        spec = None
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            spec = self.find_spec(".".join(parts[:depth]), path)
            if spec is None:
                return None
            path = list(spec.submodule_search_locations or ())
            if depth < len(parts) and spec.origin and spec.has_location:
                self.files.add(Path(spec.origin))
        return spec


class _Loader(SourceFileLoader):
    """Loader that compiles the source each time and gives the module its file's imports."""

    def __init__(self, name: str, path: str, own: OwnModules) -> None:
        super().__init__(name, path)
        self._own = own

    def exec_module(self, module: ModuleType) -> None:
        source = self.get_data(self.path)
        code = compile(source, self.path, "exec", dont_inherit=True)
        self._own.run(code, ast.parse(source), vars(module))


def _file_of(module: ModuleType) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None


def _is_below(file: str, places: Iterable[str]) -> bool:
    return file.startswith(tuple(os.path.join(place, "") for place in places))  # noqa: PTH118


def _installed_below(directory: Path) -> list[str]:
    """Return directories of installed packages that are below a directory."""
    with suppress(AttributeError):
        places = [*site.getsitepackages(), site.getusersitepackages(), *_PATH_AT_START]
        return [
            place
            for place in places
            if Path(place) != directory and Path(place).is_relative_to(directory)
        ]
    return []


_PATH_AT_START = tuple(path for path in sys.path if path)
_CODE = (".py", ".so")


def _installed_places(suffix: str) -> Iterator[str]:
    """Yield directories of Python and of its packages, in which files of this suffix are no data.

    Modules in the other directories of `sys.path` are shared, and only their data is the file's.
    """
    yield from (sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
    yield from site.getsitepackages()
    yield from _PATH_AT_START if suffix in _CODE else ()


def _named(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield the names of all modules that import statements may mean."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package
            for _ in range(node.level - 1):
                base = _above(base)
            parts = [part for part in (base if node.level else "", node.module or "") if part]
            module = ".".join(parts)
            if module:
                yield module
            yield from (".".join([*parts, alias.name]) for alias in node.names)


def _above(name: str) -> str:
    return name.rpartition(".")[0]
