"""Headers of runs: finding run directories, naming the runs, and checking run.json, summary.json.

A header is a run without its tables: it holds the content of run.json and summary.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skyhop._core import LOSS_REASONS
from skyhop.data.runs import Run
from skyhop.errors import InputError

FLOW_SUMMARY_KEYS = (
    "id", "cc", "start_s", "stop_s", "goodput_bps", "srtt_mean_us", "rtt_p95_us",
    "base_rtt_mean_us", "cwnd_mean_packets", "retransmits", "sent_packets", "completion_s",
)  # fmt: skip
"""Keys that summary.json has for each TCP flow."""

_TEXTS = ("engine", "cc", "kind", "connection", "evidence", "given")
_LISTS = ("flows", "probes", "apps")
_OBJECTS = ("link", "links", "drops", "handovers", "blind", "lateness_us", "rtt_excess_us")
_QUEUES = ("queue", "queue_back")
"""Sizes of a link's queues; among drops, `queue` is a number."""
_NUMBERS = (
    *("id", "seed", "virtual_s", "wall_s", "start_s", "stop_s", "goodput_bps", "base_rtt_mean_us"),
    *("cwnd_mean_packets", "retransmits", "sent_packets", "sent", "lost", "completed"),
    *("failed", "utilisation", "backlog_mean_bytes", "end", "intermediate", "reroute"),
    *("bytes", "packets"),
    *LOSS_REASONS,
)  # fmt: skip
"""Keys of summary.json whose value may not be null; other numbers may be null."""

_ENTRY_KEYS = {"flows": FLOW_SUMMARY_KEYS, "probes": ("id", "sent", "lost"), "apps": ("id",)}
"""Required keys of each entry of a list in summary.json, by the name of the list."""

_SUMMARY_KEYS = ("engine", "seed", "virtual_s", "wall_s", "flows", "link", "handovers")


@dataclass(frozen=True)
class RunHeader:
    """Run without its tables: the content of its two JSON files."""

    directory: Path
    name: str
    """Name of the run in tables and figures; `read_run_headers` makes it unique."""
    manifest: Mapping[str, Any]
    """The content of run.json."""
    summary: Mapping[str, Any]
    """The content of summary.json."""

    @property
    def duration_s(self) -> float:
        """Duration of the run in the scenario's time."""
        return float(self.summary["virtual_s"])

    @property
    def scenario(self) -> Mapping[str, Any]:
        """The resolved scenario, with all defaults filled in."""
        scenario = self.manifest["scenario"]
        return scenario if isinstance(scenario, Mapping) else {}

    @property
    def has_one_link(self) -> bool:
        """Whether the only link of the run is that of `[path]` and `[link]`."""
        flows = self.scenario.get("flow", [])
        return not self.scenario.get("links") and not any("extra_rtt" in flow for flow in flows)

    def flow_summaries(self) -> Iterator[Mapping[str, Any]]:
        """Yield summary.json's entries for TCP flows."""
        yield from self.summary["flows"]


def read_run_headers(directories: Sequence[Path | str]) -> list[RunHeader]:
    """Read the headers of runs; a directory of runs (`seed-1/`, …) stands for all of its runs.

    Raises:
        InputError: no directory is given, or a directory is not a run directory.
    """
    found = [run for directory in directories for run in _run_directories(Path(directory))]
    if not found:
        raise InputError("no run directory given: name at least one")
    names = _unique_names(found)
    return [run_header(Run(file), name) for file, name in zip(found, names, strict=True)]


def run_header(run: Run, name: str = "") -> RunHeader:
    """Return the header of a run; its default name is that of its directory.

    Raises:
        InputError: a file of the run is missing, damaged, or lacks a key.
    """
    directory = run.directory
    _check_keys(directory / "run.json", run.info, ("scenario",))
    _check_keys(directory / "summary.json", run.summary, _SUMMARY_KEYS)
    _check_types(directory / "summary.json", "", run.summary)
    _check_summary(directory / "summary.json", run.summary)
    return RunHeader(directory, name or directory.resolve().name, run.info, run.summary)


def _run_directories(directory: Path) -> list[Path]:
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise InputError(f"{directory}: {what}; a report is made from run directories")
    here = [directory] if (directory / "run.json").exists() else []
    inside = here or [found.parent for found in directory.glob("*/run.json")]
    if not inside:
        raise InputError(f"{directory}: not a run directory: run.json is missing")
    for run in inside:
        if not (run / "summary.json").exists():
            raise InputError(f"{run / 'summary.json'}: missing; the run was not finished")
    return sorted(inside, key=lambda run: (len(run.name), run.name))


def _unique_names(directories: Sequence[Path]) -> list[str]:
    """Return for each path its last components, as few as needed for distinct names."""
    parts = [directory.resolve().parts for directory in directories]
    for depth in range(1, max(len(part) for part in parts) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{part[-1]} ({index + 1})" for index, part in enumerate(parts)]


def _check_keys(file: Path, content: Mapping[str, Any], keys: Sequence[str]) -> None:
    for key in keys:
        if key not in content:
            raise InputError(f"{file}: the key `{key}` is missing")


def _check_types(file: Path, above: str, content: Mapping[str, Any]) -> None:
    """Check the types of numbers, texts, lists and objects in summary.json.

    Args:
        file: its path, for errors.
        above: prefix of the keys in errors, such as "links.".
        content: the object to check, including nested objects.
    """
    for key, value in content.items():
        place = f"{above}{key}"
        if key == "warnings":
            is_right = isinstance(value, list) and all(isinstance(text, str) for text in value)
        elif key in _LISTS:
            is_right = isinstance(value, list)
            for index, inner in enumerate(value if is_right else ()):
                if not isinstance(inner, Mapping):
                    raise InputError(f"{file}: `{place}[{index}]` should be an object")
                _check_types(file, f"{place}[{index}].", inner)
        elif isinstance(value, Mapping):
            is_queue = key in _QUEUES and not above.endswith("drops.")
            is_right = key in _OBJECTS or is_queue or above == "links."
            _check_types(file, f"{place}.", value)
        elif key in _TEXTS:
            is_right = isinstance(value, str)
        elif key in _OBJECTS:
            is_right = value is None
        else:
            is_right = isinstance(value, (int, float)) or (value is None and key not in _NUMBERS)
        if not is_right:
            raise InputError(f"{file}: `{place}` is not what it should be: {value!r:.40}")


def _check_summary(file: Path, summary: Mapping[str, Any]) -> None:
    link = summary["link"]
    parts: list[tuple[str, Any, Sequence[str]]] = [
        ("link", link, ("utilisation", "backlog_mean_bytes", "drops")),
        ("handovers", summary["handovers"], ("end", "intermediate", "reroute")),
    ]
    for name, wanted in _ENTRY_KEYS.items():
        for index, entry in enumerate(summary.get(name) or ()):
            parts.append((f"{name}[{index}]", entry, wanted))
    if isinstance(link, Mapping):
        parts.append(("link.drops", link.get("drops"), ()))
        parts += [
            (f"link.{key}", link[key], ("given", "bytes", "packets"))
            for key in _QUEUES
            if key in link
        ]
    for name, part, keys in parts:
        if not isinstance(part, Mapping):
            raise InputError(f"{file}: `{name}` should be an object")
        for key in keys:
            if key not in part:
                raise InputError(f"{file}: the key `{name}.{key}` is missing")
