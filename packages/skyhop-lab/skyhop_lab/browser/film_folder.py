"""Description of the film, in the folder that the server and the viewer share."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from skyhop_lab.browser.clip import CODECS, HEIGHT, INIT, WIDTH

_FILE = "film.json"


@dataclass(frozen=True)
class ServedFilm:
    """Film in the form that the server offers: tracks, and sizes of all chunks."""

    chunk_s: float
    bitrates_bps: list[int]
    sizes_bytes: list[list[int]]
    """Chunk sizes in bytes; shape chunks x tracks."""

    def write(self, folder: Path) -> None:
        """Write the description into a folder."""
        (folder / _FILE).write_text(json.dumps(asdict(self)), "utf-8")

    @staticmethod
    def read(folder: Path) -> ServedFilm:
        """Read the description from a folder."""
        return ServedFilm(**json.loads((folder / _FILE).read_text("utf-8")))

    def manifest(self) -> str:
        """Return the DASH manifest (ISO 23009-1); addresses of chunks are relative to it."""
        tracks = "".join(
            f'<Representation id="{track}" mimeType="video/mp4" codecs={quoteattr(CODECS)} '
            f'bandwidth="{bitrate}" width="{WIDTH}" height="{HEIGHT}">'
            f'<SegmentTemplate timescale="1000" duration="{round(1000 * self.chunk_s)}" '
            f'initialization="{track}/{INIT}" media="{track}/$Number$.m4s" startNumber="1"/>'
            "</Representation>"
            for track, bitrate in enumerate(self.bitrates_bps)
        )
        length = f"PT{len(self.sizes_bytes) * self.chunk_s:.3f}S"
        return (
            '<?xml version="1.0" encoding="utf-8"?>'
            '<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" '
            'profiles="urn:mpeg:dash:profile:isoff-live:2011" '
            f'mediaPresentationDuration="{length}" minBufferTime="PT{self.chunk_s:.3f}S">'
            '<Period><AdaptationSet contentType="video" segmentAlignment="true" startWithSAP="1">'
            f"{tracks}</AdaptationSet></Period></MPD>"
        )
