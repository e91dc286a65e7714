"""The workbench for transport over satellite networks.

    import skyhop

    trace = skyhop.path("San Diego", "New York", duration="10 min")
    trace.plot()
    run = skyhop.sim("handover")
    run.flows  # a polars frame
    skyhop.sweep("handover", {"flow.0.cc": ["cubic", "bbr"]}, repeat=3)  # a polars frame

Names are imported at their first use, so that importing the package is fast.
"""

from skyhop import views
from skyhop.lazy import lazy_names

views.PROVIDERS.update(
    {
        "AllPairs.html": "skyhop.report.notebook.pairs_html",
        "Constellation.html": "skyhop.report.notebook.constellation_html",
        "Path.html": "skyhop.report.notebook.path_html",
        "Path.plot": "skyhop.figures.sources.path_figure",
        "Portraits.html": "skyhop.report.notebook.portraits_html",
        "Portraits.plot": "skyhop.figures.portrait.portraits_figure",
        "Run.html": "skyhop.report.notebook.run_html",
        "Run.plot": "skyhop.figures.sources.run_figure",
        "StudyRun.html": "skyhop.report.notebook.study_html",
    }
)

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
