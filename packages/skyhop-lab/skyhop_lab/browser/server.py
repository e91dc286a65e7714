"""Server of the film: the program at the far end of a live run's path.

    python -m skyhop_lab.browser.server FOLDER

It serves HTTP/1.1 on PORT at all its addresses; in a live run these are only the path's.
"""

from __future__ import annotations

import http.server
import re
import sys
import threading
from http import HTTPStatus
from pathlib import Path
from typing import Any

from skyhop_lab.browser.clip import INIT, padded
from skyhop_lab.browser.downloads import DownloadServer
from skyhop_lab.browser.film_folder import ServedFilm

PORT = 8080
"""TCP port of the film; the port of competing downloads is in downloads.py."""
_CHUNK = re.compile(r"/(\d{1,3})/(\d{1,6})\.m4s")
_INIT = re.compile(rf"/\d{{1,3}}/{re.escape(INIT)}")


class QuietServer(http.server.ThreadingHTTPServer):
    """HTTP server that ignores clients which disconnect."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print errors, but not those of closed connections."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def handler_type(folder: Path) -> type[http.server.BaseHTTPRequestHandler]:
    """Return the class that handles requests for the film in a folder."""
    film = ServedFilm.read(folder)
    init = (folder / INIT).read_bytes()

    class Handler(http.server.BaseHTTPRequestHandler):
        # Connections are persistent, as DASH servers have them.
        protocol_version = "HTTP/1.1"
        # Writes are buffered: with the header in a segment of its own, Nagle's algorithm would
        # delay the body.
        wbufsize = -1

        def do_GET(self) -> None:
            if self.path == "/film.mpd":
                self._send("application/dash+xml", film.manifest().encode())
            elif _INIT.fullmatch(self.path):
                self._send("video/mp4", init)
            elif (found := _CHUNK.fullmatch(self.path)) and self._exists(found):
                size = film.sizes_bytes[int(found[2]) - 1][int(found[1])]
                self._send("video/mp4", padded((folder / f"{found[2]}.m4s").read_bytes(), size))
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _exists(self, found: re.Match[str]) -> bool:
            chunk, track = int(found[2]), int(found[1])
            return 1 <= chunk <= len(film.sizes_bytes) and track < len(film.bitrates_bps)

        def _send(self, kind: str, content: bytes) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            # The page comes from another origin: the viewer's server at the near end.
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Handler


def main() -> None:
    """Serve film and downloads until the process is killed."""
    with (
        DownloadServer() as downloads,
        QuietServer(("", PORT), handler_type(Path(sys.argv[1]))) as server,
    ):
        threading.Thread(target=downloads.serve_forever, daemon=True).start()
        server.serve_forever()


if __name__ == "__main__":
    main()
