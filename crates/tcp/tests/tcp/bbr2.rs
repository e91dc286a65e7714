//! BBR version 2: its differences from version 3, and the rules about losses and PROBE_RTT that its parameters
//! set.

use skyhop_tcp::TcpInfo;
use skyhop_units::Instant;

use crate::bbr3::{
    BDP, DEEP, Phase, UP, after, at_ms, flow_of, gain, is_near, lose_one_in, phases, run_until,
    run_until_gain, to_ms,
};
use crate::path::{Path, ms};
use skyhop_cc::Instance;

fn busy(params: &[(&str, &str)], queue: u64) -> Path<Instance> {
    let mut path = flow_of("bbr2", params, "50 Mbit/s", queue);
    path.sender.write_without_end();
    path
}

/// A probe without loss ends when 1.25 BDPs are in flight, and PROBE_DOWN paces at 0.75.
#[test]
fn a_probe_ends_with_a_queue_of_a_quarter() {
    let mut path = busy(&[("probe_rtt_time", "0")], DEEP);
    run_until(&mut path, 12_000);
    let ups: Vec<Phase> = phases(&path)
        .into_iter()
        .filter(|phase| is_near(phase.gain, UP) && phase.from > at_ms(1000))
        .collect();
    assert!(ups.len() >= 3, "{}", ups.len());
    for up in &ups[..ups.len() - 1] {
        assert!((1.0..3.5).contains(&up.rounds()), "{}", up.rounds());
        assert!((BDP * 5 / 4 - 12..=BDP * 5 / 4 + 12).contains(&up.last.inflight), "{:?}", up.last);
        let down = after(&path, up);
        assert!(is_near(down.gain, 0.75), "{}", down.gain);
    }
}

/// The pacing gain of STARTUP is 2.89.
#[test]
fn startup_is_faster() {
    let mut path = busy(&[], DEEP);
    run_until_gain(&mut path, 739.0 / 256.0, 0);
    let full = path.now;
    run_until(&mut path, 2000);
    let next = path.trace.iter().find(|(at, info)| *at > full && gain(info) < 1.0);
    assert!(next.is_some(), "and ends");
}

/// The short-term bounds set by a loss in CRUISE are reset after PROBE_RTT, which leads to PROBE_BW, never to
/// STARTUP: the sooner PROBE_RTT comes, the sooner the reset.
#[test]
fn probe_rtt_forgets_what_losses_cut() {
    let back_at = |window: &str| {
        let mut path = busy(
            &[("probe_rtt_win", window), ("probe_wait", "20 s"), ("probe_rounds", "255")],
            DEEP,
        );
        path.judge_segment = Box::new(lose_one_in(1, 1200, 1202));
        run_until(&mut path, 1500);
        let cut = path.sender.info().cwnd;
        run_until(&mut path, 9000);
        let is_back = |info: &TcpInfo| info.cwnd > cut + 50;
        let (at, _) = path
            .trace
            .iter()
            .find(|(at, info)| *at > at_ms(1500) && is_back(info))
            .unwrap_or_else(|| panic!("cut to {cut}: {:?}", path.sender.info()));
        let fast = |(at, info): &(Instant, TcpInfo)| *at > at_ms(1500) && gain(info) > 1.3;
        assert!(!path.trace.iter().any(fast), "no STARTUP");
        to_ms(*at)
    };
    let (soon, late) = (back_at("2 s"), back_at("5 s"));
    // PROBE_RTT comes this long after the last new minimum RTT, which both flows had at the same time.
    assert!((2900..3100).contains(&(late - soon)), "{soon} and {late}");
}

/// PROBE_RTT comes at the latest when the window of RTT samples has passed.
#[test]
fn probe_rtt_does_not_wait_longer_than_rtt_samples_count() {
    let mut path = busy(&[("probe_rtt_win", "60 s"), ("min_rtt_window", "3 s")], DEEP);
    run_until(&mut path, 5000);
    let low = |(at, info): &&(Instant, TcpInfo)| *at > at_ms(1000) && info.cwnd <= BDP / 2 + 4;
    let (at, _) = path.trace.iter().find(low).expect("PROBE_RTT");
    assert!((ms(3000)..=ms(3500)).contains(&(*at - Instant::START)), "{at}");
}
