"""Encoding of a small test video, split into the chunks of a film.

The server pads each chunk to the film's chunk size in the requested track, with a `free` box of ISO
14496-12, which players skip. So one video serves all tracks, and sizes match the film's to the
byte.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from skyhop.errors import InputError, RunError

INIT = "init.mp4"
CODECS = "avc1.42c00b"
WIDTH, HEIGHT = 160, 90
_FRAMES_PER_S = 10
_QUALITY = 45
"""Constant rate factor of x264; 45 keeps the chunks small."""
_FREE_BYTES = 8
"""Size of a box's header: length and type, four bytes each."""


def encoder() -> str:
    """Return the path of ffmpeg.

    Raises:
        RunError: ffmpeg is not installed.
    """
    program = shutil.which("ffmpeg")
    if program is None:
        raise RunError("ffmpeg is missing, which encodes the film: sudo apt-get install ffmpeg")
    return program


def make_clip(directory: Path, chunk_s: float, chunks: int, *, least_bytes: int) -> None:
    """Encode `init.mp4`, `1.m4s`, `2.m4s` … into a directory.

    Args:
        directory: output directory.
        chunk_s: duration of each chunk in s.
        chunks: number of chunks.
        least_bytes: size of the film's smallest chunk, which no encoded chunk may exceed.

    Raises:
        RunError: ffmpeg is missing or fails.
        InputError: the film's smallest chunk is too small.
    """
    program = encoder()
    every = max(1, round(chunk_s * _FRAMES_PER_S))
    rate = every / chunk_s
    source = f"testsrc2=size={WIDTH}x{HEIGHT}:rate={rate:.6f}"
    done = subprocess.run(
        [
            program, "-v", "error", "-y", "-f", "lavfi", "-i", source,
            "-frames:v", str(every * chunks), "-c:v", "libx264", "-profile:v", "baseline",
            "-level", "1.1", "-pix_fmt", "yuv420p", "-preset", "ultrafast", "-crf", str(_QUALITY),
            "-g", str(every), "-keyint_min", str(every), "-sc_threshold", "0",
            "-f", "dash", "-seg_duration", f"{chunk_s:.6f}", "-use_template", "1",
            "-use_timeline", "0", "-init_seg_name", INIT, "-media_seg_name", "$Number$.m4s",
            str(directory / "clip.mpd"),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise RunError(f"ffmpeg could not encode the film: {said[-1] if said else 'no message'}")
    largest = max(file.stat().st_size for file in directory.glob("*.m4s"))
    if largest + _FREE_BYTES > least_bytes:
        raise InputError(
            f"the film's smallest chunk has {least_bytes:,} bytes; in a browser a chunk takes at "
            f"least {largest + _FREE_BYTES:,}"
        )


def padded(chunk: bytes, size_bytes: int) -> bytes:
    """Return a chunk that is padded to a size by a `free` box at its end."""
    more = size_bytes - len(chunk)
    return chunk + more.to_bytes(4, "big") + b"free" + bytes(more - _FREE_BYTES)
