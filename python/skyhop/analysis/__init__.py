"""What runs and paths amount to: statistics, and view models of figures, tables and pages.

A view model says what is shown, with its titles and units, in plain dataclasses and arrays. What it
looks like on paper or on a page is for those who draw it: `figures` and `report`.
"""
