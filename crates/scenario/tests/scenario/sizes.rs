//! Scenarios with too large results, refused before anything is computed.

use std::ops::ControlFlow;

use skyhop_files::write_path;
use skyhop_path::{Endpoint, PathTrace};
use skyhop_scenario::parse_scenario;
use skyhop_units::Duration;

const FIXED: &str = "[path]\nkind = \"fixed\"\nrtt = \"40 ms\"\n";
const ORBITS: &str = "[path]\nfrom = \"San Diego\"\nto = \"New York\"\n";
const OR_FORCE_SIZE: &str = "or say --force-size (run.force_size = true)";

fn check(text: &str, sets: &[&str]) -> Result<(), String> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let no_places = |name: &str| Err(format!("no place {name}"));
    let built = parse_scenario(text, "x.toml", &sets).and_then(|scenario| {
        // Errors from looking up places are not of interest here.
        match scenario.experiment(&no_places, &mut |_, _| ControlFlow::Continue(())) {
            Err(error) if error.to_string().contains("no place") => Ok(()),
            built => built.map(drop),
        }
    });
    built.map_err(|error| error.to_string())
}

#[test]
fn what_makes_too_much_is_refused_unless_forced() {
    let of_ten = "[[flow]]\ncount = 10000\n".repeat(6);
    for (begin, rest, expected) in [
        (FIXED, of_ten.as_str(), "x.toml: flow: makes 60,000 flows; at most 50,000: have fewer, "),
        (
            FIXED,
            "[[flow]]\n[run]\nduration = \"30 d\"\nsample = \"1 ms\"",
            "x.toml: run.sample: makes 7,776,000,000 rows; at most 300,000,000: lengthen it, shorten run.duration, ",
        ),
        (
            FIXED,
            "[[flow]]\nkind = \"probe\"\ninterval = \"100 us\"\ncount = 1000\n",
            "x.toml: run.sample: makes 600,001,200 rows; at most 300,000,000: ",
        ),
        (
            FIXED,
            "[[flow]]\napp = { kind = \"constant-rate\", rate = \"1 Gbit/s\", size = \"1 B\" }",
            "x.toml: run.sample: makes 7,500,001,800 rows; at most 300,000,000: ",
        ),
        (
            ORBITS,
            "step = \"10 us\"",
            "x.toml: path.step: makes 6,000,000 steps; at most 2,000,000: lengthen it, ",
        ),
        (
            FIXED,
            "[links.a]\npath = { from = \"Paris\", to = \"Rome\", step = \"1 us\" }\n",
            "x.toml: links.a.path.step: makes 60,000,000 steps; at most 2,000,000: ",
        ),
        (
            FIXED,
            "[signal]\nsource = \"schedule\"\nperiod = \"50 us\"",
            "x.toml: signal.period: makes 1,200,000 announcements; at most 1,000,000: ",
        ),
    ] {
        let text = format!("{begin}{rest}");
        let message = check(&text, &[]).unwrap_err();
        assert!(message.starts_with(expected), "{message}");
        assert!(message.ends_with(OR_FORCE_SIZE) && !message.contains('\n'), "{message}");
        assert_eq!(check(&text, &["run.force_size=true"]), Ok(()));
    }
}

#[test]
fn a_month_at_ten_samples_a_second_is_not_too_much() {
    let month = "[[flow]]\n[run]\nduration = \"30 d\"\nsample = \"100 ms\"";
    assert_eq!(check(&format!("{FIXED}{month}"), &[]), Ok(()));
    assert_eq!(check(&format!("{ORBITS}step = \"2 s\"\n{month}"), &[]), Ok(()));
}

#[test]
fn a_path_is_not_repeated_until_memory_ends() {
    let directory = tempfile::tempdir().unwrap();
    let ends = ["a", "b"].map(Endpoint::named);
    let short = PathTrace::fixed(ends, Duration::from_millis(40), Duration::from_micros(1));
    write_path(&short, &directory.path().join("short.parquet")).unwrap();
    let origin = directory.path().join("x.toml");
    let text = "[path]\nkind = \"trace\"\nfile = \"short.parquet\"\nloop = true\n";
    let scenario = parse_scenario(text, &origin.to_string_lossy(), &[]).unwrap();
    let no_places = |name: &str| Err(format!("no place {name}"));
    let message =
        scenario.path(&no_places, &mut |_, _| ControlFlow::Continue(())).unwrap_err().to_string();
    assert!(
        message.contains("path.loop: repeats the path 60,000,000 times, which takes"),
        "{message}"
    );
    assert!(message.ends_with(OR_FORCE_SIZE), "{message}");
}
