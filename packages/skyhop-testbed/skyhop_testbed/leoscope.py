"""Import of LEOScope's jobs: job files from its YAML, with notes on parts without a counterpart.

A user of LEOScope passes an experiment file (`docker`, `tests`, `artifacts`) and, separately,
options with which its command schedules a job. LEOScope's database keeps both in one document, with
the file as the text `config`. The import reads all of these forms; `Overrides` supplies values that
a file does not contain.

A run's environment has LEOScope's variables, and its work directory is `/artifacts`, as LEOScope's
images expect (`executor.environment`, `executor.sandbox_fs`).
"""

from __future__ import annotations

import datetime as dt
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skyhop.data.toml import read_toml, toml_text
from skyhop.errors import InputError, RunError
from skyhop.expressions.tree import Node, walk
from skyhop_testbed.job import Job, job_of
from skyhop_testbed.triggers.parse import parse
from skyhop_testbed.triggers.tree import Earlier, WindowFunction

LONGEST_BYTES = 256_000
"""Upper limit on the size of a file; a larger file is refused without parsing."""
CONFIG = "experiment-config.yaml"
"""Name of the experiment file in the work directory of LEOScope's images."""
DEFAULT_CLIENT = ("--test-config", f"/artifacts/{CONFIG}")
"""Arguments of an image's entry point that LEOScope's guide prescribes; files do not contain them.
"""

_JOB_WORDS = {
    "id": "id",
    "jobid": "id",
    "nodeid": "nodeid",
    "userid": "userid",
    "type": "type",
    "schedule": "schedule",
    "start_date": "start_date",
    "end_date": "end_date",
    "length_secs": "length_secs",
    "length": "length_secs",
    "overhead": "overhead",
    "server": "server",
    "trigger": "trigger",
    "params": "params",
}
"""Keys of a job's document, and the command's option for each."""
_OWN_WORDS = frozenset({"config", "expire_at", "_id", "created_at"})
_CRON = ("minute", "hour", "day_of_month", "month", "day_of_week")
_SECRETS = "cloud_config"
_LONGEST_SHOWN, _LARGEST_SHOWN = 60, 10**18


@dataclass(frozen=True)
class Overrides:
    """Values from the command line, which replace those in the file."""

    id: str | None = None
    nodes: tuple[str, ...] = ()
    server: str | None = None
    length: str | None = None
    """Length of a run in a job file's form, such as "4 min"."""
    cron: str | None = None
    at: str | None = None
    trigger: str | None = None
    start: str | None = None
    end: str | None = None
    client: tuple[str, ...] = ()
    backend: str = "podman"


@dataclass(frozen=True)
class Imported:
    """Imported job: the text of its job file, its input files and notes."""

    toml: str
    job: Job
    files: dict[str, bytes]
    """Content of the files in `run.files`, by name."""
    notes: list[str]
    """Notes on parts that were not carried over, or that mean something else here; one line each.
    """


@dataclass
class _Reader:
    """State of the import of one LEOScope file."""

    source: str
    overrides: Overrides
    notes: list[str] = field(default_factory=list)

    def wrong(self, message: str) -> InputError:
        return InputError(f"{self.source}: {message}")


def import_job(text: str, source: str, name: str, overrides: Overrides | None = None) -> Imported:
    """Convert a LEOScope file to a job.

    Args:
        text: the YAML of an experiment file or a job's document.
        source: name of the file in messages.
        name: name of the job, if the file has none.
        overrides: values that replace or complete those in the file.

    Raises:
        InputError: the file has none of LEOScope's forms, or a required value is missing.
        RunError: PyYAML is not installed.
    """
    reader = _Reader(source, overrides or Overrides())
    words, experiment, config = _parts(reader, text)
    values = _job(reader, words, experiment, name)
    made = toml_text(values)
    job = _checked(reader, made)
    notes = [*dict.fromkeys(reader.notes)]
    comments = "".join(f"# {note}\n" for note in notes)
    head = "# From a file of LEOScope's.\n"
    return Imported(f"{head}{comments}{made}", job, {CONFIG: config}, notes)


