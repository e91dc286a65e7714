"""Studies: many runs from one file, with their statistics and a report.

>>> from skyhop.study import load_study, run_study
>>> done = run_study(load_study("studies/satcp-table1.toml"), "runs/table1")  # doctest: +SKIP
>>> done.results.frame  # a polars frame  # doctest: +SKIP

Each name is imported at its first use, so that `import skyhop` stays fast.
"""

from skyhop.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
