"""What the two ends of a film in a browser are told: a folder that both see."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from skyhop.video.browser.clip import CODECS, HEIGHT, INIT, WIDTH

_FILE = "film.json"


@dataclass(frozen=True)
class Offer:
    """A film as a server offers it."""

    chunk_s: float
    bitrates_bps: list[int]
    sizes_bytes: list[list[int]]
    """Of each chunk, by track."""

    def write(self, folder: Path) -> None:
        """Write it into a folder."""
        (folder / _FILE).write_text(json.dumps(asdict(self)), "utf-8")

    @staticmethod
    def read(folder: Path) -> Offer:
        """Read it out of a folder."""
        return Offer(**json.loads((folder / _FILE).read_text("utf-8")))

    def manifest(self) -> str:
        """Return it as a DASH manifest (ISO 23009-1), whose chunks lie beside it."""
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
