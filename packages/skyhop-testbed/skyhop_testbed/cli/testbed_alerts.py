"""Commands of `skyhop testbed` for alerts, and for the webhooks to which they are sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skyhop.cli.options import Json, group
from skyhop_testbed.cli.testbed_shared import As, opened, print_found, print_outcome, when

if TYPE_CHECKING:
    from skyhop_testbed.api import Alert, WebhookInfo

webhooks_app = group("Webhooks: addresses to which alerts are sent.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a webhook.")]


def register(app: typer.Typer) -> None:
    """Add the commands for alerts to `skyhop testbed`."""
    app.command("alerts")(alerts)
    app.add_typer(webhooks_app, name="webhooks")


def alerts(
    ended: Annotated[bool, typer.Option("--all", help="Also alerts that are over.")] = False,
    limit: Annotated[int, typer.Option(help="Largest number of alerts, latest first.")] = 200,
    credential: As = None,
    as_json: Json = False,
) -> None:
    """List alerts: nodes that are silent or in trouble, full disks, ends of certificates."""
    with opened(credential) as testbed:
        found = testbed.alerts(ended=ended, limit=limit)
    print_found(found, _alert_row, as_json, "no alerts")


def _alert_row(each: Alert) -> dict[str, object]:
    return {
        "since_(UTC)": when(each.raised_ns),
        "over_(UTC)": when(each.cleared_ns),
        "kind": each.kind,
        "node": each.subject,
        "message": each.message,
    }


@webhooks_app.command("list")
def webhooks_list(credential: As = None, as_json: Json = False) -> None:
    """List webhooks, the number of messages that each has not taken yet, and the last error."""
    with opened(credential) as testbed:
        found = testbed.webhooks()
    print_found(found, _webhook_row, as_json, "no webhooks")


def _webhook_row(each: WebhookInfo) -> dict[str, object]:
    return {
        "webhook": each.name,
        "address": each.url,
        "secret": "yes" if each.has_secret else "no",
        "waiting": each.waiting,
        "error": each.error,
    }


@webhooks_app.command("add")
def webhooks_add(
    name: Name,
    url: Annotated[str, typer.Argument(metavar="URL", help="Address, of http or https.")],
    secret: Annotated[
        Path | None,
        typer.Option(
            "--secret", metavar="FILE", help="File with a secret, sent as Authorization: Bearer."
        ),
    ] = None,
    credential: As = None,
    as_json: Json = False,
) -> None:
    """Create or change a webhook: alerts are sent to it as JSON, with POST."""
    from skyhop.errors import InputError

    try:
        text = secret.read_text("ascii").strip() if secret else ""
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "is not ASCII text"
        raise InputError(f"--secret {secret}: {why}") from None
    with opened(credential) as testbed:
        made = testbed.put_webhook(name, url, text)
    print_outcome(made, f"{name}: {made.url} gets all alerts from now on", as_json)


@webhooks_app.command("remove")
def webhooks_remove(name: Name, credential: As = None, as_json: Json = False) -> None:
    """Delete a webhook, and the messages that it has not taken."""
    with opened(credential) as testbed:
        testbed.delete_webhook(name)
    print_outcome({"deleted": name}, f"{name} is deleted", as_json)


@webhooks_app.command("test")
def webhooks_test(name: Name, credential: As = None, as_json: Json = False) -> None:
    """Send a test message to a webhook; `webhooks list` shows the error if it fails."""
    with opened(credential) as testbed:
        made = testbed.test_webhook(name)
    print_outcome(made, f"{name}: a test message goes to {made.url}", as_json)
