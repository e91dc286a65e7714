"""Manifests of any length: their form, and uploads of many files to the orchestrator."""

from __future__ import annotations

import hashlib
import io
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from manual_clock import ManualClock
from testbed_harness import ANN, LocalOrchestrator, job, local_orchestrator

from needs import cases
from skyhop.errors import InputError, RunError
from skyhop_testbed import api
from skyhop_testbed.agent import uploading
from skyhop_testbed.agent.allowance import Pace
from skyhop_testbed.agent.local_run import LocalRun
from skyhop_testbed.executor import keep
from skyhop_testbed.executor.assignment import RESULT_FILE, WORK, open_durably
from skyhop_testbed.manifests import read_files, write_manifest
from skyhop_testbed.orchestrator import handlers, runs, uploads
from skyhop_testbed.orchestrator.request_context import ITSELF, Caller, DeniedError
from skyhop_testbed.schedule import ScheduledJob
from skyhop_testbed.words import Role, Side, State

A = Caller("a", Role.NODE)
S = 1_000_000_000
SPEC: dict[str, Any] = {
    "id": "j",
    "nodes": ["a"],
    "length": 10,
    "when": {"at": "now"},
    "run": {"client": ["true"]},
}
_EMPTY = hashlib.sha256(b"").hexdigest()


def entry(name: str, size: int = 0) -> dict[str, Any]:
    return {"name": name, "size": size, "sha256": _EMPTY}


def written(files: list[Any], **above: object) -> bytes:
    to = io.BytesIO()
    assert write_manifest(to, above, files, [("partial", False)]) == len(files)
    return to.getvalue()


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)
_ENTRIES = st.lists(st.builds(entry, st.text(max_size=300), st.integers(0, 2**62)), max_size=30)


@settings(max_examples=cases(60), deadline=None)
@given(
    _ENTRIES, st.dictionaries(st.text(max_size=5), _VALUES, max_size=4), st.sampled_from([None, 1])
)
def test_every_layout_of_a_manifest_is_read(
    files: list[Any], others: dict[str, Any], indent: int | None
) -> None:
    others.pop("files", None)
    contents = [written(files, result=others)]
    for values in ({**others, "files": files}, {"files": files, **others}):
        for is_ascii in (True, False):
            text = json.dumps(values, indent=indent, ensure_ascii=is_ascii)
            contents.append(text.encode())
    for content in contents:
        assert list(read_files(io.BytesIO(content))) == files


def test_what_is_written_is_plain_json() -> None:
    files = [entry(f"ä{i}", i) for i in range(3)]
    values = json.loads(written(files, run="r", result={"exit": 0}))
    assert values == {"run": "r", "result": {"exit": 0}, "files": files, "partial": False}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"{}", b'{"files": 3}', b'{"files": [1]}', b'{"files": [{}]}',
        b'{"files": [', b'{"files": []', b'{"files": []} {}', b'{"files": [] "a": 1}',
        b'{"files": [{"name": "a", "size": "1", "sha256": ""}]}', b'{"files": [{"name": "\xff',
        b'{"a": "' + b"x" * 9_000_000,
    ],
)  # fmt: skip
def test_what_is_no_manifest(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(read_files(io.BytesIO(content)))


class _Content(io.RawIOBase):
    """Manifest of many files that is never in memory as a whole."""

    def __init__(self, count: int) -> None:
        self._parts = self._all(count)
        self._held = b""

    @staticmethod
    def _all(count: int) -> Iterator[bytes]:
        yield b'{"files": ['
        for i in range(count):
            yield (b"," if i else b"") + json.dumps(entry(f"d/{i:07}")).encode()
        yield b"]}"

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        while len(self._held) < size and (part := next(self._parts, b"")):
            self._held += part
        data, self._held = self._held[:size], self._held[size:]
        return data


def test_the_memory_of_a_reader_does_not_depend_on_the_number_of_files() -> None:
    peaks = []
    for count in (2_000, 20_000):
        tracemalloc.start()
        assert sum(1 for _ in read_files(_Content(count))) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0]


