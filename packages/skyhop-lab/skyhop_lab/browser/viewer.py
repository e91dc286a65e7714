"""Viewer of the film: the program at the near end of a live run's path, a browser with dash.js.

    python -m skyhop_lab.browser.viewer FOLDER

Its own HTTP server on the loopback device serves the page, and decides the track of each chunk.
"""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from http import HTTPStatus
from importlib import resources
from pathlib import Path
from typing import Any

from skyhop import _core
from skyhop_lab.browser.downloads import Downloads
from skyhop_lab.browser.server import PORT, QuietServer

SESSION = "session.json"
FAILED = "failed.txt"
"""File with the reason why there is no session."""
_VIEWING = "viewing.json"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SERVER_WITHIN_S = 15.0
_ENDS_WITHIN_S = 5.0
_LONGEST_BODY = 64_000_000
BUFFER_CAP_S = 60.0
_SHORTEST_S = 1e-3
"""Shortest download time of a chunk in s: the resolution of dash.js's times."""
_OPTIONS = (
    # The browser's sandbox needs namespaces, which it cannot create inside those of a run.
    "--no-sandbox", "--headless=new", "--disable-gpu", "--mute-audio", "--no-first-run",
    "--autoplay-policy=no-user-gesture-required", "--disable-background-networking",
    "--disable-component-update", "--no-proxy-server", "--disable-dev-shm-usage",
)  # fmt: skip


@dataclass(frozen=True)
class ViewerOptions:
    """Options of a viewer; the page receives them too, as JSON."""

    controller: str
    rules: dict[str, bool]
    """Rules of dash.js by name, each with whether it is active."""
    is_asking: bool
    """Whether a controller of skyhop decides; the page then requests a decision for each chunk."""
    film: str
    top: str | None
    """Bitrate of the top track to which the film is scaled; `None` for the film's own bitrates."""
    qoe: str
    chunk_s: float
    dash_js: str
    limit_s: float
    """Upper limit on the duration of a session in s."""
    buffer_cap_s: float | None = None
    start_bps: float | None = None
    seed: int = 0
    downloads: int = 0
    """Number of downloads that compete with the film."""
    is_quiet: bool = False

    def write(self, folder: Path) -> None:
        """Write the options into a folder."""
        (folder / _VIEWING).write_text(json.dumps(asdict(self)), "utf-8")

    @staticmethod
    def read(folder: Path) -> ViewerOptions:
        """Read the options from a folder."""
        return ViewerOptions(**json.loads((folder / _VIEWING).read_text("utf-8")))


def browser() -> str | None:
    """Return the path of a Chromium-based browser; `None` if none is installed."""
    return next(filter(None, map(shutil.which, _BROWSERS)), None)


class _Page(QuietServer):
    """HTTP server of the page.

    It answers the page's requests for decisions, and receives the session.
    """

    def __init__(self, options: ViewerOptions, manifest: str, decide: Callable[[Any], Any]) -> None:
        super().__init__(("127.0.0.1", 0), _PageHandler)
        here = resources.files("skyhop_lab.browser")
        page_options = {**asdict(options), "manifest": manifest}
        self.files = {
            "/": ("text/html", (here / "player.html").read_bytes()),
            "/player.js": ("text/javascript", (here / "player.js").read_bytes()),
            "/dash.js": ("text/javascript", Path(options.dash_js).read_bytes()),
            "/viewing": ("application/json", json.dumps(page_options).encode()),
        }
        self.decide = decide
        self.session: Any = None
        self.is_over = threading.Event()


class _PageHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Page

    def do_GET(self) -> None:
        if self.path in self.server.files:
            self._send(*self.server.files[self.path])
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        length = min(int(self.headers.get("Content-Length", 0)), _LONGEST_BODY)
        body = json.loads(self.rfile.read(length))
        if self.path == "/decide":
            self._send("application/json", json.dumps(self.server.decide(body)).encode())
        else:
            self._send("application/json", b"{}")
            self.server.session = body
            self.server.is_over.set()

    def _send(self, kind: str, content: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def main() -> int:
    """Show the film; write the session, or the reason of a failure, into the folder."""
    folder = Path(sys.argv[1])
    options = ViewerOptions.read(folder)
    server = os.environ["SKYHOP_SERVER"]
    if not _is_answering(server):
        return _failed(folder, "the film's server does not answer")
    page = _Page(options, f"http://{server}:{PORT}/film.mpd", _decider(options))
    threading.Thread(target=page.serve_forever, daemon=True).start()
    with (
        Downloads(server, options.downloads) as downloads,
        _BrowserProcess(f"http://127.0.0.1:{page.server_port}/", folder) as shown,
    ):
        until = time.monotonic() + options.limit_s
        while not page.is_over.wait(0.2) and time.monotonic() < until and shown.poll() is None:
            pass
    page.shutdown()
    if page.session is None:
        ended = shown.returncode is not None
        why = "the browser ended" if ended else f"it took over {options.limit_s:.0f} s"
        return _failed(folder, f"the film did not play to its end: {why}")
    if downloads.ended.is_set():
        return _failed(folder, "a competing download ended before the film")
    (folder / SESSION).write_text(json.dumps(page.session), "utf-8")
    if not options.is_quiet:
        session = page.session
        how, chunks, why = session["how"], len(session["chunks"]), session["why"]
        print(f"the film {how}: {chunks} chunks {why}".strip())
    return 0


def _failed(folder: Path, why: str) -> int:
    (folder / FAILED).write_text(why, "utf-8")
    return 1


def _decider(options: ViewerOptions) -> Callable[[Any], Any]:
    """Return the function that decides a chunk's track and returns it with the predicted rate."""
    if not options.is_asking:
        return lambda _question: {}
    film = _core.Film.read(options.film, options.top)
    cap_s = options.buffer_cap_s or BUFFER_CAP_S
    player = _core.Player(film, options.controller, options.qoe, options.seed, cap_s)
    answers: dict[int, dict[str, float | None]] = {}

    def decide(question: Any) -> dict[str, float | None]:
        chunk, last_track = question["chunk"], None
        # dash.js repeats its request for a decision until it has requested the chunk.
        if chunk not in answers:
            for one in question["arrived"]:
                took_s = max(one["arrived_s"] - one["asked_s"], _SHORTEST_S)
                player.arrived(one["chunk"], one["track"], one["size_bytes"], took_s)
            if chunk > 0:
                last_track = question["last_track"]
            now_s, buffer_s = question["now_s"], question["buffer_s"]
            track, bps, _ = player.next(now_s, buffer_s, chunk, last_track)
            answers[chunk] = {"track": track, "predicted_bps": bps}
        return answers[chunk]

    return decide


def _is_answering(server: str) -> bool:
    until = time.monotonic() + _SERVER_WITHIN_S
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection((server, PORT), timeout=3.0):
            return True
        time.sleep(0.1)
    return False


class _BrowserProcess:
    """Context manager of a browser that shows a page; the browser's profile is in the folder."""

    def __init__(self, address: str, folder: Path) -> None:
        self._command = [
            browser() or _BROWSERS[0],
            *_OPTIONS,
            f"--user-data-dir={folder / 'profile'}",
        ]
        self._command.append(address)
        self._log = folder / "browser.log"

    def __enter__(self) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        return self._process

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDS_WITHIN_S)
                return


if __name__ == "__main__":
    sys.exit(main())
