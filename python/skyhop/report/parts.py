"""What all reports share: figures in a page, tables, and the templates."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2


@dataclass(frozen=True)
class ReportFigure:
    """One figure of a report."""

    file: str
    caption: str
    png: bytes
    run: int | None = None
    """Which of the runs it is about; None: all of them."""

    @property
    def data_uri(self) -> str:
        """The PNG as an address that holds it."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


def figures_directory(output: Path | str) -> Path:
    """Return where the figures of a report are as files: report-figures/ for report.html."""
    output = Path(output)
    return output.with_name(f"{output.stem}-figures")


def render(template: str, **values: Any) -> str:
    """Return a page from one of the report's templates."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("skyhop", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)
