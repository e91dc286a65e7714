"""Documentation pages of keys, from the JSON Schemas.

Each key has a heading, so that the search finds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markup import code, page, prose, sentence, table

if TYPE_CHECKING:
    from skyhop.study.table_runs import TableKind

Schema = Mapping[str, Any]

SECTIONS = (
    "path", "network", "network.traffic", "failure", "link", "links", "change", "tcp", "flow",
    "signal", "run", "live", "linux",
)  # fmt: skip
"""Tables of a scenario, in the order in which scenario files have them."""
LISTS = ("failure", "change", "flow")
"""Tables of which a scenario may have any number."""
ELSEWHERE = {
    "App": "[the applications](applications.md)",
    "QueueDiscipline": "a name or a table: [the queue disciplines](queue-disciplines.md)",
    "Loss": 'a fraction in per cent, such as `"0.1 %"`, or a table: [bursts](#losses-in-bursts)',
    "Controller": "a name or a table: [the video controllers](video.md)",
    "ControllerTable": "[the video controllers](video.md)",
}
"""Types that have pages of their own."""
LONG_ENUM = 8
"""Number of values from which an enumeration is shown in one line, without the values' meanings."""


def scenario_page(schema: Schema) -> str:
    """Return the page of all keys of a scenario."""
    parts = []
    for name in SECTIONS:
        described = schema
        for step in name.split("."):
            described = resolve(schema, described["properties"][step])
        path = "links.NAME" if name == "links" else f"{name}.N" if name in LISTS else name
        items = described.get("items") or described.get("additionalProperties")
        inner = resolve(schema, items) if isinstance(items, Mapping) else described
        shown = f"[[{name}]]" if name in LISTS else f"[{path}]"
        parts.append(
            f"## {shown} {{#{name.replace('.', '-')}}}\n\n{sentence(inner.get('description', ''))}"
        )
        parts.extend(object_parts(schema, inner, path))
    return page(
        "Scenario keys",
        "For everyone who writes a scenario file: each key with its type, its default and its "
        "meaning, "
        "generated from [scenario.schema.json](../scenario.schema.json), which editors read too.",
        "A scenario is a TOML file. An unknown key is an error. A quantity is text with a unit: "
        '`"150 Mbit/s"`, `"20 ms"`. `--set KEY=VALUE` overrides one key: `--set flow.0.cc=bbr`. '
        "`skyhop list examples` shows scenarios to start from. How these keys act together is told "
        "in "
        "[paths, links and hosts](../explanation/links-and-hosts.md).",
        *parts,
        random_quantities(schema),
        losses_in_bursts(schema),
    )


def study_page(schema: Schema) -> str:
    """Return the page of all keys of a study, including the tables of its other engines."""
    top = {name: value for name, value in schema["properties"].items() if name not in PIECES}
    parts = ["## The file {#file}", *object_parts(schema, {**schema, "properties": top}, "")]
    for name, shown in PIECES.items():
        items = schema["properties"][name]["items"]
        for variant in items.get("oneOf", [items]):
            inner = resolve(schema, variant)
            kind = inner.get("properties", {}).get("kind", {}).get("const")
            title = f'{shown}, kind = "{kind}"' if kind else shown
            path = f"{name}.{kind}" if kind else name
            parts.append(f"## {title} {{#{path}}}\n\n{paragraphs(inner.get('description', ''))}")
            parts.extend(object_parts(schema, inner, path))
    for kind in table_kinds():
        name, described = kind.table, {"$defs": {}, **kind.model.model_json_schema()}
        parts.append(f'## [{name}] {{#table.{name}}}\n\nWith `engine = "{kind.engine}"`.')
        parts.extend(object_parts(described, described, name, f"table.{name}"))
    return page(
        "Study keys",
        "For everyone who writes a study file: each key with its type, its default and its "
        "meaning, "
        "generated from [study.schema.json](../study.schema.json), which editors read too.",
        "[The study file](study-file.md) shows the keys together in one example, and says how "
        "axes, metrics, claims and "
        "panels work.",
        *parts,
    )


