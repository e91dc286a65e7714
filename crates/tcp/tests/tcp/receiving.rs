//! Delayed ACKs, windows and SACK compression.

use skyhop_model::{BufferSizes, Ecn, Profile};
use skyhop_tcp::{HostConfig, Receiver, ReceiverConfig, Segment, SegmentKind};
use skyhop_units::{Bytes, Duration, Instant};

use crate::path::{Path, exact_timers, ms};
use crate::reno::FixedWindow;

/// Return settings of a receiver whose buffer fits a window of `window` bytes, and neither grows nor is
/// measured.
pub fn of_window(bytes: u64) -> ReceiverConfig {
    let memory = Bytes::new(2 * bytes);
    ReceiverConfig {
        host: HostConfig { profile: Profile::Linux5_4, ..exact_timers().receiver.host },
        rmem: BufferSizes { initial: memory, max: memory },
        auto_tuning: false,
        ..ReceiverConfig::default()
    }
}

/// Window that cannot grow, so that no ACK is sent because it has grown.
const STEADY: u64 = 45 * 1448;

/// Full-size segment `seq` of a stream of such.
pub fn segment(seq: u64) -> Segment {
    Segment {
        kind: SegmentKind::Data,
        seq,
        offset: 1448 * seq,
        len: 1448,
        tsval: 1,
        tsecr: 0,
        fin: false,
        push: false,
        retransmission: false,
        ecn: Ecn::NotEct,
        cwr: false,
    }
}

#[test]
fn sixteen_quick_acks_then_every_second_segment() {
    let mut receiver = Receiver::new(of_window(STEADY));
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
    let mut receiver = Receiver::new(of_window(STEADY));
    for seq in 0..17 {
        receiver.on_segment(Instant::START + ms(seq), &segment(seq));
    }
    assert_eq!(receiver.next_timer(), Some(Instant::START + ms(16 + 40)));
    let ack = receiver.on_timer(Instant::START + ms(56));
    assert_eq!(ack.map(|ack| ack.cumulative), Some(17));
    assert_eq!(receiver.next_timer(), None);
}

/// While the window grows each segment is acknowledged, afterwards every other one (`tcp_grow_window`).
#[test]
fn a_long_transfer_gets_one_ack_per_two_segments_once_the_window_stands() {
    let mut path = Path::new(FixedWindow { cwnd: 60, rates: Vec::new() }, ms(20))
        .with_bottleneck("10 Mbit/s", 100_000);
    path.transfer(4000);
    path.run_for(Duration::from_secs(2));
    let (segments, acks) = (path.sent.len(), path.acks.len());
    path.run_to_completion(Duration::from_secs(10));
    let (segments, acks) = (path.sent.len() - segments, path.acks.len() - acks);
    assert!((segments / 2..=segments / 2 + segments / 50).contains(&acks), "{acks} for {segments}");
}

/// Segment `seq` of a stream of segments of `len` bytes.
fn short(seq: u64, len: u16) -> Segment {
    Segment { len, offset: seq * u64::from(len), ..segment(seq) }
}

/// Sequence numbers of those of 40 segments of `len` bytes that are acknowledged at once.
fn acknowledged(len: u16) -> Vec<bool> {
    let mut receiver = Receiver::new(of_window(STEADY));
    let at = |seq: u64| Instant::START + Duration::from_micros(100) * seq;
    (0..40).map(|seq| receiver.on_segment(at(seq), &short(seq, len)).is_some()).collect()
}

/// The MSS is assumed to be 536 bytes until larger segments arrive (`tcp_measure_rcv_mss`);
/// `__tcp_ack_snd_check` waits for more than one of them. A much shorter segment ends a write, and is
/// acknowledged when it is read.
#[test]
fn two_full_segments_are_as_many_bytes() {
    for (len, per_ack) in [(1448, 2), (1000, 2), (600, 2), (536, 2), (524, 2), (523, 1), (100, 1)] {
        let acks = acknowledged(len);
        assert!(acks[..16].iter().all(|acked| *acked), "{len}: {acks:?}");
        let expected: Vec<bool> = (1..=24).map(|n| n % per_ack == 0).collect();
        assert_eq!(acks[16..], expected, "{len}");
    }
}

/// Larger segments arrive first, then two of the same length: that is the MSS now.
#[test]
fn segments_of_one_shorter_length_lower_the_estimate() {
    let mut receiver = Receiver::new(of_window(STEADY));
    for seq in 0..16 {
        receiver.on_segment(Instant::START + ms(1), &segment(seq));
    }
    let mut offset = 16 * 1448;
    let mut acked = |seq: u64, len: u16| {
        let segment = Segment { offset, len, ..segment(seq) };
        offset += u64::from(len);
        receiver.on_segment(Instant::START + ms(1), &segment).is_some()
    };
    // The first counts as short; from the second on they are full-size.
    let acks: Vec<bool> = (16..22).map(|seq| acked(seq, 700)).collect();
    assert_eq!(acks, [true, false, true, false, true, false]);
}

/// A short segment ended a write; once read it is acknowledged if no data will carry the ACK
/// (`tcp_cleanup_rbuf`).
#[test]
fn a_short_segment_is_acknowledged_when_it_is_read() {
    for reads_at_once in [true, false] {
        let mut receiver = Receiver::new(ReceiverConfig { reads_at_once, ..of_window(STEADY) });
        for seq in 0..16 {
            receiver.on_segment(Instant::START + ms(1), &segment(seq));
        }
        let last = Segment { len: 300, ..segment(16) };
        let acked = receiver.on_segment(Instant::START + ms(2), &last).is_some();
        assert_eq!(acked, reads_at_once);
        if !reads_at_once {
            assert_eq!(receiver.read(Instant::START + ms(1), Bytes::new(16 * 1448)), None);
            assert_eq!(receiver.read(Instant::START + ms(1), Bytes::new(299)), None);
            assert!(receiver.read(Instant::START + ms(1), Bytes::new(1)).is_some());
        }
    }
}

#[test]
fn the_sender_respects_the_window() {
    let cc = FixedWindow { cwnd: 1000, rates: Vec::new() };
    let mut path = Path::new(cc, ms(20));
    path.receiver = Receiver::new(of_window(30 * 1448));
    path.sender.write_without_end();
    path.run_for(Duration::from_secs(1));
    assert!(path.trace.iter().all(|(_, info)| info.inflight <= 30));
    assert_eq!(path.receiver.stats().outside_window, 0);
    assert!(path.receiver.next_expected() > 500);
}

#[test]
fn duplicate_acks_are_merged_after_the_third() {
    let mut receiver = Receiver::new(of_window(STEADY));
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
