"""The compiled core: conversions between Python and the Rust crates."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypedDict, final

from numpy.typing import NDArray

VERSION: str

# Version of the run directories that this skyhop writes.
RUN_SCHEMA: int
# Tables that a run may have, and the columns of each.
RUN_COLUMNS: dict[str, list[str]]

# Words that appear in files, in the order of tables.
PATH_LINK: str
APP_TABLES: tuple[str, ...]
CONGESTION_STATES: tuple[str, ...]
DIRECTIONS: tuple[str, ...]
EVENT_KINDS: tuple[str, ...]
EXPORT_FORMATS: tuple[str, ...]
HANDOVER_KINDS: tuple[str, ...]
LOSS_REASONS: tuple[str, ...]
PATH_EVENT_KINDS: tuple[str, ...]
PHASE_KINDS: tuple[str, ...]

FoundPlace: TypeAlias = tuple[str, float, float, float]
FindPlace: TypeAlias = Callable[[str], FoundPlace]
Cities: TypeAlias = tuple[
    Callable[[int], list[tuple[str, float, float, float, int]]], Callable[[str], int | None]
]
"""Functions that return the largest cities with inhabitants, and the inhabitants of a place."""
Progress: TypeAlias = Callable[[int, int], None]

@final
class Entry:
    """Entry of a list: name, description and source."""

    name: str
    description: str
    source: str

@final
class ConstellationEntry:
    """Constellation that comes with skyhop, with altitude and inclination of each shell."""

    name: str
    description: str
    source: str
    satellites: int
    altitudes_km: list[float]
    inclinations_deg: list[float]
    isl: bool

@final
class QdiscEntry:
    """Queue discipline or video controller: name, description, source and parameters.

    Defaults of parameters are Linux's, or the published ones.
    """

    name: str
    description: str
    source: str
    parameters: list[tuple[str, str]]

@final
class GridEstimate:
    """Handover grid estimated from a log; without evidence, offset and period are None."""

    offset_s: float | None
    period_s: float | None
    confidence: float
    samples: int
    evidence: str
    stream: str | None
    cut_after: int | None
    is_cut: bool

@final
class CongestionControl:
    """Congestion control: where it is available, and the number of sockets that use it."""

    name: str
    place: str
    sockets: int | None
    description: str
    source: str

@final
class ServedPolicy:
    """Statistics of the decisions of a policy service."""

    connections: int
    decisions: int
    clamped: int
    not_a_number: int
    latency_p50_us: float | None
    latency_p99_us: float | None

@final
class Scenario:
    """Checked scenario, with its defaults."""

    @staticmethod
    def read(path: str, sets: list[str]) -> Scenario: ...
    @staticmethod
    def from_json(json: str, origin: str, sets: list[str]) -> Scenario: ...
    @property
    def origin(self) -> str: ...
    def to_json(self) -> str: ...
    def load_cc_files(self, for_kernel: bool) -> str: ...
    def cc_file_digests(self) -> dict[str, str]: ...
    def congestion_controls(self) -> dict[str, str]: ...
    def path_notes(self) -> list[str]: ...

@final
class Constellation:
    """Constellation with the satellites that a scenario selects."""

    name: str
    isl: bool
    epoch: str
    minimum_elevation_deg: float
    account: str | None
    @staticmethod
    def of(scenario: Scenario) -> Constellation: ...
    def skipped(self) -> list[tuple[str, str, str]]: ...
    def satellites(
        self,
    ) -> list[tuple[int, str | None, int | None, int | None, int | None, int | None]]: ...
    def element_epochs_ns(self) -> list[int]: ...
    def positions(self, time: str, inertial: bool) -> bytes: ...

@final
class PathTrace:
    """Time-varying path, as a sequence of frames."""

    @staticmethod
    def compute(scenario: Scenario, find_place: FindPlace, progress: Progress) -> PathTrace: ...
    @staticmethod
    def read(path: str, force_size: bool = False) -> PathTrace: ...
    @staticmethod
    def import_log(
        path: str,
        log_format: str | None,
        ends: tuple[FoundPlace | None, FoundPlace | None],
        texts: dict[str, str],
    ) -> tuple[PathTrace, str]: ...
    def export(self, path: str, path_format: str, texts: dict[str, str]) -> None: ...
    def write(self, path: str) -> None: ...
    def frames(self) -> ArrowTable: ...
    def header_json(self) -> str: ...
    def __len__(self) -> int:
        """Return the number of frames."""

@final
class Experiment:
    """Scenario with its path computed and its links built."""

    @staticmethod
    def build(
        scenario: Scenario,
        find_place: FindPlace,
        progress: Progress,
        path: PathTrace | None = None,
        default_cc: str | None = None,
        for_program: bool = False,
        predict_rates: Callable[
            [str, PathTrace, list[float]], tuple[list[float], float, list[list[float]]]
        ]
        | None = None,
        cities: Cities | None = None,
    ) -> Experiment: ...
    def to_json(self) -> str: ...
    @staticmethod
    def from_json(text: str) -> Experiment: ...
    def duration_s(self) -> float: ...

def list_rewards() -> list[tuple[str, str]]: ...

INTERVAL_FIGURES: list[str]
"""Names of the figures of an agent's interval."""

