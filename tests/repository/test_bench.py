"""Earlier figures of the benchmarks: each belongs to an existing benchmark."""

from __future__ import annotations

import tomllib

import bench
import bench_linux
import bench_policy
import bench_previous
import bench_sim
import bench_start
import bench_study
import bench_video


def test_every_earlier_figure_belongs_to_a_row() -> None:
    content = tomllib.loads(bench_previous.FILE.read_text("utf-8"))
    rows = {
        "start": set(bench_start.COMMANDS),
        "paths": {*bench.LEOEM_S, "all pairs"},
        "sim": {bench_sim.RING, *(simulation.name for simulation in bench_sim.SIMULATIONS)},
        "studies": {load.row for load in bench_study.LOADS},
        "video": set(bench_video.SESSIONS),
        "linux": set(bench_linux.LINKS),
        "policies": {bench_policy.NETWORK},
    }
    assert {part: set(content[part]) - names for part, names in rows.items()} == {
        part: set() for part in rows
    }
    assert set(content) == {"when", "machine", *rows}
    for part, names in rows.items():
        for name, figures in content[part].items():
            for figure in figures:
                assert name in names
                assert bench_previous.previous(part, name, figure) > 0
    assert bench_previous.previous("sim", "no such row", "m_packets_per_s") is None


def test_the_ring_loads_all_links_equally() -> None:
    ring = bench_sim.ring()
    crossed = [name for flow in ring["flow"] for name in flow["via"]]
    assert {crossed.count(name) for name in ring["links"]} == {10}
    assert len(ring["links"]) == 100
    assert len(ring["flow"]) == 200
