//! SaTCP: its reaction to losses during a hold and outside.

use crate::ack_clock::AckClock;
use skyhop_cc::{CaEvent, CongestionControl, Handover, TCP_INFINITE_SSTHRESH};
use skyhop_model::{CongestionState, PhaseKind};

const RTT_US: u64 = 20_000;
const FREEZE: (&str, &str) = ("mode", "freeze");

/// Return a connection with this window, past slow start, without an announcement.
fn steady(cwnd: u32, params: &[(&str, &str)]) -> AckClock {
    let mut clock = AckClock::new("satcp", params, RTT_US);
    clock.ack(1, RTT_US);
    clock.tp.snd_ssthresh = cwnd / 2;
    clock.tp.snd_cwnd = cwnd;
    clock
}

/// Announce a handover `in_us` from now, in the past if negative.
fn announce(clock: &mut AckClock, in_us: i64) {
    let at_us = clock.tp.tcp_mstamp.saturating_add_signed(in_us);
    clock.cc.announce(Handover { at_ns: at_us * 1000, valid: 1, ..Handover::default() });
}

/// Process a timeout in the kernel's order: threshold, window, state.
fn time_out(clock: &mut AckClock) {
    let tp = &mut clock.tp;
    tp.prior_cwnd = tp.snd_cwnd;
    tp.snd_ssthresh = clock.cc.ssthresh(tp);
    clock.cc.cwnd_event(tp, CaEvent::Loss);
    tp.snd_cwnd = 1;
    clock.cc.set_state(tp, CongestionState::Loss);
}

#[test]
fn published_returns_to_w_max_within_two_round_trips() {
    let mut clock = steady(1_000, &[]);
    announce(&mut clock, 100_000);
    clock.loss();
    assert_eq!(clock.tp.snd_cwnd, 700, "the cut itself stays");
    clock.round();
    clock.round();
    assert!((950..=1_010).contains(&clock.tp.snd_cwnd), "{}", clock.tp.snd_cwnd);
    // The divisor gives K/9 and not 0, so the window does not overshoot W_max either.
    clock.curve(0.5);
    assert!(clock.tp.snd_cwnd <= 1_010, "{}", clock.tp.snd_cwnd);
}

#[test]
fn outside_a_hold_it_is_cubic() {
    for (params, announced_us) in [(vec![], None), (vec![("hold", "50 ms")], Some(0))] {
        let mut satcp = steady(1_000, &params);
        let mut cubic = AckClock::new("cubic", &[], RTT_US);
        cubic.ack(1, RTT_US);
        (cubic.tp.snd_ssthresh, cubic.tp.snd_cwnd) = (500, 1_000);
        if let Some(in_us) = announced_us {
            announce(&mut satcp, in_us);
        }
        for clock in [&mut satcp, &mut cubic] {
            // The hold, if there is one, ends meanwhile.
            clock.curve(0.06);
            clock.loss();
        }
        assert_eq!(satcp.curve(3.0), cubic.curve(3.0));
    }
}

#[test]
fn published_keeps_w_max_over_a_timeout_within_a_hold() {
    let after_timeout = |is_announced: bool| {
        let mut clock = steady(1_000, &[("hold", "10 s"), ("hystart", "0")]);
        if is_announced {
            announce(&mut clock, 0);
        }
        time_out(&mut clock);
        clock.cc.set_state(&mut clock.tp, CongestionState::Open);
        // Slow start to the threshold of 700, then two round trips.
        for _ in 0..12 {
            clock.round();
        }
        clock.tp.snd_cwnd
    };
    assert!((950..=1_010).contains(&after_timeout(true)), "{}", after_timeout(true));
    // CUBIC has no maximum any more and adds a twentieth per round trip.
    assert!(after_timeout(false) < 860, "{}", after_timeout(false));
}

