//! Connections without SACK (RFC 5681, RFC 6582), and without timestamps.

use skyhop_tcp::{HostConfig, Receiver, ReceiverConfig, SenderConfig};
use skyhop_units::{Duration, Instant};

use crate::path::{Path, exact_timers, lose_once, ms};
use crate::reno::Reno;
use crate::trouble::Trouble;

fn without_sack(timestamps: bool) -> Path<Reno> {
    let host = HostConfig { sack: false, timestamps, ..exact_timers().sender.host };
    let sender = SenderConfig { host, ..exact_timers().sender };
    let mut path = Path::with_config(sender, Reno::default(), ms(20));
    path.receiver = Receiver::new(ReceiverConfig { host, ..exact_timers().receiver });
    path.with_bottleneck("10 Mbit/s", 100_000)
}

/// Three duplicate ACKs signal a loss (RFC 5681 3.2).
#[test]
fn a_loss_is_repaired_after_three_duplicate_acks() {
    let mut path = without_sack(true);
    path.judge_segment = Box::new(lose_once([50]));
    path.transfer(300);
    path.run_to_completion(Duration::from_secs(3));
    let info = path.sender.info();
    assert_eq!(path.retransmissions(), [50]);
    assert_eq!((info.timeouts, info.recoveries, info.probes), (0, 1, 0));
    assert!(path.acks.iter().all(|(_, ack)| ack.sack.is_empty()));
}

/// A partial ACK shows the next hole, one each round trip (RFC 6582 3.2 step 3).
#[test]
fn partial_acks_repair_a_hole_per_round_trip() {
    let mut path = without_sack(true);
    path.judge_segment = Box::new(lose_once([100, 103, 106]));
    path.transfer(600);
    path.run_to_completion(Duration::from_secs(5));
    let info = path.sender.info();
    assert_eq!(path.retransmissions(), [100, 103, 106]);
    assert_eq!((info.timeouts, info.recoveries), (0, 1));
    let times: Vec<Instant> =
        path.sent.iter().filter(|(_, s)| s.retransmission).map(|(at, _)| *at).collect();
    assert!(times.windows(2).all(|two| two[1] - two[0] >= ms(40)), "{times:?}");
}

#[test]
fn everything_arrives_whatever_is_lost() {
    for seed in 0..skyhop_needs::cases(30) {
        let mut path = without_sack(seed % 2 == 0);
        let mut segments = Trouble::of_loss(20_000, seed.into());
        let mut acks = Trouble::of_loss(20_000, u64::from(seed) + 1000);
        path.judge_segment = Box::new(move |_, _| segments.fate());
        path.judge_ack = Box::new(move |_, _| acks.fate());
        path.transfer(2000);
        path.run_to_completion(Duration::from_secs(600));
        assert_eq!(path.receiver.next_expected(), 2000, "seed {seed}");
    }
}

/// Every packet is twelve bytes shorter without timestamps (RFC 7323 appendix A).
#[test]
fn packets_without_timestamps_are_shorter() {
    let mut path = without_sack(false);
    path.transfer(10);
    path.run_to_completion(Duration::from_secs(1));
    assert!(path.sent.iter().all(|(_, s)| s.ip_size().as_u64() == 40 + 1448 && s.tsecr == 0));
    assert!(path.acks.iter().all(|(_, ack)| ack.tsval == 0 && ack.ip_size().as_u64() <= 52));
}
