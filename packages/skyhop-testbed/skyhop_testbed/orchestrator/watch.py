"""Watch over the testbed: alerts after each round of housekeeping, also if the database fails."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from skyhop.errors import SkyhopError
from skyhop_testbed.keys import valid_until
from skyhop_testbed.orchestrator import alerts
from skyhop_testbed.orchestrator.alerts import FAILED_ROUNDS, Facts
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.request_context import ITSELF
from skyhop_testbed.orchestrator.webhooks import Sender
from skyhop_testbed.words import AlertKind

_LOG = logging.getLogger(__name__)
LAST_BACKUP = "last-backup"
"""Name of the file in the state directory whose time of change is that of the latest backup."""


class Watch:
    """Looks for what is wrong after each round of housekeeping, and raises and clears alerts.

    Args:
        orchestrator: the orchestrator.
        sender: sends the messages of alerts that the database cannot hold.
        failed_pages: returns the number of the pages' processes in a row that ended early.
    """

    def __init__(
        self,
        orchestrator: Orchestrator,
        sender: Sender,
        failed_pages: Callable[[], int] = lambda: 0,
    ) -> None:
        self._orchestrator, self._sender = orchestrator, sender
        self._failed_pages = failed_pages
        self._started_ns = orchestrator.now_ns()
        self._is_unstored = False
        """Whether an alert was sent that the database could not hold."""
        self.failed_rounds = 0
        """Number of rounds of housekeeping in a row that have failed."""

    async def look(self, *, has_failed: bool) -> None:
        """Raise and clear alerts after a round of housekeeping.

        Args:
            has_failed: whether the round has failed.
        """
        self.failed_rounds = self.failed_rounds + 1 if has_failed else 0
        try:
            await asyncio.to_thread(self._update)
        except (SkyhopError, OSError) as error:
            _LOG.error("alerts cannot be stored: %s", error)
            if self.failed_rounds >= FAILED_ROUNDS and not self._is_unstored:
                self._is_unstored = True
                said = f"housekeeping fails, and so does the database: {error}"
                await self._sender.send_unstored("raised", AlertKind.HOUSEKEEPING, said)
            return
        if self._is_unstored and not self.failed_rounds:
            self._is_unstored = False
            said = "housekeeping and the database work again"
            await self._sender.send_unstored("cleared", AlertKind.HOUSEKEEPING, said)

    def facts(self) -> Facts:
        """Return the state of the orchestrator outside its database."""
        of, authority = self._orchestrator, self._orchestrator.authority
        return Facts(
            started_ns=self._started_ns,
            disk_free_bytes=shutil.disk_usage(of.directory).free,
            server_expires_ns=_end_ns(authority.server_certificate_pem),
            authority_expires_ns=_end_ns(authority.certificate_pem),
            failed_rounds=self.failed_rounds,
            failed_pages=self._failed_pages(),
            backup_ns=_changed_ns(of.directory / LAST_BACKUP),
        )

    def _update(self) -> None:
        facts = self.facts()
        with self._orchestrator.reading(ITSELF) as ctx:
            found = alerts.findings(ctx, facts)
            is_changed = alerts.needs_update(ctx, found)
        # Most rounds change nothing, and then do not take the database's write lock.
        if is_changed:
            with self._orchestrator.writing(ITSELF) as ctx:
                alerts.update(ctx, alerts.findings(ctx, facts))


def _end_ns(pem: bytes) -> int:
    return round(valid_until(pem)[1].timestamp() * 1e9)


def _changed_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None
