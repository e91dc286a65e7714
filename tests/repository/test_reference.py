"""Reference files: their list, download and conversion."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import inspect
import io
import re
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow
import pytest
from openpyxl import Workbook
from scipy.io import savemat

from needs import missing
from reference_files import reference as reference_file
from validation import reference
from validation.reference import Reference, listed, obtain, provide
from validation.reference_steps import STEPS, drives, matrix, ping, sheet

# Public hosts that may serve the originals.
HOSTS = {"raw.githubusercontent.com", "zenodo.org"}


@dataclass
class Server:
    """Stub server: its files by path, and the requested paths."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Serve files on this machine."""
    served = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append(self.path)
            content = served.files.get(self.path)
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            pass

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    http = HTTPServer(("127.0.0.1", 0), Handler)
    served.address = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    yield served
    http.shutdown()
    thread.join()
    http.server_close()


def entry(name: str, content: bytes, **more: object) -> Reference:
    digest = hashlib.sha256(content).hexdigest()
    terms = {"what": "made up", "licence": "MIT", "known": "unaltered", "sha256": digest, **more}
    return Reference(name, **terms)


def left(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_the_list_is_well_formed() -> None:
    assert len(listed()) > 20
    for one in listed():
        assert re.fullmatch("[0-9a-f]{64}", one.sha256), one.name
        assert one.what, one.name
        assert one.licence, one.name
        assert one.known.startswith(("unaltered: ", "made: ", "unknown: ")), one.name
        assert (not one.addresses) != (one.by_hand is None), one.name
        assert one.known.startswith("made: ") == (one.how is not None), one.name
        for address in one.addresses:
            assert urlsplit(address).scheme == "https", one.name
            assert urlsplit(address).hostname in HOSTS, one.name
        if one.how is not None:
            terms = dict(one.how)
            inspect.signature(STEPS[terms.pop("step")]).bind(Path(), **terms)


def test_an_unlisted_file_is_an_error() -> None:
    with pytest.raises(KeyError, match="does not list"):
        reference_file("nothing.csv")


def test_files_at_hand_are_the_listed_ones() -> None:
    folder = reference.folder()
    at_hand = [one for one in listed() if (folder / one.name).is_file()]
    if not at_hand:
        missing("reference", f"nothing in {folder}")
    for one in at_hand:
        assert provide(one, folder / one.name, large=False) == "present", one.name
    unlisted = set(left(folder)) - {one.name for one in listed()} - {"README.md"}
    assert not unlisted


def test_the_folder_is_configurable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SKYHOP_REFERENCE", str(tmp_path / "here"))
    assert reference.folder() == tmp_path / "here"
    assert reference.found("dish/get_status.json") is None
    monkeypatch.setenv("SKYHOP_REFERENCE", "files")
    assert reference.folder() == reference.ROOT / "files"
    monkeypatch.delenv("SKYHOP_REFERENCE")
    monkeypatch.setattr(reference, "ROOT", tmp_path / "checkout")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert reference.folder() == tmp_path / "cache" / "skyhop" / "reference"
    (tmp_path / "shared" / "data").mkdir(parents=True)
    assert reference.folder() == tmp_path / "shared" / "data"


@pytest.mark.integration
def test_only_what_is_missing_is_downloaded(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.files = {"/plain.txt": b"plain\n", "/log": b"log\n"}
    entries = [
        entry("a/plain.txt", b"plain\n", addresses=[f"{server.address}/plain.txt"]),
        entry("a/log.gz", b"log\n", addresses=[f"{server.address}/log"]),
        entry("large", b"", addresses=[f"{server.address}/large"], large_mb=321),
        entry("hidden", b"", by_hand="ask for it"),
    ]
    assert obtain(entries, tmp_path, large=False)
    assert left(tmp_path) == ["a/log.gz", "a/plain.txt"]
    assert gzip.decompress((tmp_path / "a" / "log.gz").read_bytes()) == b"log\n"
    states = [line.split("MIT  ")[1].strip() for line in capsys.readouterr().out.splitlines()[1:]]
    assert states[:2] == ["downloaded", "downloaded"]
    assert states[2:] == ["skipped: --large downloads its 321 MB", "by hand: ask for it"]

    (tmp_path / "a" / "log.gz").unlink()
    assert obtain(entries, tmp_path, large=False)
    assert server.asked == ["/plain.txt", "/log", "/log"]


@pytest.mark.integration
def test_a_wrong_file_is_refused_and_nothing_is_left(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.files = {"/x": b"other\n"}
    assert not obtain(
        [entry("a/x", b"right\n", addresses=[f"{server.address}/x"])], tmp_path, False
    )
    [_, line] = capsys.readouterr().out.splitlines()
    assert line.endswith(
        f"failed: {server.address}/x: differs from the version that the tests expect"
    )
    assert left(tmp_path) == []


@pytest.mark.integration
def test_all_addresses_are_tried(server: Server, tmp_path: Path) -> None:
    server.files = {"/wrong": b"other\n", "/right": b"right\n"}
    addresses = [f"{server.address}/{name}" for name in ("nothing", "wrong", "right", "late")]
    one = entry("x", b"right\n", addresses=addresses)
    assert provide(one, tmp_path / "x", large=False) == "downloaded"
    assert server.asked == ["/nothing", "/wrong", "/right"]


def test_an_altered_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"other\n")
    one = entry("x", b"right\n", addresses=["http://127.0.0.1:1/x"])
    assert provide(one, tmp_path / "x", large=False) == "altered: remove it and try again"
    assert (tmp_path / "x").read_bytes() == b"other\n"
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"right\n")[:-9])
    cut = entry("x.gz", b"right\n", addresses=["http://127.0.0.1:1/x"])
    assert provide(cut, tmp_path / "x.gz", large=False).startswith("altered")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("address", "reason"),
    [("http://127.0.0.1:1/x", "refused"), ("{server}/nothing", "404"), ("no://where", "no")],
)
def test_an_unreachable_address_is_an_error_of_one_line(
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    address: str,
    reason: str,
) -> None:
    address = address.format(server=server.address)
    assert not obtain([entry("a/x", b"", addresses=[address])], tmp_path, large=False)
    [_, line] = capsys.readouterr().out.splitlines()
    assert f"failed: cannot download {address}: " in line
    assert reason in line
    assert left(tmp_path) == []


