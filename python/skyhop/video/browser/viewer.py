"""The film's viewer, a program at the near end of a live run's path: a browser with dash.js.

    python -m skyhop.video.browser.viewer FOLDER

A server of its own, on the loopback, has the page, and answers which track comes next.
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
from skyhop.video.browser.downloads import Downloads
from skyhop.video.browser.server import PORT, QuietServer

SESSION = "session.json"
FAILED = "failed.txt"
"""Why there was no session."""
_VIEWING = "viewing.json"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SERVER_WITHIN_S = 15.0
_ENDS_WITHIN_S = 5.0
_LONGEST_BODY = 64_000_000
BUFFER_CAP_S = 60.0
_SHORTEST_S = 1e-3
"""dash.js has times in ms."""
_OPTIONS = (
    # A run has namespaces of its own, where the browser cannot make others.
    "--no-sandbox", "--headless=new", "--disable-gpu", "--mute-audio", "--no-first-run",
    "--autoplay-policy=no-user-gesture-required", "--disable-background-networking",
    "--disable-component-update", "--no-proxy-server", "--disable-dev-shm-usage",
)  # fmt: skip


@dataclass(frozen=True)
class Viewing:
    """What a viewer is told."""

    controller: str
    rules: dict[str, bool]
    """dash.js's own, and which of them count."""
    is_asking: bool
    """Whether a controller of skyhop's decides."""
    film: str
    top: str | None
    """The bitrate of the film's top track, where it is another than the film's own."""
    qoe: str
    chunk_s: float
    dash_js: str
    limit_s: float
    """When the film has to be over."""
    buffer_cap_s: float | None = None
    start_bps: float | None = None
    seed: int = 0
    downloads: int = 0
    """How many go on beside the film."""
    is_quiet: bool = False

    def write(self, folder: Path) -> None:
        """Write it into a folder."""
        (folder / _VIEWING).write_text(json.dumps(asdict(self)), "utf-8")

    @staticmethod
    def read(folder: Path) -> Viewing:
        """Read it out of a folder."""
        return Viewing(**json.loads((folder / _VIEWING).read_text("utf-8")))


def browser() -> str | None:
    """Return the browser of this machine."""
    return next(filter(None, map(shutil.which, _BROWSERS)), None)


class _Page(QuietServer):
    """Has the page, and hears of it."""

    def __init__(self, viewing: Viewing, manifest: str, decide: Callable[[Any], Any]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        here = resources.files("skyhop.video.browser")
        told = {**asdict(viewing), "manifest": manifest}
        self.files = {
            "/": ("text/html", (here / "player.html").read_bytes()),
            "/player.js": ("text/javascript", (here / "player.js").read_bytes()),
            "/dash.js": ("text/javascript", Path(viewing.dash_js).read_bytes()),
            "/viewing": ("application/json", json.dumps(told).encode()),
        }
        self.decide = decide
        self.over: Any = None
        self.is_over = threading.Event()


class _Answer(http.server.BaseHTTPRequestHandler):
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
            self.server.over = body
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
    """View the film, and write what became of it into the folder."""
    folder = Path(sys.argv[1])
    viewing = Viewing.read(folder)
    server = os.environ["SKYHOP_SERVER"]
    if not _is_answering(server):
        return _failed(folder, "the film's server does not answer")
    page = _Page(viewing, f"http://{server}:{PORT}/film.mpd", _decider(viewing))
    threading.Thread(target=page.serve_forever, daemon=True).start()
    with (
        Downloads(server, viewing.downloads) as downloads,
        _browser(f"http://127.0.0.1:{page.server_port}/", folder) as shown,
    ):
        until = time.monotonic() + viewing.limit_s
        while not page.is_over.wait(0.2) and time.monotonic() < until and shown.poll() is None:
            pass
    page.shutdown()
    if page.over is None:
        why = "the browser ended" if shown.returncode is not None else "no word of it"
        return _failed(folder, f"the film did not come to its end: {why}")
    if downloads.ended.is_set():
        return _failed(folder, "a download beside the film ended before it")
    (folder / SESSION).write_text(json.dumps(page.over), "utf-8")
    if not viewing.is_quiet:
        how, chunks, why = page.over["how"], len(page.over["chunks"]), page.over["why"]
        print(f"the film {how}: {chunks} chunks {why}".strip())
    return 0


def _failed(folder: Path, why: str) -> int:
    (folder / FAILED).write_text(why, "utf-8")
    return 1


def _decider(viewing: Viewing) -> Callable[[Any], Any]:
    """Return what answers which track a chunk is asked for in, and what is believed of the rate."""
    if not viewing.is_asking:
        return lambda _asked: {}
    film = _core.Film.read(viewing.film, viewing.top)
    cap_s = viewing.buffer_cap_s or BUFFER_CAP_S
    player = _core.Player(film, viewing.controller, viewing.qoe, viewing.seed, cap_s)
    answers: dict[int, dict[str, float | None]] = {}

    def decide(asked: Any) -> dict[str, float | None]:
        chunk, last_track = asked["chunk"], None
        # dash.js asks again for a chunk that it has not asked the server for yet.
        if chunk not in answers:
            for came in asked["came"]:
                took_s = max(came["arrived_s"] - came["asked_s"], _SHORTEST_S)
                player.arrived(came["chunk"], came["track"], came["size_bytes"], took_s)
            if chunk > 0:
                last_track = asked["last_track"]
            track, bps, _ = player.next(asked["now_s"], asked["buffer_s"], chunk, last_track)
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


class _browser:  # noqa: N801
    """A browser that shows a page, with files of its own that go with it."""

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