@final
class Answering:
    """Policy that decides for one connection, with its memory."""

    def __new__(cls, card: str) -> Answering: ...
    def answer(self, observation: NDArray[Any]) -> float: ...
    def features(self) -> list[str]: ...

@final
class Episodes:
    """Learning episodes that run side by side, each in a place of its own."""

    def __new__(cls, card: str, reward: str, slots: int, threads: int) -> Episodes: ...
    def inputs(self) -> int: ...
    def bounds(self) -> tuple[float, float]: ...
    def agents(self, slot: int) -> int: ...
    def begin(self, begun: list[tuple[int, Experiment]]) -> None: ...
    def step(self, outputs: NDArray[Any]) -> None: ...
    def read(
        self,
        observations: NDArray[Any],
        rewards: NDArray[Any],
        ended: NDArray[Any],
        agents: NDArray[Any],
        figures: NDArray[Any],
    ) -> None: ...

@final
class Satellites:
    @staticmethod
    def of(header_json: str) -> Satellites: ...
    def at(self, unix_ns: int) -> list[tuple[float, float, float]]: ...
    @property
    def minimum_elevation_deg(self) -> float: ...
    def names(self) -> list[str]: ...

@final
class RunDirectory:
    """Run directory, reserved for an output."""

    @staticmethod
    def reserve(path: str, force: bool) -> RunDirectory: ...
    @staticmethod
    def aside(path: str) -> RunDirectory: ...
    def take(self, run: str) -> None: ...
    def abandon(self) -> None: ...

def write_all_pairs(
    scenario: Scenario,
    find_place: FindPlace,
    sites: list[str],
    failures: str,
    file: str,
    progress: Progress,
) -> None: ...
def site_routes(
    scenario: Scenario,
    sites: Sequence[FoundPlace],
    begins: int,
    destinations: Sequence[int | Sequence[int]],
    lasers: bool,
    failures: str,
    progress: Progress,
) -> tuple[bytes, bytes, list[int]]: ...

class GuestOptions(TypedDict):
    """Kernel in virtual time in which a run takes place."""

    name: str
    source: str
    digest: str
    hz: int
    options: list[str]

class CaptureOptions(TypedDict):
    """Capture of a run's packets: file, ids of flows (none: all), size of a file, files kept."""

    file: str
    flows: list[int]
    file_size: str | None
    files: int | None

class EngineOptions(TypedDict):
    """Options of a run in addition to its scenario; each engine uses its own ones."""

    client: list[str] | None
    server: str | None
    default_cc: str | None
    internet: bool
    guest: GuestOptions | None
    capture: CaptureOptions | None

