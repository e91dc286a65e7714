//! Loads of a network's links as an earlier run recorded them.

use std::collections::BTreeMap;

use skyhop_path::network::{Leg, LegBits, Loads};
use skyhop_units::{Duration, Instant, Rate};

const MBPS: u64 = 1_000_000;

fn ms(ms: u64) -> Instant {
    Instant::START + Duration::from_millis(ms)
}

/// Samples of a link with these loads in Mbit/s, from a time on.
fn sampled(leg: Leg, from_ms: u64, mbps: &[u64]) -> Vec<LegBits> {
    let sample = |(number, mbps): (u64, &u64)| {
        let from = ms(from_ms + 100 * number);
        LegBits { from, until: from + Duration::from_millis(100), leg, bits: mbps * MBPS / 10 }
    };
    (0..).zip(mbps).map(sample).collect()
}

fn plenty(_: Leg) -> Rate {
    Rate::from_bits_per_second(1_000 * MBPS)
}

/// Loads in Mbit/s over time in ms.
fn over_time(pieces: &[(Instant, Rate)]) -> Vec<(u64, f64)> {
    let of = |(from, load): &(Instant, Rate)| {
        (from.as_nanos() / 1_000_000, load.bits_per_second() as f64 / MBPS as f64)
    };
    pieces.iter().map(of).collect()
}

#[test]
fn each_sample_is_a_load_and_times_without_samples_have_none() {
    let leg = Leg::Up(3);
    let mut samples = sampled(leg, 0, &[2, 2, 5]);
    samples.extend(sampled(leg, 500, &[1]));
    // The last sample of a run may be shorter.
    samples.push(LegBits { from: ms(600), until: ms(650), leg, bits: 4 * MBPS / 20 });
    let loads = Loads::recorded(&samples, &plenty);
    let expected = [(0, 2.0), (200, 5.0), (300, 0.0), (500, 1.0), (600, 4.0), (650, 0.0)];
    assert_eq!(over_time(&loads.legs[&leg]), expected);
    let bits = 1.2 * MBPS as f64;
    for sum in [loads.demanded_bits, loads.routed_bits, loads.carried_bits] {
        assert!((sum - bits).abs() < 1.0, "{sum}");
    }
    assert!(loads.over.is_empty());
    assert_eq!(Loads::recorded(&[], &plenty), Loads::default());
}

#[test]
fn a_link_carries_at_most_its_room() {
    let leg = Leg::Laser(1, 2);
    let room = |_| Rate::from_bits_per_second(4 * MBPS);
    let loads = Loads::recorded(&sampled(leg, 100, &[3, 9]), &room);
    assert_eq!(over_time(&loads.legs[&leg]), [(0, 0.0), (100, 3.0), (200, 4.0), (300, 0.0)]);
    let [demanded, carried] = [loads.demanded_bits, loads.carried_bits].map(|bits| bits / 1e5);
    assert_eq!([demanded, carried].map(f64::round), [12.0, 7.0]);
}

/// Loads in Mbit/s of a link by the laser over which they come.
fn over(loads: &Loads, leg: Leg) -> BTreeMap<Leg, f64> {
    let of_leg = loads.over.iter().filter(|([to, _], _)| *to == leg);
    of_leg.map(|([_, from], pieces)| (*from, over_time(pieces)[0].1)).collect()
}

#[test]
fn a_load_comes_over_the_lasers_that_lead_to_its_satellite() {
    let recorded = |loads: &[(Leg, u64)]| {
        let samples = loads.iter().flat_map(|(leg, mbps)| sampled(*leg, 0, &[*mbps]));
        Loads::recorded(&samples.collect::<Vec<_>>(), &plenty)
    };
    let (there, on) = (Leg::Laser(1, 2), Leg::Laser(2, 3));
    // Both directions of one route: nothing turns back.
    let back = [(Leg::Laser(3, 2), 6), (Leg::Laser(2, 1), 6)];
    let loads = recorded(&[&[(there, 8), (on, 8)], &back[..]].concat());
    assert_eq!(over(&loads, on), BTreeMap::from([(there, 8.0)]));
    assert_eq!(over(&loads, Leg::Laser(2, 1)), BTreeMap::from([(Leg::Laser(3, 2), 6.0)]));
    // Sites add 4 of the 12.
    let loads = recorded(&[(there, 8), (on, 9), (Leg::Down(2), 3)]);
    assert_eq!(over(&loads, on), BTreeMap::from([(there, 6.0)]));
    assert_eq!(over(&loads, Leg::Down(2)), BTreeMap::from([(there, 2.0)]));
    // Two lasers feed two links in proportion.
    let other = Leg::Laser(4, 2);
    let loads = recorded(&[(there, 6), (other, 2), (on, 4), (Leg::GatewayDown(2), 4)]);
    assert_eq!(over(&loads, on), BTreeMap::from([(there, 3.0), (other, 1.0)]));
    // Nothing comes over lasers to uplinks, or to the downlinks of several satellites.
    let loads = recorded(&[(there, 6), (Leg::Up(2), 3), (Leg::OwnDown(2), 3)]);
    assert!(loads.over.is_empty(), "{:?}", loads.over);
}
