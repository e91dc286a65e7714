//! Recovery of planes and slots from element sets.

use std::collections::BTreeSet;

use skyhop_orbit::{
    Constellation, EarthModel, ElementFile, ElementSet, Ephemeris, Formation, MeanElements,
    Selection,
};
use skyhop_units::{Duration, UtcInstant};

const EPOCH: UtcInstant = UtcInstant::from_unix_nanos(1_700_000_000_000_000_000);

/// Create the element sets of a shell in a shuffled order, with the plane and slot of each.
fn shell(
    planes: u32,
    slots: u32,
    node_span_deg: f64,
    inclination_deg: f64,
) -> Vec<(ElementSet, [u32; 2])> {
    let set = |plane: u32, slot: u32| {
        let ahead = f64::from(slot) + 0.5 * f64::from(plane % 2);
        let elements = MeanElements {
            name: format!("{plane}-{slot}"),
            catalogue_number: u64::from(plane * slots + slot),
            epoch: EPOCH,
            inclination_deg,
            node_deg: (node_span_deg * f64::from(plane) / f64::from(planes) + 300.0) % 360.0,
            eccentricity: 1e-4,
            perigee_deg: 40.0,
            anomaly_deg: (360.0 * ahead / f64::from(slots) + 320.0) % 360.0,
            mean_motion_rev_per_day: 15.06,
            bstar: 1e-4,
        };
        (ElementSet::new(elements).unwrap(), [plane, slot])
    };
    let mut sets: Vec<_> = (0..planes * slots).map(|id| set(id / slots, id % slots)).collect();
    // Multiplication by a number without common factors is a permutation.
    let count = sets.len();
    let order: Vec<usize> = (0..count).map(|index| index * 7_919 % count).collect();
    assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), count);
    sets = order.into_iter().map(|index| sets[index].clone()).collect();
    sets
}

#[test]
fn the_planes_and_the_order_in_them_come_back() {
    let sets = shell(24, 20, 360.0, 53.0);
    let only: Vec<ElementSet> = sets.iter().map(|(set, _)| set.clone()).collect();
    let formation = Formation::recover(&only, EPOCH.after(Duration::from_secs(5_000)));
    assert_eq!(formation.shells.len(), 1);
    assert_eq!(formation.shells[0].planes.len(), 24);
    for plane in &formation.shells[0].planes {
        let places: Vec<[u32; 2]> =
            plane.satellites.iter().map(|s| sets[s.id as usize].1).collect();
        assert_eq!(places.len(), 20);
        assert!(places.windows(2).all(|p| p[0][0] == p[1][0] && (p[0][1] + 1) % 20 == p[1][1]));
    }
}

#[test]
fn the_grid_is_that_of_the_shell() {
    for (span_deg, inclination_deg, seam, between) in
        [(360.0, 53.0, true, 24), (360.0, 53.0, false, 23), (180.0, 87.9, true, 23)]
    {
        let sets = shell(24, 20, span_deg, inclination_deg);
        let only: Vec<ElementSet> = sets.iter().map(|(set, _)| set.clone()).collect();
        let links = Formation::recover(&only, EPOCH).grid_links(seam);
        assert_eq!(links.len(), 24 * 20 + between * 20, "{span_deg} deg, seam {seam}");
        let mut neighbours = vec![0; only.len()];
        for (a, b) in &links {
            neighbours[*a as usize] += 1;
            neighbours[*b as usize] += 1;
        }
        assert!(neighbours.iter().all(|count| (3..=4).contains(count)));
    }
}

#[test]
fn a_satellite_between_the_planes_has_no_place() {
    let sets = shell(24, 20, 360.0, 53.0);
    let mut only: Vec<ElementSet> = sets.iter().map(|(set, _)| set.clone()).collect();
    let stray = MeanElements { node_deg: 307.0, ..only[0].elements().clone() };
    only.push(ElementSet::new(stray).unwrap());
    let rising = MeanElements { mean_motion_rev_per_day: 15.6, ..only[0].elements().clone() };
    only.push(ElementSet::new(rising).unwrap());
    let formation = Formation::recover(&only, EPOCH);
    assert_eq!(formation.shells[0].planes.len(), 24);
    assert_eq!(formation.places[480..], [None, None]);
    assert!(formation.places[..480].iter().all(Option::is_some));
}