# End of a run (s), whether it was interrupted, and the exit status of its program.
Outcome: TypeAlias = tuple[float, bool, int | None]

def run_engine(
    name: str,
    experiment: Experiment,
    directory: RunDirectory,
    options: EngineOptions,
    progress: Progress,
) -> Outcome: ...
def run_for_summary(
    name: str, experiment: Experiment, options: EngineOptions, progress: Progress
) -> tuple[Outcome, str]: ...

@final
class Staging:
    def __init__(self, directory: Path) -> None: ...
    @property
    def path(self) -> Path: ...
    def remove(self) -> None: ...

def replace_file(path: str, data: bytes) -> None: ...

@final
class ArrowTable:
    """Table in memory, which polars takes without a copy."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...

class TooLargeError(Exception):
    """Error: a table takes more memory than allowed; the message does not name the file."""

@final
class ParquetFile:
    """Parquet file from an unknown source; opening it reads only the footer.

    Methods raise a ValueError if the file is damaged, and an OSError if it cannot be opened.
    """

    def __init__(self, source: Path | bytes) -> None: ...
    @property
    def columns(self) -> list[str]: ...
    @property
    def rows(self) -> int: ...
    @property
    def header(self) -> str | None: ...
    def read(self, names: list[str], most_bytes: int | None) -> ArrowTable: ...
    def read_all_pairs(self, most_bytes: int | None) -> ArrowTable: ...

def parquet_bytes(table: object, encodings: dict[str, str]) -> bytes: ...
def duration_s(origin: str, text: str) -> float: ...
def did_you_mean(name: str, known: list[str]) -> str: ...
def access_ranks() -> list[float]: ...
def check_access_profile(text: str, file: str) -> None: ...
def draw_process(process: str, steps: int, steps_of_a_slot: int, seed: int) -> list[float]: ...
def list_access() -> list[Entry]: ...
def list_constellations() -> list[ConstellationEntry]: ...
def list_sites() -> list[Entry]: ...
def list_qdiscs() -> list[QdiscEntry]: ...
def list_apps() -> list[Entry]: ...
def list_profiles() -> list[Entry]: ...
def list_handovers() -> list[Entry]: ...
def other_kind(beginning: bytes) -> str | None: ...
def estimate_blindly(path: str, log_format: str | None, period: str) -> GridEstimate: ...

@final
class RoundTrips:
    """Answered and lost probes of a log."""

    @property
    def outcomes(self) -> list[tuple[int, float | None, int]]:
        """Time in ns, round trip in ms (None for lost probes) and number of probes."""

    @property
    def losses_known(self) -> bool: ...
    @property
    def unix(self) -> bool:
        """Return whether times count from 1970."""

    @property
    def account(self) -> str:
        """Return what was taken from the file and what was left."""

def read_round_trips(content: bytes, log_format: str, origin: str) -> RoundTrips: ...
def read_iperf3(
    content: bytes, origin: str
) -> tuple[list[tuple[int, int, float | None, float | None]], str]: ...
def read_mahimahi(content: bytes, origin: str) -> list[int]: ...
def read_leocc_delays(content: bytes, origin: str) -> list[float]: ...
def log_format(start: bytes) -> str: ...
def serve_signal(
    source: str,
    file: str | None,
    interface: str | None,
    grid: tuple[str, str],
    timing: tuple[str, str],
    netns: str | None,
    destination: str | None,
    socket: str,
    note: Callable[[str], None],
    forecast: tuple[Scenario, str, FoundPlace, FoundPlace | None] | None = None,
) -> None: ...
def list_cc() -> list[CongestionControl]: ...
def cc_parameters(
    name: str,
) -> tuple[str, str, list[tuple[str, str, str, str, str, str]]]: ...
def load_cc(name: str, parameters: list[tuple[str, str]]) -> tuple[str, bool]: ...
def unload_cc(name: str) -> tuple[str, int | None]: ...
def check_cc(name: str) -> list[tuple[str, int, int | None]]: ...
def load_cc_file(file: str) -> str: ...
def check_cc_file(file: str) -> tuple[str | None, list[tuple[str, int, int | None]]]: ...
def cc_headers() -> Path | None: ...
def kernel_module_source(cc: str) -> tuple[str, str, str, str] | None: ...
def own_cc() -> list[tuple[str, str]]: ...
def policy_cards() -> list[tuple[str, str]]: ...
def policy_network(name: str) -> bytes | None: ...
def ask_policy(file: str, observations: list[list[float]]) -> list[float | None]: ...
def serve_policy(file: str, name: str | None, note: Callable[[str], None]) -> ServedPolicy: ...
def check_policy(file: str) -> tuple[str, list[str], int, dict[str, str]]: ...
def sites(name: str) -> list[tuple[str, float, float, float]]: ...
def scenario_schema() -> str: ...

@final
class Film:
    """Film of adaptive video: tracks by ascending bitrate, cut into chunks."""

    @staticmethod
    def read(name: str, top: str | None = None, base: str = "") -> Film: ...
    @staticmethod
    def of_toml(text: str, origin: str) -> Film: ...
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def chunk_s(self) -> float: ...
    @property
    def chunks(self) -> int: ...
    @property
    def bitrates_bps(self) -> list[int]: ...
    @property
    def track_names(self) -> list[str | None]: ...
    def sizes_bytes(self, track: int) -> list[int]: ...
    def qualities(self, qoe: str) -> list[float]: ...

@final
class RateTrace:
    """Rate over time, constant between instants, and repeated after its end."""

    def __init__(
        self, origin: str, starts_s: list[float], rates_bps: list[float], end_s: float
    ) -> None: ...
    @property
    def length_s(self) -> float: ...
    def mean_bps(self, from_s: float, until_s: float) -> float: ...

@final
class Sessions:
    """Finished sessions of a video player.

    Columns are native 64-bit numbers: predicted_bps, mean_bitrate_bps and qoe real, others whole.
    """

    def __len__(self) -> int: ...
    def chunks(self) -> dict[str, bytes]: ...
    def summaries(self) -> dict[str, bytes]: ...
    def scores(self, qoe: str, without_first: bool = False) -> list[float]: ...

def play_over_rate(
    film: Film,
    controller: str,
    qoe: str,
    trace: RateTrace,
    offsets_s: list[float],
    seeds: list[int],
    options: str = "{}",
    predicted: tuple[list[float], float, list[list[float]]] | None = None,
    threads: int | None = None,
) -> Sessions: ...
def optimum_over_rate(
    film: Film,
    qoe: str,
    trace: RateTrace,
    offsets_s: list[float],
    options: str = "{}",
    resolution_s: float = 0.1,
    threads: int | None = None,
) -> list[float]: ...
def score_chunks(
    film: Film, qoe: str, tracks: list[int], stalls_ns: list[int], without_first: bool = False
) -> float: ...

@final
class Player:
    """Video controller for an external player, such as a browser."""

    def __init__(
        self, film: Film, controller: str, qoe: str, seed: int = 1, buffer_cap_s: float = 60.0
    ) -> None: ...
    def next(
        self, now_s: float, buffer_s: float, chunk: int, last_track: int | None = None
    ) -> tuple[int, float | None, float]: ...
    def arrived(
        self, chunk: int, track: int, size_bytes: int, took_s: float, waited_s: float = 0.0
    ) -> None: ...
    def predicted(self, now_s: float, every_s: float, bps: list[float]) -> None: ...

def list_films() -> list[Entry]: ...
def list_controllers() -> list[QdiscEntry]: ...
def list_qoes() -> list[Entry]: ...
