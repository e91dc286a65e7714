//! Announcements computed from element sets.

use skyhop_model::{HandoverKind, PathEventKind};
use std::fmt::Write;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use skyhop_experiment::Experiment;
use skyhop_orbit::Geodetic;
use skyhop_path::Place;
use skyhop_scenario::parse_scenario;
use skyhop_units::Duration;

const MEAN_MOTION_REV_PER_DAY: f64 = 15.05;
const PLANES: u32 = 18;
const SLOTS: u32 = 20;

/// A Walker pattern as OMM in CSV, whose epoch is `hours` before 2026-01-01T12:00:00Z, and whose satellites are
/// `ahead_s` further along their orbits. Numbers begin at `first_number`.
fn fleet(hours: u32, ahead_s: f64, first_number: u32) -> String {
    let deg_per_s = MEAN_MOTION_REV_PER_DAY * 360.0 / 86_400.0;
    let mut csv = "OBJECT_NAME,EPOCH,MEAN_MOTION,ECCENTRICITY,INCLINATION,RA_OF_ASC_NODE,\
                   ARG_OF_PERICENTER,MEAN_ANOMALY,NORAD_CAT_ID,BSTAR\n"
        .to_owned();
    for number in 0..PLANES * SLOTS {
        let (plane, slot) = (number / SLOTS, number % SLOTS);
        let node_deg = 360.0 * f64::from(plane) / f64::from(PLANES);
        // Walker's F is 1.
        let start_deg = 360.0 * f64::from(slot * PLANES + plane) / f64::from(PLANES * SLOTS);
        let anomaly_deg = (start_deg + ahead_s * deg_per_s).rem_euclid(360.0);
        writeln!(
            csv,
            "SAT {number},2026-01-01T{:02}:00:00,{MEAN_MOTION_REV_PER_DAY},0.0001,53.0,{node_deg:.4},0,\
             {anomaly_deg:.6},{},0",
            12 - hours,
            first_number + number
        )
        .unwrap();
    }
    csv
}

fn experiment(directory: &Path, path: &str, signal: &str) -> Result<Experiment, String> {
    let text = format!(
        "[path]\nfrom = \"a\"\nto = \"b\"\nrelay = \"isl\"\nstart = \"2026-01-01T12:00:00Z\"\n\
         minimum_elevation = \"25 deg\"\n{path}\n[[flow]]\n[signal]\nsource = \"forecast\"\n{signal}\n\
         [run]\nduration = \"600 s\"\n"
    );
    let place = |name: &str| {
        let (latitude_deg, longitude_deg) =
            if name == "a" { (32.9, -117.2) } else { (40.8, -73.9) };
        let position = Geodetic { latitude_deg, longitude_deg, altitude_m: 0.0 };
        Ok(Place { name: name.to_owned(), position })
    };
    let origin = directory.join("x.toml").display().to_string();
    let built = parse_scenario(&text, &origin, &[])
        .and_then(|named| named.experiment(&place, &mut |_, _| ControlFlow::Continue(())));
    built.map_err(|error| error.to_string())
}

const OF_NEW: &str = "constellation = \"new.csv\"\nhandover = \"sticky\"\nstep = \"200 ms\"";

fn ends(experiment: &Experiment) -> Vec<f64> {
    let events = experiment.path().events().filter(|e| e.kind == PathEventKind::End);
    let mut ends: Vec<f64> = events.map(|event| event.at.as_secs_f64()).collect();
    ends.dedup();
    ends
}

#[test]
fn elements_that_are_hours_old_foretell_the_handovers_within_the_error_they_state() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("new.csv"), fleet(3, 0.0, 1)).unwrap();
    fs::write(directory.path().join("old.csv"), fleet(3, 0.4, 1)).unwrap();
    let built =
        experiment(directory.path(), OF_NEW, "elements = \"old.csv\"\nlead = \"2 s\"").unwrap();
    let (ends, said): (Vec<f64>, Vec<_>) = (
        ends(&built),
        built.announcements.iter().filter(|one| one.kind == HandoverKind::End).collect(),
    );
    assert!(ends.len() > 3, "{ends:?}");
    assert_eq!(said.len(), ends.len());
    let mut wrong_s = 0.0_f64;
    for (end, one) in ends.iter().zip(said) {
        // Three hours, and a step.
        let error_s = one.error.as_secs_f64();
        assert!((0.8..0.84).contains(&error_s), "{error_s}");
        assert_eq!(one.at - one.announced, Duration::from_secs(2));
        wrong_s = wrong_s.max((one.at.as_secs_f64() - end).abs());
        assert!(wrong_s <= error_s, "{end}: {one:?}");
    }
    assert!(wrong_s > 0.15, "elements that put satellites 0.4 s ahead are no worse: {wrong_s}");
}

