//! Losses in bursts: their mean, their lengths, and what they do not depend on.

use std::collections::BTreeSet;

use skyhop_link::{Limit, Link, LinkConfig, LinkSchedule, Loss, Packet, Piece, QueueDiscipline};
use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};

/// Loss from the keys of its table, as in a scenario.
fn bursts(keys: &str) -> Loss {
    let json = format!(r#"{{"kind": "gilbert-elliott", {keys}}}"#);
    serde_json::from_str(&json).expect("a loss")
}

/// Link whose packets leave the queue 12 ns after they arrive.
fn link(losses: Vec<Piece<Loss>>, seed: u64) -> Link<u64> {
    let rate = Rate::from_bits_per_second(1_000_000_000_000);
    let mut schedule = LinkSchedule::fixed(Duration::ZERO, rate, Ratio::ZERO);
    schedule.loss = losses;
    let (qdisc, queue) = (QueueDiscipline::default(), Limit::Packets(1));
    Link::new(LinkConfig { schedule, qdisc, queue, seed }).expect("a link")
}

fn at_us(us: u64) -> Instant {
    Instant::START + Duration::from_micros(us)
}

/// Times in us of those packets that are lost at random, of packets that arrive at these times.
fn lost_of(
    losses: Vec<Piece<Loss>>,
    seed: u64,
    times_us: impl Iterator<Item = u64>,
) -> BTreeSet<u64> {
    let (mut link, mut lost) = (link(losses, seed), BTreeSet::new());
    for us in times_us {
        link.enqueue(at_us(us), Packet::new(Bytes::new(1_500), us));
        while link.poll(at_us(us)).is_some() {}
        lost.extend(link.take_drops().into_iter().map(|drop| drop.packet.payload));
    }
    let end = Instant::START + Duration::from_secs(1_000_000);
    while link.poll(end).is_some() {}
    lost.extend(link.take_drops().into_iter().map(|drop| drop.packet.payload));
    lost
}

/// Times of packets that are lost with one loss throughout.
fn lost(loss: Loss, seed: u64, times_us: impl Iterator<Item = u64>) -> BTreeSet<u64> {
    lost_of(vec![Piece { from: Instant::START, value: loss }], seed, times_us)
}

/// Lengths in packets of the runs of consecutive losses, of packets that arrive every `each_us`.
fn runs(lost: &BTreeSet<u64>, each_us: u64) -> Vec<f64> {
    let mut lengths: Vec<f64> = Vec::new();
    for us in lost {
        match lengths.last_mut() {
            Some(length) if us.checked_sub(each_us).is_some_and(|last| lost.contains(&last)) => {
                *length += 1.0;
            }
            _ => lengths.push(1.0),
        }
    }
    lengths
}

#[track_caller]
fn near(found: f64, expected: f64, deviation: f64) {
    let difference = (found - expected).abs();
    assert!(difference < 4.0 * deviation, "{found} is not {expected} +- {deviation}");
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn losses_per_packet_have_the_mean_and_the_runs_of_the_chain() {
    const PACKETS: u64 = 200_000;
    let every_us = || (0..PACKETS).map(|packet| packet * 10);
    let loss = bursts(r#""p": "1 %", "r": "20 %", "bad_loss": "80 %", "good_loss": "0.5 %""#);
    let share = lost(loss, 3, every_us()).len() as f64 / PACKETS as f64;
    // (p * bad_loss + r * good_loss) / (p + r); the packets' losses are correlated by 1 - p - r.
    let expected = (0.01 * 0.8 + 0.2 * 0.005) / 0.21;
    near(loss.mean(), expected, 1e-12);
    near(share, expected, (0.257 / PACKETS as f64).sqrt());
    // Runs are geometric: 1/r packets on average, and a share r of them has one packet.
    let lengths = runs(&lost(bursts(r#""p": "1 %", "r": "20 %""#), 3, every_us()), 10);
    let count = lengths.len() as f64;
    near(mean(&lengths), 5.0, (0.8_f64 / 0.04 / count).sqrt());
    let single = lengths.iter().filter(|length| **length == 1.0).count() as f64;
    near(single / count, 0.2, (0.2 * 0.8 / count).sqrt());
    // With bad_loss a run has 1 / (1 - (1 - r) * bad_loss) packets on average.
    let half = lost(bursts(r#""p": "1 %", "r": "20 %", "bad_loss": "50 %""#), 3, every_us());
    let lengths = runs(&half, 10);
    near(mean(&lengths), 1.0 / 0.6, (0.4_f64 / 0.36 / lengths.len() as f64).sqrt());
}

#[test]
fn losses_in_time_have_the_mean_and_the_exponential_lengths_of_the_periods() {
    const PACKETS: u64 = 400_000;
    let loss = bursts(r#""good": "300 ms", "bad": "100 ms""#);
    let lost = lost(loss, 3, (0..PACKETS).map(|ms| ms * 1_000));
    near(loss.mean(), 0.25, 1e-12);
    near(lost.len() as f64 / PACKETS as f64, 0.25, 0.0084);
    let lengths = runs(&lost, 1_000);
    let count = lengths.len() as f64;
    near(count, 1_000.0, 25.0);
    // Periods of less than a millisecond may fall between two packets.
    near(mean(&lengths), 100.5, 100.0 / count.sqrt());
    let long = lengths.iter().filter(|length| **length > 100.0).count() as f64;
    near(long / count, (-1.0_f64).exp(), (0.368 * 0.632 / count).sqrt());
}

#[test]
fn when_bursts_in_time_come_does_not_depend_on_the_packets() {
    let loss = bursts(r#""good": "30 ms", "bad": "10 ms""#);
    let dense = lost(loss, 5, 0..1_000_000);
    for each_us in [7, 1_000, 33_333] {
        let sparse = lost(loss, 5, (0..1_000_000).step_by(each_us));
        let expected = dense.iter().copied().filter(|us| us.is_multiple_of(each_us as u64));
        assert!(sparse.into_iter().eq(expected), "every {each_us} us");
    }
    // The chance of each packet in a bad period does not move the periods.
    let half = bursts(r#""good": "30 ms", "bad": "10 ms", "bad_loss": "50 %""#);
    let some = lost(half, 5, 0..1_000_000);
    assert!(some.is_subset(&dense) && some.len() < dense.len());
}

#[test]
fn losses_per_packet_count_packets_and_not_time() {
    let loss = bursts(r#""p": "5 %", "r": "20 %""#);
    let fast = lost(loss, 5, 0..10_000);
    let slow: BTreeSet<u64> =
        lost(loss, 5, (0..10_000).map(|packet| packet * 777)).iter().map(|us| us / 777).collect();
    assert_eq!(fast, slow);
}

#[test]
fn the_same_seed_has_the_same_bursts_and_another_seed_has_others() {
    for keys in [r#""p": "5 %", "r": "20 %""#, r#""good": "30 ms", "bad": "10 ms""#] {
        let of = |seed| lost(bursts(keys), seed, (0..1_000).map(|ms| ms * 1_000));
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}

#[test]
fn a_link_begins_in_the_bad_state_as_often_as_it_is_in_it() {
    for keys in [r#""p": "5 %", "r": "15 %""#, r#""good": "30 ms", "bad": "10 ms""#] {
        let first = (0..2_000).filter(|seed| !lost(bursts(keys), *seed, 0..1).is_empty());
        near(first.count() as f64 / 2_000.0, 0.25, (0.25_f64 * 0.75 / 2_000.0).sqrt());
    }
}

#[test]
fn each_piece_of_the_schedule_has_bursts_of_its_own() {
    let piece = |us, value| Piece { from: at_us(us), value };
    let (loss, none) = (bursts(r#""good": "30 ms", "bad": "10 ms""#), Loss::NONE);
    let losses = vec![piece(0, loss), piece(400_000, none), piece(600_000, loss)];
    let all = lost_of(losses.clone(), 5, 0..1_000_000);
    assert!(all.range(400_000..600_000).next().is_none(), "a loss of 0 % ends the bursts");
    let [before, after] = [all.range(..400_000), all.range(600_000..)];
    assert!(before.clone().map(|us| us + 600_000).ne(after.clone().copied()));
    // Packets of earlier pieces change nothing.
    let late = lost_of(losses, 5, 600_000..1_000_000);
    assert!(late.iter().eq(after));
}