def _parts(reader: _Reader, text: str) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Split a file into the job's options, the experiment, and the experiment file's content."""
    top = _table(reader, _yaml(reader, text), "the file")
    words = {_JOB_WORDS[key]: value for key, value in top.items() if key in _JOB_WORDS}
    config = top.get("config")
    if config is None:
        rest = {k: v for k, v in top.items() if k not in _JOB_WORDS and k not in _OWN_WORDS}
        has_words = len(rest) < len(top)
        return words, rest, _config(reader, rest, None if has_words else text)
    for key in top:
        if key not in _JOB_WORDS and key not in _OWN_WORDS:
            reader.notes.append(f"{_shown(key)}: not carried over: it is no key of a job")
    if isinstance(config, str):
        experiment = _table(reader, _yaml(reader, config), "config")
        return words, experiment, _config(reader, experiment, config)
    experiment = _table(reader, config, "config")
    return words, experiment, _config(reader, experiment, None)


def _config(reader: _Reader, experiment: dict[str, Any], text: str | None) -> bytes:
    """Return the experiment file's content: its original text, but without cloud credentials."""
    if _SECRETS in experiment:
        reader.notes.append(f"{_SECRETS}: not carried over: results go to the testbed instead")
        experiment = {key: value for key, value in experiment.items() if key != _SECRETS}
        text = None
    if text is None:
        text = str(_library().safe_dump(experiment, sort_keys=False, allow_unicode=True))
    return text.encode()


def _job(
    reader: _Reader, words: dict[str, Any], experiment: dict[str, Any], name: str
) -> dict[str, Any]:
    """Return the values of the job file."""
    overrides, say = reader.overrides, reader.notes.append
    nodes = [*overrides.nodes] or [_name(reader, "nodeid", words.get("nodeid"), "--node")]
    server = overrides.server or words.get("server") or None
    values: dict[str, Any] = {
        "id": overrides.id or _name(reader, "id", words.get("id") or name, "--id"),
        "nodes": nodes,
        "length": overrides.length or _length(reader, words.get("length_secs")),
    }
    if server is not None:
        values["server"] = _name(reader, "server", server, "--server")
    overhead = words.get("overhead")
    if not isinstance(overhead, bool | None):
        raise reader.wrong(f"overhead: expected true or false, not {_shown(overhead)}")
    if overhead is False:
        values["overhead"] = False
    if words.get("userid"):
        say(f"userid: {_shown(words['userid'])} is not carried over: the submitter owns the job")
    values["when"] = _when(reader, words)
    values["run"] = _run(reader, words, experiment, serves=server is not None)
    return values


def _run(
    reader: _Reader, words: dict[str, Any], experiment: dict[str, Any], *, serves: bool
) -> dict[str, Any]:
    overrides, say = reader.overrides, reader.notes.append
    params = _table(reader, words.get("params") or {}, "params")
    if params.get("mode", "docker") != "docker":
        raise reader.wrong(f"params.mode: {_shown(params['mode'])} is unknown: expected docker")
    docker = _table(reader, experiment.get("docker") or {}, "docker")
    _note_steps(reader, params, docker)
    client = [*overrides.client] or [*DEFAULT_CLIENT]
    if not overrides.client:
        say(
            "run.client: for an image with an entry point, as in LEOScope's guide; an image "
            "without one needs its command: --client (podman image inspect shows the entry point)"
        )
    path = _table(reader, experiment.get("artifacts") or {}, "artifacts").get("path_local")
    if path not in (None, "/artifacts", "/artifacts/"):
        say(f"artifacts.path_local: {_shown(path)}: only files in /artifacts are kept")
    run: dict[str, Any] = {"client": client}
    if serves:
        run["serve"] = client
        say("run.serve: the same as the client's; images tell the server by LEOTEST_SERVER = 1")
    run |= {"backend": overrides.backend, "image": _image(reader, docker.get("image"))}
    return {**run, "files": [CONFIG]}


