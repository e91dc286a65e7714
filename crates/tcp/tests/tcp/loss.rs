//! Detection and repair of losses.

use skyhop_model::CongestionState;
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
    assert_eq!(info.ca_state, CongestionState::Open);
    assert_eq!(info.lost, 1);
}

#[test]
fn the_whole_recovery_takes_one_round_trip_when_the_window_allows() {
    // Segments sent at the same time would have no order in time.
    let mut path = Path::new(Reno::default(), ms(50)).with_bottleneck("1 Gbit/s", 100_000);
    path.judge_segment = Box::new(lose_once([100, 101, 140]));
    path.sender.write_without_end();
    path.run_for(Duration::from_secs(2));
    let times: Vec<Instant> =
        path.sent.iter().filter(|(_, s)| s.retransmission).map(|(at, _)| *at).collect();
    assert_eq!(times.len(), 3);
    assert!(times[2] - times[0] < ms(100));
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
