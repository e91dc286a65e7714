//! SGP4 compared with the verification vectors of Vallado and others, Revisiting Spacetrack Report 3
//! (AIAA 2006-6753), which the sgp4 crate publishes with its own tests.

use std::path::PathBuf;

use serde::Deserialize;
use skyhop_orbit::{ElementFile, Vec3};
use skyhop_units::UtcInstant;

#[derive(Deserialize)]
struct Vectors {
    list: Vec<Satellite>,
}

#[derive(Deserialize)]
struct Satellite {
    line1: String,
    line2: String,
    states: Vec<State>,
}

#[derive(Deserialize)]
struct State {
    /// Time since the epoch, in minutes.
    time: f64,
    /// Expected position in km; `None` if SGP4 fails.
    position: Option<[f64; 3]>,
}

/// Read the crate's test data in Cargo's registry; `None`, with a printed reason, if it is missing.
fn vectors() -> Option<Vectors> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    let registries = std::fs::read_dir(home.join("registry/src")).into_iter().flatten().flatten();
    let packages = registries.filter_map(|r| std::fs::read_dir(r.path()).ok()).flatten().flatten();
    let mut files = packages
        .filter(|package| package.file_name().to_string_lossy().starts_with("sgp4-2"))
        .map(|package| package.path().join("tests/test_cases.toml"))
        .filter(|file| file.is_file());
    let Some(file) = files.next() else {
        skyhop_needs::missing("sources", "the sgp4 crate's test data is not in Cargo's registry");
        return None;
    };
    Some(toml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap())
}

#[test]
fn positions_are_those_of_the_verification_vectors() {
    let Some(vectors) = vectors() else { return };
    let (mut near_m, mut deep_m, mut states): (f64, f64, u32) = (0.0, 0.0, 0);
    for satellite in &vectors.list {
        let text = format!("{}\n{}\n", satellite.line1, satellite.line2);
        let file = ElementFile::parse(text.as_bytes(), "vectors").unwrap();
        let [set] = &file.sets[..] else {
            // Some of the report's lines carry wrong checksums.
            assert_eq!(file.skipped[0].reason.kind(), "wrong checksum", "{text}");
            continue;
        };
        for state in &satellite.states {
            let elapsed_ns = (state.time * 60e9).round() as i64;
            let epoch_ns = set.elements().epoch.unix_nanos();
            let ours = set.position(UtcInstant::from_unix_nanos(epoch_ns + elapsed_ns));
            states += 1;
            let Some([x, y, z]) = state.position else {
                assert_eq!(ours, None, "{text}{}", state.time);
                continue;
            };
            let apart_m = ours.expect(&text).distance(Vec3::new(x, y, z) * 1e3);
            let is_deep = set.elements().mean_motion_rev_per_day < 6.4;
            let largest_m = if is_deep { &mut deep_m } else { &mut near_m };
            *largest_m = largest_m.max(apart_m);
        }
    }
    println!("{states} states: near Earth at most {near_m:.6} m off, deep space {deep_m:.6} m");
    assert!(states > 500);
    // The vectors have eight decimals of a kilometre.
    assert!(near_m < 1e-3);
    // Deep-space terms depend on the epoch, which is rounded to a nanosecond here.
    assert!(deep_m < 1e-2);
}
