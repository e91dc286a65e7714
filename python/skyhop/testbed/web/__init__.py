"""The testbed's page: what goes on, for people with a browser.

`make_app` gives an ASGI application over an `Office`; `serve` runs it. Every page works without
scripts, and nothing on one comes from elsewhere. What may be done is decided in `orchestrator`;
here it is asked for and shown.

    guard       headers of every answer, how much a request may bring
    session     who asks: cookies, forms' tokens, how often
    ask         one request, as pages are given it
    pages/      a file per matter
    queries     what only pages want to know; they read
    recent      the newest telemetry, without the libraries that read days of it
    drawings    figures and reports, made by `figure` in processes of their own, and kept
    plots, map  small pictures that are part of a page
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skyhop.testbed.web.app import make_app

__all__ = ["make_app"]


def __getattr__(name: str) -> Any:
    # `figure` is a program of its own, which needs none of it.
    if name == "make_app":
        return importlib.import_module("skyhop.testbed.web.app").make_app
    raise AttributeError(f"module 'skyhop.testbed.web' has no attribute '{name}'")
