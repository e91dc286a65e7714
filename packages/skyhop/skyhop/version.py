"""Version of skyhop, which Cargo.toml states."""

from skyhop import _core

__version__ = _core.VERSION