#[test]
fn a_path_over_element_sets_is_forecast_from_them_where_there_are_no_others() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("new.csv"), fleet(6, 0.0, 1)).unwrap();
    let built = experiment(directory.path(), OF_NEW, "").unwrap();
    let mut moments: Vec<f64> = built.path().events().map(|e| e.at.as_secs_f64()).collect();
    moments.dedup();
    let said: Vec<f64> = built.announcements.iter().map(|one| one.at.as_secs_f64()).collect();
    assert_eq!(said, moments);
    let least = built.announcements.iter().map(|one| one.error).min().unwrap();
    assert!(least >= Duration::from_millis(1_400), "{least}");
}

#[test]
fn a_policy_that_follows_a_grid_is_exact_at_its_moments() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("new.csv"), fleet(6, 0.0, 1)).unwrap();
    let path = "constellation = \"new.csv\"\nhandover = \"max-elevation-grid\"";
    let built = experiment(directory.path(), path, "").unwrap();
    let ends: Vec<_> =
        built.announcements.iter().filter(|one| one.kind == HandoverKind::End).collect();
    let on_grid =
        |one: &&&skyhop_signal::Announcement| one.at.as_nanos() / 1_000_000_000 % 15 == 12;
    assert!(ends.iter().filter(on_grid).count() > 5);
    for one in ends {
        assert_eq!(on_grid(&&one), one.error == Duration::ZERO, "{one:?}");
    }
}

#[test]
fn a_walker_pattern_is_forecast_from_element_sets_of_the_same_satellites() {
    let directory = tempfile::tempdir().unwrap();
    let walker = format!(
        "description = \"a test\"\nsource = \"a test\"\nepoch = \"2026-01-01T12:00:00Z\"\n\
         minimum_elevation_deg = 25.0\npropagator = \"sgp4\"\n[[shell]]\nplanes = {PLANES}\n\
         satellites_per_plane = {SLOTS}\naltitude = \"550 km\"\ninclination_deg = 53.0\nphasing = 1\n\
         eccentricity = 0.0001\nmean_motion_rev_per_day = {MEAN_MOTION_REV_PER_DAY}\n"
    );
    fs::write(directory.path().join("own.toml"), walker).unwrap();
    fs::write(directory.path().join("same.csv"), fleet(0, 0.0, 1)).unwrap();
    fs::write(directory.path().join("other.csv"), fleet(0, 130.0, 1)).unwrap();
    let path = "constellation = \"own.toml\"\nhandover = \"sticky\"";
    let built = experiment(directory.path(), path, "elements = \"same.csv\"").unwrap();
    assert!(!built.announcements.is_empty());
    let wrong = experiment(directory.path(), path, "elements = \"other.csv\"").unwrap_err();
    assert!(wrong.contains("signal.elements: these are not the satellites of the path"), "{wrong}");
    assert!(wrong.contains(" km from those of own"), "{wrong}");
    let missing = experiment(directory.path(), path, "").unwrap_err();
    assert!(missing.contains("signal.elements: is missing"), "{missing}");
}

#[test]
fn elements_that_cannot_serve_are_named() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("new.csv"), fleet(0, 0.0, 1)).unwrap();
    fs::write(directory.path().join("stranger.csv"), fleet(3, 0.0, 5_000)).unwrap();
    let text = fleet(3, 0.0, 1).replace("2026-01-01", "2025-10-01");
    fs::write(directory.path().join("stale.csv"), text).unwrap();
    fs::write(directory.path().join("page.csv"), "<html>no</html>").unwrap();
    let error = |elements: &str| {
        experiment(directory.path(), OF_NEW, &format!("elements = \"{elements}\"")).unwrap_err()
    };
    for (elements, expected) in [
        ("nosuch.csv", "no such file: \"nosuch.csv\""),
        ("stranger.csv", "0 of its 360 are among the 360 of new"),
        ("stale.csv", "360 stale"),
        ("page.csv", "is a web page"),
    ] {
        let said = error(elements);
        assert!(said.contains("signal.elements: ") && said.contains(expected), "{said}");
        assert_eq!(said.lines().count(), 1);
    }
}

#[test]
fn there_is_nothing_to_forecast_without_orbits() {
    let scenario = |path: &str| {
        let text = format!("[path]\n{path}\n[[flow]]\n[signal]\nsource = \"forecast\"\n");
        parse_scenario(&text, "x.toml", &[]).unwrap_err().to_string()
    };
    let fixed = scenario("kind = \"fixed\"\nrtt = \"40 ms\"");
    let geo = scenario("relay = \"geo\"\nfrom = \"a\"\nto = \"b\"\nconstellation = \"geo:-95\"");
    for error in [fixed, geo] {
        assert!(error.starts_with("x.toml: signal.source: a forecast needs orbits"), "{error}");
    }
}