#[test]
fn freeze_gives_up_neither_window_nor_threshold() {
    let mut clock = steady(1_000, &[FREEZE]);
    announce(&mut clock, 100_000);
    clock.loss();
    assert_eq!((clock.tp.snd_cwnd, clock.tp.snd_ssthresh), (1_000, 1_000));
    time_out(&mut clock);
    assert_eq!((clock.tp.snd_cwnd, clock.tp.snd_ssthresh), (1_000, 1_000));
}

#[test]
fn freeze_returns_to_slow_start_where_it_was_there() {
    let mut clock = AckClock::new("satcp", &[FREEZE], RTT_US);
    clock.ack(1, RTT_US);
    clock.tp.snd_cwnd = 60;
    announce(&mut clock, 0);
    clock.loss();
    assert_eq!((clock.tp.snd_cwnd, clock.tp.snd_ssthresh), (60, TCP_INFINITE_SSTHRESH));
    time_out(&mut clock);
    assert_eq!((clock.tp.snd_cwnd, clock.tp.snd_ssthresh), (60, TCP_INFINITE_SSTHRESH));
}

#[test]
fn freeze_answers_a_loss_right_after_the_hold_at_once() {
    let mut clock = steady(1_000, &[FREEZE, ("hold", "300 ms")]);
    announce(&mut clock, 0);
    clock.loss();
    assert_eq!(clock.tp.snd_cwnd, 1_000);
    clock.tp.tcp_mstamp += 300_000;
    clock.loss();
    assert_eq!((clock.tp.snd_cwnd, clock.tp.snd_ssthresh), (700, 700));
    time_out(&mut clock);
    assert_eq!((clock.tp.snd_cwnd, clock.tp.snd_ssthresh), (1, 490));
}

/// A hold lasts for `hold` from the announcement; once for each announcement, again for a new one.
#[test]
fn a_hold_lasts_as_long_as_it_says_and_is_armed_again() {
    let mut clock = steady(100, &[("hold", "0.9 s")]);
    announce(&mut clock, 300_000);
    clock.ack(1_000, RTT_US);
    let first_us = clock.tp.tcp_mstamp;
    clock.curve(1.5);
    announce(&mut clock, 300_000);
    clock.ack(1_000, RTT_US);
    let second_us = clock.tp.tcp_mstamp;
    let phases = clock.cc.take_phases();
    let spans: Vec<(u64, u64)> = phases.iter().map(|p| (p.begin_ns, p.end_ns)).collect();
    let span = |begin_us: u64| (begin_us * 1000, (begin_us + 900_000) * 1000);
    assert_eq!(spans, [span(first_us), span(second_us)]);
    assert!(phases.iter().all(|phase| phase.kind == PhaseKind::Hold));
    assert!(clock.cc.take_phases().is_empty());
}

#[test]
fn what_was_announced_long_ago_or_for_ever_does_no_harm() {
    // The announcement is too old for a hold.
    let mut clock = steady(1_000, &[FREEZE]);
    announce(&mut clock, -1_400_000);
    clock.loss();
    assert_eq!(clock.tp.snd_cwnd, 700);
    // An announcement for a time that never comes begins a hold like any other.
    let mut clock = steady(1_000, &[FREEZE]);
    clock.cc.announce(Handover { at_ns: u64::MAX, valid: 1, ..Handover::default() });
    clock.loss();
    assert_eq!(clock.tp.snd_cwnd, 1_000);
    clock.tp.tcp_mstamp += 1_300_000;
    clock.loss();
    assert_eq!(clock.tp.snd_cwnd, 700);
    // Endless announcements, one after another: once they stop, SaTCP is CUBIC again after one hold.
    let mut clock = steady(1_000, &[FREEZE]);
    for _ in 0..100 {
        announce(&mut clock, 0);
        clock.tp.tcp_mstamp += 100_000;
        clock.loss();
    }
    assert_eq!(clock.tp.snd_cwnd, 1_000);
    clock.tp.tcp_mstamp += 1_300_000;
    clock.loss();
    assert_eq!(clock.tp.snd_cwnd, 700);
}
