//! Estimates of cc/flight.h of packets' departures, compared with what the sender itself had in flight then.

use std::collections::HashMap;

use skyhop_cc::{CongestionControl, Instance, Module};
use skyhop_units::{Duration, Instant};

use crate::path::{Fate, Path, ms};

/// Errors of the module's estimates, packet by packet: (of the packets in flight, of the packets lost, whether
/// it was a retransmission).
type Misses = Vec<(i64, i64, bool)>;

fn departures(
    rate: &str,
    queue: u64,
    mut judge: impl FnMut(u64) -> bool + 'static,
) -> Path<Instance> {
    let cc = Instance::new(Module::fixture("departures"), &[]).expect("a whole module");
    Path::new(cc, ms(20)).with_bottleneck(rate, queue).judging_segments(move |_, segment| {
        if judge(segment.seq) && !segment.retransmission { Fate::Lost } else { Fate::Arrives }
    })
}

fn run(path: &mut Path<Instance>, seconds: u64) -> Misses {
    let mut departed: HashMap<u64, (i64, i64, bool)> = HashMap::new();
    let mut misses = Vec::new();
    path.sender.write_without_end();
    while path.step(Instant::START + Duration::from_secs(seconds)) {
        for phase in path.sender.congestion_control().take_phases() {
            let seq = phase.begin_ns / 1448 - 1;
            let (in_flight, lost) = ((phase.end_ns >> 32) as i64, i64::from(phase.end_ns as u32));
            if let Some(&(true_in_flight, true_lost, again)) = departed.get(&seq) {
                misses.push((in_flight - true_in_flight, lost - true_lost, again));
            }
        }
        // Between two ACKs only departures change the packets in flight, each by one.
        let info = path.sender.info();
        for (back, (_, segment)) in path.sent.drain(..).rev().enumerate() {
            let truth =
                (i64::from(info.inflight) - back as i64, info.lost as i64, segment.retransmission);
            departed.entry(segment.seq).and_modify(|first| *first = truth).or_insert(truth);
        }
    }
    misses
}

fn share(misses: &[(i64, i64, bool)], is_right: impl Fn(&(i64, i64, bool)) -> bool) -> f64 {
    misses.iter().filter(|miss| is_right(miss)).count() as f64 / misses.len() as f64
}

#[test]
fn without_losses_every_packet_is_right() {
    for rate in ["5 Mbit/s", "50 Mbit/s", "500 Mbit/s"] {
        let misses = run(&mut departures(rate, 20_000, |_| false), 5);
        assert!(misses.len() > 1000, "{rate}: {}", misses.len());
        let wrong: Misses = misses.into_iter().filter(|miss| (miss.0, miss.1) != (0, 0)).collect();
        assert!(wrong.is_empty(), "{rate}: {} such as {:?}", wrong.len(), wrong[0]);
    }
}

/// One packet in a hundred is lost, at a window of 170 packets.
#[test]
fn with_losses_new_data_is_right_and_what_is_sent_again_nearly() {
    let misses = run(&mut departures("50 Mbit/s", 165, |seq| seq % 97 == 0), 20);
    let of_kind =
        |again: bool| -> Misses { misses.iter().filter(|miss| miss.2 == again).copied().collect() };
    let (new, again) = (of_kind(false), of_kind(true));
    println!("{} new, {} again", new.len(), again.len());
    for (kind, misses) in [("new", &new), ("again", &again)] {
        let farthest = misses.iter().map(|miss| miss.0.abs()).max();
        let (in_flight, lost) = (share(misses, |m| m.0 == 0), share(misses, |m| m.1 == 0));
        println!("{kind}: in flight {in_flight:.4}, lost {lost:.4}, farthest {farthest:?}");
    }
    assert!(again.len() > 100);
    assert!(new.iter().all(|miss| (miss.0, miss.1) == (0, 0)));
    assert!(share(&again, |miss| miss.0 == 0) > 0.9);
    assert!(again.iter().all(|miss| miss.0.abs() <= 5 && miss.1 == 0));
}

/// Beyond 256 packets in flight there is no longer a snapshot for every ACK.
#[test]
fn a_large_window_with_losses_is_right_within_a_few_packets() {
    let misses = run(&mut departures("500 Mbit/s", 1700, |seq| seq % 997 == 0), 10);
    assert!(misses.len() > 10_000);
    let within = share(&misses, |miss| miss.0.abs() <= 4 && miss.1.abs() <= 1);
    println!("within four and one: {within:.4}");
    assert!(within > 0.97, "{within}");
}
