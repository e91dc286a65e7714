//! `[network.background]`: demands by kind, matrices of files, and what is refused.

use std::fs;

use skyhop_experiment::{BackgroundPlan, Experiment};
use skyhop_path::network::Demand;
use skyhop_scenario::ScenarioError;
use skyhop_units::{Bytes, Duration, Instant, Rate, Ratio};

use crate::network::{planned, scenario};

fn with(keys: &str, origin: &str) -> Result<Experiment, ScenarioError> {
    let sites = "[\"London\", \"New York\", { name = \"X\", lat = 1, lon = 2, population = 0 }]";
    let network = format!("sites = {sites}\ninterval = \"never\"\n[network.background]\n{keys}");
    planned(&scenario(&network, ""), origin)
}

fn plan(keys: &str) -> BackgroundPlan {
    with(keys, "x.toml").unwrap().network.unwrap().background.unwrap()
}

fn demand(from: u32, to: u32, rate_bps: u64) -> Demand {
    let rate = Rate::from_bits_per_second(rate_bps);
    Demand { from, to, rate, begins: Instant::START, ends: Instant::NEVER }
}

#[test]
fn a_network_has_no_background_unless_asked() {
    let experiment = planned(&scenario("sites = [\"London\", \"Cairo\"]", ""), "x.toml").unwrap();
    assert_eq!(experiment.network.unwrap().background, None);
    assert!(experiment.scenario["network"].get("background").is_none());
}

#[test]
fn uniform_demands_share_the_rate_equally() {
    let found = plan("kind = \"uniform\"\nrate = \"6 Mbit/s\"");
    let pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
    assert_eq!(found.demands, pairs.map(|(from, to)| demand(from, to, 1_000_000)));
    // 1500 bytes have an Ethernet header on the wire.
    let expected = (Ratio::new(0.95).unwrap(), Bytes::new(1514), 1);
    assert_eq!((found.most, found.packet, found.burst), expected);
    let found = plan(
        "kind = \"uniform\"\nrate = \"6 bit/s\"\nmost = \"60 %\"\npacket = \"100 B\"\nburst = 0",
    );
    let expected = (Ratio::new(0.6).unwrap(), Bytes::new(114), 0);
    assert_eq!((found.most, found.packet, found.burst), expected);
}

#[test]
fn gravity_follows_the_product_of_populations() {
    let sites = |third: &str| {
        let table = |name: &str, lat: u32, population: &str| {
            format!("{{ name = \"{name}\", lat = {lat}, lon = 1{population} }}")
        };
        let all = [
            table("A", 1, ", population = 6"),
            table("B", 2, ", population = 3"),
            table("C", 3, third),
        ];
        let keys = "[network.background]\nkind = \"gravity\"\nrate = \"54 kbit/s\"";
        scenario(&format!("interval = \"never\"\nsites = [{}]\n{keys}", all.join(", ")), "")
    };
    let found = planned(&sites(", population = 1"), "x.toml").unwrap().network.unwrap();
    let pairs = [(0, 1, 18), (0, 2, 6), (1, 0, 18), (1, 2, 3), (2, 0, 6), (2, 1, 3)];
    let expected = pairs.map(|(from, to, kbps)| demand(from, to, kbps * 1000));
    assert_eq!(found.background.unwrap().demands, expected);
    let message = planned(&sites(""), "x.toml").map(drop).unwrap_err().to_string();
    assert!(message.contains("network.sites: \"C\" has no known population"), "{message}");
    let alone = with("kind = \"gravity\"\nrate = \"1 Gbit/s\"", "x.toml").unwrap();
    assert_eq!(alone.network.unwrap().background.unwrap().demands.len(), 2, "X is empty");
}

#[test]
fn a_matrix_has_rates_and_times() {
    let directory = tempfile::tempdir().unwrap();
    let origin = directory.path().join("x.toml").display().to_string();
    let of = |content: &str| {
        fs::write(directory.path().join("m.csv"), content).unwrap();
        with("kind = \"matrix\"\nfile = \"m.csv\"", &origin)
    };
    let rows = "until_s,rate_bps,from,to,from_s\n,2.5e6,London,\"New York City, US\",\n1.5,7,X,London,0.25\n";
    let experiment = of(rows).unwrap();
    let at = |ms| Instant::START + Duration::from_millis(ms);
    let late = Demand { begins: at(250), ends: at(1500), ..demand(2, 0, 7) };
    let found = experiment.network.as_ref().unwrap().background.clone().unwrap();
    assert_eq!(found.demands, [demand(0, 1, 2_500_000), late]);
    let file = experiment.scenario["network"]["background"]["file"].as_str().unwrap();
    assert!(std::path::Path::new(file).is_absolute(), "{file}");
    for (content, expected) in [
        (
            "from,to,rate\n",
            "m.csv: line 1: no column `rate_bps`; expected the names of columns from, to and rate_bps, separated by commas",
        ),
        (
            "from,to,rate_bps\nLondon,Londn,1\n",
            "m.csv: line 2: there is no site \"Londn\" (did you mean London?)",
        ),
        (
            "from,to,rate_bps\nLondon,X,-1\n",
            "m.csv: line 2: rate_bps is \"-1\"; expected a number, 0 or more",
        ),
        ("from,to,rate_bps\nLondon,X,nan\n", "m.csv: line 2: rate_bps is \"nan\""),
        ("from,to,rate_bps\nLondon,X,1e300\n", "m.csv: line 2: rate_bps is \"1e300\""),
        ("from,to,rate_bps\nLondon,X,5 Mbit/s\n", "m.csv: line 2: rate_bps is \"5 Mbit/s\""),
        ("from,to,rate_bps\nLondon,X\n", "m.csv: line 2: no cell `rate_bps`"),
        ("from,to,rate_bps\n\nX,X,1\n", "m.csv: line 3: \"X\" to itself; expected two sites"),
        (
            "from,to,rate_bps,from_s,until_s\nX,London,1,2,2\n",
            "m.csv: line 2: until_s is \"2\"; expected a time after from_s",
        ),
        (
            "from,to,rate_bps,from_s\nX,London,1,soon\n",
            "m.csv: line 2: from_s is \"soon\"; expected a number, 0 or more",
        ),
    ] {
        let message = of(content).map(drop).unwrap_err().to_string();
        assert!(message.contains(expected), "{content}: {message}");
        assert!(!message.contains('\n'), "one line: {message}");
    }
}

