"""Trials of readers of outside files with damaged files: `skyhop_needs::fuzz` for Python.

A trial takes valid files of a format, damages them and passes them to the format's reader, which
has to accept them or refuse them with a message of one line. Of a fault it saves the file, with as
few changes as possible, in tests/damaged/FORMAT. Every later trial starts with the files there.

"""

from __future__ import annotations

import ctypes
import os
import random
import re
import resource
import signal
import tomllib
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias, TypeVar

import pytest

import tiers
from needs import ROOT, record_trial
from skyhop.errors import SkyhopError

Reader: TypeAlias = Callable[[bytes], object]
Change: TypeAlias = tuple[str, float, float, float]
_T = TypeVar("_T")

_FIXED_SEED = 1
_MOST_CHANGES = 6
_LONGEST_MESSAGE = 2_500
_CPU_S = 60.0
_MEMORY_BYTES = 1 << 30

_TABLES: dict[str, Any] = tomllib.loads((ROOT / "tests" / "damage.toml").read_text("utf-8"))
"""Tables of damage, shared with Rust: values, rude texts, weights of the kinds of changes."""
_RUDE = [*(text.encode() for text in _TABLES["rude"]), *(bytes([n]) for n in _TABLES["rude-bytes"])]

_WORD = re.compile(rb"[-+.]?\d[\d.]*(?:[eE][-+]?\d+)?|[A-Za-z_\x80-\xff]+")
_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


@dataclass(frozen=True)
class Trial:
    """Trial of a format's reader, with valid files of the format as samples."""

    format: str
    samples: Sequence[bytes]
    is_text: bool = True
    usual: int = 100
    of_soak: int = 500
    """Number of files in `make soak`, times SKYHOP_SOAK."""

    def run(self, read: Reader) -> None:
        """Run the trial; each file has to be accepted, or refused with an error of skyhop's."""
        for sample in self.samples:
            read(sample)
        seed = _seed()
        soak = int(os.environ.get("SKYHOP_SOAK", "1"))
        count = self.usual if soak == 1 else max(self.usual, self.of_soak) * soak
        kept = sorted(self._directory.glob("*"))
        refused, found = 0, None
        begun = _memory_from_here()
        for file in kept:
            what = _fault(read, file.read_bytes())
            if what:
                found = f"{what} ({file})"
        for case in range(count) if found is None else ():
            sample, changes = self._draw(random.Random(f"{seed} {case}"))
            damaged = self._damaged(sample, changes)
            what = _fault(read, damaged)
            refused += what == ""
            if what:
                found = self._least(read, sample, changes, what)
                break
        # Memory that no single file takes, but that all of them together have leaked.
        more = _memory_from_here() - begun
        if found is None and more > _MEMORY_BYTES:
            found = f"the reader has kept {more >> 20} MB of memory"
        record_trial("fuzz", self.format, len(kept) + count, seed, found or "ok")
        if found is not None:
            pytest.fail(f"{self.format}: {found}; the same again: SKYHOP_SEED={seed}")
        assert refused > 0, f"{self.format}: no damaged file is refused"

    @property
    def _directory(self) -> Path:
        return ROOT / "tests" / "damaged" / self.format.replace(" ", "-")

    def _draw(self, draw: random.Random) -> tuple[bytes, list[Change]]:
        weights = _TABLES["text" if self.is_text else "bytes"]
        kinds = draw.choices(list(weights), weights.values(), k=draw.randint(1, _MOST_CHANGES))
        changes = [(kind, draw.random(), draw.random(), draw.random()) for kind in kinds]
        return draw.choice(self.samples), changes

    def _damaged(self, sample: bytes, changes: Sequence[Change]) -> bytes:
        for change in changes:
            if not sample:
                break
            if self.is_text:
                sample = _change_text(sample, change, self.samples)
            else:
                sample = _change_bytes(sample, change, self.samples)
        return sample

    def _least(self, read: Reader, sample: bytes, changes: list[Change], what: str) -> str:
        """Save the file with as few of the changes as show the fault; return a description."""
        for change in list(changes):
            fewer = [other for other in changes if other is not change]
            found = _fault(read, self._damaged(sample, fewer))
            if found:
                changes, what = fewer, found
        content = self._damaged(sample, changes)
        self._directory.mkdir(parents=True, exist_ok=True)
        file = self._directory / f"{zlib.crc32(content):08x}"
        file.write_bytes(content)
        return f"{what} ({file})"


def _seed() -> int:
    """Return SKYHOP_SEED; by default a constant, or in soak a fresh seed, which is recorded."""
    fresh = random.randrange(2**32) if tiers.is_soak() else _FIXED_SEED
    return int(os.environ.get("SKYHOP_SEED") or fresh)


def _fault(read: Reader, content: bytes) -> str | None:
    """Return the fault of a reader; "" if it refuses the file, None if it accepts it."""
    before = _memory_from_here()
    what = _outcome(read, content)
    more = _most_memory() - before
    return f"it takes {more >> 20} MB of memory" if not what and more > _MEMORY_BYTES else what


def _outcome(read: Reader, content: bytes) -> str | None:
    try:
        with _limited():
            read(content)
    except SkyhopError as error:
        return _unfit(str(error))
    # Panics of Rust are no Exception but a BaseException.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return f"{type(error).__name__} at {where}: {str(error)[:200]!r}"
    return None


