//! Announcements over a whole network: each flow hears about its own route.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use skyhop_experiment::Experiment;
use skyhop_model::{EventKind, LossReason, PhaseKind};
use skyhop_path::Place;
use skyhop_record::{EventRow, NO_LINK, RunData};
use skyhop_scenario::parse_scenario;
use skyhop_signal::path::handovers;
use skyhop_units::Duration;

use crate::constellation::run;

/// Experiment of a scenario whose places are London, Tokyo, Lagos, Sydney and Madrid.
fn planned(text: &str) -> Experiment {
    let all = [
        Place::new("London", 51.5, -0.1),
        Place::new("Tokyo", 35.7, 139.7),
        Place::new("Lagos", 6.5, 3.4),
        Place::new("Sydney", -33.9, 151.2),
        Place::new("Madrid", 40.4, -3.7),
    ];
    let find = |name: &str| {
        let found = all.iter().find(|place| place.name == name);
        found.cloned().ok_or(format!("no place {name}"))
    };
    let scenario = parse_scenario(text, "x.toml", &[]).unwrap();
    scenario.experiment(&find, &mut |_, _| ControlFlow::Continue(())).unwrap()
}

/// Scenario over Starlink's first shell, whose satellites move every second, for 40 s.
fn network(keys: &str, rest: &str) -> String {
    let hop = "{ rate = \"1 Mbit/s\", queue = \"100 packets\" }";
    format!(
        "[network]\nconstellation = \"starlink-shell1\"\nlasers = {hop}\n{keys}\n\
         sites = [\"London\", \"Tokyo\", \"Lagos\", \"Sydney\"]\n\
         [network.user_links]\nup = {hop}\ndown = {hop}\n[run]\nduration = \"40 s\"\n{rest}"
    )
}

fn flow(client: &str, server: &str, cc: &str) -> String {
    format!("[[flow]]\nbetween = [\"{client}\", \"{server}\"]\ncc = \"{cc}\"\n")
}

const STEP: &str = "interval = \"1 s\"";
const SIGNAL: &str = "[signal]\nsource = \"path\"\nlead = \"0.5 s\"\n";

/// Announcements that a path between two places has, as (time, announced time).
fn of_path(from: &str, to: &str, signal: &str) -> Vec<(i64, i64)> {
    let text = format!(
        "[path]\nconstellation = \"starlink-shell1\"\nrelay = \"isl\"\nhandover = \"immediate\"\noutage = \"none\"\n\
         step = \"1 s\"\nfrom = \"{from}\"\nto = \"{to}\"\n[run]\nduration = \"40 s\"\n{signal}\
         [[flow]]\ncc = \"satcp\"\n",
    );
    let experiment = planned(&text);
    assert!(handovers(experiment.path(), &[]).len() >= 2);
    let times = experiment.announcements.iter();
    times.map(|one| (one.announced.as_nanos() as i64, one.at.as_nanos() as i64)).collect()
}

fn rows(data: &RunData, kind: EventKind) -> Vec<&EventRow> {
    data.events.iter().filter(|row| row.kind == kind).collect()
}

/// Announcements that a flow of a run hears, as (time, announced time).
fn heard(data: &RunData, flow: i32) -> Vec<(i64, i64)> {
    let all = rows(data, EventKind::Announcement).into_iter();
    let own = all.filter(|row| row.flow == Some(flow)).inspect(|row| assert_eq!(row.link, NO_LINK));
    own.map(|row| (row.t_ns, row.at_ns.unwrap())).collect()
}

/// Two pairs whose first flows listen, and a flow of CUBIC between the first two sites.
fn two_pairs(signal: &str) -> Experiment {
    let flows = [
        flow("London", "Tokyo", "satcp"),
        flow("Lagos", "Sydney", "satpipe"),
        flow("London", "Tokyo", "cubic"),
    ];
    planned(&network(STEP, &format!("{signal}{}", flows.concat())))
}

#[test]
fn each_flow_hears_the_announcements_of_its_own_path() {
    let data = run(&two_pairs(SIGNAL), 1);
    let [london, lagos] = [("London", "Tokyo"), ("Lagos", "Sydney")];
    assert_eq!(heard(&data, 0), of_path(london.0, london.1, SIGNAL));
    assert_eq!(heard(&data, 1), of_path(lagos.0, lagos.1, SIGNAL));
    assert_ne!(heard(&data, 0), heard(&data, 1));
    assert_eq!(
        rows(&data, EventKind::Announcement).len(),
        heard(&data, 0).len() + heard(&data, 1).len()
    );
    let ahead = |(announced, at): (i64, i64)| at == announced + 500_000_000;
    assert!(heard(&data, 0).into_iter().filter(|one| one.0 > 0).all(ahead));
    // Each announced moment has its handover, for the same flow.
    for flow in [0, 1] {
        let is_handover = |row: &&EventRow| matches!(row.kind, EventKind::Path(_));
        let own = data.events.iter().filter(is_handover).filter(|row| row.flow == Some(flow));
        let mut times: Vec<i64> = own.map(|row| row.t_ns).collect();
        times.dedup();
        let said: Vec<i64> = heard(&data, flow).iter().map(|one| one.1).collect();
        assert_eq!(times, said);
    }
    let holds = rows(&data, EventKind::Phase(PhaseKind::Hold));
    assert!(!holds.is_empty() && holds.iter().all(|row| row.flow == Some(0)), "{holds:?}");
    assert!(holds.iter().all(|row| row.link == NO_LINK));
}

