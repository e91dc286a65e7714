"""Runs without their tables: found, named, and their two JSON files checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skyhop._core import LOSS_REASONS
from skyhop.errors import InputError
from skyhop.runs import Run

FLOW_SUMMARY_KEYS = (
    "id", "cc", "start_s", "stop_s", "goodput_bps", "srtt_mean_us", "rtt_p95_us",
    "base_rtt_mean_us", "cwnd_mean_packets", "retransmits", "sent_packets", "completion_s",
)  # fmt: skip
"""What summary.json says of each TCP flow."""

_TEXTS = ("engine", "cc", "kind", "connection", "evidence")
_LISTS = ("flows", "probes", "apps")
_OBJECTS = ("link", "links", "drops", "handovers", "blind", "lateness_us", "rtt_excess_us")
_NUMBERS = (
    *("id", "seed", "virtual_s", "wall_s", "start_s", "stop_s", "goodput_bps", "base_rtt_mean_us"),
    *("cwnd_mean_packets", "retransmits", "sent_packets", "sent", "lost", "completed"),
    *("failed", "utilisation", "backlog_mean_bytes", "end", "intermediate", "reroute"),
    *LOSS_REASONS,
)  # fmt: skip
"""What is always known."""

_OF_EACH = {"flows": FLOW_SUMMARY_KEYS, "probes": ("id", "sent", "lost"), "apps": ("id",)}
"""Of each entry of a list."""

_SUMMARY_KEYS = ("engine", "seed", "virtual_s", "wall_s", "flows", "link", "handovers")


@dataclass(frozen=True)
class RunHead:
    """What is known of a run without its tables."""

    directory: Path
    name: str
    """What to call the run; `read_heads` makes it unique."""
    manifest: Mapping[str, Any]
    """The content of run.json."""
    summary: Mapping[str, Any]
    """The content of summary.json."""

    @property
    def duration_s(self) -> float:
        """How much of the scenario's time passed."""
        return float(self.summary["virtual_s"])

    @property
    def scenario(self) -> Mapping[str, Any]:
        """The scenario as resolved."""
        scenario = self.manifest["scenario"]
        return scenario if isinstance(scenario, Mapping) else {}

    @property
    def has_one_link(self) -> bool:
        """Whether all flows share the link of `[path]` and `[link]` and nothing else."""
        flows = self.scenario.get("flow", [])
        return not self.scenario.get("links") and not any("extra_rtt" in flow for flow in flows)

    def flow_summaries(self) -> Iterator[Mapping[str, Any]]:
        """Yield summary.json's entries for TCP flows."""
        yield from self.summary["flows"]


def read_heads(directories: Sequence[Path | str]) -> list[RunHead]:
    """Read what is known of runs; a directory that holds runs (`seed-1/`, …) stands for them all.

    Raises:
        InputError: there is none, or one is not a run directory.
    """
    found = [run for directory in directories for run in _run_directories(Path(directory))]
    if not found:
        raise InputError("no run directory given: name at least one")
    names = _unique_names(found)
    return [run_head(Run(file), name) for file, name in zip(found, names, strict=True)]


def run_head(run: Run, name: str = "") -> RunHead:
    """Return what is known of a run; its name is its directory's where none is given.

    Raises:
        InputError: a file of the run is missing, damaged, or lacks a key.
    """
    directory = run.directory
    _check_keys(directory / "run.json", run.info, ("scenario",))
    _check_keys(directory / "summary.json", run.summary, _SUMMARY_KEYS)
    _check_figures(directory / "summary.json", "", run.summary)
    _check_summary(directory / "summary.json", run.summary)
    return RunHead(directory, name or directory.resolve().name, run.info, run.summary)


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
    """Take as many of the last parts of each path as it takes to tell them apart."""
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


def _check_figures(file: Path, above: str, content: Mapping[str, Any]) -> None:
    """Check that what should be a number, a text or a list in summary.json is one."""
    for key, value in content.items():
        place = f"{above}{key}"
        if key == "warnings":
            is_right = isinstance(value, list) and all(isinstance(text, str) for text in value)
        elif key in _LISTS:
            is_right = isinstance(value, list)
            for index, inner in enumerate(value if is_right else ()):
                if not isinstance(inner, Mapping):
                    raise InputError(f"{file}: `{place}[{index}]` should be an object")
                _check_figures(file, f"{place}[{index}].", inner)
        elif isinstance(value, Mapping):
            is_right = key in _OBJECTS or above == "links."
            _check_figures(file, f"{place}.", value)
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
    for name, wanted in _OF_EACH.items():
        for index, entry in enumerate(summary.get(name) or ()):
            parts.append((f"{name}[{index}]", entry, wanted))
    if isinstance(link, Mapping):
        parts.append(("link.drops", link.get("drops"), ()))
    for name, part, keys in parts:
        if not isinstance(part, Mapping):
            raise InputError(f"{file}: `{name}` should be an object")
        for key in keys:
            if key not in part:
                raise InputError(f"{file}: the key `{name}.{key}` is missing")
