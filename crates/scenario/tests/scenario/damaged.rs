//! Damaged scenarios, overrides and lists of sites.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use skyhop_experiment::Experiment;
use skyhop_needs::fuzz::Trial;
use skyhop_scenario::types::PathKind;
use skyhop_scenario::{NamedScenario, catalogue, parse_scenario, scenario_from_json};
use skyhop_units::Duration;

/// Scenario with many features, over a path that is not computed.
const FIXED: &str = r#"
[path]
kind = "fixed"
rtt = "20 ms"
start = "2026-01-01T00:00:03Z"
[link]
rate = "50 Mbit/s"
queue = "1.5 BDP"
loss = "0.1 %"
qdisc = { kind = "codel", ecn = true, target = "5 ms" }
[link.back]
rate = "10 Mbit/s"
loss = { kind = "gilbert-elliott", p = "1 %", r = "20 %", good_loss = "0.1 %" }
dama = { frame = "40 ms", minimum = "66 B", window = "2 s" }
[links.second]
rtt = "20 ms"
rate = "1 Gbit/s"
queue = "260 ms"
[tcp]
ecn = true
[[change]]
at = "2 s"
rate = "20 Mbit/s"
loss = { kind = "gilbert-elliott", good = "1 s", bad = "50 ms", bad_loss = "50 %" }
[[change]]
at = "3 s"
flow = 1
via = ["second"]
[[flow]]
cc = "cubic"
cubic.beta = 0.7
via = ["path", "second"]
bytes = "10 MB"
count = 3
[[flow]]
cc = "skyhop:bbr"
via = ["path"]
app = { kind = "request-response", response = { distribution = "lognormal", median = "20 kB", sigma = 1.0 }, think = "500 ms" }
extra_rtt = "40 ms"
from = "to"
start = "1 s"
[[flow]]
kind = "probe"
interval = "20 ms"
size = "64 B"
[signal]
source = "schedule"
lead = "0.5 s"
error = "-0.1 s"
period = "15 s"
[run]
duration = "5 s"
sample = "100 ms"
seed = 7
"#;

/// Duration above which a run is not prepared, since that would take long.
const LONGEST: Duration = Duration::from_secs(100);

fn examples() -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = fs::read_dir(directory).expect("the checkout has examples");
    let files = files.map(|file| file.expect("it can be listed").path());
    let mut scenarios: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|e| e == "toml")).collect();
    scenarios.sort();
    let text = |file| fs::read_to_string(file).expect("it can be read");
    let plain = |text: String| -> String {
        text.lines().filter(|line| !line.starts_with('#')).flat_map(|line| [line, "\n"]).collect()
    };
    scenarios.into_iter().map(text).map(plain).chain([FIXED.to_owned()]).collect()
}

/// Check that a scenario survives being written and read again, and prepare it if that is quick.
fn check(named: &NamedScenario) -> Result<(), String> {
    let json = named.scenario.to_json().to_string();
    let again =
        scenario_from_json(&json, "x.toml", &[]).unwrap_or_else(|error| panic!("{error}: {json}"));
    assert_eq!(again.scenario.to_json().to_string(), json);
    let is_fixed =
        named.scenario.path.as_ref().is_some_and(|path| matches!(path.kind, PathKind::Fixed(_)));
    if !is_fixed || named.scenario.run.duration > LONGEST {
        return Ok(());
    }
    let no_places = |name: &str| Err(format!("no place {name:?}"));
    let prepared = named.experiment(&no_places, &mut |_, _| ControlFlow::Continue(()));
    let prepared = prepared.map_err(|error| error.to_string())?;
    let json = serde_json::to_string(&prepared).expect("an experiment is JSON");
    let again: Experiment = serde_json::from_str(&json).expect("we wrote it");
    assert_eq!(again.flows, prepared.flows);
    Ok(())
}

#[test]
fn scenarios() {
    Trial::of_text("scenario", examples()).run(|bytes| {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        check(&parse_scenario(text, "x.toml", &[]).map_err(|error| error.to_string())?)
    });
}

#[test]
fn scenarios_as_json() {
    let as_json = |text: String| {
        let named = parse_scenario(&text, "x.toml", &[]).expect("it is whole");
        named.scenario.to_json().to_string()
    };
    Trial::of_text("scenario json", examples().into_iter().map(as_json)).run(|bytes| {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        check(&scenario_from_json(text, "x", &[]).map_err(|error| error.to_string())?)
    });
}

#[test]
fn overrides() {
    let samples = [
        "flow.0.cubic.beta=0.6\nlink.queue=\"2 BDP\"\nrun.duration=4 s",
        "links.second.rate=5 Mbit/s\nchange.0.at=1 s",
        "flow.1.app={ kind = \"bulk\" }\nlink.qdisc.interval=100 ms",
    ];
    Trial::of_text("overrides", samples).run(|bytes| {
        let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
        let sets: Vec<String> = text.lines().map(str::to_owned).collect();
        check(&parse_scenario(FIXED, "x.toml", &sets).map_err(|error| error.to_string())?)
    });
}

#[test]
fn experiments() {
    let named = parse_scenario(FIXED, "x.toml", &[]).expect("it is whole");
    let no_places = |name: &str| Err(format!("no place {name}"));
    let whole = named.experiment(&no_places, &mut |_, _| ControlFlow::Continue(()));
    let json = serde_json::to_string(&whole.expect("it can be prepared")).expect("it is JSON");
    Trial::of_text("experiment", [json]).run(|bytes| {
        let read = serde_json::from_slice::<Experiment>(bytes);
        read.map(drop).map_err(|error| skyhop_model::one_line(&error.to_string()))
    });
}

#[test]
fn sites() {
    let directory = tempfile::tempdir().expect("there is room for temporary files");
    let samples = [
        "name,latitude_deg,longitude_deg,altitude_m\n\"Here, there\",47.5,-122.25,12\nB,-1e1,359,0\n",
        "latitude_deg,name,longitude_deg,country\n0,Null Island,0,none\n",
        "0,Tokyo,35.6895,139.69171,0,-3954843.6,3354935.2,3700263.8\n1,Delhi,28.7,77.1,0,1.0,2.0,3.0\n",
    ];
    Trial::of_text("sites", samples).run(|bytes| {
        fs::write(directory.path().join("s.csv"), bytes)
            .expect("there is room for temporary files");
        let rows = catalogue::site_list("s.csv", directory.path(), "x.toml", "path.gateways");
        let rows = rows.map_err(|error| without_place(&error.to_string(), directory.path()))?;
        for row in rows {
            let place = row.into_place();
            let position = place.position;
            assert!(
                position.latitude_deg.abs() <= 90.0 && position.altitude_m.is_finite(),
                "{place:?}"
            );
        }
        Ok::<(), String>(())
    });
}

/// Message without the name of its directory, whose length varies.
fn without_place(message: &str, directory: &Path) -> String {
    message.replace(&directory.display().to_string(), "")
}
