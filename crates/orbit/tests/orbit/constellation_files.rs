//! Parsing of constellation files, and error messages about invalid ones.

use std::path::Path;

use skyhop_orbit::Constellation;

const GOOD: &str = r#"
description = "a test"
source = "made up"
epoch = "2020-01-01T00:00:00Z"
minimum_elevation_deg = 25.0
[[shell]]
planes = 4
satellites_per_plane = 10
altitude = "600 km"
inclination_deg = 53.0
phasing = 1
"#;

/// Error message about the valid file with one line replaced.
fn message(line: &str, replacement: &str) -> String {
    assert!(GOOD.contains(line));
    let text = GOOD.replace(line, replacement);
    Constellation::parse(&text, "dir/x.toml").unwrap_err().to_string()
}

#[test]
fn shipped_constellations_load_and_name_their_sources() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/constellations");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let constellation = Constellation::load(&entry.unwrap().path()).unwrap();
        assert!(!constellation.source.is_empty() && !constellation.description.is_empty());
        names.push((constellation.name.clone(), constellation.satellites()));
    }
    names.sort();
    for name in ["leoem-starlink", "starlink-shell1"] {
        assert!(names.contains(&(name.to_owned(), 1584)), "{names:?}");
    }
}

#[test]
fn the_good_file_is_good() {
    let constellation = Constellation::parse(GOOD, "dir/x.toml").unwrap();
    assert_eq!((constellation.name.as_str(), constellation.satellites()), ("x", 40));
}

#[test]
fn every_error_is_one_line_that_names_file_and_key() {
    let cases = [
        ("planes = 4", "planes = 0", "shell.0.planes is 0; expected at least 1"),
        ("planes = 4", "plains = 4", "unknown field `plains`"),
        ("planes = 4", "", "missing field `planes`"),
        ("planes = 4", "planes = -4", "line 7"),
        ("satellites_per_plane = 10", "satellites_per_plane = 0", "satellites_per_plane is 0"),
        ("satellites_per_plane = 10", "satellites_per_plane = 4000000000", "1,000,000"),
        ("\"600 km\"", "\"-600 km\"", "a length such as \"550 km\""),
        ("\"600 km\"", "600", "expected text with a unit"),
        ("\"600 km\"", "\"60 km\"", "shell.0.altitude is 60 km"),
        ("= 53.0", "= 190.0", "shell.0.inclination_deg is 190"),
        ("= 53.0", "= nan", "shell.0.inclination_deg is NaN"),
        ("phasing = 1", "phasing = 4", "shell.0.phasing is 4"),
        ("_deg = 25.0", "_deg = 90.0", "minimum_elevation_deg is 90"),
        ("2020-01-01T00:00:00Z", "yesterday", "a UTC time such as"),
        ("[[shell]]", "[shell]", "line"),
    ];
    for (line, replacement, expected) in cases {
        let message = message(line, replacement);
        assert!(message.contains("dir/x.toml"), "{message}");
        assert!(message.contains(expected), "{replacement}: {message}");
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn a_file_without_shells_or_none_at_all_is_an_error() {
    let without = GOOD.split("[[shell]]").next().unwrap();
    let message = Constellation::parse(without, "x.toml").unwrap_err().to_string();
    assert!(message.contains("at least one [[shell]]"), "{message}");
    let message = Constellation::load(Path::new("/nowhere/x.toml")).unwrap_err().to_string();
    assert!(message.contains("/nowhere/x.toml"), "{message}");
}
