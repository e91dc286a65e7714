//! SaTCP over a path that loses packets in an announced outage.

use skyhop_cc::{CongestionControl, Handover, Instance, Module};
use skyhop_tcp::TcpInfo;
use skyhop_units::Instant;

use crate::path::{Fate, Path, ms};

const OUTAGE_MS: std::ops::Range<u64> = 3_000..3_020;

/// State of the sender just before the outage and 500 ms after it, with a hold of 1.3 s from `announced_ms` on.
fn around_an_outage(params: &[(&str, &str)], announced_ms: Option<u64>) -> (TcpInfo, TcpInfo) {
    let module = Module::find("satcp").expect("a module");
    let cc = Instance::new(module, params).expect("valid parameters");
    // The path has 50 Mbit/s, 40 ms and a queue that two seconds do not fill.
    let mut path = Path::new(cc, ms(20)).with_bottleneck("50 Mbit/s", 2_000);
    let at = |at_ms: u64| Instant::START + ms(at_ms);
    let fate = move |now| {
        let is_down = now >= at(OUTAGE_MS.start) && now < at(OUTAGE_MS.end);
        if is_down { Fate::Lost } else { Fate::Arrives }
    };
    path.judge_segment = Box::new(move |now, _| fate(now));
    path.sender.write_without_end();
    path.run_for(ms(announced_ms.unwrap_or(2_900)));
    if announced_ms.is_some() {
        let at_ns = at(OUTAGE_MS.start).as_nanos();
        let handover = Handover { at_ns, valid: 1, ..Handover::default() };
        path.sender.congestion_control().announce(handover);
    }
    path.run_for(at(OUTAGE_MS.start) - path.now);
    let before = path.sender.info();
    path.run_for(ms(520));
    let after = path.sender.info();
    assert!(after.recoveries > before.recoveries, "packets were lost");
    (before, after)
}

#[test]
fn freeze_comes_out_of_a_recovery_as_it_went_in() {
    let (before, after) = around_an_outage(&[("mode", "freeze")], Some(2_800));
    assert!(after.cwnd >= before.cwnd, "{} of {}", after.cwnd, before.cwnd);
    assert!(after.ssthresh >= before.ssthresh, "{:?} of {:?}", after.ssthresh, before.ssthresh);
}

#[test]
fn published_is_back_soon_and_cubic_is_not() {
    let (before, after) = around_an_outage(&[], Some(2_800));
    assert!(after.cwnd * 20 >= before.cwnd * 19, "{} of {}", after.cwnd, before.cwnd);
    assert!(after.ssthresh < Some(before.cwnd * 3 / 4), "the cut itself stays: {after:?}");
    let (before, after) = around_an_outage(&[], None);
    assert!(after.cwnd * 20 < before.cwnd * 17, "{} of {}", after.cwnd, before.cwnd);
}

/// The hold is over by the time of the loss.
#[test]
fn an_announcement_that_comes_far_too_early_does_nothing() {
    for mode in ["published", "freeze"] {
        let (before, after) = around_an_outage(&[("mode", mode)], Some(1_500));
        assert!(after.cwnd * 20 < before.cwnd * 17, "{mode}: {} of {}", after.cwnd, before.cwnd);
    }
}
