//! RACK (RFC 8985 section 6): losses are detected by time of transmission, not by counting.

use skyhop_tcp::{Segment, SegmentKind};
use skyhop_units::{Duration, Instant};

use crate::path::{Fate, Path, ms};
use crate::reno::{FixedWindow, Reno};

/// Arrival time of the ACK that first reports a segment above `seq`, and time of the retransmission of `seq`.
fn reported_and_repaired(path: &Path<FixedWindow>, seq: u64) -> (Instant, Instant) {
    let reported = path.acks.iter().find(|(_, ack)| ack.cumulative == seq && !ack.sack.is_empty());
    let again = path.sent.iter().find(|(_, s)| s.retransmission && s.seq == seq);
    (reported.expect("a SACK").0 + ms(20), again.expect("a retransmission").0)
}

/// Transfer over 10 Mbit/s and 40 ms with a window that just does not fill them, and a loss of segment 500.
fn with_a_loss(mut otherwise: impl FnMut(&Segment) -> Fate + 'static) -> Path<FixedWindow> {
    let cc = FixedWindow { cwnd: 30, rates: Vec::new() };
    let mut path = Path::new(cc, ms(20)).with_bottleneck("10 Mbit/s", 100);
    path.judge_segment = Box::new(move |_, segment| {
        if segment.kind != SegmentKind::Data || segment.retransmission {
            return Fate::Arrives;
        }
        if segment.seq == 500 { Fate::Lost } else { otherwise(segment) }
    });
    path.transfer(1000);
    path.run_to_completion(Duration::from_secs(10));
    assert_eq!(path.retransmissions(), [500], "only what was lost");
    assert_eq!(path.sender.info().timeouts, 0);
    path
}

/// While no reordering was seen, three later segments are enough (RFC 8985 6.2 step 4).
#[test]
fn without_reordering_three_segments_later_tell_the_loss() {
    let path = with_a_loss(|_| Fate::Arrives);
    let (reported, repaired) = reported_and_repaired(&path, 500);
    // 1.2 ms per segment.
    let waited = repaired - reported;
    assert!((ms(2)..=ms(4)).contains(&waited), "{waited}");
}

/// Once reordering was seen, a quarter of the minimum RTT has to pass (RFC 8985 6.2 step 4).
#[test]
fn after_reordering_it_waits_a_quarter_of_the_least_rtt() {
    let path = with_a_loss(|segment| {
        let late = segment.seq % 50 == 0 && (100..400).contains(&segment.seq);
        if late { Fate::Late(ms(2)) } else { Fate::Arrives }
    });
    let (reported, repaired) = reported_and_repaired(&path, 500);
    // A quarter of 41 ms, less the transmission of the segment that reported the loss, until the next ACK: an
    // ACK of two segments, of which the second waits for the first, compressed with others for 1 ms.
    let waited = repaired - reported;
    assert!((ms(9)..=ms(15)).contains(&waited), "{waited}");
}

/// Segments sent before the newest delivered one by more than the reordering window are lost, in order of
/// transmission: a lost retransmission too (RFC 8985 6.2 step 5).
#[test]
fn a_lost_retransmission_is_found_within_a_round_trip() {
    let mut losses = 0;
    let mut path = Path::new(Reno::default(), ms(20)).judging_segments(move |_, segment| {
        if segment.kind == SegmentKind::Data && segment.seq == 50 && losses < 3 {
            losses += 1;
            return Fate::Lost;
        }
        Fate::Arrives
    });
    path.sender.write_without_end();
    path.run_for(Duration::from_secs(1));
    assert_eq!(path.retransmissions(), [50, 50, 50]);
    assert_eq!(path.sender.info().timeouts, 0);
    let times: Vec<Instant> =
        path.sent.iter().filter(|(_, s)| s.retransmission).map(|(at, _)| *at).collect();
    for pair in times.windows(2) {
        let waited = pair[1] - pair[0];
        assert!((ms(40)..=ms(80)).contains(&waited), "{waited}");
    }
}
