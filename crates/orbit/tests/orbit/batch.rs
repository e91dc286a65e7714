//! Satellites propagated together compared with one at a time, and with the crate sgp4.

use proptest::prelude::*;
use skyhop_orbit::{Constellation, EarthModel, ElementSet, Ephemeris, MeanElements, Vec3};
use skyhop_units::{Duration, UtcInstant};

/// Largest difference of a near-earth satellite's position from that of the crate sgp4, in metres, for any drag and up to
/// two years; for satellites of large constellations within a month of the epoch.
const PRECISION_M: f64 = 1e-3;
const USUAL_PRECISION_M: f64 = 2e-5;

fn constellation(element_sets: Vec<ElementSet>) -> Constellation {
    let gen1 = include_str!("../../../../data/constellations/starlink-gen1.toml");
    let gen1 = Constellation::parse(gen1, "starlink-gen1.toml").unwrap();
    Constellation { shells: Vec::new(), element_sets, ..gen1 }
}

fn positions(element_sets: &[ElementSet], time: UtcInstant) -> Vec<Vec3> {
    let ephemeris = Ephemeris::new(&constellation(element_sets.to_vec()), EarthModel::Wgs84);
    let mut positions = Vec::new();
    ephemeris.inertial(time, &mut positions);
    positions
}

fn epoch() -> UtcInstant {
    "2026-05-19T00:00:00Z".parse().unwrap()
}

fn bits(position: Vec3) -> [u64; 3] {
    position.to_array().map(f64::to_bits)
}

/// Elements of all kinds of orbits, near circles below a thousand kilometres more often than others.
fn element_set() -> impl Strategy<Value = Option<ElementSet>> {
    let eccentricity = prop_oneof![4 => 0.0..2e-3, 1 => 0.0..0.3, 1 => 0.0..0.9, 1 => Just(0.0)];
    let mean_motion = prop_oneof![5 => 13.0..16.6, 1 => 6.4..16.6, 1 => 0.9..6.4];
    let bstar = prop_oneof![3 => -1e-4..1e-3, 1 => -0.1..0.1, 1 => Just(0.0)];
    let angles = [0.0..360.0, 0.0..360.0, 0.0..360.0_f64];
    (0.0..180.0, eccentricity, mean_motion, bstar, angles).prop_map(
        |(
            inclination_deg,
            eccentricity,
            mean_motion_rev_per_day,
            bstar,
            [node, perigee, anomaly],
        )| {
            ElementSet::new(MeanElements {
                name: String::new(),
                catalogue_number: 0,
                epoch: epoch(),
                inclination_deg,
                node_deg: node,
                eccentricity,
                perigee_deg: perigee,
                anomaly_deg: anomaly,
                mean_motion_rev_per_day,
                bstar,
            })
            .ok()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(100)))]

    #[test]
    fn positions_are_those_of_the_crate_sgp4(
        sets in prop::collection::vec(element_set(), 1..80),
        hours in prop_oneof![3 => -200_i64..800, 1 => -20_000_i64..20_000],
    ) {
        let sets: Vec<ElementSet> = sets.into_iter().flatten().collect();
        let time = UtcInstant::from_unix_nanos(epoch().unix_nanos() + hours * 3_600_000_000_000);
        for (set, ours) in sets.iter().zip(positions(&sets, time)) {
            match set.position(time) {
                None => prop_assert!(ours.x.is_nan(), "{:?}: {ours}", set.elements()),
                Some(theirs) => {
                    // Drag takes some orbits beyond all satellites near the Earth, where the last digits are large.
                    let has_left = theirs.length() > 5e7;
                    let limit_m = if has_left { theirs.length() * 1e-9 } else { PRECISION_M };
                    prop_assert!(
                        ours.distance(theirs) < limit_m,
                        "{:?} after {hours} h: {ours} {theirs}", set.elements()
                    );
                }
            }
        }
    }
}

/// Many satellites like those of large constellations, some of them in deep space or decayed.
fn many() -> Vec<ElementSet> {
    let set = |n: u32| {
        let deep = n.is_multiple_of(97);
        let n = f64::from(n);
        ElementSet::new(MeanElements {
            name: String::new(),
            catalogue_number: n as u64,
            epoch: epoch(),
            inclination_deg: [43.0, 53.0, 53.2, 70.0, 97.6][n as usize % 5],
            node_deg: (n * 5.0) % 360.0,
            eccentricity: if deep { 0.7 } else { 1e-4 + 1e-7 * n },
            perigee_deg: (n * 7.0) % 360.0,
            anomaly_deg: (n * 16.4) % 360.0,
            mean_motion_rev_per_day: if deep { 2.0 } else { 15.05 + 1e-5 * n },
            bstar: if (n as usize).is_multiple_of(89) { 0.5 } else { 2e-4 },
        })
        .unwrap()
    };
    (0..5_000).map(set).collect()
}

#[test]
fn a_satellite_is_at_the_same_place_in_every_batch_and_alone() {
    let sets = many();
    let ephemeris = Ephemeris::new(&constellation(sets.clone()), EarthModel::Wgs84);
    let mut all = Vec::new();
    for hours in [0, 1, 700] {
        let time = epoch().after(Duration::from_secs(hours * 3_600));
        // So many satellites are shared out to threads; few are not.
        ephemeris.inertial(time, &mut all);
        for first in [0, 1, 7, 16, 4_321] {
            let batch = &sets[first..first + 600];
            for (in_batch, in_all) in positions(batch, time).into_iter().zip(&all[first..]) {
                assert_eq!(bits(in_batch), bits(*in_all));
            }
        }
        ephemeris.earth_fixed(time, &mut all);
        for (id, position) in (0..).zip(&all) {
            assert_eq!(bits(ephemeris.earth_fixed_of(id, time)), bits(*position));
        }
    }
    assert!(all.iter().any(|position| position.x.is_nan()), "some satellites have decayed");
}

#[test]
fn satellites_of_large_constellations_are_where_the_crate_sgp4_puts_them() {
    let sets = many();
    for hours in [-24, 1, 100, 700] {
        let time = UtcInstant::from_unix_nanos(epoch().unix_nanos() + hours * 3_600_000_000_000);
        for (set, ours) in sets.iter().zip(positions(&sets, time)) {
            let Some(theirs) = set.position(time) else { continue };
            assert!(
                ours.distance(theirs) < USUAL_PRECISION_M,
                "{:?} {ours} {theirs}",
                set.elements()
            );
        }
    }
}