def test_files_left_out_are_listed_up_to_a_number() -> None:
    to, of = io.BytesIO(), keep.Origin("r", "n", Side.CLIENT, partial=False)
    found = [keep.SkippedFile(f"s{i}", "why") for i in range(1500)]
    kept = [keep.KeptFile(f"k{i}", 0, _EMPTY) for i in range(12)]
    assert keep.write_kept(to, of, iter([*found, *kept]), 10) == keep.Kept(10, is_exceeded=True)
    values = json.loads(to.getvalue())
    assert [each["name"] for each in values["files"]] == [f"k{i}" for i in range(10)]
    assert (len(values["left"]), values["left_unlisted"], values["partial"]) == (1000, 500, True)


# Uploads, from the directory of an executor to the store of an orchestrator.


@pytest.fixture
def at(tmp_path: Path) -> Iterator[LocalOrchestrator]:
    with local_orchestrator(tmp_path / "state") as made:
        yield made


class _Link:
    """Link to an orchestrator in this process."""

    def __init__(self, at: LocalOrchestrator) -> None:
        self._at = at
        self.sent: list[tuple[str, int]] = []

    def progress(self, run: str, side: str) -> api.UploadProgress:
        """Return what has arrived."""
        with self._at.orchestrator.reading(A) as ctx:
            most = ctx.settings.files_per_run
        return self._at.orchestrator.uploads.progress(run, side, most)

    def upload(self, run: str, side: str, pieces: Iterator[bytes]) -> bool:
        """Store pieces; return whether all files are published."""
        frames, store = api.Frames(), self._at.orchestrator.uploads
        for data in pieces:
            for piece, content in frames.feed(data):
                store.write_piece(run, side, piece.name, piece.offset, content)
                self.sent.append((piece.name, len(content)))
        try:
            with self._at.writing(A) as ctx:
                return store.complete(ctx, uploads.check_uploader(ctx, run, side), side)
        except InputError as error:
            raise RunError(str(error)) from None


def uploader(at: LocalOrchestrator, tmp_path: Path, count: int) -> tuple[Any, LocalRun, _Link]:
    """Return a node with a run that left `count` files, the run, and the node's link."""
    at.submit(job())
    with at.orchestrator.reading(ITSELF) as ctx:
        run = runs.listing(ctx, node="a")[0].id
    spec = ScheduledJob.model_validate({"spec": SPEC}).spec
    local_run = LocalRun(run, Side.CLIENT, State.FINISHING, "j", spec, 0, S)
    directory = local_run.directory(tmp_path / "runs")
    for i in range(count):
        file = directory / WORK / f"d{i // 1000:03}" / f"file-{i:07}"
        if i % 1000 == 0:
            file.parent.mkdir(parents=True)
        file.write_bytes(b"%d" % i)
    of = keep.Origin(run, "a", Side.CLIENT, partial=False)
    with open_durably(directory / keep.FILE) as stream:
        keep.write_kept(stream, of, keep.choose(directory / WORK, ["*"]), count)
    (directory / RESULT_FILE).write_text("{}")
    link, clock = _Link(at), ManualClock()
    allowance = SimpleNamespace(pace=lambda: Pace(1e12, clock), held_back=lambda: None)
    node = SimpleNamespace(runs=tmp_path / "runs", link=link, allowance=allowance, clock=clock)
    return SimpleNamespace(**vars(node), name="a"), local_run, link


def is_stopped_after(link: _Link, pieces: int) -> Callable[[], bool]:
    return lambda: len(link.sent) >= pieces


