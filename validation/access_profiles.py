"""Access profiles of data/access, fitted to the published logs that are on this machine."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from skyhop.analysis.access_profile import fit_access
from skyhop.cli.terminal import print_note
from skyhop.errors import InputError
from validation.reference import found

PLACE = Path("data/access")
LENS = "LENS (Zhao and Pan)"
EMULATOR = "Starlink-Emulator (Peter-LiDP)"
HOUR = 36_000
"""Number of rows of 100 ms to which Lagos is fitted; the rest is held out."""
PROPAGATION = "7.5 ms"
"""Mean propagation round trip of `skyhop path --relay access` from Victoria to Seattle."""

VICTORIA = ("rtt/victoria_1.csv.gz", "rtt/victoria_2.csv.gz")
LAGOS = "throughput/lagos_isl_100ms.csv.gz"
LEOCC = "throughput/leocc_bw_example.txt.gz"
DRIVES = ("throughput/drive_udp_down.csv.gz", "throughput/drive_udp_up.csv.gz")


@dataclass(frozen=True)
class Profile:
    """Profile and the logs to which it is fitted; of Lagos the first hour counts."""

    name: str
    logs: tuple[str, ...]
    description: str
    source: str
    licence: str
    date: str
    propagation: str | None = None


PROFILES = (
    Profile(
        "victoria-2024",
        VICTORIA,
        "Starlink in Victoria, by bent pipe: round trips and holes; the rate is the scenario's",
        f"{LENS}: pings every 12 ms, twice 13 minutes (victoria_1, victoria_2); victoria_3 is held"
        " out",
        "logs: CC BY-SA 4.0",
        "2024-12",
        PROPAGATION,
    ),
    Profile(
        "lagos",
        (LAGOS,),
        "Starlink in Lagos, over inter-satellite links: delays, capacity and loss of both"
        " directions",
        f"{EMULATOR}: steps of 100 ms, the first hour of lagos.csv; the last half hour is held out",
        "log: BSD-2-Clause",
        "2024",
    ),
    Profile(
        "starlink",
        (*VICTORIA, LAGOS, LEOCC),
        "Starlink by bent pipe: round trips and holes of Victoria, capacity and loss of Lagos,"
        " frames of a downlink of LeoCC",
        f"{LENS}: pings every 12 ms; {EMULATOR}: the first hour of lagos.csv; LeoCC (SpaceNetLab):"
        " packet times of 120 s",
        "logs: CC BY-SA 4.0, BSD-2-Clause, MIT",
        "2024",
        PROPAGATION,
    ),
    Profile(
        "oneweb-iowa",
        ("rtt/oneweb_iowa.csv.gz",),
        "OneWeb in Iowa, a link without a grid: round trips and stalls; the rate is the scenario's",
        f"{LENS}: pings every 15 ms, 24 minutes (oneweb_iowa)",
        "log: CC BY-SA 4.0",
        "2024-12",
    ),
    Profile(
        "starlink-mobility",
        (*VICTORIA, *DRIVES),
        "Starlink on a moving car, with obstructions: capacity of drives, round trips of Victoria",
        "Starlink-Project, Satellite-vs-Cellular: greedy UDP in steps of 1 s over 29 and 7 drives;"
        f" {LENS}: pings every 12 ms",
        "drives: none stated; pings: CC BY-SA 4.0",
        "2023-04",
        PROPAGATION,
    ),
)


def main() -> None:
    """Fit all profiles, and print how well each fits."""
    for profile in PROFILES:
        with logs(profile.logs) as files:
            fitted = fit_access(
                *files,
                marks={"lagos_hour": "11.8 s"} if LAGOS in profile.logs else None,
                propagation=profile.propagation,
                description=profile.description,
                source=profile.source,
                licence=profile.licence,
                date=profile.date,
            )
        fitted.write(PLACE / f"{profile.name}.toml")
        print_note(f"{profile.name}: {fitted.judgement.text}")


@contextmanager
def logs(names: tuple[str, ...]) -> Iterator[list[Path]]:
    """Yield the files of the named logs, and the first hour of Lagos in place of all of it.

    Raises:
        InputError: a log is not on this machine.
    """
    with tempfile.TemporaryDirectory() as place:
        files = []
        for name in names:
            file = found(name)
            if file is None:
                raise InputError(f"{name}: not on this machine: run make reference")
            if name == LAGOS:
                rows = gzip.decompress(file.read_bytes()).decode().splitlines(keepends=True)
                file = Path(place) / "lagos_hour.csv"
                file.write_text("".join(rows[:HOUR]), "utf-8")
            files.append(file)
        yield files
