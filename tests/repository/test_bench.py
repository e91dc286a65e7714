"""Earlier figures of the benchmarks: each belongs to an existing benchmark."""

from __future__ import annotations

import tomllib

from validation.bench import calls, kernel, measure, sim, studies


def test_every_earlier_figure_belongs_to_a_row() -> None:
    content = tomllib.loads(measure.FILE.read_text("utf-8"))
    rows = {
        "start": set(calls.COMMANDS),
        "paths": {*calls.LEOEM_S, "all pairs"},
        "sim": {sim.RING, *(simulation.name for simulation in sim.SIMULATIONS)},
        "studies": {load.row for load in studies.LOADS},
        "video": set(calls.SESSIONS),
        "linux": set(kernel.LINKS),
        "policies": {calls.NETWORK},
    }
    assert {part: set(content[part]) - names for part, names in rows.items()} == {
        part: set() for part in rows
    }
    assert set(content) == {"when", "machine", *rows}
    for part, names in rows.items():
        for name, figures in content[part].items():
            for figure in figures:
                assert name in names
                assert measure.previous(part, name, figure) > 0
    assert measure.previous("sim", "no such row", "m_packets_per_s") is None


def test_the_ring_loads_all_links_equally() -> None:
    ring = sim.ring()
    crossed = [name for flow in ring["flow"] for name in flow["via"]]
    assert {crossed.count(name) for name in ring["links"]} == {10}
    assert len(ring["links"]) == 100
    assert len(ring["flow"]) == 200
