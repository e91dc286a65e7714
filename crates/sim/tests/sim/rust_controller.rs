//! Test of a controller in Rust that a scenario selects by name.

use skyhop_cc::Registry;

use crate::fixed_window::FixedWindow;
use crate::scenario::{fixed, simulate};

#[test]
fn a_registered_controller_runs_by_its_name_and_gets_its_parameters() {
    FixedWindow::join(Registry::global());
    for name in ["fixed", "skyhop:fixed"] {
        let flow = format!("[[flow]]\ncc = \"{name}\"\nfixed.packets = 40\n");
        let data = simulate(&fixed(20, 50, 125_000, 10, &flow));
        assert!(data.flows.iter().skip(2).all(|row| row.cwnd_packets == 40), "{name}");
        // One window per round trip, except for the first one.
        let expected_bps = 40.0 * 1448.0 * 8.0 / 0.050;
        let share = data.summary.flows[0].goodput_bps as f64 / expected_bps;
        assert!((0.95..1.0).contains(&share), "{name}: {share}");
    }
}
