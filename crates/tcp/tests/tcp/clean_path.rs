//! Connections over a path without loss.

use skyhop_model::CongestionState;
use skyhop_tcp::{Sender, SenderConfig};
use skyhop_units::{Bytes, Duration, Instant};

use crate::path::{Fate, Path, ms};
use crate::reno::{FixedWindow, Reno};

#[test]
fn the_handshake_takes_one_round_trip_and_gives_the_first_rtt_sample() {
    let mut path = Path::new(Reno::default(), ms(20));
    path.transfer(5);
    path.run_for(ms(40));
    let info = path.sender.info();
    assert_eq!(info.srtt, Some(ms(40)));
    // RFC 6298 2.2: srtt + 4 * srtt / 2, but at least srtt + 200 ms.
    assert_eq!(info.rto, ms(240));
    assert_eq!(path.sent.len(), 5);
    assert!(path.sent.iter().all(|(at, _)| *at == Instant::START + ms(40)));
}

#[test]
fn a_lost_syn_is_repeated_after_1_s_then_2_s() {
    let mut syns = Vec::new();
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut path = Path::new(Reno::default(), ms(20)).judging_segments(move |now, segment| {
        if segment.kind == skyhop_tcp::SegmentKind::Syn {
            sender.send(now).expect("the test listens");
            return if now < Instant::START + ms(2000) { Fate::Lost } else { Fate::Arrives };
        }
        Fate::Arrives
    });
    path.transfer(1);
    path.run_to_completion(ms(10_000));
    syns.extend(receiver.try_iter());
    // The wait does not double at first (sysctl tcp_syn_linear_timeouts).
    let at = [0, 1000, 2000].map(|at| Instant::START + ms(at));
    assert_eq!(syns, at);
    assert_eq!(path.sent.len(), 1);
}

#[test]
fn slow_start_doubles_the_window_every_round_trip() {
    let mut path = Path::new(Reno::default(), ms(50));
    path.sender.write_without_end();
    path.run_for(ms(150));
    for expected in [10, 20, 40, 80, 160] {
        // Midway between two flights.
        assert_eq!(path.sender.info().cwnd, expected);
        path.run_for(ms(100));
    }
    assert_eq!(path.sender.info().retransmits, 0);
    assert_eq!(path.sender.info().ca_state, CongestionState::Open);
}

#[test]
fn a_finite_transfer_completes_to_the_byte() {
    let mut path = Path::new(Reno::default(), ms(20));
    path.sender.write(path.now, Bytes::new(100_001));
    path.sender.finish();
    path.run_to_completion(ms(1000));
    assert_eq!(path.receiver.stats().bytes_in_order, Bytes::new(100_001));
    assert!(path.receiver.stats().completed.is_some());
    let payload: u64 = path.sent.iter().map(|(_, s)| u64::from(s.len)).sum();
    assert_eq!(payload, 100_001);
    assert_eq!(path.sender.next_timer(), None);
}

#[test]
fn the_delivery_rate_is_the_bottlenecks() {
    let cc = FixedWindow { cwnd: 100, rates: Vec::new() };
    let mut path = Path::new(cc, ms(20)).with_bottleneck("12.112 Mbit/s", 1000);
    path.sender.write_without_end();
    path.run_for(Duration::from_secs(3));
    // 1514 bytes on the wire at 12.112 Mbit/s: 1000 packets a second; the window is 2.5 BDP.
    let rates = &path.sender.congestion_control().rates;
    let steady = &rates[rates.len() / 2..];
    assert!(steady.len() > 500);
    for (rate, app_limited) in steady {
        assert!((rate - 1000.0).abs() < 25.0, "{rate}");
        assert!(!app_limited);
    }
}

#[test]
fn an_idle_application_marks_the_samples() {
    let cc = FixedWindow { cwnd: 100, rates: Vec::new() };
    let mut path = Path::new(cc, ms(20));
    for _ in 0..50 {
        path.sender.write(path.now, Bytes::new(10 * 1448));
        path.run_for(ms(10));
    }
    let rates = &path.sender.congestion_control().rates;
    assert!(rates.len() > 100);
    assert!(rates.iter().all(|(_, app_limited)| *app_limited));
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut path = Path::new(Reno::default(), ms(50));
    path.run_for(ms(110));
    for _ in 0..100 {
        path.sender.write(path.now, Bytes::new(2 * 1448));
        path.run_for(ms(25));
    }
    // At 8 segments per round trip slow start stops at twice that (RFC 7661 4.3), plus or minus the ACK that
    // crosses the limit.
    let cwnd = path.sender.info().cwnd;
    assert!((10..=18).contains(&cwnd), "{cwnd}");
}

#[test]
fn an_idle_connection_restarts_from_the_initial_window() {
    let mut path = Path::new(Reno::default(), ms(20));
    path.sender.write(path.now, Bytes::new(600 * 1448));
    path.run_for(Duration::from_secs(2));
    assert!(path.sender.info().cwnd > 100);
    path.run_for(Duration::from_secs(5));
    let before = path.sent.len();
    path.sender.write(path.now, Bytes::new(600 * 1448));
    path.run_for(ms(20));
    assert_eq!(path.sent.len() - before, 10);
}

/// Send for two seconds at 1000 segments per second.
fn paced(tso: bool) -> Path<Reno> {
    let cc = Reno { pacing_rate: Some(1_448_000), ..Reno::default() };
    let mut path = Path::new(Reno::default(), ms(20));
    path.sender = Sender::new(SenderConfig { tso, ..SenderConfig::default() }, cc);
    path.sender.write_without_end();
    path.run_for(Duration::from_secs(2));
    path
}

#[test]
fn paced_bursts_have_at_least_two_segments() {
    let path = paced(true);
    let paced: Vec<_> = path.sent.iter().skip(500).map(|(at, _)| *at).collect();
    let gaps: Vec<Duration> = paced.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.len() > 500);
    for pair in gaps.windows(2) {
        assert!(pair == [ms(0), ms(2)] || pair == [ms(2), ms(0)], "{pair:?}");
    }
}

#[test]
fn pacing_spreads_the_segments_at_the_rate_that_the_module_sets() {
    let path = paced(false);
    // 1000 segments a second once the unpaced start is over.
    let paced: Vec<_> = path.sent.iter().skip(500).map(|(at, _)| *at).collect();
    assert!(paced.len() > 500);
    for pair in paced.windows(2) {
        assert_eq!(pair[1] - pair[0], ms(1));
    }
}

#[test]
fn without_pacing_a_window_leaves_at_once() {
    let mut path = Path::new(Reno::default(), ms(20));
    path.transfer(10);
    path.run_to_completion(ms(1000));
    assert!(path.sent.iter().all(|(at, _)| *at == path.sent[0].0));
    assert_eq!(path.sender.info().pacing_rate, None);
}
