"""Commands of `skyhop testbed` for administrators: nodes, users, tokens and settings."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli.options import Json, group
from skyhop_testbed.cli.testbed_shared import opened, print_found, print_outcome, when

if TYPE_CHECKING:
    from skyhop_testbed.api import AuditLine, Document
    from skyhop_testbed.orchestrator.core import Orchestrator
    from skyhop_testbed.serve import BoundPorts

As = Annotated[
    Path | None, typer.Option("--as", metavar="FILE", help="Credential of an administrator.")
]

users_app = group("Users of a testbed.")
tokens_app = group("Users' tokens.")
config_app = group("The testbed's settings.")


def register(app: typer.Typer) -> None:
    """Add the administrators' commands to `skyhop testbed`."""
    app.command("invite")(invite)
    app.command("remove-node")(remove_node)
    app.command("audit")(audit)
    app.add_typer(users_app, name="users")
    app.add_typer(tokens_app, name="tokens")
    app.add_typer(config_app, name="config")


def write_addresses(orchestrator: Orchestrator, host: str, ports: BoundPorts) -> None:
    """Store the public addresses, which invitations and credentials contain."""
    from skyhop_testbed.orchestrator.handlers import store_addresses
    from skyhop_testbed.orchestrator.request_context import ITSELF

    values = {"users": f"{host}:{ports.users}", "agents": f"{host}:{ports.agents}"}
    if ports.web:
        values["web"] = f"https://{host}:{ports.web}"
    with orchestrator.writing(ITSELF) as ctx:
        store_addresses(ctx, values)


def write_first_credential(orchestrator: Orchestrator, address: str) -> str | None:
    """Create the first administrator if there are no users; return its credential's path."""
    from skyhop_testbed.client import Credential

    path = orchestrator.directory / "admin.json"
    token = orchestrator.create_first_administrator()
    if token is None:
        return None
    Credential(address, token, orchestrator.authority.certificate_pem.decode()).write(path)
    return str(path)


def invite(
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="Node, created if it does not exist.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Invitation file; default: NODE.invitation."
        ),
    ] = None,
    owner: Annotated[str | None, typer.Option(help="User who owns the machine.")] = None,
    place: Annotated[
        str | None,
        typer.Option(metavar="LAT,LON", help="Location in degrees; rounded to 0.1 degrees."),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address for clients, if the node can be a server.")
    ] = None,
    description: Annotated[str | None, typer.Option(help="Description of the node.")] = None,
    provider: Annotated[str | None, typer.Option(help="Satellite operator.")] = None,
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Write an invitation file, which enrols one machine as a node within fifteen minutes."""
    from skyhop.errors import InputError
    from skyhop_testbed.api import PutNode
    from skyhop_testbed.keys import write_private

    given = {"owner": owner, "address": address, "description": description, "provider": provider}
    values: Document = {key: value for key, value in given.items() if value is not None}
    if place is not None:
        try:
            latitude, longitude = map(float, place.split(","))
        except ValueError:
            raise InputError(f'--place "{place}": expected LAT,LON in degrees') from None
        values |= {"latitude_deg": latitude, "longitude_deg": longitude}
    with opened(credential) as testbed:
        testbed.put_node(PutNode.model_validate({**values, "name": node}))
        content = testbed.invitation(node)
    path = output or Path(f"{node}.invitation")
    try:
        write_private(path, json.dumps(content, indent=1).encode())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    said = f"{path}: copy it to {node}, and run there: skyhop testbed enrol {path.name}"
    print_outcome({"node": node, "file": str(path)}, said, as_json)


def remove_node(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of a node.")],
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Delete a node and its telemetry; files of its runs are kept for their users."""
    with opened(credential) as testbed:
        testbed.delete_node(node)
    print_outcome({"deleted": node}, f"{node} is deleted", as_json)


