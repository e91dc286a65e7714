//! Property: whatever the network does, every byte arrives, in order, once, and in bounded time.

use proptest::prelude::*;
use skyhop_cc::{Instance, Module};
use skyhop_tcp::CongestionControl;
use skyhop_units::{Bytes, Duration};

use crate::path::{Path, ms};
use crate::reno::Reno;
use crate::trouble::Trouble;

fn survives<C: CongestionControl>(cc: C, bytes: u64, forward: Trouble, back: Trouble) {
    let (mut forward, mut back) = (forward, back);
    let mut path = Path::new(cc, ms(20)).with_bottleneck("20 Mbit/s", 60);
    path.judge_segment = Box::new(move |_, _| forward.fate());
    path.judge_ack = Box::new(move |_, _| back.fate());
    path.sender.write(path.now, Bytes::new(bytes));
    path.sender.finish();
    // A segment that is lost a few times in a row waits for timeouts of 120 s each.
    path.run_to_completion(Duration::from_secs(1000 + 500 * bytes.div_ceil(1448)));
    assert_eq!(path.receiver.stats().bytes_in_order, Bytes::new(bytes));
    let info = path.sender.info();
    assert_eq!(info.inflight, 0);
    assert_eq!(info.sent - info.retransmits, bytes.div_ceil(1448));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: skyhop_needs::cases(150), ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_over_any_network(
        bytes in 1_u64..1_500_000,
        forward in Trouble::strategy(),
        back in Trouble::strategy(),
    ) {
        survives(Reno::default(), bytes, forward, back);
    }

    #[test]
    fn every_byte_arrives_under_any_module(
        bytes in 1_u64..500_000,
        forward in Trouble::strategy(),
        back in Trouble::strategy(),
    ) {
        for module in Module::all() {
            let cc = Instance::new(module, &[]).expect("a whole module");
            survives(cc, bytes, forward, back);
        }
    }
}
