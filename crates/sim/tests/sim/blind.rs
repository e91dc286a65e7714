//! Tests of announcements that a run itself derives from its arrivals.

use crate::scenario::{fixed, simulate};
use skyhop_model::{EventKind, PhaseKind};
use skyhop_record::{EventRow, GridSummary, RunData};

const SIGNAL: &str = "[signal]\nsource = \"blind\"\nlead = \"0.5 s\"\n";

/// Scenario of 50 Mbit/s and `rtt_ms`, with an outage of 50 ms every 15 s from `offset_ms` on.
fn outages(rtt_ms: u32, offset_ms: u32, duration_s: u32, rest: &str) -> String {
    let moments = (offset_ms..duration_s * 1000).step_by(15_000);
    let changes: String =
        moments.map(|ms| format!("[[change]]\nat = \"{ms} ms\"\noutage = \"50 ms\"\n")).collect();
    fixed(50, rtt_ms, 250_000, duration_s, &format!("{changes}{rest}"))
}

fn found(data: &RunData) -> &GridSummary {
    data.summary.blind.as_ref().expect("the source is blind")
}

fn announcements(data: &RunData) -> Vec<&EventRow> {
    data.events.iter().filter(|row| row.kind == EventKind::Announcement).collect()
}

/// Distance of a time to the grid of handovers, in ms.
fn error_ms(at_s: f64, offset_ms: u32) -> f64 {
    let apart = (at_s * 1e3 - f64::from(offset_ms)).rem_euclid(15_000.0);
    apart.min(15_000.0 - apart)
}

#[test]
fn three_minutes_of_a_bulk_flow_show_the_grid_to_ten_milliseconds() {
    for (rtt_ms, offset_ms, cc, from) in [
        (40, 4_200, "cubic", "from"),
        (25, 14_990, "bbr", "from"),
        (60, 12_000, "reno", "to"),
        (30, 3, "satpipe", "from"),
        (40, 7_777, "satcp", "to"),
    ] {
        let flow = format!("[[flow]]\ncc = \"{cc}\"\nfrom = \"{from}\"\n");
        let data = simulate(&outages(rtt_ms, offset_ms, 180, &format!("{SIGNAL}{flow}")));
        let grid = found(&data);
        let error = error_ms(grid.offset_s.unwrap_or(f64::NAN), offset_ms);
        assert!(error <= 10.0, "{cc}, {rtt_ms} ms, {offset_ms} ms: {error} ms, {grid:?}");
        assert_eq!((grid.period_s, grid.evidence.as_str()), (Some(15.0), "spacing"));
        let said = announcements(&data);
        assert!((5..=6).contains(&said.len()), "from 105 s on, one every 15 s: {said:?}");
        for (number, row) in said.into_iter().enumerate() {
            let ahead_ns = row.at_ns.unwrap() - row.t_ns;
            // The first announcement may come less ahead, soon after the grid is found.
            assert!(ahead_ns == 500_000_000 || number == 0 && ahead_ns < 500_000_000, "{row:?}");
            let error = error_ms(row.at_ns.unwrap() as f64 / 1e9, offset_ms);
            assert!(row.t_ns >= 105_000_000_000 && error <= 10.0, "{row:?}");
        }
    }
}

#[test]
fn without_handovers_nothing_is_found_or_announced() {
    for flow in ["[[flow]]\n", "[[flow]]\ncc = \"bbr\"\nfrom = \"to\"\n"] {
        nothing_is_found_or_announced(flow, 20, 73);
    }
}

#[test]
#[ignore = "soak: takes long"]
fn without_handovers_nothing_is_found_or_announced_whatever_the_flow() {
    let flows = [
        "[[flow]]\n",
        "[[flow]]\ncc = \"reno\"\n",
        "[[flow]]\ncc = \"bbr\"\n",
        "[[flow]]\ncc = \"reno\"\nfrom = \"to\"\n",
        "[[flow]]\ncc = \"bbr\"\nfrom = \"to\"\n",
        "[[flow]]\nfrom = \"to\"\ncount = 3\n",
        "[[flow]]\nkind = \"probe\"\n",
    ];
    for flow in flows {
        for (mbit, rtt_ms) in [(20, 73), (10, 27)] {
            nothing_is_found_or_announced(flow, mbit, rtt_ms);
        }
    }
}

fn nothing_is_found_or_announced(flow: &str, mbit: u32, rtt_ms: u32) {
    let data = simulate(&fixed(mbit, rtt_ms, 250_000, 300, &format!("{SIGNAL}{flow}")));
    assert!(!found(&data).grid, "{flow} {mbit} {rtt_ms}: {:?}", found(&data));
    assert!(announcements(&data).is_empty(), "{flow}");
}

#[test]
fn modules_hear_what_was_found_and_runs_repeat_themselves() {
    let rest = format!("{SIGNAL}[[flow]]\ncc = \"satpipe\"\n");
    let text = outages(40, 9_000, 180, &rest);
    let data = simulate(&text);
    let drains =
        data.events.iter().filter(|row| row.kind == EventKind::Phase(PhaseKind::Drain)).count();
    assert_eq!(drains, announcements(&data).len());
    assert_eq!(simulate(&text), data);
}
