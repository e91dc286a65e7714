//! `network.routing`: names, tables, and files of next hops.

use std::fs;

use skyhop_experiment::Experiment;
use skyhop_path::routing::{NextHop, Node, ROUTINGS, RoutingKind};
use skyhop_scenario::ScenarioError;
use skyhop_units::Duration;

use crate::network::{planned, scenario};

fn with(routing: &str, origin: &str) -> Result<Experiment, ScenarioError> {
    let keys = format!("sites = [\"London\", \"New York\", \"Tokyo\"]\nrouting = {routing}");
    planned(&scenario(&keys, ""), origin)
}

fn error(routing: &str, origin: &str) -> String {
    let message = with(routing, origin).map(drop).unwrap_err().to_string();
    assert!(!message.contains('\n'), "one line: {message}");
    message
}

#[test]
fn a_routing_is_a_name_or_a_table() {
    let of = |routing: &str| {
        let experiment = with(routing, "x.toml").unwrap();
        (
            experiment.network.unwrap().request.routing,
            experiment.scenario["network"]["routing"].clone(),
        )
    };
    assert_eq!(of("\"shortest\""), (RoutingKind::Shortest, "shortest".into()));
    assert_eq!(of("{ kind = \"shortest\" }"), (RoutingKind::Shortest, "shortest".into()));
    let snapshot = serde_json::json!({ "kind": "snapshot", "every": "15 s" });
    let expected = (RoutingKind::Snapshot(Duration::from_secs(15)), snapshot);
    assert_eq!(of("{ kind = \"snapshot\", every = \"15 s\" }"), expected);
    let (spread, _) = of("{ kind = \"equal-cost\", slack = \"1 ms\" }");
    assert_eq!(spread, RoutingKind::EqualCost { slack: Duration::from_millis(1), ways: 8 });
}

#[test]
fn a_file_has_the_next_hops() {
    let directory = tempfile::tempdir().unwrap();
    let origin = directory.path().join("x.toml").display().to_string();
    let of = |rows: &str| {
        fs::write(directory.path().join("t.csv"), rows).unwrap();
        with("{ kind = \"table\", file = \"t.csv\" }", &origin)
    };
    let rows =
        "next,at,destination\n5,London,New York\n6,5,\"New York City, US\"\nNew York,6,New York\n";
    let experiment = of(rows).unwrap();
    let hop = |at, next| NextHop { at, destination: 1, next };
    let expected =
        vec![hop(Node::Site(0), 5), hop(Node::Satellite(5), 6), hop(Node::Satellite(6), 6)];
    assert_eq!(experiment.network.as_ref().unwrap().request.routing, RoutingKind::Table(expected));
    let file = experiment.scenario["network"]["routing"]["file"].as_str().unwrap();
    assert!(std::path::Path::new(file).is_absolute(), "{file}");
    for (rows, expected) in [
        (
            "at,to,next\n",
            "t.csv: line 1: no column `destination`; expected the names of columns at, destination and next",
        ),
        (
            "at,destination,next\n5,Londn,6\n",
            "t.csv: line 2: there is no site \"Londn\" (did you mean London?)",
        ),
        (
            "at,destination,next\n1156,London,6\n",
            "t.csv: line 2: is 1156; expected a number below 1156",
        ),
        (
            "at,destination,next\n5,London,Tokyo\n",
            "t.csv: line 2: next \"Tokyo\" is a site; expected a satellite",
        ),
        (
            "at,destination,next\nTokyo,London,London\n",
            "t.csv: line 2: next \"London\" is a site; expected a satellite",
        ),
        (
            "at,destination,next\nLondon,London,4\n",
            "t.csv: line 2: \"London\" to itself; expected another destination",
        ),
        (
            "at,destination,next\n5,London,5\n",
            "t.csv: line 2: satellite 5 to itself; expected another node",
        ),
        (
            "at,destination,next\n5,London,6\n5,London,7\n",
            "t.csv: line 3: a second row of this node and destination",
        ),
        ("at,destination,next\n5,London\n", "t.csv: line 2: no cell `next`"),
        (
            "at,destination,next\n5,London,6\n6,London,5\n",
            "network: the table's routes to site 0 have a loop",
        ),
    ] {
        let message = of(rows).map(drop).unwrap_err().to_string();
        assert!(message.contains(expected), "{rows}: {message}");
    }
}

#[test]
fn wrong_routings_are_refused_in_one_sentence() {
    for (routing, expected) in [
        (
            "{ kind = \"equal-cost\", slack = \"1 ms\", ways = 65 }",
            "network.routing.ways: is 65; expected 1 to 64",
        ),
        ("\"longest\"", "network.routing.kind: unknown variant `longest`"),
        ("\"snapshot\"", "network.routing: missing field `every`"),
        (
            "3",
            "network.routing: invalid type: integer `3`, expected \"shortest\", or a table such as",
        ),
        (
            "{ kind = \"snapshot\", every = \"1 ms\" }",
            "network.routing.every: is 1 ms; expected at least the interval of 100 ms",
        ),
        (
            "{ kind = \"snapshot\", every = \"1 s\" }\ninterval = \"never\"",
            "network.routing.every: has no effect with interval = \"never\"",
        ),
        (
            "{ kind = \"shortest\", every = \"1 s\" }",
            "network.routing.every: does not belong to a routing of kind \"shortest\"",
        ),
        (
            "{ kind = \"table\", file = \"none.csv\" }",
            "network.routing.file: no such file: \"none.csv\"",
        ),
    ] {
        let message = error(routing, "x.toml");
        assert!(message.starts_with(&format!("x.toml: {expected}")), "{routing}: {message}");
    }
}

#[test]
fn a_scenario_knows_every_routing() {
    for entry in &ROUTINGS {
        let message =
            with(&format!("{{ kind = \"{}\", other = 1 }}", entry.name), "x.toml").map(drop);
        let message = message.unwrap_err().to_string();
        assert!(!message.contains("unknown variant"), "{message}");
    }
}
