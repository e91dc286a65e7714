"""Synthetic run directories and path files for tests, in the format that skyhop writes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

EVENT = pa.struct(
    [("t_ns", pa.int64()), ("kind", pa.string()), ("hop", pa.int16()), ("outage_ns", pa.int64())]
)
PATH_SCHEMA = pa.schema(
    [
        ("t_ns", pa.int64()),
        ("nodes", pa.list_(pa.int32())),
        ("hop_delay_ns", pa.list_(pa.int64())),
        ("delay_ns", pa.int64()),
        ("delay_back_ns", pa.int64()),
        ("rate_bps", pa.int64()),
        ("loss", pa.float64()),
        ("events", pa.list_(EVENT)),
    ]
)
FLOW_SCHEMA = pa.schema(
    [
        ("t_ns", pa.int64()),
        ("flow", pa.int32()),
        ("goodput_bps", pa.int64()),
        ("cwnd_packets", pa.int64()),
        ("ssthresh_packets", pa.int64()),
        ("srtt_us", pa.int64()),
        ("inflight_packets", pa.int64()),
        ("retransmits", pa.int64()),
        ("pacing_rate_bps", pa.int64()),
        ("state", pa.string()),
    ]
)
REASONS = ("queue", "loss", "outage", "dismantled", "device")
LINK_SCHEMA = pa.schema(
    [
        ("t_ns", pa.int64()),
        ("link", pa.string()),
        ("direction", pa.string()),
        ("backlog_bytes", pa.int64()),
        ("backlog_packets", pa.int64()),
        ("delivered_bytes", pa.int64()),
        *((f"drops_{reason}", pa.uint64()) for reason in REASONS),
    ]
)
EVENT_SCHEMA = pa.schema(
    [
        ("t_ns", pa.int64()),
        ("kind", pa.string()),
        ("hop", pa.int32()),
        ("outage_ns", pa.int64()),
        ("reason", pa.string()),
        ("link", pa.string()),
        ("direction", pa.string()),
        ("flow", pa.int32()),
        ("at_ns", pa.int64()),
        ("length_ns", pa.int64()),
    ]
)
PROBE_SCHEMA = pa.schema(
    [
        ("probe", pa.int32()),
        ("seq", pa.int64()),
        ("t_ns", pa.int64()),
        ("rtt_ns", pa.int64()),
        ("scheduled_rtt_ns", pa.int64()),
    ]
)
APP_SCHEMA = pa.schema(
    [
        ("flow", pa.int32()),
        ("connection", pa.int32()),
        ("seq", pa.int64()),
        ("t_ns", pa.int64()),
        ("sent_bytes", pa.int64()),
        ("answered_bytes", pa.int64()),
        ("connect_ns", pa.int64()),
        ("first_byte_ns", pa.int64()),
        ("latency_ns", pa.int64()),
    ]
)
APP_KINDS = {"requests": "request-response", "bursts": "on-off", "messages": "constant-rate"}


@dataclass
class SyntheticRun:
    """Synthetic run with the pattern of a path with handovers."""

    ccs: tuple[str, ...] = ("cubic",)
    duration_s: float = 60.0
    sample_s: float = 0.1
    step_s: float = 1.0
    event_every_s: float = 3.3
    engine: str = "live"
    seed: int = 1
    probe: bool = False
    apps: tuple[str | None, ...] = ()
    """Tables of the applications of the first flows; None for a flow without a table."""
    transactions_per_s: float = 5.0
    connected: bool = True
    warnings: tuple[str, ...] = ()
    losses: int = 5
    announced_s: tuple[float, ...] = ()
    phases: tuple[tuple[str, int, float, float], ...] = ()
    """Phases of congestion controls: kind, flow, start and length in s."""
    summary: dict[str, Any] = field(default_factory=dict)
    """Entries of summary.json that replace the generated ones."""

    def write(self, directory: Path) -> Path:
        """Write all files of a run directory; return the directory."""
        directory.mkdir(parents=True)
        write_path(directory / "path.parquet", self.path_table())
        self._write_rows(directory / "flows.parquet", FLOW_SCHEMA, self.flow_rows())
        self._write_rows(directory / "link.parquet", LINK_SCHEMA, self.link_rows())
        self._write_rows(directory / "events.parquet", EVENT_SCHEMA, self.event_rows())
        self._write_rows(directory / "probes.parquet", PROBE_SCHEMA, self.probe_rows())
        for table in set(self.apps) - {None}:
            rows = [row for row in self.app_rows() if self.apps[row["flow"]] == table]
            self._write_rows(directory / f"{table}.parquet", APP_SCHEMA, rows)
        (directory / "summary.json").write_text(json.dumps(self.summary_json(), indent=2))
        (directory / "run.json").write_text(json.dumps(self.run_json(), indent=2))
        return directory

    def path_events(self) -> list[dict[str, Any]]:
        """Return the path's events, one every `event_every_s`, every fourth with an outage."""
        events = []
        kinds = ["intermediate", "reroute", "intermediate", "end"]
        count = int((self.duration_s - 1e-6) / self.event_every_s) if self.connected else 0
        for place in range(count):
            kind = kinds[place % 4]
            outage_ns = 180_000_000 if kind == "end" else 0
            at_ns = int((place + 1) * self.event_every_s) * 10**9
            events.append({"t_ns": at_ns, "kind": kind, "hop": 1, "outage_ns": outage_ns})
        return events

    def path_table(self) -> pa.Table:
        """Return the table of the path file, with its header."""
        times = np.arange(0, max(self.duration_s, self.step_s), self.step_s)
        events = self.path_events()
        rows, generation = [], 0
        for t_s in times:
            t_ns = int(t_s * 1e9)
            here = [e for e in events if t_ns <= e["t_ns"] < t_ns + self.step_s * 1e9]
            generation += len(here)
            length = 12 + (generation * 5) % 7
            delay_ns = int(1e6 * (19 + (generation * 7 % 11) * 0.35 + 0.9 * np.sin(t_s / 40)))
            hop_ns = delay_ns // (length + 1)
            rows.append(
                {
                    "t_ns": t_ns,
                    "nodes": [-1, *range(generation, generation + length), -2],
                    "hop_delay_ns": [delay_ns - length * hop_ns, *([hop_ns] * length)],
                    "delay_ns": delay_ns,
                    "delay_back_ns": delay_ns,
                    "events": here,
                }
            )
        table = pa.Table.from_pylist(rows, PATH_SCHEMA)
        return table.replace_schema_metadata({"skyhop": json.dumps(self.path_header())})

    def path_header(self) -> dict[str, Any]:
        """Return the header of the path file."""
        return {
            "schema": 1,
            "source": "skyhop path",
            "from": {"name": "San Diego", "latitude_deg": 32.7, "longitude_deg": -117.2},
            "to": {"name": "New York", "latitude_deg": 40.7, "longitude_deg": -74.0},
            "constellation": "starlink-shell1",
            "satellites": 1584,
            "relay": "bent-pipe",
            "handover": "leoem",
            "outage": "leoem",
            "compat": None,
            "start": "2019-12-01T00:00:00Z",
            "duration_ns": int(self.duration_s * 1e9),
            "step_ns": int(self.step_s * 1e9),
            "between_frames": "linear",
            "seed": self.seed,
        }

    def flow_rows(self) -> list[dict[str, Any]]:
        """Rows of flows.parquet: a sawtooth for cubic, a plateau for anything else."""
        rng = np.random.default_rng(self.seed)
        rows = []
        ends = [e["t_ns"] / 1e9 for e in self.path_events() if e["kind"] == "end"]
        for place in range(self._samples()):
            t_s = (place + 1) * self.sample_s
            for flow, cc in enumerate(self.ccs):
                since = min((t_s - at for at in [0.0, *ends] if at <= t_s), default=t_s)
                share = 1 / len(self.ccs)
                grown = min(1.0, 0.55 + 0.06 * since) if cc == "cubic" else 0.93
                lost = since < 2 * self.sample_s and t_s > 1
                cwnd = int(max(10, 520 * share * grown * (0.6 if lost else 1)))
                goodput = 142e6 * share * grown * (0.25 if lost else 1) * rng.normal(1, 0.03)
                rows.append(
                    {
                        "t_ns": round(t_s * 1e9),
                        "flow": flow,
                        "goodput_bps": int(goodput),
                        "cwnd_packets": cwnd,
                        "ssthresh_packets": int(cwnd * 0.7) if cc == "cubic" and ends else None,
                        "srtt_us": None if place == 0 else int(41e3 + 38e3 * grown**3 * share),
                        "inflight_packets": cwnd,
                        "retransmits": int(rng.integers(20, 90)) if lost else 0,
                        "pacing_rate_bps": None if cc == "cubic" else 150_000_000,
                        "state": "recovery" if lost else "open",
                    }
                )
        return rows

    def link_rows(self) -> list[dict[str, Any]]:
        """Rows of link.parquet, both directions."""
        rows = []
        lost = {row["t_ns"]: row["retransmits"] for row in self.flow_rows()}
        for place in range(self._samples()):
            t_ns = round((place + 1) * self.sample_s * 1e9)
            for direction in ("forward", "back"):
                forward = direction == "forward"
                drops = lost.get(t_ns, 0) if forward else 0
                backlog = int(400e3 * abs(np.sin(t_ns / 9e9))) if forward else 0
                rows.append(
                    {
                        "t_ns": t_ns,
                        "link": "path",
                        "direction": direction,
                        "backlog_bytes": backlog,
                        "backlog_packets": backlog // 1514,
                        "delivered_bytes": 1_700_000 if forward else 40_000,
                        "drops_queue": drops // 3,
                        "drops_loss": 0,
                        "drops_outage": drops // 2,
                        "drops_dismantled": drops // 6,
                        "drops_device": 0,
                    }
                )
        return rows

    def event_rows(self) -> list[dict[str, Any]]:
        """Rows of events.parquet: the path's events and some losses."""
        losses = [
            {"t_ns": place * 10**6, "kind": "loss", "reason": "queue", "link": "path",
             "direction": "forward",
             "outage_ns": 0, "flow": 0}
            for place in range(self.losses)
        ]  # fmt: skip
        announcements = [
            {"t_ns": int(at_s * 1e9), "kind": "announcement", "link": "path", "outage_ns": 0,
             "at_ns": int(at_s * 1e9) + 10**9}
            for at_s in self.announced_s
        ]  # fmt: skip
        phases = [
            {"t_ns": int(begin_s * 1e9), "kind": kind, "link": "path", "outage_ns": 0, "flow": flow,
             "length_ns": int(length_s * 1e9)}
            for kind, flow, begin_s, length_s in self.phases
        ]  # fmt: skip
        rows = [*self.path_events(), *losses, *announcements, *phases]
        return sorted(rows, key=lambda row: row["t_ns"])

    def probe_rows(self) -> list[dict[str, Any]]:
        """Rows of probes.parquet, where the run has a probe: one packet in 40 is lost."""
        if not self.probe:
            return []
        rng = np.random.default_rng(self.seed + 100)
        rows = []
        for seq in range(int(self.duration_s / 0.1)):
            scheduled = int(1e6 * (41 + 20 * abs(np.sin(seq / 90))))
            rtt = None if seq % 40 == 7 else scheduled + int(rng.exponential(4e5))
            rows.append(
                {"probe": len(self.ccs), "seq": seq, "t_ns": seq * 10**8, "rtt_ns": rtt,
                 "scheduled_rtt_ns": scheduled}
            )  # fmt: skip
        return rows

    def app_rows(self) -> list[dict[str, Any]]:
        """Rows of the applications' tables: every 60th fails, every 30th takes a second."""
        rng = np.random.default_rng(self.seed + 200)
        rows = []
        for flow in (flow for flow, table in enumerate(self.apps) if table is not None):
            for seq in range(int(self.duration_s * self.transactions_per_s)):
                late_ms = 1000 if seq % 30 == 9 else 0
                latency = int(1e6 * (42 + 5 * flow + late_ms + rng.lognormal(2, 1)))
                is_done = seq % 60 != 17
                rows.append(
                    {"flow": flow, "connection": 0, "seq": seq,
                     "t_ns": int(seq * 1e9 / self.transactions_per_s), "sent_bytes": 300,
                     "answered_bytes": 10_000 if is_done else 0,
                     "connect_ns": 41_000_000 if seq == 0 else None,
                     "first_byte_ns": latency - 1_000_000 if is_done else None,
                     "latency_ns": latency if is_done else None}
                )  # fmt: skip
        return rows

    def summary_json(self) -> dict[str, Any]:
        """Return summary.json, with totals of the rows."""
        rows, link, path_events = self.flow_rows(), self.link_rows(), self.path_events()
        drops = {reason: sum(row[f"drops_{reason}"] for row in link) for reason in REASONS}
        live = self.engine == "live"
        made = {
            "engine": self.engine,
            "seed": self.seed,
            "virtual_s": self.duration_s,
            "wall_s": self.duration_s + 0.4,
            "data_packets": 700_000,
            "flows": [self._flow_json(flow, cc, rows) for flow, cc in enumerate(self.ccs)],
            "probes": self._probes_json(),
            "link": {"utilisation": 0.918, "backlog_mean_bytes": 251_300, "drops": drops},
            "handovers": {
                kind: sum(event["kind"] == kind for event in path_events)
                for kind in ("end", "intermediate", "reroute")
            },
            "lateness_us": {"p50": 11.2, "p99": 143.7, "max": 2210.0} if live else None,
            "rtt_excess_us": {"p50": 40.0, "p99": 911.5, "max": 3000.0} if live else None,
            "warnings": list(self.warnings),
        }
        if apps := self._apps_json():
            made["apps"] = apps
        return made | self.summary

    def run_json(self) -> dict[str, Any]:
        """Return the content of run.json."""
        return {
            "scenario": {
                "path": {"kind": "constellation", "constellation": "starlink-shell1",
                         "from": "San Diego", "to": "New York", "relay": "bent-pipe",
                         "handover": "leoem", "outage": "leoem", "step": "1 s"},
                "link": {"rate": "150 Mbit/s", "queue": "1 BDP", "qdisc": "fifo", "loss": "0 %"},
                "change": [],
                "flow": [{"kind": "tcp", "cc": cc, "from": "from", "bytes": None,
                          "satcp": {"hold": "1.3 s"}} for cc in self.ccs],
                "signal": {"source": "none", "lead": "0 s"},
                "run": {"duration": f"{self.duration_s:g} s", "seed": self.seed},
            },
            "seed": self.seed,
            "version": "0.1.0",
            "engine": self.engine,
            "kernel": "Linux 6.1.0-18-amd64" if self.engine == "live" else None,
            "wall_s": self.duration_s + 0.4,
            "timing": {"steal_free_s": 58.0} if self.engine == "live" else None,
        }  # fmt: skip

    def _samples(self) -> int:
        return int(self.duration_s / self.sample_s + 1e-9) if self.connected else 0

    def _flow_json(self, flow: int, cc: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
        mine = [row for row in rows if row["flow"] == flow]
        srtts = [row["srtt_us"] for row in mine if row["srtt_us"] is not None]
        return {
            "id": flow,
            "cc": cc,
            "start_s": 0.0,
            "stop_s": self.duration_s,
            "goodput_bps": int(np.mean([row["goodput_bps"] for row in mine])) if mine else 0,
            "srtt_mean_us": int(np.mean(srtts)) if srtts else None,
            "rtt_p95_us": int(np.quantile(srtts, 0.95)) if srtts else None,
            "base_rtt_mean_us": 40_900,
            "cwnd_mean_packets": float(np.mean([r["cwnd_packets"] for r in mine])) if mine else 0.0,
            "retransmits": sum(row["retransmits"] for row in mine),
            "sent_packets": 689_431 if mine else 0,
            "completion_s": None,
        }

    def _probes_json(self) -> list[dict[str, Any]]:
        rows = self.probe_rows()
        if not rows:
            return []
        rtts = [row["rtt_ns"] / 1e3 for row in rows if row["rtt_ns"] is not None]
        quantiles = {f"rtt_p{q}_us": int(np.percentile(rtts, q)) for q in (50, 95, 99)}
        lost = len(rows) - len(rtts)
        return [{"id": len(self.ccs), "sent": len(rows), "lost": lost, **quantiles}]

    def _apps_json(self) -> list[dict[str, Any]]:
        apps = []
        for flow, table in enumerate(self.apps):
            rows = [row["latency_ns"] for row in self.app_rows() if row["flow"] == flow]
            done_us = [ns / 1e3 for ns in rows if ns is not None]
            if table is None:
                continue
            quantiles = {
                f"latency_p{q}_us": int(np.percentile(done_us, q)) if done_us else None
                for q in (50, 95, 99)
            }
            failed = len(rows) - len(done_us)
            apps.append(
                {"id": flow, "kind": APP_KINDS[table], "completed": len(done_us), "failed": failed,
                 **quantiles}
            )  # fmt: skip
        return apps

    @staticmethod
    def _write_rows(file: Path, schema: pa.Schema, rows: list[dict[str, Any]]) -> None:
        pq.write_table(pa.Table.from_pylist(rows, schema), file)


def write_path(file: Path, table: pa.Table) -> Path:
    """Write a path file; return its path."""
    pq.write_table(table, file, compression="zstd")
    return file
