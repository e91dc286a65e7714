"""Changes that the web pages ask for: the operations of the API, and those of sessions.

The web pages run in a process of their own, which only reads the database. A change goes over a
Unix socket to the orchestrator, with the secret of the user's session, and takes the path of the
API's calls: authentication, role, transaction, audit log, notification of agents. A
page's process that hangs or dies therefore never holds the database's write lock.
"""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import sqlalchemy as sa
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest

from skyhop.errors import InputError
from skyhop_testbed import api
from skyhop_testbed.api import USERS, A, Int64, Nothing, Operation, Q, Request
from skyhop_testbed.keys import secret_hash
from skyhop_testbed.orchestrator import access, accounts
from skyhop_testbed.orchestrator.core import Orchestrator
from skyhop_testbed.orchestrator.handlers import (
    ACTING,
    WRITING,
    call,
    note_refusal,
    target_of,
)
from skyhop_testbed.orchestrator.http import make_app, read_message
from skyhop_testbed.orchestrator.request_context import (
    Caller,
    DeniedError,
)
from skyhop_testbed.store.tables import credential

SESSION_S = 12 * 3600
"""Lifetime of a session in s."""
SESSION_HEADER = "x-skyhop-session"
_THREADS = 6


class LogIn(Request):
    """Token of a user who begins a session."""

    token: str


class OwnToken(Request):
    """Label and expiry (0 for never) of a new token of the caller."""

    label: str
    expires_ns: Int64 = 0


class OwnCredential(Request):
    """Id of a token or session of the caller."""

    id: str


class Report(Request):
    """Numbers of the page's process since its start: connections, and those ended, by cause."""

    open: int
    accepted: int
    ended: dict[str, int] = {}  # noqa: RUF012


# fmt: off
LOG_IN = Operation("PageLogIn", "POST", "/page/login", LogIn, str, api.INVITED)
LOG_OUT = Operation("PageLogOut", "POST", "/page/logout", Nothing, int, USERS)
NOTE_USE = Operation("PageNoteUse", "POST", "/page/use", Nothing, bool, USERS)
OWN_TOKEN = Operation("PageOwnToken", "POST", "/page/token", OwnToken, str, USERS)
REVOKE_OWN = Operation("PageRevokeOwn", "POST", "/page/revoke", OwnCredential, int, USERS)
REPORT = Operation("PageReport", "POST", "/page/report", Report, bool, api.INVITED)
# fmt: on
OPERATIONS: tuple[Operation[Any, Any], ...] = (
    LOG_IN,
    LOG_OUT,
    NOTE_USE,
    OWN_TOKEN,
    REVOKE_OWN,
    REPORT,
)  # fmt: skip
"""Operations of the pages' process alone."""


class PagePort:
    """Changes that the web pages ask for, and what their process reports.

    Args:
        orchestrator: the orchestrator.
    """

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator
        self._threads = ThreadPoolExecutor(_THREADS, "pages")
        self.report: Report | None = None
        """Latest report of the page's process."""
        self.reports = 0

    def app(self) -> Starlette:
        """Return the application that the page's process calls."""
        offered = [
            o for o in api.OPERATIONS.values() if o.roles <= USERS and o.name in {*WRITING, *ACTING}
        ]
        return make_app([*offered, *OPERATIONS], self._act)

    async def _act(self, operation: Operation[Any, Any], http: HttpRequest) -> Any:
        message = await read_message(operation, http)
        secret = http.headers.get(SESSION_HEADER, "")
        act = functools.partial(self.perform, operation, secret, message)
        return await asyncio.get_running_loop().run_in_executor(self._threads, act)

    def perform(self, operation: Operation[Q, A], secret: str, request: Q) -> A:
        """Perform an operation for the user of a session, with its permissions and audit line.

        Raises:
            UnknownCallerError: there is no such session.
            DeniedError: the caller's role may not call the operation.
            SkyhopError: the operation failed, and its transaction was rolled back.
        """
        if isinstance(request, Report):
            self.report, self.reports = request, self.reports + 1
            return cast("A", True)
        if isinstance(request, LogIn):
            return cast("A", self._log_in(request.token))
        caller = self._orchestrator.caller_of_token(secret, accounts.SESSION)
        own = self._of_account(operation, caller, secret, request)
        if own is not None:
            return cast("A", own)
        try:
            access.check_role(operation, caller)
            return call(self._orchestrator, operation, caller, request)
        except (DeniedError, InputError) as error:
            target = target_of(dict(request))
            note_refusal(self._orchestrator, operation, caller, target, error)
            raise

    def _of_account(
        self, operation: Operation[Any, Any], caller: Caller, secret: str, request: Request
    ) -> object:
        """Perform an operation on the caller's own credentials; return None for another one."""
        if operation is LOG_OUT:
            return self._log_out(caller, secret)
        if isinstance(request, OwnToken):
            return self._make_token(caller, request)
        if isinstance(request, OwnCredential):
            return self._revoke(caller, request)
        # For NOTE_USE, the authentication of the call has noted the use.
        return True if operation is NOTE_USE else None

    def _log_in(self, token: str) -> str:
        """Return the secret of a new session of a token's user."""
        caller = self._orchestrator.caller_of_token(token)
        with self._orchestrator.writing(caller) as ctx:
            secret = accounts.issue(
                ctx,
                accounts.SESSION,
                of_user=caller.name,
                expires_ns=ctx.now_ns + SESSION_S * 1_000_000_000,
                label="page",
            )
            ctx.audit("Login", "page")
            return secret

    def _log_out(self, caller: Caller, secret: str) -> int:
        with self._orchestrator.writing(caller) as ctx:
            mine = credential.c.hash == secret_hash(secret)
            ended = ctx.execute(sa.delete(credential).where(mine))
            ctx.audit("Logout", "page")
            return ended

    def _make_token(self, caller: Caller, request: OwnToken) -> str:
        """Return the secret of a new token of the caller."""
        with self._orchestrator.writing(caller) as ctx:
            secret = accounts.issue(
                ctx,
                accounts.TOKEN,
                of_user=caller.name,
                expires_ns=request.expires_ns or None,
                label=request.label,
            )
            ctx.audit("IssueToken", caller.name)
            return secret

    def _revoke(self, caller: Caller, request: OwnCredential) -> int:
        with self._orchestrator.writing(caller) as ctx:
            count = accounts.revoke(ctx, caller.name, request.id)
            ctx.audit("RevokeToken", caller.name)
            return count