fn real(name: &str) -> Option<Constellation> {
    let path = skyhop_needs::reference(name)?;
    let selection = Selection {
        start: None,
        duration: Duration::from_secs(60),
        stale_after: Duration::from_secs(14 * 86_400),
        satellites: "all".parse().unwrap(),
        minimum_elevation_deg: 25.0,
    };
    Some(ElementFile::load(&path).unwrap().constellation(&selection).unwrap())
}

/// Print and return the formation of real element sets.
fn formation(constellation: &Constellation) -> Formation {
    let formation = Formation::recover(&constellation.element_sets, constellation.epoch);
    for shell in &formation.shells {
        let satellites: usize = shell.planes.iter().map(|plane| plane.satellites.len()).sum();
        let (inclination_deg, altitude_km) = (shell.inclination_deg, shell.altitude_m / 1e3);
        println!(
            "{inclination_deg:.2} deg, {altitude_km:.0} km: {satellites} satellites in {} planes",
            shell.planes.len()
        );
    }
    formation
}

#[test]
fn starlinks_first_shell_of_2021_has_its_72_planes() {
    let Some(constellation) = real("leoem/starlink_old.tle.gz") else { return };
    let formation = formation(&constellation);
    let largest = formation.shells.iter().max_by_key(|shell| shell.planes.len()).unwrap();
    assert_eq!(largest.planes.len(), 72);
    assert!((largest.altitude_m / 1e3 - 547.0).abs() < 3.0);
    let placed = formation.places.iter().flatten().count();
    assert!(placed as f64 > 0.85 * constellation.element_sets.len() as f64, "{placed}");
}

#[test]
fn onewebs_planes_are_twelve_without_a_link_across_the_seam() {
    let Some(constellation) = real("tle/oneweb_20250319.tle.gz") else { return };
    let formation = formation(&constellation);
    let largest = formation.shells.iter().max_by_key(|shell| shell.planes.len()).unwrap();
    assert_eq!(largest.planes.len(), 12);
    let (first, last) = (&largest.planes[0], &largest.planes[11]);
    let ids = |plane: &skyhop_orbit::FormationPlane| -> BTreeSet<u32> {
        plane.satellites.iter().map(|s| s.id).collect()
    };
    let (first, last) = (ids(first), ids(last));
    let across = formation
        .grid_links(true)
        .iter()
        .filter(|(a, b)| {
            (first.contains(a) && last.contains(b)) || (last.contains(a) && first.contains(b))
        })
        .count();
    // Planes of a star are adjacent all around, except for one pair, wherever that is.
    let pairs = formation.grid_links(true).len() - formation.grid_links(false).len();
    assert_eq!(pairs, across);
}

#[test]
fn links_of_real_constellations_are_short_enough_to_be_lit() {
    for (name, least) in
        [("tle/starlink_19-05-2026.tle.gz", 14_000), ("tle/oneweb_20250319.tle.gz", 1_000)]
    {
        let Some(constellation) = real(name) else { return };
        let links = formation(&constellation).grid_links(true);
        let mut positions = Vec::new();
        Ephemeris::new(&constellation, EarthModel::Wgs84)
            .earth_fixed(constellation.epoch, &mut positions);
        let mut lengths_km: Vec<f64> = links
            .iter()
            .map(|(a, b)| positions[*a as usize].distance(positions[*b as usize]) / 1e3)
            .collect();
        lengths_km.sort_by(f64::total_cmp);
        let at = |share: f64| lengths_km[(share * (lengths_km.len() - 1) as f64) as usize];
        println!(
            "{name}: {} links, {:.0} km median, {:.0} km at 99 %",
            links.len(),
            at(0.5),
            at(0.99)
        );
        assert!(links.len() > least, "{}", links.len());
        assert!(at(0.95) < 5_000.0);
        let distinct: BTreeSet<(u32, u32)> =
            links.iter().map(|(a, b)| (*a.min(b), *a.max(b))).collect();
        assert_eq!(distinct.len(), links.len());
    }
}
