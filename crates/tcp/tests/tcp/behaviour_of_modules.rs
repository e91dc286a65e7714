//! Behaviour of the modules of cc/ and of a controller in Rust over a bottleneck.

use skyhop_cc::{Registry, Setup};
use skyhop_tcp::CALLER;
use skyhop_units::Duration;

use crate::fixed_window::FixedWindow;
use crate::path::{Path, ms};

#[test]
fn every_one_fills_a_bottleneck() {
    let registry = Registry::new();
    FixedWindow::join(&registry);
    for name in registry.names() {
        let params: &[_] = if name == "fixed" { &[("packets", "100")] } else { &[] };
        let setup = Setup { params, ..Setup::default() };
        let cc = registry.start(&name, &setup, &CALLER).expect("valid parameters");
        // 20 Mbit/s, 40 ms: a BDP of 67 packets, and as much queue.
        let mut path = Path::new(cc, ms(20)).with_bottleneck("20 Mbit/s", 67);
        path.sender.write_without_end();
        path.run_for(Duration::from_secs(20));
        let goodput = path.receiver.stats().bytes_in_order.as_u64() as f64 * 8.0 / 20.0;
        let share = goodput / 20e6;
        // The search begins at half of the rate reached in START, and takes steps of a few per cent from there.
        let least = if name == "vivudt" { 0.8 } else { 0.85 };
        assert!(share > least, "{} reaches {share} of the rate", name);
        assert!(path.sender.info().timeouts == 0, "{}: {:?}", name, path.sender.info());
    }
}
