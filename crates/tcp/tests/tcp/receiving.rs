//! Delayed ACKs, windows and SACK compression.

use skyhop_model::Ecn;
use skyhop_tcp::{Receiver, ReceiverConfig, Segment, SegmentKind};
use skyhop_units::{Bytes, Duration, Instant};

use crate::path::{Path, ms};
use crate::reno::{FixedWindow, Reno};

fn segment(seq: u64) -> Segment {
    Segment {
        kind: SegmentKind::Data,
        seq,
        offset: 1448 * seq,
        len: 1448,
        tsval: 1,
        fin: false,
        retransmission: false,
        ecn: Ecn::NotEct,
        ece: false,
        cwr: false,
    }
}

#[test]
fn sixteen_quick_acks_then_every_second_segment() {
    let mut receiver = Receiver::new(ReceiverConfig::default());
    let acks: Vec<bool> = (0..40)
        .map(|seq| {
            let now = Instant::START + Duration::from_micros(100) * seq;
            receiver.on_segment(now, &segment(seq)).is_some()
        })
        .collect();
    assert!(acks[..16].iter().all(|acked| *acked));
    for pair in acks[16..].chunks(2) {
        assert_eq!(pair, [false, true]);
    }
}

#[test]
fn a_lone_segment_is_acknowledged_after_40_ms() {
    let mut receiver = Receiver::new(ReceiverConfig::default());
    for seq in 0..17 {
        receiver.on_segment(Instant::START + ms(seq), &segment(seq));
    }
    assert_eq!(receiver.next_timer(), Some(Instant::START + ms(16 + 40)));
    let ack = receiver.on_timer(Instant::START + ms(56));
    assert_eq!(ack.map(|ack| ack.cumulative), Some(17));
    assert_eq!(receiver.next_timer(), None);
}

#[test]
fn a_long_transfer_gets_one_ack_per_two_segments() {
    let mut path = Path::new(Reno::default(), ms(20)).with_bottleneck("10 Mbit/s", 100_000);
    path.transfer(2000);
    path.run_to_completion(Duration::from_secs(10));
    let acks = path.acks.len();
    assert!((1005..=1025).contains(&acks), "{acks}");
}

#[test]
fn the_sender_respects_the_window() {
    let cc = FixedWindow { cwnd: 1000, rates: Vec::new() };
    let mut path = Path::new(cc, ms(20));
    path.receiver = Receiver::new(ReceiverConfig {
        window: Bytes::new(30 * 1448),
        ..ReceiverConfig::default()
    });
    path.sender.write_without_end();
    path.run_for(Duration::from_secs(1));
    assert!(path.trace.iter().all(|(_, info)| info.inflight <= 30));
    assert_eq!(path.receiver.stats().outside_window, 0);
    assert!(path.receiver.next_expected() > 500);
}

#[test]
fn duplicate_acks_are_merged_after_the_third() {
    let mut receiver = Receiver::new(ReceiverConfig::default());
    for seq in 0..18 {
        receiver.on_segment(Instant::START + ms(1), &segment(seq));
    }
    let acked: Vec<bool> = (19..30)
        .map(|seq| receiver.on_segment(Instant::START + ms(2), &segment(seq)).is_some())
        .collect();
    assert_eq!(acked.iter().filter(|acked| **acked).count(), 3);
    let timer = receiver.next_timer().expect("merged ACKs wait for a timer");
    assert!(timer <= Instant::START + ms(3));
    let ack = receiver.on_timer(timer).expect("the merged ACK");
    assert_eq!(ack.cumulative, 18);
    assert_eq!((ack.sack.as_slice()[0].start, ack.sack.as_slice()[0].end), (19, 30));
}
