"""The film's server, a program at the far end of a live run's path.

    python -m skyhop.video.browser.server FOLDER

It answers HTTP/1.1 at PORT of every address it has, which in a live run is the path's alone.
"""

from __future__ import annotations

import http.server
import re
import sys
import threading
from http import HTTPStatus
from pathlib import Path
from typing import Any

from skyhop.video.browser.clip import INIT, filled_up
from skyhop.video.browser.downloads import DownloadServer
from skyhop.video.browser.film_folder import Offer

PORT = 8080
"""Of the film; downloads beside it have one of their own."""
_CHUNK = re.compile(r"/(\d{1,3})/(\d{1,6})\.m4s")
_INIT = re.compile(rf"/\d{{1,3}}/{re.escape(INIT)}")


class QuietServer(http.server.ThreadingHTTPServer):
    """Says nothing of a browser that went away."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of errors, other than that nobody listens any more."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def answer_type(folder: Path) -> type[http.server.BaseHTTPRequestHandler]:
    """Return what answers requests about the film in a folder."""
    offer = Offer.read(folder)
    init = (folder / INIT).read_bytes()

    class Answer(http.server.BaseHTTPRequestHandler):
        # Connections stay, as with every server of films.
        protocol_version = "HTTP/1.1"
        # A head of its own segment would wait for the acknowledgement of the body's.
        wbufsize = -1

        def do_GET(self) -> None:
            if self.path == "/film.mpd":
                self._send("application/dash+xml", offer.manifest().encode())
            elif _INIT.fullmatch(self.path):
                self._send("video/mp4", init)
            elif (found := _CHUNK.fullmatch(self.path)) and self._is_there(found):
                size = offer.sizes_bytes[int(found[2]) - 1][int(found[1])]
                self._send("video/mp4", filled_up((folder / f"{found[2]}.m4s").read_bytes(), size))
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _is_there(self, found: re.Match[str]) -> bool:
            chunk, track = int(found[2]), int(found[1])
            return 1 <= chunk <= len(offer.sizes_bytes) and track < len(offer.bitrates_bps)

        def _send(self, kind: str, content: bytes) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            # The page comes from the near end.
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Answer


def main() -> None:
    """Serve until stopped."""
    with (
        DownloadServer() as downloads,
        QuietServer(("", PORT), answer_type(Path(sys.argv[1]))) as server,
    ):
        threading.Thread(target=downloads.serve_forever, daemon=True).start()
        server.serve_forever()


if __name__ == "__main__":
    main()
