"""Results of skyhop: speed, comparisons with Linux and other tools, and studies of papers.

`python -m validation NAME ...` measures one of them; `__main__` has the table of commands. A
command prints its result, or writes a page of docs/results from a template of `templates`.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""Root of the repository."""