PIECES = {
    "axis": "[[axis]]",
    "metric": "[[metric]]",
    "published": "[[published]]",
    "claim": "[[claim]]",
    "panel": "[[panel]]",
}


def table_kinds() -> list[TableKind[Any]]:
    """Return the kinds of runs that a table of the study file configures."""
    from skyhop.study.run_kinds import RUN_KINDS
    from skyhop.study.table_runs import TableKind

    return [kind for kind in RUN_KINDS.values() if isinstance(kind, TableKind)]


def applications_page(schema: Schema, described: Mapping[str, str]) -> str:
    """Return the page of applications with their keys."""
    parts = [table(("application", "what it does"), ((code(n), d) for n, d in described.items()))]
    for variant in schema["$defs"]["App"]["oneOf"]:
        kind = variant["properties"]["kind"]["const"]
        parts.append(
            f'## {kind}\n\n{sentence(variant["description"])} `app = {{ kind = "{kind}" }}`'
        )
        parts.extend(object_parts(schema, variant, kind))
    for kind, name in (("probe", "Probe"), ("call", "Call")):
        inner = schema["$defs"][name]
        parts.append(
            f"## {kind}\n\n{sentence(described.get(kind, inner['description']))} A flow with `kind "
            f'= "{kind}"`.'
        )
        parts.extend(object_parts(schema, inner, kind))
    return page(
        "Applications",
        "For everyone who writes a flow: what its two ends can do, and the keys of each "
        "application.",
        "[Applications over a path](../how-to/applications.md) shows them at work; "
        "[the run directory](run-directory.md#results-of-applications) lists the columns of their "
        "results.",
        *parts,
    )


def qdiscs_page(schema: Schema) -> str:
    """Return the page of queue disciplines with their parameters."""
    variants = schema["$defs"]["Table"]["oneOf"]
    kinds = [(v["properties"]["kind"]["const"], v) for v in variants]
    parts = [
        table(
            ("discipline", "what it does"), ((f"[{k}](#{k})", v["description"]) for k, v in kinds)
        )
    ]
    for kind, variant in kinds:
        parts.append(f"## {kind} {{#{kind}}}\n\n{sentence(variant['description'])}")
        parts.extend(object_parts(schema, variant, kind))
    return page(
        "Queue disciplines",
        "For everyone who chooses a queue: each discipline of a link with its parameters, their "
        "types and defaults.",
        'A link takes a name, `qdisc = "codel"`, or a table, `qdisc = { kind = "codel", target = '
        '"15 ms" }`. A parameter '
        "that the table omits has Linux's value. A packet is ECN-capable if its flow has `tcp.ecn "
        "= true`. "
        "[Limitations](../explanation/limitations.md#simulated-runs) lists the parameters of Linux "
        "that are left out.",
        *parts,
    )


def controllers_parts(schema: Schema) -> list[str]:
    """Return a section per video controller, with its parameters."""
    parts = []
    for variant in schema["$defs"]["ControllerTable"]["oneOf"]:
        kind = variant["properties"]["kind"]["const"]
        parts.append(f"### {kind} {{#{kind}}}\n\n{sentence(variant.get('description', ''))}")
        parts.extend(
            part.replace("### ", "#### ", 1) for part in object_parts(schema, variant, kind)
        )
    return parts


