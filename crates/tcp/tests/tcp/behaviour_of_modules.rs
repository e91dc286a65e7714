//! The modules of cc/ over a bottleneck, as a whole.

use skyhop_cc::{Instance, Module};
use skyhop_units::Duration;

use crate::path::{Path, ms};

#[test]
fn every_module_fills_a_bottleneck() {
    for module in Module::all() {
        let cc = Instance::new(module, &[]).expect("a whole module");
        // 20 Mbit/s, 40 ms: a BDP of 67 packets, and as much queue.
        let mut path = Path::new(cc, ms(20)).with_bottleneck("20 Mbit/s", 67);
        path.sender.write_without_end();
        path.run_for(Duration::from_secs(20));
        let goodput = path.receiver.stats().bytes_in_order.as_u64() as f64 * 8.0 / 20.0;
        let share = goodput / 20e6;
        assert!(share > 0.85, "{} reaches {share} of the rate", module.name());
        assert!(path.sender.info().timeouts == 0, "{}: {:?}", module.name(), path.sender.info());
    }
}
