//! Initial receive window and its growth (Linux's `rcv_ssthresh` and receiver auto-tuning), and the ACKs that
//! they cause.

use skyhop_model::{BufferSizes, Profile};
use skyhop_tcp::{HostConfig, Receiver, ReceiverConfig, Segment, SegmentKind};
use skyhop_units::{Bytes, Duration, Instant};

use crate::path::{Path, exact_timers, ms};
use crate::receiving::{of_window, segment};
use crate::reno::FixedWindow;

fn of(profile: Profile) -> ReceiverConfig {
    let rmem = BufferSizes::rmem(profile);
    let host = HostConfig { profile, ..exact_timers().receiver.host };
    ReceiverConfig { host, rmem, ..exact_timers().receiver }
}

/// The initial window is half of tcp_rmem's 128 KiB in whole segments; before 4.20, 20 segments
/// (`tcp_select_initial_window`).
#[test]
fn the_first_window_is_that_of_the_kernel() {
    for (profile, window) in [
        (Profile::Linux4_15, 28_960),
        (Profile::Linux5_4, 65_160),
        (Profile::Linux6_12, 65_160),
        (Profile::Linux6_18, 65_160),
    ] {
        let mut receiver = Receiver::new(of(profile));
        let syn = Segment { kind: SegmentKind::Syn, len: 0, ..segment(0) };
        let ack = receiver.on_segment(Instant::START, &syn).expect("a SYN-ACK");
        assert_eq!(ack.window, window, "{profile}");
    }
}

/// The window grows by two segments for each that arrives, which is then acknowledged at once
/// (`tcp_grow_window`).
#[test]
fn while_the_window_grows_every_segment_is_acknowledged() {
    let rmem = BufferSizes { initial: Bytes::new(87_380), max: Bytes::new(6 << 20) };
    let mut receiver = Receiver::new(ReceiverConfig { rmem, ..of(Profile::Linux4_15) });
    let windows: Vec<Option<u64>> = (0..100)
        .map(|seq| receiver.on_segment(Instant::START + ms(seq), &segment(seq)))
        .map(|ack| ack.map(|ack| ack.window))
        .collect();
    // The window grows from 20 segments to the half of 375,040 bytes (`tcp_fixup_rcvbuf`), advertised in steps
    // of 128.
    let grown = windows.iter().position(Option::is_none).expect("it stands some time");
    assert!((50..75).contains(&grown), "{windows:?}");
    for (before, after) in windows[..50].iter().zip(&windows[1..50]) {
        let step = after.expect("an ACK") - before.expect("an ACK");
        assert!((2 * 1448 - 128..=2 * 1448 + 128).contains(&step), "{windows:?}");
    }
    assert_eq!(windows[80..].iter().filter(|window| window.is_some()).count(), 10);
}

/// Most segments in flight in each of the round trips of 100 ms, for a sender that would send 1500 segments at
/// once.
fn in_flight(config: ReceiverConfig) -> Vec<u32> {
    let mut path = Path::new(FixedWindow { cwnd: 1500, rates: Vec::new() }, ms(50));
    path.receiver = Receiver::new(config);
    path.sender.write_without_end();
    path.run_for(Duration::from_secs(2));
    let most = |round: u64| {
        let at = Instant::START + ms(100) * round;
        let of_round = path.trace.iter().filter(|(time, _)| (at..at + ms(100)).contains(time));
        of_round.map(|(_, info)| info.inflight).max().unwrap_or(0)
    };
    (1..20).map(most).collect()
}

/// The data of a round trip sizes the buffer for the next ones, so it takes several until a window is used that
/// is there from the start (`tcp_rcv_space_adjust`).
#[test]
fn the_window_grows_with_what_comes_in_a_round_trip() {
    for profile in Profile::ALL {
        let rounds = in_flight(of(*profile));
        assert!(rounds[0] <= 45, "{profile}: {rounds:?}");
        assert!(rounds[3] < 1000, "{profile}: {rounds:?}");
        assert_eq!(rounds[18], 1500, "{profile}: {rounds:?}");
        let few = rounds.iter().filter(|most| **most < 1500).count();
        assert!((4..15).contains(&few), "{profile}: {rounds:?}");
    }
}

#[test]
fn the_buffers_largest_size_limits_the_window() {
    let rmem = BufferSizes { initial: Bytes::new(131_072), max: Bytes::new(1 << 20) };
    let rounds = in_flight(ReceiverConfig { rmem, ..of(Profile::Linux6_12) });
    // The payload is 160 of 256 parts of the memory.
    let most = (1 << 20) * 160 / 256 / 1448;
    assert!((most - 5..=most + 2).contains(&rounds[18]), "{rounds:?}");
    assert!(in_flight(of_window(65_160)).iter().all(|most| *most <= 45));
}

/// A burst of three segments: the first two get an ACK each, and since 6.6 the pushed one gets another when it
/// has been read.
#[test]
fn the_end_of_a_burst_is_acknowledged_when_it_has_been_read() {
    for (profile, per_burst) in [(Profile::Linux5_4, vec![1, 2]), (Profile::Linux6_12, vec![2])] {
        let mut config = of_window(45 * 1448);
        config.host.profile = profile;
        let mut receiver = Receiver::new(config);
        let mut acks = Vec::new();
        for burst in 0..40_u64 {
            let at = Instant::START + ms(burst);
            let of_burst = (3 * burst..3 * burst + 3)
                .map(|seq| Segment { push: seq % 3 == 2, ..segment(seq) })
                .filter(|segment| receiver.on_segment(at, segment).is_some());
            acks.push(of_burst.count());
        }
        let mut seen = acks[20..].to_vec();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, per_burst, "{profile}: {acks:?}");
    }
}