#[test]
fn the_first_pair_has_the_random_errors_of_a_path_and_others_their_own() {
    let signal = format!("{SIGNAL}error = \"report-timing\"\n");
    let data = run(&two_pairs(&signal), 1);
    assert_eq!(heard(&data, 0), of_path("London", "Tokyo", &signal));
    let alone = network(STEP, &format!("{signal}{}", flow("Lagos", "Sydney", "satcp")));
    let alone = run(&planned(&alone), 1);
    assert_eq!(heard(&alone, 0), of_path("Lagos", "Sydney", &signal));
    assert_ne!(heard(&alone, 0), heard(&data, 1), "the errors of a second pair are its own");
}

#[test]
fn threads_and_other_flows_change_no_announcement() {
    let signal = format!("{SIGNAL}error = \"report-timing\"\n");
    let experiment = two_pairs(&signal);
    let alone = run(&experiment, 1);
    assert!(heard(&alone, 1).len() >= 2);
    for threads in [2, 4] {
        assert!(run(&experiment, threads) == alone, "with {threads} threads");
    }
}

#[test]
fn satellites_that_stand_still_have_nothing_to_announce() {
    let text =
        network("interval = \"never\"", &format!("{SIGNAL}{}", flow("London", "Tokyo", "satcp")));
    let data = run(&planned(&text), 1);
    assert!(rows(&data, EventKind::Announcement).is_empty());
    let expected = "satcp: gets no handover announcements: [signal] source = \"path\" finds none during the run";
    assert!(
        data.summary.warnings.iter().any(|text| text == expected),
        "{:?}",
        data.summary.warnings
    );
    let moving = run(&two_pairs(SIGNAL), 1).summary.warnings;
    assert!(!moving.iter().any(|text| text.contains("announcements")), "{moving:?}");
}

#[test]
fn without_a_source_nothing_is_announced_and_a_warning_says_what_to_type() {
    let data = run(&two_pairs(""), 1);
    assert!(rows(&data, EventKind::Announcement).is_empty());
    let expected = "satcp and satpipe: gets no handover announcements: [signal] source = \"none\"; add --set \
                    signal.source=path --set signal.lead='1 s'";
    assert!(
        data.summary.warnings.iter().any(|text| text == expected),
        "{:?}",
        data.summary.warnings
    );
}

#[test]
fn a_schedule_reaches_all_flows_at_the_same_time() {
    let signal = "[signal]\nsource = \"schedule\"\nlead = \"1 s\"\n";
    let flows = flow("London", "Tokyo", "satcp") + &flow("Lagos", "Sydney", "satcp");
    let experiment = planned(&network(STEP, &format!("{signal}{flows}")));
    assert_eq!(experiment.announcements.len(), 2, "every 15 s");
    let data = run(&experiment, 2);
    let said = rows(&data, EventKind::Announcement);
    let times: Vec<i64> = said.iter().map(|row| row.at_ns.unwrap()).collect();
    let expected: Vec<i64> =
        experiment.announcements.iter().map(|one| one.at.as_nanos() as i64).collect();
    assert_eq!(times, expected);
    assert!(said.iter().all(|row| row.flow.is_none()));
    for id in [0, 1] {
        let holds = rows(&data, EventKind::Phase(PhaseKind::Hold)).into_iter();
        let holds: Vec<i64> =
            holds.filter(|row| row.flow == Some(id)).map(|row| row.t_ns).collect();
        assert_eq!(holds.len(), 2, "{id}: {holds:?}");
        let lead = Duration::from_secs(1).as_nanos() as i64;
        assert!(
            holds.iter().zip(&times).all(|(hold, at)| (at - lead..*at).contains(hold)),
            "{holds:?}"
        );
    }
}

/// Windows of a flow with a congestion control after each hard handover of its terminals, relative to those before:
/// the smallest until the end of the hold, for handovers that have lost packets.
fn windows_after_handovers(cc: &str) -> Vec<f64> {
    let hop = "{ rate = \"20 Mbit/s\", queue = \"40 ms\" }";
    let text = format!(
        "[network]\nconstellation = \"starlink-shell1\"\nsites = [\"London\", \"Madrid\"]\n{STEP}\n\
         handover = \"nearest-grid\"\n[network.user_links]\nup = {hop}\ndown = {hop}\n[run]\nduration = \"50 s\"\n\
         {SIGNAL}{}",
        flow("London", "Madrid", cc),
    );
    let data = run(&planned(&text), 1);
    let lost = data.events.iter().filter(|row| row.reason == Some(LossReason::Dismantled));
    let times: BTreeSet<i64> = lost.map(|row| row.t_ns).collect();
    let window = |(from, until): (i64, i64)| {
        let between = data.flows.iter().filter(|row| (from..until).contains(&row.t_ns));
        between.map(|row| row.cwnd_packets as f64).reduce(f64::min).unwrap()
    };
    let after = |at: i64| window((at, at + 800_000_000)) / window((at - 100_000_000, at));
    times.into_iter().map(after).collect()
}

#[test]
fn satcp_holds_its_window_at_hard_handovers_where_cubic_reduces_it() {
    let cubic = windows_after_handovers("cubic");
    assert!(cubic.len() >= 2 && cubic.iter().all(|ratio| *ratio < 0.8), "{cubic:?}");
    let satcp = windows_after_handovers("satcp\"\nsatcp.mode = \"freeze");
    assert!(satcp.len() >= 2 && satcp.iter().all(|ratio| *ratio > 0.9), "{satcp:?}");
}