def _memory_from_here() -> int:
    """Reset the peak of memory, if the kernel allows it; return the current use in bytes."""
    # Return freed memory to the system, as reusing it would hide the next reader's use.
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    # proc(5): writing 5 sets the peak to the current value.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    return _most_memory()


def _most_memory() -> int:
    """Return the peak of memory in bytes since the reset, or since the start of the process."""
    with suppress(OSError):
        found = re.search(
            r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii", "replace")
        )
        if found:
            return int(found[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _unfit(message: str) -> str:
    """Return the reason why a text is no valid message of an error, "" if it is valid."""
    if not message.strip():
        return "a message without a word"
    # splitlines() knows all line ends that programs reading the message may know.
    if len(message.splitlines()) > 1 or not message.replace("\t", "").isprintable():
        return f"a message is not one line of plain text: {message[:200]!r}"
    if len(message) > _LONGEST_MESSAGE:
        return f"a message has {len(message)} letters: {message[:200]!r}"
    return ""


class _TooLongError(BaseException):
    """Reader that takes too much processor time."""


@contextmanager
def _limited() -> Iterator[None]:
    """Interrupt a reader that takes more processor time than any reader should."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _TooLongError(f"it takes more than {_CPU_S:.0f} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, _CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _at(place: float, count: int) -> int:
    return min(int(place * count), count - 1)


def _one(choices: Sequence[_T], place: float) -> _T:
    return choices[_at(place, len(choices))]


def _change_text(content: bytes, change: Change, samples: Sequence[bytes]) -> bytes:
    kind, place, other, value = change
    if kind in ("value", "borrow", "digits") or kind.endswith(("-word", "-words")):
        return _change_words(content, change, samples)
    if kind.endswith(("-line", "-lines")):
        return _change_lines(content, change)
    if kind == "rude":
        new = _one(_RUDE, value)
    elif kind == "nest":
        new = _one(_TABLES["openers"], value).encode() * _one(_TABLES["times"], other)
    elif kind == "long":
        new = _one(_TABLES["letters"], value).encode() * _one(_TABLES["long-times"], other)
    else:
        return _change_bytes(content, change, samples)
    at = _at(place, len(content) + 1)
    return content[:at] + new + content[at:]


def _change_words(content: bytes, change: Change, samples: Sequence[bytes]) -> bytes:
    kind, place, other, _ = change
    words = [found.span() for found in _WORD.finditer(content)]
    if not words:
        return content
    if kind == "swap-words":
        return _swapped(content, words, place, other)
    begin, end = _one(words, place)
    return content[:begin] + _instead(content[begin:end], change, samples) + content[end:]


def _change_lines(content: bytes, change: Change) -> bytes:
    kind, place, other, _ = change
    lines = [found.span() for found in _LINE.finditer(content)]
    if kind == "swap-lines":
        return _swapped(content, lines, place, other)
    begin, end = _one(lines, place)
    times = 2 if kind == "repeat-line" else 0
    return content[:begin] + content[begin:end] * times + content[end:]


def _instead(word: bytes, change: Change, samples: Sequence[bytes]) -> bytes:
    """Return the replacement of a number or a word."""
    kind, _, other, value = change
    if kind == "value":
        return str(_one(_TABLES["values"], value)).encode()
    if kind == "borrow":
        words = _WORD.findall(_one(samples, other))
        return _one(words, value) if words else b""
    if kind == "digits":
        half = word[: len(word) // 2]
        ends = [word + end for end in (b"0", b"e9", b"e-9", b".5", word)]
        return _one([b"-" + word, *ends, half], value)
    return word + b" " + word if kind == "repeat-word" else b""


def _swapped(content: bytes, parts: Sequence[tuple[int, int]], place: float, other: float) -> bytes:
    first, second = sorted((_at(place, len(parts)), _at(other, len(parts))))
    (a, b), (c, d) = parts[first], parts[second]
    if b > c:
        return content
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


def _change_bytes(content: bytes, change: Change, samples: Sequence[bytes]) -> bytes:
    kind, place, other, value = change
    begin, end = _piece(content, place, value)
    head, piece, tail = content[:begin], content[begin:end], content[end:]
    if kind == "byte":
        return head + bytes([_at(value, 256)]) + content[begin + 1 :]
    if kind == "bit":
        return head + bytes([content[begin] ^ 1 << _at(value, 8)]) + content[begin + 1 :]
    if kind == "cut":
        return head
    if kind == "length":
        width = _one([1, 2, 4, 8], other)
        number = _one(_TABLES["lengths"], value) % 2 ** (8 * width)
        new = number.to_bytes(width, "little" if other * 8 % 2 < 1 else "big")
        return (head + new + content[begin + width :])[: len(content)]
    if kind == "move-piece":
        rest = head + tail
        at = _at(other, len(rest) + 1)
        return rest[:at] + piece + rest[at:]
    sample = _one(samples, other)
    first, last = _piece(sample, place, value)
    new = {
        "drop-piece": b"",
        "repeat-piece": piece * 2,
        "zeros": bytes(len(piece)),
        "splice": sample[first:last],
    }[kind]
    return head + new + tail


def _piece(content: bytes, place: float, value: float) -> tuple[int, int]:
    """Return begin and end of a piece of up to 64 bytes."""
    begin = max(0, _at(place, len(content)))
    return begin, min(len(content), begin + 1 + _at(value, 64))
