//! Losses and how they are found and repaired.

use skyhop_tcp::{CaState, SegmentKind};
use skyhop_units::{Duration, Instant};

use crate::path::{Fate, Path, lose_once, ms};
use crate::reno::Reno;

#[test]
fn a_single_loss_costs_one_retransmission_and_no_timeout() {
    let mut path = Path::new(Reno::default(), ms(20)).judging_segments(lose_once([50]));
    path.transfer(300);
    path.run_to_completion(Duration::from_secs(2));
    let info = path.sender.info();
    assert_eq!(path.retransmissions(), [50]);
    assert_eq!((info.timeouts, info.recoveries, info.undos), (0, 1, 0));
    assert_eq!(info.ca_state, CaState::Open);
    assert_eq!(info.lost, 1);
}

#[test]
fn prr_paces_a_burst_loss_out_of_the_ack_clock() {
    let lost: Vec<u64> = (60..100).filter(|seq| seq % 2 == 0).collect();
    let mut path = Path::new(Reno::default(), ms(20)).with_bottleneck("20 Mbit/s", 100_000);
    path.judge_segment = Box::new(lose_once(lost.clone()));
    path.transfer(600);
    path.run_to_completion(Duration::from_secs(5));
    assert_eq!(path.retransmissions(), lost);
    assert_eq!(path.sender.info().timeouts, 0);
    let start = path.trace.iter().position(|(_, i)| i.ca_state == CaState::Recovery);
    let start = start.expect("a recovery");
    let recovery: Vec<_> =
        path.trace[start..].iter().take_while(|(_, i)| i.ca_state == CaState::Recovery).collect();
    let ssthresh = recovery[0].1.ssthresh.expect("a threshold");
    // RFC 6937bis: what was sent since the start never exceeds what was delivered since then, but
    // for the fast retransmit and one segment per ACK in slow start; and the window lands on
    // ssthresh.
    let (sent_0, delivered_0) = (path.trace[start - 1].1.sent, path.trace[start - 1].1.delivered);
    let mut acks = 0;
    for (_, info) in &recovery {
        acks += 1;
        let (sent, delivered) = (info.sent - sent_0, info.delivered - delivered_0);
        assert!(sent <= delivered + acks, "{sent} sent for {delivered} delivered");
        assert!(info.inflight <= info.cwnd.max(ssthresh + acks as u32));
    }
    assert_eq!(path.trace[start + recovery.len()].1.cwnd, ssthresh);
}

#[test]
fn the_whole_recovery_takes_one_round_trip_when_the_window_allows() {
    let mut path = Path::new(Reno::default(), ms(50)).judging_segments(lose_once([100, 101, 140]));
    path.sender.write_without_end();
    path.run_for(Duration::from_secs(2));
    let times: Vec<Instant> =
        path.sent.iter().filter(|(_, s)| s.retransmission).map(|(at, _)| *at).collect();
    assert_eq!(times.len(), 3);
    assert!(times[2] - times[0] < ms(100));
}

#[test]
fn a_lost_tail_is_probed_within_two_round_trips() {
    let mut path = Path::new(Reno::default(), ms(50)).judging_segments(lose_once([38, 39]));
    path.transfer(40);
    path.run_to_completion(Duration::from_secs(3));
    let info = path.sender.info();
    assert_eq!((info.timeouts, info.probes), (0, 1));
    let (first, _) = *path.sent.iter().rfind(|(_, s)| !s.retransmission).expect("data");
    let (probe, segment) = *path.sent.iter().find(|(_, s)| s.retransmission).expect("a probe");
    assert_eq!(segment.seq, 39);
    // RFC 8985 7.2: two srtt after the last news, here the ACKs one round trip later at most;
    // plus the kernel's two jiffies.
    assert!(probe - first <= ms(100 + 200 + 5), "{}", probe - first);
    let mut resent = path.retransmissions();
    resent.sort_unstable();
    assert_eq!(resent, [38, 39]);
}

#[test]
fn a_probe_that_repairs_the_only_loss_reduces_the_window() {
    let mut path = Path::new(Reno::default(), ms(50)).judging_segments(lose_once([39]));
    path.sender.write(path.now, skyhop_units::Bytes::new(40 * 1448));
    path.run_for(Duration::from_secs(3));
    let before = path.sender.info().cwnd;
    assert_eq!(path.retransmissions(), [39]);
    path.sender.write(path.now, skyhop_units::Bytes::new(4 * 1448));
    path.run_for(ms(500));
    // RFC 8985 7.4: an ACK beyond the probe without a D-SACK means that there was a loss.
    let info = path.sender.info();
    assert!(info.ssthresh.is_some() && info.cwnd < before, "{before} then {info:?}");
}

#[test]
fn a_lost_retransmission_is_found_by_rack() {
    let mut losses = 0;
    let mut path = Path::new(Reno::default(), ms(20)).judging_segments(move |_, segment| {
        if segment.kind == SegmentKind::Data && segment.seq == 50 && losses < 2 {
            losses += 1;
            return Fate::Lost;
        }
        Fate::Arrives
    });
    path.sender.write_without_end();
    path.run_for(Duration::from_secs(1));
    let info = path.sender.info();
    assert_eq!(path.retransmissions(), [50, 50]);
    assert_eq!(info.timeouts, 0);
    let times: Vec<Instant> =
        path.sent.iter().filter(|(_, s)| s.retransmission).map(|(at, _)| *at).collect();
    assert!(times[1] - times[0] < ms(80), "{}", times[1] - times[0]);
}

#[test]
fn losing_acks_alone_causes_no_retransmission() {
    let mut count = 0;
    let mut path = Path::new(Reno::default(), ms(20));
    path.judge_ack = Box::new(move |_, ack| {
        count += 1;
        if !ack.syn && count % 2 == 0 { Fate::Lost } else { Fate::Arrives }
    });
    path.transfer(1000);
    path.run_to_completion(Duration::from_secs(5));
    assert_eq!(path.sender.info().timeouts, 0);
    assert!(path.retransmissions().len() <= 1, "at most the tail's probe");
}