#[test]
fn an_earlier_run_must_be_one_of_the_same_network() {
    let directory = tempfile::tempdir().unwrap();
    let origin = directory.path().join("x.toml").display().to_string();
    let of = || with("kind = \"run\"\ndir = \"earlier\"", &origin);
    let message = |expected: &str| {
        let message = of().map(drop).unwrap_err().to_string();
        assert!(message.contains(expected), "{expected}: {message}");
        assert!(!message.contains('\n'), "one line: {message}");
    };
    message("network.background.dir: no such directory: \"earlier\"; expected a run directory");
    let earlier = directory.path().join("earlier");
    fs::create_dir(&earlier).unwrap();
    message("network.background.dir: \"earlier\" has no run.json; expected a run directory");
    fs::write(earlier.join("run.json"), "{").unwrap();
    message("run.json of \"earlier\" is damaged; do the run again");
    let write = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut run = serde_json::json!({ "scenario": with("kind = \"uniform\"\nrate = \"1 Mbit/s\"", &origin).unwrap().scenario });
        change(&mut run["scenario"]);
        fs::write(earlier.join("run.json"), run.to_string()).unwrap();
    };
    write(&|scenario| scenario["network"] = serde_json::Value::Null);
    message("\"earlier\" is a run without [network]; expected one of a network");
    for (key, value) in [
        ("constellation", serde_json::json!("starlink-shell1")),
        ("start", serde_json::json!("2026-01-01T00:00:00Z")),
        ("sites", serde_json::json!(["London", "Tokyo"])),
        ("gateways", serde_json::json!(["Cairo"])),
    ] {
        write(&|scenario| scenario["network"][key] = value.clone());
        message(&format!(
            "\"earlier\" is a run with another network.{key}; expected the same network"
        ));
    }
    write(&|scenario| scenario["run"]["sample"] = serde_json::json!("0 s"));
    message("run.json of \"earlier\" has no run.sample; do the run again");
    // Other rates and another duration are no reason.
    write(&|scenario| {
        scenario["run"]["duration"] = serde_json::json!("77 s");
        scenario["network"]["lasers"] = serde_json::json!({ "rate": "1 Mbit/s" });
    });
    message("link.parquet: cannot read");
    fs::write(earlier.join("link.parquet"), "t_ns").unwrap();
    message("link.parquet: not a whole Parquet file");
}

#[test]
fn wrong_backgrounds_are_refused_in_one_sentence() {
    let uniform = |keys: &str| format!("kind = \"uniform\"\nrate = \"1 Mbit/s\"\n{keys}");
    for (keys, expected) in [
        ("rate = \"1 Mbit/s\"".to_owned(), ": "),
        ("kind = \"flows\"".to_owned(), ".kind: unknown variant `flows`"),
        ("kind = \"uniform\"".to_owned(), ": missing field `rate`"),
        ("kind = \"run\"".to_owned(), ": missing field `dir`"),
        (uniform("most = \"100 %\""), ".most: is 100 %; expected above 0 % and below 100 %"),
        (uniform("most = \"0 %\""), ".most: is 0 %; expected above 0 % and below 100 %"),
        (uniform("packet = \"20 B\""), ".packet: is 20 B; expected 28 to 65535 bytes"),
        (uniform("burst = 1001"), ".burst: is 1001; expected 0 to 1000"),
        (uniform("file = \"m.csv\""), ".file: does not belong to a background of kind \"uniform\""),
        ("kind = \"matrix\"\nfile = \"none.csv\"".to_owned(), ".file: no such file: \"none.csv\""),
    ] {
        let message = with(&keys, "x.toml").map(drop).unwrap_err().to_string();
        assert!(!message.contains('\n'), "one line: {message}");
        let expected = format!("x.toml: network.background{expected}");
        assert!(message.starts_with(&expected), "{keys}: {message}");
    }
}
