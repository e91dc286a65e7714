"""`skyhop docs`: open the documentation site, whose files are on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skyhop.cli import completion
from skyhop.cli.terminal import print_note

HELP = (
    "Open the documentation in a browser, and print where it is.\n\n"
    "A wheel contains the site; in a checkout, make docs builds it.\n\n"
    "Examples:\n\n"
    "  skyhop docs\n\n"
    "  skyhop docs congestion-controls"
)
START = "index"
COMMANDS = "reference/commands/"
"""Directory of the pages that list the options of commands."""


def docs(
    page: Annotated[
        str | None,
        typer.Argument(
            metavar="[PAGE]",
            help="A page by its name, such as limitations or reference/scenario.",
            autocompletion=completion.pages,
        ),
    ] = None,
    only_path: Annotated[
        bool, typer.Option("--path", help="Print the path of the file, without opening it.")
    ] = False,
) -> None:
    """Print the file of a page, and open it in the browser unless `only_path`."""
    from skyhop.data.shipped import site_directory

    file = find_page(site_directory(), page or START)
    print(file)
    if not only_path:
        import webbrowser

        if not webbrowser.open(file.as_uri()):
            print_note("no browser answers here: open that file in one")


def find_page(site: Path, name: str) -> Path:
    """Return the file of a page; `name` may include the page's directory."""
    from skyhop.data.shipped import page_names
    from skyhop.errors import InputError

    wanted = name.removesuffix(".html").removesuffix(".md").removeprefix("docs/")
    exact = site / f"{wanted}.html"
    if exact.is_file():
        return exact
    endings = (f"/{wanted}", f"/{wanted}/index")
    found = [page for page in page_names(site) if f"/{page}".endswith(endings)]
    # A guide and the options of a command may have the same name: prefer the guide.
    found = [page for page in found if COMMANDS not in page] or found
    if len(found) == 1:
        return site / f"{found[0]}.html"
    if found:
        raise InputError(f'docs: there are several pages "{name}": give one of {", ".join(found)}')
    raise InputError(f'docs: there is no page "{name}": run skyhop docs, and search there')