def object_parts(
    schema: Schema, described: Schema, path: str, place: str | None = None
) -> Iterator[str]:
    """Yield a section per key of an object, then the sections of each of its variants.

    Anchors begin with `place`, by default `path`. Keys of two kinds may have the same path, so
    their places differ.
    """
    place = path if place is None else place
    described = resolve(schema, described)
    required = set(described.get("required", ()))
    for name, value in described.get("properties", {}).items():
        if name != "kind" or "const" not in value:
            names = [f"{before}.{name}".lstrip(".") for before in (path, place)]
            yield from key_parts(schema, names[0], value, names[1], needed=name in required)
    for variant in described.get("oneOf", ()):
        merged = resolve(schema, variant)
        kind = variant.get("properties", {}).get("kind", {}).get("const")
        if kind is None:
            continue
        default = "" if "kind" in variant.get("required", ()) else ", the default"
        yield (
            f'## {path}, kind = "{kind}" '
            f"{{#{path}.{kind}}}\n\n{sentence(variant.get('description', ''))} "
            f'`kind = "{kind}"`{default}.'
        )
        yield from object_parts(schema, {**merged, "oneOf": ()}, path, f"{path}.{kind}")
    extra = described.get("unevaluatedProperties")
    if isinstance(extra, Mapping) and extra.get("description"):
        yield (
            f"### {path}.CC {{#{path}.CC}}\n\ntable\n\n{sentence(extra['description'])} For "
            f"example `cubic.beta = 0.7`: "
            "[the congestion controls](congestion-controls.md)."
        )


def key_parts(
    schema: Schema, path: str, value: Schema, place: str, *, needed: bool
) -> Iterator[str]:
    """Yield the section of one key, then the sections of the keys in a table that it takes."""
    facts = [type_of(schema, value)]
    if (
        "default" in value
        and value["default"] is not None
        and not isinstance(value["default"], dict)
    ):
        facts.append(f"default {code(toml(value['default']))}")
    elif needed:
        facts.append("required")
    lines = [
        f"### {path} {{#{place}}}",
        " · ".join(fact for fact in facts if fact),
        sentence(value.get("description", "")),
    ]
    inner, values = nested(schema, value), choices(schema, value)
    if len(values) > LONG_ENUM or (values and not any(meaning for _, meaning in values)):
        lines.append("Values: " + ", ".join(code(toml(name)) for name, _ in values) + ".")
    elif values:
        lines.append(
            "\n".join(
                f"- {code(toml(name))}: {prose(' '.join(meaning.split()))}"
                for name, meaning in values
            )
        )
    yield "\n\n".join(prose_line(line) for line in lines if line)
    if inner:
        yield from object_parts(schema, inner, path, place)


def prose_line(line: str) -> str:
    """Return a line of a section, formatted as prose unless it is a heading or a list item."""
    return line if line.startswith(("#", "- ", "Values")) else prose(line)


def nested(schema: Schema, value: Schema) -> Schema | None:
    """Return the object that a key takes, if the object has keys and no page of its own."""
    for option in (value, *value.get("anyOf", ()), value.get("items", {})):
        name = str(option.get("$ref", "")).rpartition("/")[2]
        if name in ELSEWHERE or not name:
            continue
        found = resolve(schema, option)
        if found.get("properties") and "oneOf" not in found:
            return found
    return None


def choices(schema: Schema, value: Schema) -> list[tuple[Any, str]]:
    """Return the permitted values of a key, each with its meaning."""
    found: list[tuple[Any, str]] = []
    for option in value.get("anyOf", [value]):
        if str(option.get("$ref", "")).rpartition("/")[2] in ELSEWHERE:
            continue
        inner = resolve(schema, option)
        found += [
            (v["const"], v.get("description", "")) for v in inner.get("oneOf", ()) if "const" in v
        ]
        found += [(name, "") for name in inner.get("enum", ())]
    return found


