//! Orbits compared with SGP4, and properties of coordinate frames and visibility.

use proptest::prelude::*;
use skyhop_orbit::{
    Constellation, Coverage, EarthModel, EarthRotation, Ephemeris, Geodetic, Sky, Vec3,
};
use skyhop_units::{Duration, Instant, UtcInstant};

const STARLINK: &str = include_str!("../../../../data/constellations/starlink-shell1.toml");
const LEOEM: &str = include_str!("../../../../data/constellations/leoem-starlink.toml");

fn starlink() -> Constellation {
    Constellation::parse(STARLINK, "data/constellations/starlink-shell1.toml").unwrap()
}

/// SGP4 element set with the same mean orbit as satellite (plane, slot) of the first shell.
fn element_set(constellation: &Constellation, plane: u32, slot: u32) -> sgp4::Elements {
    let shell = constellation.shells[0];
    let a_m = shell.altitude.metres() + shell.reference_radius.metres();
    let inclination = shell.inclination_deg.to_radians();
    // Kozai's mean motion, which element sets use, from the semi-major axis (WGS72, first order).
    let (mu, radius_m, j2) = (3.986_008e14, 6_378_135.0, 1.082_616e-3);
    let oblateness = 1.5 * j2 * (radius_m / a_m).powi(2);
    let keplerian = f64::sqrt(mu / a_m.powi(3));
    let kozai = keplerian * (1.0 + oblateness * (1.0 - 1.5 * inclination.sin().powi(2)));
    let (planes, slots) = (f64::from(shell.planes), f64::from(shell.satellites_per_plane));
    let (plane, slot) = (f64::from(plane), f64::from(slot));
    let anomaly = 360.0 * (slot / slots + f64::from(shell.phasing) * plane / (planes * slots));
    let json = format!(
        r#"{{"OBJECT_NAME":"S","OBJECT_ID":"2019-001A","EPOCH":"2019-12-01T00:00:00.000000",
        "MEAN_MOTION":{:.12},"ECCENTRICITY":0.0000001,"INCLINATION":{},"RA_OF_ASC_NODE":{},
        "ARG_OF_PERICENTER":0,"MEAN_ANOMALY":{},"EPHEMERIS_TYPE":0,"CLASSIFICATION_TYPE":"U",
        "NORAD_CAT_ID":1,"ELEMENT_SET_NO":1,"REV_AT_EPOCH":1,"BSTAR":0,"MEAN_MOTION_DOT":0,
        "MEAN_MOTION_DDOT":0}}"#,
        kozai * 86_400.0 / std::f64::consts::TAU,
        shell.inclination_deg,
        360.0 * plane / planes,
        anomaly % 360.0,
    );
    serde_json::from_str(&json).unwrap()
}

/// Largest distance to SGP4 over the given minutes, for satellites in several planes, in metres.
fn largest_distance_to_sgp4_m(constellation: &Constellation, minutes: u64) -> f64 {
    let ephemeris = Ephemeris::new(constellation, EarthModel::Wgs84);
    let slots = constellation.shells[0].satellites_per_plane;
    let mut positions = Vec::new();
    let mut largest_m: f64 = 0.0;
    for (plane, slot) in [(0, 0), (7, 5), (23, 11), (23, 21)] {
        let elements = element_set(constellation, plane, slot);
        let constants = sgp4::Constants::from_elements(&elements).unwrap();
        for minutes in (0..=minutes).step_by(7) {
            let elapsed = Duration::from_secs(60 * minutes);
            ephemeris.inertial(constellation.epoch.after(elapsed), &mut positions);
            let ours = positions[(plane * slots + slot) as usize];
            let [x, y, z] =
                constants.propagate(sgp4::MinutesSinceEpoch(minutes as f64)).unwrap().position;
            largest_m = largest_m.max(ours.distance(Vec3::new(x, y, z) * 1e3));
        }
    }
    largest_m
}

#[test]
fn positions_stay_within_the_stated_error_of_sgp4_for_a_day() {
    for (text, name) in [(STARLINK, "starlink-shell1.toml"), (LEOEM, "leoem-starlink.toml")] {
        let constellation = Constellation::parse(text, name).unwrap();
        let [orbit_m, day_m] = [96, 1_440].map(|m| largest_distance_to_sgp4_m(&constellation, m));
        println!("{name}: from SGP4 at most {orbit_m:.0} m in an orbit, {day_m:.0} m in a day");
        assert!(day_m < 15_000.0, "{name}: {day_m} m from SGP4 in a day");
        // Periodic terms show in the first orbit; any later growth is an error of the rates.
        assert!(day_m - orbit_m < 1_000.0, "{name}: drifts from {orbit_m} m to {day_m} m");
    }
}

#[test]
fn starlinks_phasing_keeps_satellites_farthest_apart() {
    // Closest approach of two circular orbits (Speckman, Lang and Boyce 1990), for all F.
    let shell = starlink().shells[0];
    let (planes, slots) = (f64::from(shell.planes), f64::from(shell.satellites_per_plane));
    let inclination = shell.inclination_deg.to_radians();
    let closest_m = |phasing: u32| {
        let mut closest: f64 = f64::INFINITY;
        for plane in 1..shell.planes {
            for slot in 0..shell.satellites_per_plane {
                let node = std::f64::consts::TAU * f64::from(plane) / planes;
                let ahead = f64::from(slot) + f64::from(phasing) * f64::from(plane) / planes;
                let phase = std::f64::consts::TAU * ahead / slots
                    + 2.0 * (inclination.cos() * (node / 2.0).tan()).atan();
                let between = inclination.cos().powi(2) + inclination.sin().powi(2) * node.cos();
                let chord = 2.0 * ((1.0 + between) / 2.0).sqrt() * (phase / 2.0).sin().abs();
                closest = closest.min(chord * 6_928_137.0);
            }
        }
        closest
    };
    let best = (0..shell.planes).max_by(|a, b| closest_m(*a).total_cmp(&closest_m(*b))).unwrap();
    assert_eq!(best, shell.phasing);
    assert!((closest_m(best) - 71_520.0).abs() < 100.0);
}