def _note_steps(reader: _Reader, params: dict[str, Any], docker: dict[str, Any]) -> None:
    """Add notes on those steps of a run that have no counterpart here."""
    say = reader.notes.append
    for key in ("deploy", "finish"):
        if docker.get(key):
            say(f"docker.{key}: not carried over: move its commands into the image")
    for key in ("deploy", "execute", "finish"):
        # LEOScope's command writes the option's own name as the option's default value.
        if params.get(key) and params[key] != f"params_{key}":
            say(f"params.{key}: not carried over: LEOScope ignores it too")
    execute = docker.get("execute") or {}
    if not isinstance(execute, Mapping):
        say("docker.execute: not carried over: the image's entry point is executed")
        return
    if execute.get("name"):
        say("docker.execute.name: not carried over: containers are named after their runs")
    if execute.get("ports"):
        say(
            f"docker.execute.ports: {_shown(execute['ports'])}: not carried over: programs listen "
            "at the node's own ports; use {port} or $SKYHOP_PORT, which its owner allows"
        )
    for key in execute:
        if key not in ("name", "ports"):
            say(f"docker.execute.{_shown(key)}: not carried over: unknown key")


def _image(reader: _Reader, image: object) -> str:
    """Return an image's full name, with docker.io if it names no registry."""
    if not isinstance(image, str) or not image.strip():
        raise reader.wrong("docker.image is missing: give the container's image")
    image = image.strip()
    first, slash, _ = image.partition("/")
    if not slash:
        return f"docker.io/library/{image}"
    has_registry = "." in first or ":" in first or first == "localhost"
    return image if has_registry else f"docker.io/{image}"


def _when(reader: _Reader, words: dict[str, Any]) -> dict[str, Any]:
    """Return the table `when`: one of cron, at and trigger, with start and end."""
    overrides, say = reader.overrides, reader.notes.append
    kind = words.get("type")
    if kind not in (None, "", "cron", "atq"):
        raise reader.wrong(f"type: {_shown(kind)} is unknown: expected cron or atq")
    schedule = overrides.cron or _schedule(reader, words.get("schedule"))
    start = overrides.start or _instant(reader, "start_date", words.get("start_date"))
    end = overrides.end or _instant(reader, "end_date", words.get("end_date"))
    trigger = overrides.trigger or words.get("trigger")
    if not isinstance(trigger, str | None):
        raise reader.wrong(f"trigger: expected an expression, not {_shown(trigger)}")
    is_once = overrides.at is not None or kind == "atq"
    window = {key: value for key, value in (("start", start), ("end", end)) if value}
    if trigger and trigger.strip():
        if not end:
            raise reader.wrong("end_date is missing; a trigger needs it: give --end")
        if schedule and not is_once:
            say(
                f"schedule: {_shown(schedule)} is not carried over: the trigger fires at any time "
                "from start to end"
            )
        once = {"max_runs": 1} if is_once else {}
        return {"trigger": _trigger(reader, trigger), **once, **window}
    if is_once:
        window.pop("start", None)
        return {"at": overrides.at or start or "now", **window}
    if not schedule:
        raise reader.wrong("schedule is missing: give --cron or --at")
    return {"cron": schedule, **window}


def _trigger(reader: _Reader, text: str) -> str:
    """Check a trigger, whose language includes LEOScope's; add notes where meanings differ."""
    text = text.strip()
    try:
        tree = parse(text)
    except InputError as error:
        raise reader.wrong(str(error)) from None
    if any(_is_mean(part) for part in walk(tree)):
        reader.notes.append("trigger: F_avg is the exact mean here, in LEOScope its integer part")
    if any(isinstance(part, Earlier) or _is_mean(part) for part in walk(tree)):
        reader.notes.append(
            "trigger: F_1 to F_5 and F_avg count updates: of the terminal's fields each second "
            "here, in LEOScope every other second"
        )
    return text


def _is_mean(part: Node) -> bool:
    return isinstance(part, WindowFunction) and part.window.text == ""


def _schedule(reader: _Reader, schedule: object) -> str | None:
    """Return the cron line of a schedule; `None` if the job has no schedule."""
    if not schedule:
        return None
    if isinstance(schedule, str):
        return " ".join(schedule.split())
    table = _table(reader, schedule, "schedule")
    for key in table:
        if key not in _CRON:
            raise reader.wrong(
                f"schedule: {_shown(key)} is unknown; expected one of {', '.join(_CRON)}"
            )
    fields = [table.get(key, "*") for key in _CRON]
    for key, value in zip(_CRON, fields, strict=True):
        if (
            isinstance(value, bool)
            or not isinstance(value, int | str)
            or len(str(value).split()) != 1
        ):
            raise reader.wrong(f"schedule.{key}: {_shown(value)} is no field of cron")
    return " ".join(str(value) for value in fields)


