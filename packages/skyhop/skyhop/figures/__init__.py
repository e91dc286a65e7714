"""Figures of paths and runs: view models of `analysis` drawn as PNG, SVG and PDF.

>>> from skyhop.figures import path_figure, save
>>> save(path_figure("sd-ny.parquet"), "sd-ny.png")  # doctest: +SKIP

This is the only package that needs a drawing library. Names are loaded when they are first used.
"""

import logging

from skyhop.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)

# Matplotlib prints long warnings about a home directory that is not writable; this is harmless.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