#[test]
fn ids_are_plane_times_slots_plus_slot() {
    let constellation = starlink();
    let ephemeris = Ephemeris::new(&constellation, EarthModel::Wgs84);
    let mut positions = Vec::new();
    ephemeris.inertial(constellation.epoch, &mut positions);
    assert_eq!(positions.len(), 1584);
    // Satellite 0 is at its ascending node at the longitude of the vernal equinox.
    assert!(positions[0].distance(Vec3::new(6_928_137.0, 0.0, 0.0)) < 1e-3);
    // All satellites of a plane are perpendicular to the plane's normal.
    let (sin_i, cos_i) = 53_f64.to_radians().sin_cos();
    let (sin_n, cos_n) = 5_f64.to_radians().sin_cos();
    let normal = Vec3::new(sin_n * sin_i, -cos_n * sin_i, cos_i);
    assert!(positions[22..44].iter().all(|p| p.dot(normal).abs() < 1e-3));
    assert!(positions[44..66].iter().any(|p| p.dot(normal).abs() > 1e5));
}

/// Random places on the ground and in the air.
fn places() -> impl Strategy<Value = Geodetic> {
    (-90.0..=90.0, -180.0..180.0, -10e3..40_000e3).prop_map(
        |(latitude_deg, longitude_deg, altitude_m)| Geodetic {
            latitude_deg,
            longitude_deg,
            altitude_m,
        },
    )
}

fn moments() -> impl Strategy<Value = UtcInstant> {
    // Times are from 2000 to 2060.
    (946_684_800_i64..2_840_140_800).prop_map(|s| UtcInstant::from_unix_nanos(s * 1_000_000_000))
}

proptest! {
    #[test]
    fn geodetic_coordinates_survive_the_round_trip(place in places()) {
        let position = place.to_earth_fixed();
        let back = Geodetic::from_earth_fixed(position);
        prop_assert!((back.altitude_m - place.altitude_m).abs() < 1e-3);
        prop_assert!(back.to_earth_fixed().distance(position) < 1e-3);
    }

    #[test]
    fn inertial_coordinates_survive_the_round_trip(
        place in places(), time in moments(), date in any::<bool>()
    ) {
        let rotation = if date { EarthRotation::MeanOfDate } else { EarthRotation::J2000 }.at(time);
        let position = place.to_earth_fixed();
        let turned = rotation.transpose() * position;
        prop_assert!((turned.length() - position.length()).abs() < 1e-6);
        prop_assert!((rotation * turned).distance(position) < 1e-6);
    }

    #[test]
    fn visibility_is_symmetric(a in places(), b in places(), minimum_deg in 0.0..60.0) {
        // A satellite seen at the elevation e sees the site at the nadir angle n, with sin n = R cos e / r on a
        // sphere: the inverse must give e again.
        let site = EarthModel::LeoemSphere.site(Geodetic { altitude_m: 0.0, ..a });
        let satellite = EarthModel::LeoemSphere.site(Geodetic { altitude_m: 550e3, ..b }).position;
        let elevation_deg = site.elevation_deg(satellite);
        let sight = site.position - satellite;
        let down = satellite * -1.0;
        let nadir_deg = (sight.dot(down) / (sight.length() * down.length())).clamp(-1.0, 1.0).acos();
        let cos_from_space = nadir_deg.sin() * satellite.length() / site.position.length();
        prop_assert!((elevation_deg.to_radians().cos() - cos_from_space).abs() < 1e-6);
        // Both directions have the same length.
        prop_assert_eq!(site.range_m(satellite), satellite.distance(site.position));
        let sees = Coverage::Elevation { degrees: minimum_deg }.includes(&site, satellite);
        prop_assert_eq!(sees, elevation_deg >= minimum_deg);
    }

    #[test]
    fn the_sky_finds_exactly_what_a_look_at_every_satellite_finds(
        place in places(), offset_s in 0_u64..20_000, ranged in any::<bool>()
    ) {
        let constellation = starlink();
        let ephemeris = Ephemeris::new(&constellation, EarthModel::Wgs84);
        let site = EarthModel::Wgs84.site(Geodetic { altitude_m: 0.0, ..place });
        let coverage = if ranged {
            Coverage::Range { metres: 811_944.74 }
        } else {
            Coverage::Elevation { degrees: constellation.minimum_elevation_deg }
        };
        let mut sky = Sky::new(vec![site], coverage, &ephemeris);
        let mut positions = Vec::new();
        // The second and third update use the list of near satellites of the first; the last does not.
        for later_s in [0, 9, 20, 21] {
            let since = Duration::from_secs(offset_s + later_s);
            ephemeris.earth_fixed(constellation.epoch.after(since), &mut positions);
            sky.update(Instant::START + since, &positions);
            let found: Vec<u32> = sky.visible(0, &positions).collect();
            let all: Vec<u32> = (0..).zip(&positions)
                .filter(|(_, satellite)| coverage.includes(&site, **satellite))
                .map(|(id, _)| id)
                .collect();
            prop_assert_eq!(found, all);
        }
    }
}
