"""Statistics of runs and paths, and view models of figures, tables, sentences and pages.

A view model holds the content of a figure, table or page, with titles and units, in dataclasses and
arrays. The packages `figures` and `report` draw view models as figures and pages.
"""
