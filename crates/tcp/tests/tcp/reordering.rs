//! Packets that arrive late instead of being lost.

use skyhop_tcp::SegmentKind;
use skyhop_units::Duration;

use crate::path::{Fate, Path, ms};
use crate::reno::Reno;

fn delaying(
    every: u64,
    from: u64,
    extra: Duration,
) -> impl FnMut(skyhop_units::Instant, &skyhop_tcp::Segment) -> Fate {
    move |_, segment| {
        let data = segment.kind == SegmentKind::Data && !segment.retransmission;
        if data && segment.seq >= from && segment.seq % every == 0 {
            Fate::Late(extra)
        } else {
            Fate::Arrives
        }
    }
}

#[test]
fn less_than_a_quarter_of_the_rtt_is_waited_out() {
    let mut path = Path::new(Reno::default(), ms(20)).with_bottleneck("10 Mbit/s", 100_000);
    // The delay is less than three segments (2.4 ms) at first, so that reordering is detected.
    path.judge_segment = Box::new(delaying(50, 40, ms(2)));
    path.transfer(400);
    path.run_to_completion(Duration::from_secs(5));
    assert_eq!(path.retransmissions(), Vec::<u64>::new());

    let mut path = Path::new(Reno::default(), ms(20)).with_bottleneck("10 Mbit/s", 100_000);
    let mut early = delaying(50, 40, ms(2));
    // A burst may take up to 2 ms longer to leave than to arrive.
    let mut later = delaying(50, 200, ms(8));
    path.judge_segment =
        Box::new(
            move |now, segment| {
                if segment.seq < 200 { early(now, segment) } else { later(now, segment) }
            },
        );
    path.transfer(1000);
    path.run_to_completion(Duration::from_secs(5));
    assert_eq!(path.retransmissions(), Vec::<u64>::new());
    assert!(path.sender.info().reordering > 3);
}

#[test]
fn more_than_that_is_undone_by_dsack_and_learnt_from() {
    let mut path = Path::new(Reno::default(), ms(20)).with_bottleneck("10 Mbit/s", 100_000);
    path.judge_segment = Box::new(delaying(200, 200, ms(25)));
    path.transfer(6000);
    path.run_to_completion(Duration::from_secs(20));
    let info = path.sender.info();
    assert!(info.undos >= 1, "{info:?}");
    assert_eq!(info.timeouts, 0);
    let resent = path.retransmissions();
    assert!(!resent.is_empty());
    // 29 segments were late; the reordering window grows by a quarter RTT per D-SACK until the
    // lateness fits.
    assert!(resent.len() <= 6, "{resent:?}");
    assert!(resent.iter().all(|seq| *seq < 2000), "{resent:?}");
    assert_eq!(path.receiver.stats().duplicates, resent.len() as u64);
}

#[test]
fn duplicates_made_by_the_network_change_nothing() {
    let mut path = Path::new(Reno::default(), ms(20)).judging_segments(|_, segment| {
        if segment.seq % 7 == 3 { Fate::Twice } else { Fate::Arrives }
    });
    path.transfer(500);
    path.run_to_completion(Duration::from_secs(3));
    assert_eq!(path.retransmissions(), Vec::<u64>::new());
    assert_eq!(path.sender.info().ssthresh, None);
}