def _instant(reader: _Reader, key: str, value: object) -> str | None:
    """Return a time in the form of job files; LEOScope's times without a zone are UTC."""
    if isinstance(value, Mapping) and "$date" in value:
        # Exports of LEOScope's database (MongoDB) have this form.
        value = value["$date"]
    if value in (None, ""):
        return None
    moment: dt.datetime | None = None
    try:
        if isinstance(value, dt.datetime):
            moment = value
        elif isinstance(value, dt.date):
            moment = dt.datetime(value.year, value.month, value.day)
        elif isinstance(value, str):
            moment = dt.datetime.fromisoformat(value.strip())
        if moment is not None:
            moment = moment.replace(tzinfo=moment.tzinfo or dt.UTC).astimezone(dt.UTC)
            return moment.isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        pass
    raise reader.wrong(
        f'{key}: {_shown(value)} is no instant, such as "2026-12-01T10:00:00Z"'
    ) from None


def _length(reader: _Reader, value: object) -> str:
    if value in (None, ""):
        raise reader.wrong("length_secs is missing: give --length")
    try:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        return f"{float(value):.15g} s"
    except (ValueError, OverflowError):
        raise reader.wrong(f"length_secs: {_shown(value)} is no number of seconds") from None


def _name(reader: _Reader, key: str, value: object, option: str) -> str:
    """Return a name that is valid in the testbed; add a note if it differs from the original."""
    if value in (None, ""):
        raise reader.wrong(f"{key} is missing: give {option}")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise reader.wrong(f"{key}: {_shown(value)} is no name")
    text = str(value)
    name = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).lstrip("._-")[:63]
    if not name:
        raise reader.wrong(f"{key}: {_shown(value)} is no name: give {option}")
    if name != text:
        reader.notes.append(f"{key}: {_shown(value)} is named {name} here")
    return name


def _checked(reader: _Reader, text: str) -> Job:
    """Parse the resulting job file, and check its cron line.

    Raises:
        InputError: a value is wrong.
    """
    from skyhop_testbed.calendar.occurrences import occurrences

    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise reader.wrong(f"has text that a job file cannot hold: {_plain(str(error))}") from None
    try:
        job = job_of(read_toml(text, reader.source), reader.source)
    except InputError as error:
        raise InputError(ascii(str(error))[1:-1]) from None
    if job.when.cron is not None:
        try:
            next(iter(occurrences(job, 0, 1, submitted_ns=0)), None)
        except InputError as error:
            raise reader.wrong(str(error)) from None
    return job


def _yaml(reader: _Reader, text: str) -> Any:
    """Parse a YAML text.

    Raises:
        InputError: the text is too long or no YAML.
    """
    if len(text.encode(errors="replace")) > LONGEST_BYTES:
        raise reader.wrong(f"longer than the {LONGEST_BYTES:,} bytes of a job")
    yaml = _library()
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or error
        raise reader.wrong(f"{where}is no YAML: {_plain(str(problem))}") from None
    except (ValueError, OverflowError, TypeError, AttributeError, RecursionError):
        # Causes are impossible dates and numbers, or texts that are nested too deeply.
        raise reader.wrong(
            "is no readable YAML: a value is impossible or nested too deeply"
        ) from None


def _library() -> Any:
    try:
        return importlib.import_module("yaml")
    except ImportError:
        raise RunError('reading YAML needs PyYAML: pip install "pyyaml>=6"') from None


def _table(reader: _Reader, value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise reader.wrong(f"{what}: expected keys and values, not {_shown(value)}")
    return {key if isinstance(key, str) else str(key)[:80]: each for key, each in value.items()}


def _shown(value: object) -> str:
    """Return a value for a message, shortened to one line of ASCII."""
    if isinstance(value, Mapping | list):
        try:
            text = ascii(value)
        except (RecursionError, ValueError):
            text = "a table"
    elif isinstance(value, int) and abs(value) > _LARGEST_SHOWN:
        text = "a large number"
    else:
        text = str(value)
    return _plain(text)


def _plain(text: str) -> str:
    short = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
    return ascii(" ".join(short.split()))[1:-1]
