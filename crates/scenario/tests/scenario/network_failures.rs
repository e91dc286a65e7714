//! `[[failure]]` of scenarios with `[network]`: names become numbers, shares are drawn, and wrong entries are errors.

use std::fs;

use skyhop_path::failures::{Failures, Part};
use skyhop_units::{Duration, Instant};

use crate::network::{planned, scenario};

const SITES: &str = "sites = [\"London\", \"New York\", { name = \"X\", lat = 1, lon = 2.5 }]";

/// Failures of a network whose constellation has 34 planes with 34 satellites.
fn failures(entries: &str) -> Failures {
    let experiment = planned(&scenario(SITES, entries), "x.toml").unwrap();
    experiment.network.unwrap().request.options.failures
}

fn error(keys: &str, entries: &str) -> String {
    let message = planned(&scenario(keys, entries), "x.toml").map(drop).unwrap_err().to_string();
    assert!(!message.contains('\n'), "one line: {message}");
    message
}

fn ms(time: u64) -> Instant {
    Instant::START + Duration::from_millis(time)
}

#[test]
fn entries_name_their_parts_and_times() {
    let found = failures(
        "[[failure]]\nsatellite = 7\nfrom = \"500 ms\"\nuntil = \"1 s\"\n\
         [[failure]]\nplane = 33\nfrom = \"1500 ms\"\n\
         [[failure]]\nsite = \"New York\"\n\
         [[failure]]\nlaser = [35, \"1\"]\nuntil = \"100 ms\"",
    );
    assert_eq!(found.times_of(Part::Satellite(7)), [[ms(500), ms(1000)]]);
    assert_eq!(found.times_of(Part::Site(1)), [[Instant::START, Instant::NEVER]]);
    assert_eq!(found.times_of(Part::Laser(1, 35)), [[Instant::START, ms(100)]]);
    let plane = found.parts().filter(|part| matches!(part, Part::Satellite(8..)));
    assert!(plane.eq((33 * 34..34 * 34).map(Part::Satellite)));
    assert_eq!(found.times_of(Part::Satellite(1150)), [[ms(1500), Instant::NEVER]]);
}

#[test]
fn a_share_is_drawn_by_the_seed_and_is_part_of_a_larger_one() {
    let of = |entry: &str| {
        failures(&format!("[[failure]]\nsatellites = {entry}")).parts().collect::<Vec<_>>()
    };
    let (few, many) = (of("\"5 %\""), of("\"10 %\""));
    assert_eq!((few.len(), many.len()), (58, 116));
    assert!(few.iter().all(|part| many.contains(part)));
    assert_eq!(of("\"5 %\"\nseed = 1"), few, "the default is the run's seed, 1");
    assert_ne!(of("\"5 %\"\nseed = 2"), few);
    assert!(of("\"0 %\"").is_empty());
    let experiment =
        planned(&scenario(SITES, "[[failure]]\nsatellites = \"5 %\""), "x.toml").unwrap();
    assert_eq!(experiment.notes, ["58 of 1156 satellites fail"]);
    assert_eq!(experiment.scenario["failure"][0], serde_json::json!({ "satellites": "5 %" }));
}

#[test]
fn satellites_and_planes_of_a_file_have_names() {
    // Two sets of the public catalogue, with other names.
    let sets = "ONE\n1 25544U 98067A   08264.51782528 -.00002182  00000-0 -11606-4 0  2927\n\
                2 25544  51.6416 247.4627 0006703 130.5360 325.0288 15.72125391563537\n\
                TWO\n1 25545U 98067A   08264.51782528 -.00002182  00000-0 -11606-4 0  2928\n\
                2 25545  51.6416 247.4627 0006703 130.5360 305.0288 15.72125391563536\n";
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("sets.tle"), sets).unwrap();
    let origin = directory.path().join("x.toml").display().to_string();
    let planned = |entry: &str| {
        let keys = format!(
            "[network]\nconstellation = \"sets.tle\"\n{SITES}\n[run]\nduration = \"1 s\"\n"
        );
        planned(&format!("{keys}[[failure]]\n{entry}"), &origin)
    };
    let found = planned("satellite = \"TWO\"").unwrap().network.unwrap().request.options.failures;
    assert!(found.parts().eq([Part::Satellite(1)]));
    let unknown = planned("satellite = \"TWOO\"").unwrap_err().to_string();
    assert!(
        unknown
            .ends_with("failure.0.satellite: there is no satellite \"TWOO\" (did you mean TWO?)"),
        "{unknown}"
    );
    let shell = planned("plane = 0").unwrap_err().to_string();
    assert!(shell.ends_with("failure.0.shell: is 0; expected a number below 0"), "{shell}");
}

#[test]
fn wrong_entries_are_refused_in_one_sentence() {
    for (entry, expected) in [
        (
            "gateway = \"London\"",
            "failure.0.gateway: is \"London\", which is no gateway; write site",
        ),
        ("", "failure.0: expected one of satellite, plane, site, gateway, laser and satellites"),
        (
            "satellite = 1\nplane = 2",
            "failure.0: expected one of satellite, plane, site, gateway, laser and satellites",
        ),
        ("satellite = 1156", "failure.0.satellite: is 1156; expected a number below 1156"),
        ("satellite = -1", "failure.0.satellite: -1; expected a number from 0 on"),
        ("satellite = 1.5", "failure.0.satellite: "),
        (
            "satellite = \"KUIPER-1\"",
            "failure.0.satellite: is \"KUIPER-1\", but the satellites of kuiper-630-hypatia have no names; expected a number \
             below 1156",
        ),
        ("plane = 34", "failure.0.plane: is 34; expected a number below 34"),
        ("plane = 0\nshell = 1", "failure.0.shell: is 1; expected a number below 1"),
        ("site = \"X\"\nshell = 1", "failure.0.shell: is for `plane` alone; remove it"),
        (
            "site = \"X\"\nseed = 1",
            "failure.0.seed: is for a share of the `satellites` alone; remove it",
        ),
        ("site = \"Y\"", "failure.0.site: there is no site \"Y\""),
        ("laser = [1, 1]", "failure.0.laser: is 1 twice; expected two satellites"),
        ("laser = [1]", "failure.0.laser: "),
        ("laser = [0, 500]", "failure: no laser joins the satellites 0 and 500 during the run"),
        ("satellites = \"110 %\"", "failure.0.satellites: "),
        ("satellite = 1\nfrom = \"2 s\"", "failure.0.from: is 2 s, but the run ends at 2 s"),
        (
            "satellite = 1\nfrom = \"1 s\"\nuntil = \"1 s\"",
            "failure.0.until: is not after the failure's begin at 1 s",
        ),
        ("gateway = \"Y\"", "failure.0.gateway: there is no site \"Y\""),
        ("point = \"X\"", "failure.0.point: unknown field `point`"),
    ] {
        let message = error(SITES, &format!("[[failure]]\n{entry}"));
        assert!(message.starts_with(&format!("x.toml: {expected}")), "{entry}: {message}");
    }
}

#[test]
fn a_path_has_no_failures() {
    let text = "[path]\nkind = \"fixed\"\nrtt = \"10 ms\"\n[[failure]]\nsatellite = 1\n";
    let message = planned(text, "x.toml").map(drop).unwrap_err().to_string();
    assert_eq!(
        message,
        "x.toml: failure: does not go with [path]; expected a [network], or a [[change]] with an `outage`"
    );
}
