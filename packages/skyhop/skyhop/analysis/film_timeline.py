"""Timelines of video sessions: bitrate of the chunks, buffer level, and stalls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from skyhop.analysis.styles import COLOURS
from skyhop.analysis.timeline import (
    GREY,
    LIGHT_GREY,
    Band,
    Line,
    Mark,
    Panel,
    Stroke,
    Timeline,
    event_strip,
    from_zero,
    highest_of,
)
from skyhop.data.arrays import FloatArray
from skyhop.data.records import Events, FilmSeries

_STALL_ALPHA = 0.25


@dataclass(frozen=True)
class Session:
    """Video session with its label and colour."""

    label: str
    colour: str
    film: FilmSeries


def film_panels(sessions: Sequence[Session]) -> list[Panel]:
    """Return the panels of the sessions' bitrates (Mbit/s) and buffer levels (s)."""
    return [_bitrates(sessions), _buffers(sessions)] if sessions else []


def session_timeline(
    title: str, films: Mapping[str, FilmSeries], rate: tuple[FloatArray, FloatArray] | None = None
) -> Timeline:
    """Return the timeline of sessions that began at the same time over the same link rate.

    Args:
        title: title of the figure.
        films: sessions, by the name of the controller.
        rate: times (s) and link rates (Mbit/s), shape (n,) each; a rate holds from its time on.
    """
    sessions = [
        Session(name, COLOURS[place % len(COLOURS)], film)
        for place, (name, film) in enumerate(films.items())
    ]
    end_s = max((film.end_s for film in films.values()), default=1.0)
    panels = film_panels(sessions)
    if rate is not None:
        t_s, mbps = rate
        marks = [Line(t_s, mbps, Stroke(GREY, 0.9), step="post")]
        seen = (t_s >= 0) & (t_s <= end_s)
        panels.insert(0, Panel("rate", "Mbit/s", marks, from_zero(highest_of(mbps[seen]))))
    return Timeline("path", title, end_s, event_strip(Events.empty(), end_s), panels)


def _bitrates(sessions: Sequence[Session]) -> Panel:
    marks: list[Mark] = []
    highest = 0.0
    for shown in sessions:
        film = shown.film
        # A bitrate holds from the arrival of its chunk to the arrival of the next chunk.
        t_s = np.append(film.arrived_s, film.end_s)
        mbps = np.append(film.bitrate_mbps, film.bitrate_mbps[-1:])
        marks.append(Line(t_s, mbps, Stroke(shown.colour, 1.2), shown.label, step="post"))
        highest = max(highest, highest_of(mbps))
    return Panel("bitrate of chunks", "Mbit/s", marks, from_zero(highest))


def _buffers(sessions: Sequence[Session]) -> Panel:
    highest = max(highest_of(shown.film.buffer_s) for shown in sessions)
    _, top = from_zero(highest)
    marks: list[Mark] = []
    for shown in sessions:
        marks.append(Line(*_saw(shown.film), Stroke(shown.colour, 1.0), shown.label))
        begins, ends = shown.film.stalls()
        if len(begins):
            t_s = np.column_stack((begins, ends)).ravel()
            high = np.tile([top, 0.0], len(begins))
            colour = shown.colour if len(sessions) > 1 else LIGHT_GREY
            said = f"stalled ({len(begins):,}), {(ends - begins).sum():,.1f} s"
            marks.append(Band(t_s, None, high, colour, _STALL_ALPHA, said, step="post"))
    return Panel("buffer", "s", marks, (0.0, top))


def _saw(film: FilmSeries) -> tuple[FloatArray, FloatArray]:
    """Return times (s) and buffer levels (s): a falling line that rises at each chunk's arrival."""
    t_s, left_s = [0.0], [0.0]
    for arrived_s, buffer_s in zip(film.arrived_s.tolist(), film.buffer_s.tolist(), strict=True):
        drained_s = t_s[-1] + left_s[-1]
        if drained_s < arrived_s:
            t_s.append(drained_s)
            left_s.append(0.0)
        before = max(0.0, left_s[-1] - (arrived_s - t_s[-1]))
        t_s += [arrived_s, arrived_s]
        left_s += [before, buffer_s]
    t_s.append(t_s[-1] + left_s[-1])
    left_s.append(0.0)
    return np.array(t_s), np.array(left_s)
