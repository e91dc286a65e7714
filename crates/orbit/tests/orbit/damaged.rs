//! Randomly damaged files of constellations and element sets.

use skyhop_needs::fuzz::{Trial, check_line};
use skyhop_orbit::{
    Constellation, EarthModel, ElementFile, Ephemeris, FilterError, SatelliteFilter, Selection,
};
use skyhop_units::{Duration, UtcInstant};

use crate::element_files::{as_csv, as_json, as_kvn, as_xml, record, selection, summed, tle};

/// Maximum number of satellites that the test propagates, to limit its duration.
const MOST_PROPAGATED: u32 = 5_000;

fn propagate(constellation: &Constellation, at: UtcInstant) {
    let count = constellation.satellites();
    if count <= MOST_PROPAGATED {
        let mut positions = Vec::new();
        Ephemeris::new(constellation, EarthModel::Wgs84).earth_fixed(at, &mut positions);
        assert_eq!(positions.len(), count as usize);
    }
}

/// Small constellation file with all keys.
const CONSTELLATION: &str = r#"
description = "Two shells and a satellite"
source = "none"
epoch = "2026-01-01T00:00:00Z"
minimum_elevation_deg = 25.0
satellite_prefix = "X-"
isl = true
longest_ground_link = "1123 km"
longest_isl = "5016 km"
[[shell]]
planes = 6
satellites_per_plane = 4
altitude = "550 km"
reference_radius = "6378.135 km"
inclination_deg = 53.0
phasing = 1
node_span_deg = 360.0
[[shell]]
planes = 2
satellites_per_plane = 3
altitude = "1200 km"
inclination_deg = 87.9
node_span_deg = 180.0
staggered = true
mean_motion_rev_per_day = 13.16
eccentricity = 0.0001
[[geostationary]]
name = "GEO"
longitude_deg = -95.0
"#;

#[test]
fn constellations() {
    Trial::of_text("constellation", [CONSTELLATION]).run(|bytes| {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        let read = Constellation::parse(text, "x.toml").map_err(|error| error.to_string())?;
        propagate(&read, read.epoch);
        propagate(&read, read.epoch.after(Duration::from_secs(86_400)));
        Ok::<(), String>(())
    });
}

/// Parse element sets, and check that every record is used or reported as skipped.
fn read(bytes: &[u8]) -> Result<(), String> {
    let file = ElementFile::parse(bytes, "x").map_err(|error| error.to_string())?;
    let records = file.sets.len() + file.skipped.len();
    // The earliest and the latest representable times.
    for start_ns in [i64::MIN, i64::MAX] {
        let start = Some(UtcInstant::from_unix_nanos(start_ns));
        let stale_after = Duration::MAX;
        let far = Selection { start, stale_after, ..selection("all") };
        if let Ok(constellation) = file.constellation(&far) {
            propagate(&constellation, UtcInstant::from_unix_nanos(start_ns));
        }
    }
    let (report, refused) = match file.constellation(&selection("all")) {
        Ok(constellation) => {
            propagate(&constellation, constellation.epoch);
            (constellation.report.expect("constellations of files have one"), None)
        }
        Err(error) => (*error.report.clone(), Some(error.to_string())),
    };
    check_line(&report.to_string());
    for skipped in &report.skipped {
        check_line(&skipped.reason.to_string());
    }
    assert_eq!(report.records, records);
    assert_eq!(report.used + report.skipped.len(), records);
    refused.map_or(Ok(()), Err)
}

#[test]
fn two_line_elements() {
    let samples = [format!("{}{}", tle("ONE"), tle("TWO")), tle("0 THREE")];
    Trial::of_text("tle", samples).run(|bytes| {
        let plain = read(bytes);
        // With corrected checksums, the parsing after their check is tested, too.
        let summed = read(&summed(bytes));
        plain.and(summed)
    });
}

#[test]
fn orbit_mean_elements() {
    let records = [record("ONE", 1), record("TWO", 2)];
    Trial::of_text("omm json", [as_json(&records)]).run(read);
    Trial::of_text("omm csv", [as_csv(&records)]).run(read);
    Trial::of_text("omm kvn", [as_kvn(&records)]).run(read);
    Trial::of_text("omm xml", [as_xml(&records)]).run(read);
}

#[test]
fn filters_of_satellites() {
    let samples = ["name=STARLINK-1*,X?; shell=0,2-3; plane=0-35", "all", "shell=1"];
    Trial::of_text("satellites", samples).run(|bytes| {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        let read: SatelliteFilter = text.parse().map_err(|error: FilterError| error.to_string())?;
        let file = ElementFile::parse(tle("ONE").as_bytes(), "x").expect("it is whole");
        let _ = file.constellation(&Selection { satellites: read, ..selection("all") });
        Ok::<(), String>(())
    });
}
