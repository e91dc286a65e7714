//! Tail loss probes (RFC 8985 section 7): their timing and content.

use skyhop_units::{Bytes, Duration, Instant};

use crate::path::{Path, lose_once, ms};
use crate::reno::Reno;

/// Time at which the sender last sent new data or received an ACK, before `probe`.
fn last_activity(path: &Path<Reno>, probe: Instant) -> Instant {
    let sent = path.sent.iter().map(|(at, _)| *at);
    let heard = path.acks.iter().map(|(at, _)| *at + ms(50));
    sent.chain(heard).filter(|at| *at < probe).max().expect("it has sent")
}

/// Linux waits two round trips and two ticks of its clock of 1 ms.
fn is_the_probe_timeout(wait: Duration, srtt: Duration) -> bool {
    (srtt * 2..=srtt * 2 + ms(3)).contains(&wait)
}

#[test]
fn a_lost_tail_is_probed_after_two_round_trips() {
    let mut path = Path::new(Reno::default(), ms(50)).with_bottleneck("10 Mbit/s", 1000);
    path.judge_segment = Box::new(lose_once([38, 39]));
    path.transfer(40);
    path.run_to_completion(Duration::from_secs(3));
    let info = path.sender.info();
    assert_eq!((info.timeouts, info.probes), (0, 1));
    let (probe, segment) = *path.sent.iter().find(|(_, s)| s.retransmission).expect("a probe");
    assert_eq!(segment.seq, 39, "the last segment");
    let srtt = path.trace.iter().rfind(|(at, _)| *at < probe).expect("ACKs").1.srtt;
    let wait = probe - last_activity(&path, probe);
    assert!(is_the_probe_timeout(wait, srtt.expect("a sample")), "{wait}, srtt {srtt:?}");
    let mut resent = path.retransmissions();
    resent.sort_unstable();
    assert_eq!(resent, [38, 39], "its SACK shows the rest");
}

/// The probe carries new data if there is any (RFC 8985 7.3).
#[test]
fn a_probe_carries_new_data_where_there_is_some() {
    // The ten segments of the window are lost: nothing else would leave before the timeout.
    let mut path = Path::new(Reno::default(), ms(50)).judging_segments(lose_once(0..10));
    path.transfer(40);
    path.run_to_completion(Duration::from_secs(5));
    let (probe, segment) = path.sent[10];
    assert_eq!((segment.seq, segment.retransmission), (10, false));
    let wait = probe - path.sent[9].0;
    assert!(is_the_probe_timeout(wait, ms(100)), "{wait}");
    assert_eq!(path.sender.info().timeouts, 0, "{:?}", path.sender.info());
}

/// The ACK of a single segment may be delayed: RFC 8985 7.2's worst case, Linux's 200 ms.
#[test]
fn a_single_segment_waits_for_a_delayed_ack() {
    let mut path = Path::new(Reno::default(), ms(50)).judging_segments(lose_once([0]));
    path.transfer(1);
    path.run_to_completion(Duration::from_secs(5));
    let wait = path.sent[1].0 - path.sent[0].0;
    // Never later than the timeout, here 300 ms.
    assert!((ms(299)..=ms(402)).contains(&wait), "{wait}");
    assert!(path.sent[1].1.retransmission);
}

#[test]
fn a_probe_that_repairs_the_only_loss_reduces_the_window() {
    let mut path = Path::new(Reno::default(), ms(50)).judging_segments(lose_once([39]));
    path.sender.write(path.now, Bytes::new(40 * 1448));
    path.run_for(Duration::from_secs(3));
    let before = path.sender.info().cwnd;
    assert_eq!(path.retransmissions(), [39]);
    path.sender.write(path.now, Bytes::new(4 * 1448));
    path.run_for(ms(500));
    // RFC 8985 7.4: an ACK beyond the probe without a D-SACK means that there was a loss.
    let info = path.sender.info();
    assert!(info.ssthresh.is_some() && info.cwnd < before, "{before} then {info:?}");
}

/// If only the ACK was lost, the D-SACK of the probe shows it (RFC 8985 7.4.2).
#[test]
fn a_needless_probe_changes_nothing() {
    let mut path = Path::new(Reno::default(), ms(50));
    path.judge_ack = Box::new(|now, ack| {
        // The first ACK of the whole transfer, not the one of the probe.
        let first = ack.cumulative == 40 && now < Instant::START + ms(460);
        if first { crate::path::Fate::Lost } else { crate::path::Fate::Arrives }
    });
    path.sender.write(path.now, Bytes::new(40 * 1448));
    path.run_for(Duration::from_secs(3));
    let before = path.sender.info();
    assert_eq!(before.probes, 1);
    path.sender.write(path.now, Bytes::new(4 * 1448));
    path.run_for(ms(500));
    assert_eq!(path.sender.info().ssthresh, None);
    assert_eq!(path.receiver.stats().duplicates, 1);
}