def audit(
    limit: Annotated[int, typer.Option(help="Largest number of lines to show, latest first.")] = 50,
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Show the audit log, latest first."""
    with opened(credential) as testbed:
        found = testbed.audit(limit=limit)
    print_found(found, _audit_row, as_json, "no lines")


def _audit_row(each: AuditLine) -> dict[str, object]:
    return {
        "time_(UTC)": when(each.at_ns),
        "who": each.who,
        "what": each.what,
        "target": each.target,
        "outcome": each.outcome,
    }


@users_app.command("list")
def users_list(credential: As = None, as_json: Json = False) -> None:
    """List the users of the testbed."""
    with opened(credential) as testbed:
        found = testbed.users()
    keys = ("name", "full_name", "team", "role", "disabled", "tokens")
    print_found(found, lambda user: {key: getattr(user, key) for key in keys}, as_json, "no users")


@users_app.command("add")
def users_add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a user.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Credential file; default: NAME.testbed."
        ),
    ] = None,
    role: Annotated[
        str,
        typer.Option(
            metavar="user|user-priv|admin", help="Role; user-priv may use the kernel service."
        ),
    ] = "user",
    full_name: Annotated[str, typer.Option(help="Full name of the user.")] = "",
    team: Annotated[str, typer.Option(help="Team of the user.")] = "",
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Create or change a user, and write a credential file for the user."""
    from skyhop_testbed.api import PutUser

    path = output or Path(f"{name}.testbed")
    with opened(credential) as testbed:
        made = testbed.put_user(PutUser(name=name, role=role, full_name=full_name, team=team))
        testbed.credential(name, "command line").write(path)
    said = f"{path}: give it to {name}; skyhop testbed … --as {path.name}"
    print_outcome({**made.as_json(), "file": str(path)}, said, as_json)


@users_app.command("remove")
def users_remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a user.")],
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Delete a user and cancel the user's jobs; a user with jobs or nodes is disabled instead."""
    with opened(credential) as testbed:
        ended = testbed.delete_user(name)
    said = f"; {ended} {'job' if ended == 1 else 'jobs'} cancelled" if ended else ""
    values = {"deleted": name, "jobs_ended": ended}
    print_outcome(values, f"{name} is deleted or disabled{said}", as_json)


@tokens_app.command("issue")
def tokens_issue(
    user: Annotated[str, typer.Argument(metavar="USER", help="Name of a user.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="Credential file.")
    ],
    label: Annotated[
        str, typer.Option(help="Label of the token, by which it can be revoked.")
    ] = "",
    days: Annotated[
        float | None, typer.Option(help="Days until the token expires; default: never.")
    ] = None,
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Write a further credential file for a user."""
    import time

    expires_ns = 0 if days is None else time.time_ns() + round(days * 86_400e9)
    with opened(credential) as testbed:
        testbed.credential(user, label, expires_ns).write(output)
    values = {"user": user, "file": str(output), "expires_ns": expires_ns or None}
    print_outcome(values, f"{output}: give it to {user}", as_json)


@tokens_app.command("revoke")
def tokens_revoke(
    user: Annotated[str, typer.Argument(metavar="USER", help="Name of a user.")],
    which: Annotated[str, typer.Argument(metavar="LABEL", help="Label or id; default: all.")] = "*",
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Revoke tokens of a user."""
    with opened(credential) as testbed:
        count = testbed.revoke_tokens(user, which)
    print_outcome({"revoked": count}, f"{count} tokens revoked", as_json)


@config_app.command("show")
def config_show(
    credential: As = None,
    as_json: Json = False,  # noqa: ARG001
) -> None:
    """Print the settings as JSON."""
    with opened(credential) as testbed:
        print(json.dumps(asdict(testbed.config()), indent=2, sort_keys=True))


@config_app.command("set")
def config_set(
    settings: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE...", help="Settings to change.")
    ],
    credential: As = None,
    as_json: Json = False,  # noqa: ARG001
) -> None:
    """Change settings, and print all of them as JSON."""
    from skyhop.errors import InputError

    values: Document = {}
    for each in settings:
        key, _, value = each.partition("=")
        try:
            values[key] = float(value)
        except ValueError:
            raise InputError(f"{each}: expected KEY=NUMBER") from None
    with opened(credential) as testbed:
        print(json.dumps(asdict(testbed.put_config(values)), indent=2, sort_keys=True))
