"""MkDocs hook: adds generated pages, documents of the root, and files to which pages link.

mkdocs.yml names this hook. If a page links to a file outside docs/, the link is changed to a copy
of that file on the site, so that the site works offline. A link to ARCHITECTURE.md or
CONTRIBUTING.md is changed to the page that is made from it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from cc_page import cc_page
from command_pages import command_pages
from list_pages import (
    cards,
    constellations_page,
    profiles_page,
    rewards_page,
    studies_page,
    telemetry_page,
    video_page,
)
from mkdocs.structure.files import File, Files
from python_page import python_page
from schema_pages import applications_page, qdiscs_page, read, scenario_page, study_page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
DOCUMENTS = {
    "ARCHITECTURE.md": "contributing/architecture.md",
    "CONTRIBUTING.md": "contributing/index.md",
}
"""Documents outside docs/ that are also pages of the site."""
LINK = re.compile(r"(?<=\]\()(?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?(?=\))")
CODE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def on_files(files: Files, *, config: Any) -> Files:
    """Add the generated pages, and the files to which pages link."""
    for path, text in generated().items():
        add(files, config, path, text)
    linked = set()
    for source in [*DOCS.rglob("*.md"), *(ROOT / name for name in DOCUMENTS)]:
        for link in LINK.finditer(CODE.sub("", source.read_text("utf-8"))):
            linked.add(outside(source.parent, link["target"]))
    for path in sorted(linked - {None}):
        if (ROOT / str(path)).is_file() and path not in DOCUMENTS:
            add(files, config, copy_of(str(path)), (ROOT / str(path)).read_bytes())
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Replace links to files outside docs/ by links within the site."""
    del config, files
    origin = next((name for name, path in DOCUMENTS.items() if path == page.file.src_uri), None)
    directory = (ROOT / origin if origin else DOCS / page.file.src_uri).parent
    here = os.path.dirname(page.file.src_uri)  # noqa: PTH120 -- of a URI

    def led(link: re.Match[str]) -> str:
        target, anchor = link["target"], link["anchor"] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        path = outside(directory, target)
        if path is None:
            if origin is None:
                return link[0]
            path = os.path.relpath(directory / target, DOCS)
        else:
            path = DOCUMENTS.get(path) or copy_of(path)
        return os.path.relpath(path, here or ".") + anchor

    pieces, at = [], 0
    for block in CODE.finditer(markdown):
        pieces += [LINK.sub(led, markdown[at : block.start()]), block[0]]
        at = block.end()
    return "".join([*pieces, LINK.sub(led, markdown[at:])])


def on_config(config: Any) -> Any:
    """Add each command's page to the navigation."""
    names = [name for name in command_pages() if name != "index"]
    expand(
        config.nav,
        ["reference/commands/index.md", *(f"reference/commands/{name}.md" for name in names)],
    )
    return config


def on_post_build(*, config: Any) -> None:
    """Remove files that readers never load: source maps, and search data of other languages."""
    scripts = Path(config.site_dir) / "assets"
    for file in [*scripts.rglob("*.map"), *(scripts / "javascripts" / "lunr").rglob("*.js")]:
        file.unlink()


def expand(nav: Any, pages: list[str]) -> None:
    """Replace the navigation entry that names the first of `pages` by entries for all of them."""
    for entry in nav:
        for title, value in entry.items() if isinstance(entry, dict) else ():
            if value == pages[0]:
                entry[title] = pages
            elif isinstance(value, list):
                expand(value, pages)


def outside(directory: Path, target: str) -> str | None:
    """Return a link's path from the root, if the linked file is outside docs/; else `None`."""
    if not target or "://" in target or target.startswith("mailto:"):
        return None
    path = os.path.relpath(os.path.normpath(directory / target), ROOT)
    return None if path.startswith(("docs" + os.sep, "..")) or path == "docs" else path


def copy_of(path: str) -> str:
    """Return the path on the site of a file's copy, with a suffix that browsers show as text."""
    return f"files/{path}.txt"


def add(files: Files, config: Any, path: str, content: str | bytes) -> None:
    """Add a file that is not in docs/; raise an error if docs/ has a file of that path."""
    if files.get_file_from_path(path) is not None:
        raise ValueError(f"docs/{path} is a file, and is generated too: remove it")
    files.append(File.generated(config, path, content=content))


def generated() -> dict[str, str]:
    """Return all generated pages, by their paths below docs/."""
    from skyhop import _core

    scenario = read(DOCS / "scenario.schema.json")
    applications = {entry.name: entry.description for entry in _core.list_apps()}
    return {
        **{path: (ROOT / name).read_text("utf-8") for name, path in DOCUMENTS.items()},
        **{f"reference/commands/{name}.md": text for name, text in command_pages().items()},
        "reference/scenario.md": scenario_page(scenario),
        "reference/study.md": study_page(read(DOCS / "study.schema.json")),
        "reference/python.md": python_page(),
        "reference/congestion-controls.md": cc_page(cards()),
        "reference/queue-disciplines.md": qdiscs_page(scenario),
        "reference/applications.md": applications_page(scenario, applications),
        "reference/constellations.md": constellations_page(),
        "reference/video.md": video_page(scenario),
        "reference/rewards.md": rewards_page(),
        "reference/profiles.md": profiles_page(),
        "reference/studies.md": studies_page(),
        "reference/telemetry-fields.md": telemetry_page(),
    }
