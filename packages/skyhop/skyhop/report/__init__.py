"""Reports: one self-contained HTML file about runs or a study, and its figures as files.

>>> from skyhop.report import write_report
>>> write_report(["runs/demo/cubic", "runs/demo/bbr"], "report.html")  # doctest: +SKIP

Names are imported at their first use, because a table of a run needs no drawing library.
"""

from skyhop.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
