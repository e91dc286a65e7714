"""Telemetry of terminals: its columns, its storage, its collection and its importers.

`fields` defines the columns; `store` keeps samples, a file per node and day; `collector` samples a
terminal; `importers` read data sets that others published.
"""