def sent_and_published(at: LocalOrchestrator, tmp_path: Path, count: int) -> None:
    """Upload files with two interruptions; compare what was sent and what is published."""
    node, local_run, link = uploader(at, tmp_path, count)
    assert not uploading.send(node, local_run, is_stopped_after(link, 1))
    assert not uploading.send(node, local_run, is_stopped_after(link, count // 2))
    assert uploading.send(node, local_run, lambda: False)
    names = [name for name, _ in link.sent if name != "manifest.json"]
    assert len(names) == len(set(names)) == count, "every file is sent once"
    assert max(size for _, size in link.sent) <= api.LARGEST_PIECE
    with at.orchestrator.reading(ANN) as ctx:
        found = runs.document(ctx, local_run.run)
        assert (found.file_count, len(found.files)) == (count + 1, runs.FILES_SHOWN + 1)
        assert found.files[-1].name == "manifest.json"
        listed: list[api.RunFile] = []
        after = ("", "")
        while part := runs.files(ctx, local_run.run, after, 7000):
            listed += part
            after = (part[-1].side, part[-1].name)
        assert len({each.name for each in listed}) == len(listed) == count + 1
        path, *_ = at.orchestrator.uploads.file(ctx, local_run.run, "client", listed[4321].name)
    assert path.read_bytes() == b"4321"


def test_twelve_thousand_files_arrive_in_pieces(at: LocalOrchestrator, tmp_path: Path) -> None:
    # The manifest is longer than a piece, and the run has more files than a document shows.
    sent_and_published(at, tmp_path, 12_000)


@pytest.mark.soak
@pytest.mark.parametrize("count", [20_000, 111_454])
def test_very_many_files_arrive_in_pieces(
    at: LocalOrchestrator, tmp_path: Path, count: int
) -> None:
    began = time.monotonic()
    sent_and_published(at, tmp_path, count)
    print(f"{count:,} files: {time.monotonic() - began:.0f} s")


def test_an_older_agents_manifest_comes_last(at: LocalOrchestrator, tmp_path: Path) -> None:
    node, local_run, link = uploader(at, tmp_path, 3)
    assert uploading.send(node, local_run, lambda: False)
    assert link.sent[0][0] == "manifest.json"
    at.submit(job("k", overhead="false"))
    with at.orchestrator.reading(ITSELF) as ctx:
        run = next(each.id for each in runs.listing(ctx, node="a") if each.id != local_run.run)
    data = b"x"
    said = {"name": "a", "size": 1, "sha256": hashlib.sha256(data).hexdigest()}
    for name, content in (("a", data), ("manifest.json", json.dumps({"files": [said]}).encode())):
        assert at.orchestrator.uploads.progress(run, "client", 10).manifest_bytes == 0
        at.orchestrator.uploads.write_piece(run, "client", name, 0, content)
    with at.writing(A) as ctx:
        row = uploads.check_uploader(ctx, run, "client")
        assert at.orchestrator.uploads.complete(ctx, row, "client")


def test_a_run_with_too_many_files_is_refused_for_good(
    at: LocalOrchestrator, tmp_path: Path
) -> None:
    node, local_run, _ = uploader(at, tmp_path, 30)
    with at.writing(ITSELF) as ctx:
        handlers.put_config(ctx, {"files_per_run": 20})
    with pytest.raises(DeniedError, match="more than 20 files"):
        uploading.send(node, local_run, lambda: False)


def test_only_what_is_missing_is_asked_for(at: LocalOrchestrator, tmp_path: Path) -> None:
    node, local_run, link = uploader(at, tmp_path, 10)
    assert not uploading.send(node, local_run, is_stopped_after(link, 8))
    store = at.orchestrator.uploads
    store.write_piece(local_run.run, "client", "d000/file-0000002", 0, b"damaged")
    progress = store.progress(local_run.run, "client", 100)
    assert progress.missing == [(2, 3), (7, 10)]
    assert progress.offset == 0
    link.sent.clear()
    assert uploading.send(node, local_run, lambda: False)
    numbers = [int(name[-7:]) for name, _ in link.sent]
    assert numbers == [2, 7, 8, 9]
