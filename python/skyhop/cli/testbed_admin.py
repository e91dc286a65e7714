"""What administrators of a testbed do on the command line: nodes, users, tokens, settings."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skyhop.cli.options import Json, group
from skyhop.cli.terminal import print_rows
from skyhop.cli.testbed_shared import print_made

if TYPE_CHECKING:
    from skyhop.testbed.client import Testbed
    from skyhop.testbed.orchestrator.office import Office

As = Annotated[
    Path | None, typer.Option("--as", metavar="FILE", help="An administrator's credential.")
]

users_app = group("Users of a testbed.")
tokens_app = group("Users' tokens.")
config_app = group("The testbed's settings.")


def register(app: typer.Typer) -> None:
    """Add these commands to `skyhop testbed`."""
    app.command("invite")(invite)
    app.command("remove-node")(remove_node)
    app.command("audit")(audit)
    app.add_typer(users_app, name="users")
    app.add_typer(tokens_app, name="tokens")
    app.add_typer(config_app, name="config")


def write_addresses(office: Office, host: str, ports: Any) -> None:
    """Keep where it is reached, for invitations and credentials to say."""
    from skyhop.testbed.orchestrator.desk import ITSELF
    from skyhop.testbed.orchestrator.procedures import keep_addresses

    values = {"users": f"{host}:{ports.users}", "agents": f"{host}:{ports.agents}"}
    values["web"] = f"https://{host}:{ports.web}"
    with office.writing(ITSELF) as desk:
        keep_addresses(desk, values)


def write_first_credential(office: Office, address: str) -> str | None:
    """Make the first administrator where there is no user; return where its credential is."""
    from skyhop.testbed.client import Credential

    path = office.directory / "admin.json"
    token = office.first_administrator()
    if token is None:
        return None
    Credential(address, token, office.authority.certificate_pem.decode()).write(path)
    return str(path)


def _open(credential: Path | None) -> Testbed:
    from skyhop.testbed.client import Testbed

    return Testbed.of_file(credential)


def invite(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Made where it is not there yet.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="NODE.invitation.")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="The user whose machine it is.")] = None,
    place: Annotated[
        str | None,
        typer.Option(metavar="LAT,LON", help="In degrees; kept to a tenth of one."),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Where clients find it, for a node that serves.")
    ] = None,
    description: Annotated[str | None, typer.Option()] = None,
    provider: Annotated[str | None, typer.Option()] = None,
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Write the file with which a machine becomes a node, once, within fifteen minutes."""
    from skyhop.errors import InputError
    from skyhop.testbed.keys import write_private

    values: dict[str, Any] = {"name": node}
    given = {"owner": owner, "address": address, "description": description, "provider": provider}
    values |= {key: value for key, value in given.items() if value is not None}
    if place is not None:
        try:
            latitude, longitude = map(float, place.split(","))
        except ValueError:
            raise InputError(f'--place "{place}": expected LAT,LON in degrees') from None
        values |= {"latitude_deg": latitude, "longitude_deg": longitude}
    with _open(credential) as testbed:
        testbed.put_node(values)
        content = testbed.invitation(node)
    path = output or Path(f"{node}.invitation")
    try:
        write_private(path, json.dumps(content, indent=1).encode())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    said = f"{path}: carry it to {node}, and there: skyhop testbed enrol {path.name}"
    print_made({"node": node, "file": str(path)}, said, as_json)


def remove_node(
    node: Annotated[str, typer.Argument(metavar="NODE")],
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Take a node off the testbed, with its telemetry; its runs' files stay their users'."""
    with _open(credential) as testbed:
        testbed.delete_node(node)
    print_made({"deleted": node}, f"{node} is no node any more", as_json)


def audit(
    limit: Annotated[int, typer.Option(help="At most so many, the latest.")] = 50,
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Show who did what."""
    with _open(credential) as testbed:
        found = testbed.audit(limit=limit)
    if as_json:
        print_rows(found, as_json=True)
        return
    rows = [
        {
            "time_(UTC)": f"{dt.datetime.fromtimestamp(each['at_ns'] / 1e9, dt.UTC):%F %T}",
            **{key: each[key] for key in ("who", "what", "target", "outcome")},
        }
        for each in found
    ]
    print_rows(rows, as_json=False)


@users_app.command("list")
def users_list(credential: As = None, as_json: Json = False) -> None:
    """List users."""
    with _open(credential) as testbed:
        found = testbed.users()
    keys = ("name", "full_name", "team", "role", "disabled", "tokens")
    shown = found if as_json else [{key: each[key] for key in keys} for each in found]
    print_rows(shown, as_json=as_json)


@users_app.command("add")
def users_add(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="NAME.testbed.")
    ] = None,
    role: Annotated[str, typer.Option(metavar="user|user-priv|admin")] = "user",
    full_name: Annotated[str, typer.Option()] = "",
    team: Annotated[str, typer.Option()] = "",
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Make or change a user, and write the file by which the testbed knows them."""
    path = output or Path(f"{name}.testbed")
    with _open(credential) as testbed:
        made = testbed.put_user({"name": name, "role": role, "full_name": full_name, "team": team})
        testbed.credential(name, "command line").write(path)
    said = f"{path}: give it to {name}; skyhop testbed … --as {path.name}"
    print_made({**made, "file": str(path)}, said, as_json)


@users_app.command("remove")
def users_remove(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Forget a user; jobs end, and one who had jobs or nodes is disabled."""
    with _open(credential) as testbed:
        ended = testbed.delete_user(name)
    said = f"; {ended} {'job' if ended == 1 else 'jobs'} ended" if ended else ""
    values = {"deleted": name, "jobs_ended": ended}
    print_made(values, f"{name} is no user any more{said}", as_json)


@tokens_app.command("issue")
def tokens_issue(
    user: Annotated[str, typer.Argument(metavar="USER")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE")],
    label: Annotated[str, typer.Option(help="To know it by.")] = "",
    days: Annotated[float | None, typer.Option(help="For how many days it is good.")] = None,
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Write another credential for a user."""
    import time

    expires_ns = 0 if days is None else time.time_ns() + round(days * 86_400e9)
    with _open(credential) as testbed:
        testbed.credential(user, label, expires_ns).write(output)
    values = {"user": user, "file": str(output), "expires_ns": expires_ns or None}
    print_made(values, f"{output}: give it to {user}", as_json)


@tokens_app.command("revoke")
def tokens_revoke(
    user: Annotated[str, typer.Argument(metavar="USER")],
    which: Annotated[str, typer.Argument(metavar="LABEL", help="All where not given.")] = "*",
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Take tokens of a user away."""
    with _open(credential) as testbed:
        count = testbed.revoke_tokens(user, which)
    print_made({"revoked": count}, f"{count} tokens are good no more", as_json)


@config_app.command("show")
def config_show(
    credential: As = None,
    as_json: Json = False,  # noqa: ARG001
) -> None:
    """Show the settings, which are JSON."""
    with _open(credential) as testbed:
        print(json.dumps(testbed.config(), indent=2))


@config_app.command("set")
def config_set(
    settings: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...")],
    credential: As = None,
    as_json: Json = False,  # noqa: ARG001
) -> None:
    """Change settings, and print all of them as JSON."""
    from skyhop.errors import InputError

    values = {}
    for each in settings:
        key, _, value = each.partition("=")
        try:
            values[key] = float(value)
        except ValueError:
            raise InputError(f"{each}: expected KEY=NUMBER") from None
    with _open(credential) as testbed:
        print(json.dumps(testbed.put_config(values), indent=2))
