"""Manifests: lists of a run's files, as JSON of any length that is written and read in pieces.

A manifest is one JSON object. Its key `files` is a list with an object per file; the other keys are
small. The writer puts each file into a line of its own. The reader holds one file at a time and
accepts any layout.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO, Protocol, TypedDict

MOST_FILES = 200_000
"""Default upper limit on the files of one side of a run, for nodes and orchestrator."""
_FILES = "files"
_READ_BYTES = 1 << 16
_LONGEST_VALUE = 8_000_000
"""Upper limit on the characters of one file's entry, or of the value of another key."""
_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"


class ListedFile(TypedDict):
    """File of a run, as a manifest lists it."""

    name: str
    size: int
    sha256: str


class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


def write_manifest(
    to: _Sink,
    above: Mapping[str, object],
    files: Iterable[object],
    below: Iterable[tuple[str, object]] = (),
) -> int:
    """Write a manifest; return the number of its files.

    Args:
        to: binary file.
        above: keys before the list of files.
        files: entries of the files, as JSON objects or dataclasses.
        below: keys after it, computed once all files are listed.
    """
    head = "".join(f" {json.dumps(key)}: {_text(value)},\n" for key, value in above.items())
    to.write(f'{{\n{head} "{_FILES}": ['.encode())
    count = 0
    for each in files:
        to.write(f"{',' if count else ''}\n  {_text(each)}".encode())
        count += 1
    to.write(b"\n ]")
    for key, value in below:
        to.write(f",\n {json.dumps(key)}: {_text(value)}".encode())
    to.write(b"\n}\n")
    return count


def _text(value: object) -> str:
    return json.dumps(value, default=vars)


def read_files(stream: BinaryIO) -> Iterator[ListedFile]:
    """Yield the entries of a manifest's files.

    Raises:
        ValueError: the content is no manifest.
    """
    found = _Reader(stream)
    found.expect("{")
    has_files = False
    while not found.take("}"):
        key = found.value()
        found.expect(":")
        if key == _FILES and not has_files:
            has_files = True
            found.expect("[")
            while not found.take("]"):
                yield _entry(found.value())
                if not found.take(","):
                    found.expect("]")
                    break
        else:
            found.value()
        if not found.take(","):
            found.expect("}")
            break
    if not has_files or not found.is_at_end():
        raise ValueError("no manifest")


def _entry(value: object) -> ListedFile:
    if not isinstance(value, dict):
        raise ValueError("a file's entry is no object")
    try:
        name, size, digest = value["name"], value["size"], value["sha256"]
    except KeyError as error:
        raise ValueError(f"a file's entry has no {error}") from None
    if not (isinstance(name, str) and type(size) is int and isinstance(digest, str)):
        raise ValueError("a file's entry has a value of the wrong type")
    return {"name": name, "size": size, "sha256": digest}


class _Reader:
    """Reader of JSON values one by one from a stream, with a small part of it in memory."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text, self._at, self._has_ended = "", 0, False

    def _fill(self, least: int) -> None:
        """Read until `least` characters are in memory after the present place, or the end."""
        while not self._has_ended and len(self._text) - self._at < least:
            data = self._stream.read(_READ_BYTES)
            self._has_ended = not data
            self._text = self._text[self._at :] + self._decoder.decode(data, final=not data)
            self._at = 0

    def _skip_space(self) -> None:
        while True:
            self._fill(1)
            if self._text[self._at : self._at + 1] not in _SPACE or self._at >= len(self._text):
                return
            self._at += 1

    def take(self, mark: str) -> bool:
        """Skip a mark; return whether it was there."""
        self._skip_space()
        is_there = self._text[self._at : self._at + 1] == mark
        self._at += is_there
        return is_there

    def expect(self, mark: str) -> None:
        """Skip a mark.

        Raises:
            ValueError: something else is there.
        """
        if not self.take(mark):
            raise ValueError(f"expected {mark}")

    def value(self) -> object:
        """Return the next value.

        Raises:
            ValueError: it is damaged or too long.
        """
        self._skip_space()
        least = 1024
        while True:
            self._fill(least)
            try:
                found, end = _DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError):
                found, end = None, len(self._text)
                if self._has_ended:
                    raise ValueError("a value is damaged") from None
            # A number at the end of the text in memory may go on.
            if end < len(self._text) or self._has_ended:
                self._at = end
                return found
            least = 2 * (len(self._text) - self._at)
            if least > _LONGEST_VALUE:
                raise ValueError("a value is too long")

    def is_at_end(self) -> bool:
        """Return whether only space is left."""
        self._skip_space()
        return self._at >= len(self._text)
