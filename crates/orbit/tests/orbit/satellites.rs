//! Satellites of every kind: positions one at a time and all at once, and avoidance of the geostationary arc.

use proptest::prelude::*;
use skyhop_orbit::{
    Constellation, Coverage, EarthModel, ElementSet, Ephemeris, GEOSTATIONARY_RADIUS_M, Geodetic,
    MeanElements, Sky, Vec3,
};
use skyhop_units::{Duration, Instant};

/// Constellation of two shells, a geostationary satellite and two by element set.
fn mixed() -> Constellation {
    let gen1 = include_str!("../../../../data/constellations/starlink-gen1.toml");
    let geo = include_str!("../../../../data/constellations/geo-americas.toml");
    let mut mixed = Constellation::parse(gen1, "starlink-gen1.toml").unwrap();
    mixed.shells.truncate(2);
    mixed.geostationary = Constellation::parse(geo, "geo-americas.toml").unwrap().geostationary;
    let set = |node_deg: f64| {
        ElementSet::new(MeanElements {
            name: "S".to_owned(),
            catalogue_number: node_deg as u64,
            epoch: mixed.epoch,
            inclination_deg: 97.6,
            node_deg,
            eccentricity: 1e-3,
            perigee_deg: 10.0,
            anomaly_deg: 20.0,
            mean_motion_rev_per_day: 15.0,
            bstar: 1e-4,
        })
        .unwrap()
    };
    mixed.element_sets = vec![set(0.0), set(100.0)];
    mixed
}

#[test]
fn one_satellite_is_where_it_is_among_all() {
    let constellation = mixed();
    let ephemeris = Ephemeris::new(&constellation, EarthModel::Wgs84);
    let mut positions = Vec::new();
    for second in [0, 1, 5_000] {
        let time = constellation.epoch.after(Duration::from_secs(second));
        ephemeris.earth_fixed(time, &mut positions);
        assert_eq!(positions.len(), 2 * 1584 + 3 + 2);
        for (id, position) in (0..).zip(&positions) {
            assert!(ephemeris.earth_fixed_of(id, time).distance(*position) < 1e-6);
        }
        assert!(ephemeris.earth_fixed_of(positions.len() as u32, time).x.is_nan());
        // Geostationary satellites stay above the equator at the longitude of the file.
        let jupiter = Geodetic::from_earth_fixed(positions[2 * 1584]);
        assert!((jupiter.longitude_deg + 95.2).abs() < 1e-9 && jupiter.latitude_deg.abs() < 1e-9);
    }
}

#[test]
fn inertial_axes_turn_under_a_geostationary_satellite() {
    let constellation = mixed();
    let ephemeris = Ephemeris::new(&constellation, EarthModel::Wgs84);
    let (mut first, mut later) = (Vec::new(), Vec::new());
    ephemeris.inertial(constellation.epoch, &mut first);
    ephemeris.inertial(constellation.epoch.after(Duration::from_secs(86_164)), &mut later);
    let moved_m = first[2 * 1584].distance(later[2 * 1584]);
    assert!(moved_m < 1_000.0, "{moved_m} m in a sidereal day");
}

/// Angle between a direction and the geostationary arc above the horizon, by exhaustive search.
fn angle_to_arc_deg(site: &skyhop_orbit::Site, sight: Vec3) -> f64 {
    let mut nearest: f64 = 180.0;
    for step in 0..36_000 {
        let (sin, cos) = (f64::from(step) / 100.0).to_radians().sin_cos();
        let arc = Vec3::new(cos, sin, 0.0) * GEOSTATIONARY_RADIUS_M - site.position;
        if arc.dot(site.up) > 0.0 {
            let cos = arc.dot(sight) / (arc.length() * sight.length());
            nearest = nearest.min(cos.clamp(-1.0, 1.0).acos().to_degrees());
        }
    }
    nearest
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(skyhop_needs::cases(24)))]

    #[test]
    fn nothing_near_the_geostationary_arc_is_used(
        latitude_deg in -60.0..60.0, longitude_deg in -180.0..180.0, avoided_deg in 5.0..30.0
    ) {
        let constellation = mixed();
        let ephemeris = Ephemeris::new(&constellation, EarthModel::Wgs84);
        let place = Geodetic { latitude_deg, longitude_deg, altitude_m: 0.0 };
        let site = EarthModel::Wgs84.site(place);
        let coverage = Coverage::Elevation { degrees: 25.0 };
        let mut positions = Vec::new();
        ephemeris.earth_fixed(constellation.epoch, &mut positions);
        let mut open = Sky::new(vec![site], coverage, &ephemeris);
        let mut avoiding =
            Sky::new(vec![site], coverage, &ephemeris).avoiding_geo_arc(avoided_deg);
        open.update(Instant::START, &positions);
        avoiding.update(Instant::START, &positions);
        let kept: Vec<u32> = avoiding.visible(0, &positions).collect();
        for id in open.visible(0, &positions) {
            let sight = positions[id as usize] - site.position;
            let angle_deg = angle_to_arc_deg(&site, sight);
            // The implementation represents the arc by points half a degree apart.
            if (angle_deg - avoided_deg).abs() > 0.05 {
                prop_assert_eq!(kept.contains(&id), angle_deg > avoided_deg, "{} deg", angle_deg);
            }
        }
    }
}