@pytest.mark.integration
def test_a_changed_original_is_an_error_of_one_line(server: Server, tmp_path: Path) -> None:
    server.files = {"/x.csv": b"when,rate\n"}
    how = {"step": "drives", "drives": [[1681314020, 1]], "utc_offset_h": -5}
    one = entry("x", b"", addresses=[f"{server.address}/x.csv"], how=how)
    assert provide(one, tmp_path / "x", large=False).startswith(
        "failed: x.csv is not as expected: "
    )
    assert left(tmp_path) == []


@pytest.mark.integration
def test_converted_files_are_checked_and_kept(server: Server, tmp_path: Path) -> None:
    server.files = {"/x.csv": b"time,throughput,speed\n2023-04-12 10:40:20 CDT,147,62.98\n"}
    how = {"step": "drives", "drives": [[1681314020, 1]], "utc_offset_h": -5}
    made = b"segment,unix_s,mbps,speed\n0,1681314020,147.000,63.0\n"
    one = entry("x.csv.gz", made, addresses=[f"{server.address}/x.csv"], how=how)
    assert provide(one, tmp_path / "x.csv.gz", large=False) == "downloaded"
    assert left(tmp_path) == ["x.csv.gz"]
    assert gzip.decompress((tmp_path / "x.csv.gz").read_bytes()) == made


def test_drives_are_selected_from_a_table(tmp_path: Path) -> None:
    seconds = [("04", 1), ("05", 2), ("06", 3.25), ("01", 4), ("02", 5)]
    rows = [f"2023-04-12 10:40:{s} CDT,{rate},0.26,45.4\n" for s, rate in seconds]
    (tmp_path / "x.csv").write_text("time,throughput,speed,latitude\n" + "".join(rows), "utf-8")
    made = drives(
        tmp_path / "x.csv", drives=[(1681314005, 2), (1681314001, 1)], utc_offset_h=-5
    ).splitlines()
    assert made == [
        "segment,unix_s,mbps,speed",
        "0,1681314005,2.000,0.3",
        "0,1681314006,3.250,0.3",
        "1,1681314001,4.000,0.3",
    ]


def test_a_matlab_vector_becomes_a_column(tmp_path: Path) -> None:
    savemat(tmp_path / "x.mat", {"errors": np.array([[0.1234567, 2.0]])})
    made = matrix(tmp_path / "x.mat", variable="errors", column="error_s", decimals=6)
    assert made == "error_s\n0.123457\n2.000000\n"


@pytest.mark.parametrize("packing", ["zst", "gz", "bz2"])
def test_replies_are_selected_from_a_packed_ping(tmp_path: Path, packing: str) -> None:
    answer = "64 bytes from 100.64.0.1: icmp_seq=1 ttl=62 time="
    log = (
        "PING 100.64.0.1 (100.64.0.1) 56(84) bytes of data.\n"
        f"[1733452471.810872] {answer}103 ms\n"
        "[1733452471.820000] no answer yet for icmp_seq=2\n"
        f"[1733452471.826274] {answer}50.8 ms\n"
        f"[1733452471.838876] {answer}99 ms\n"
    )
    archive = tmp_path / f"x.tar.{packing}"
    archive.write_bytes(packed({"ping/other.txt": "", "2024/ping/x.txt": log}, packing))
    made = ping(
        archive,
        member="ping/x.txt",
        first_unix_ns=1733452471810872064,
        last_unix_ns=1733452471830000000,
    )
    assert made == "1733452471810872064,103.0\n1733452471826273792,50.8\n"
    with pytest.raises(KeyError):
        ping(archive, member="x", first_unix_ns=0, last_unix_ns=1)


def packed(files: dict[str, str], packing: str) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, text in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(text)
            tar.addfile(about, io.BytesIO(text.encode()))
    if packing == "zst":
        zipped: bytes = pyarrow.compress(plain.getvalue(), codec="zstd", asbytes=True)
        return zipped
    return {"gz": gzip, "bz2": bz2}[packing].compress(plain.getvalue())


def test_a_sheet_becomes_a_table(tmp_path: Path) -> None:
    book = Workbook()
    for row in (("lat", "long", "name"), (38.87512, -121.707, "Robbins, CA"), (50, 8.5, "X ")):
        book.active.append(row)
    book.save(tmp_path / "x.xlsx")
    made = sheet(tmp_path / "x.xlsx", columns=["latitude_deg", "name_2", "name"], decimals=3)
    assert made == 'row,latitude_deg,name_2,name\n0,38.875,-121.707,"Robbins, CA"\n1,50.0,8.5,X\n'