def type_of(schema: Schema, value: Schema) -> str:  # noqa: PLR0911 -- a line per kind
    """Return the type of a value in words."""
    if "anyOf" in value:
        kinds = [
            type_of(schema, option) for option in value["anyOf"] if option.get("type") != "null"
        ]
        return " or ".join(dict.fromkeys(kinds))
    name = str(value.get("$ref", "")).rpartition("/")[2]
    if name in ELSEWHERE:
        return ELSEWHERE[name]
    if name.startswith("Draw") and "anyOf" in schema["$defs"].get(name, {}):
        return "quantity, or [drawn](scenario.md#random-quantities)"
    inner = resolve(schema, value)
    named = schema["$defs"].get(name, {})
    if named.get("type") == "string" and named.get("examples"):
        return f"{named.get('description', name)}, such as {code(toml(named['examples'][0]))}"
    if "anyOf" in inner:
        return type_of(schema, {k: v for k, v in inner.items() if k != "$ref"})
    if choices(schema, inner):
        return "one of the values below"
    kind = inner.get("type", "table" if inner.get("properties") or inner.get("oneOf") else "value")
    if isinstance(kind, list):
        return " or ".join(JSON_TYPES.get(one, one) for one in kind if one != "null")
    if kind == "array":
        item = inner.get("items", {})
        return f"list of: {type_of(schema, item)}" if item else "list"
    return JSON_TYPES.get(kind, kind)


JSON_TYPES = {
    "string": "text",
    "boolean": "true or false",
    "integer": "whole number",
    "object": "table",
    "array": "list",
}


def resolve(schema: Schema, value: Schema) -> dict[str, Any]:
    """Return a value merged with the definition that it refers to; the value's own fields win."""
    found: dict[str, Any] = dict(value)
    while "$ref" in found:
        target = schema["$defs"][found.pop("$ref").rpartition("/")[2]]
        own = found.get("properties")
        found = {**target, **found}
        if own:
            found["properties"] = {**target.get("properties", {}), **own}
        if "oneOf" in found and found["oneOf"] == ():
            break
    return found


def random_quantities(schema: Schema) -> str:
    """Return the section on quantities that may be drawn at random."""
    rows = []
    for variant in schema["$defs"]["Distribution"]["oneOf"]:
        keys = {
            name: value for name, value in variant["properties"].items() if name != "distribution"
        }
        meanings = "; ".join(
            f"`{n}`: {sentence(v.get('description', '')).rstrip('.')}" for n, v in keys.items()
        )
        rows.append(
            (code(variant["properties"]["distribution"]["const"]), variant["description"], meanings)
        )
    return (
        "## Random quantities {#random-quantities}\n\n"
        "Some keys of applications take a quantity, or a table that says how the run draws one "
        "each time: "
        '`{ distribution = "exponential", mean = "1 s" }`. What a run draws follows from its seed, '
        "the flow and the "
        "connection alone, so that all engines draw the same.\n\n"
        + table(("distribution", "what it is", "keys"), rows)
    )


def losses_in_bursts(schema: Schema) -> str:
    """Return the section on the table form of a loss."""
    (variant,) = schema["$defs"]["LossTable"]["oneOf"]
    keys = resolve(schema, variant)["properties"]
    rows = [
        (code(name), type_of(schema, value), toml_or_none(value.get("default")), sentence(text))
        for name, value in keys.items()
        if (text := value.get("description", ""))
    ]
    return (
        "## Losses in bursts {#losses-in-bursts}\n\n"
        f"{sentence(variant['description'])} "
        '`loss = { kind = "gilbert-elliott", good = "10 s", bad = "200 ms" }`. '
        "[Losses in bursts](../explanation/links-and-hosts.md#losses-in-bursts) has the mean "
        "losses and the lengths of bursts.\n\n"
        + table(("key", "type", "default", "what it is"), rows)
    )


def toml_or_none(value: object) -> str:
    """Return a default in TOML syntax as code; empty if there is none."""
    return "" if value is None else code(toml(value))


def paragraphs(text: str) -> str:
    """Return a description with its division into paragraphs preserved."""
    return "\n\n".join(sentence(part) for part in text.split("\n\n"))


def toml(value: object) -> str:
    """Return a value in TOML syntax."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(one) for one in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def read(file: Path) -> Schema:
    """Read a committed schema."""
    schema: Schema = json.loads(file.read_text("utf-8"))
    return schema
