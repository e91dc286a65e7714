//! From text to a checked [`Scenario`], with overrides.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use skyhop_units::{Duration, Rate};
use toml::{Table, Value};

use crate::announce::check_signal;
use crate::check_topology::check_topology;
use crate::error::unreadable;
use crate::types::{Flow, FlowKind, PathKind, PathSection, Scenario};
use crate::{ScenarioError, override_key};

/// The shortest run and the shortest time between samples.
const SHORTEST_SAMPLE: Duration = Duration::from_millis(1);

/// The shortest time between a probe's packets: a probe is no load generator.
const SHORTEST_INTERVAL: Duration = Duration::from_micros(100);

/// The most flows that one entry may stand for.
const MOST_FLOWS: u32 = 10_000;

/// A scenario with the name under which its errors are reported.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedScenario {
    /// The scenario.
    pub scenario: Scenario,
    /// The file it came from, or a word for where else it came from.
    pub origin: String,
    /// The keys of `[link]` that were given: a measured path's own rate and loss count otherwise.
    pub(crate) given_link_keys: BTreeSet<String>,
    /// The same of each of `[links]`.
    pub(crate) given_keys_of_links: BTreeMap<String, BTreeSet<String>>,
}

/// Reads a scenario file and applies `sets` ("flow.0.cc=bbr") to it.
///
/// # Errors
/// One line that names the file, the key and what was expected.
pub fn read_scenario(path: &Path, sets: &[String]) -> Result<NamedScenario, ScenarioError> {
    let text = fs::read_to_string(path).map_err(|source| unreadable(path, source))?;
    parse_scenario(&text, &path.display().to_string(), sets)
}

/// The same from text; `origin` stands for the file's name in errors.
///
/// # Errors
/// As [`read_scenario`].
pub fn parse_scenario(
    text: &str,
    origin: &str,
    sets: &[String],
) -> Result<NamedScenario, ScenarioError> {
    let table = text.parse::<Table>().map_err(|error| syntax_error(text, origin, &error))?;
    scenario_from_table(table, origin, sets)
}

/// The same from JSON of the same shape.
///
/// # Errors
/// As [`read_scenario`].
pub fn scenario_from_json(
    json: &str,
    origin: &str,
    sets: &[String],
) -> Result<NamedScenario, ScenarioError> {
    let table = serde_json::from_str::<Table>(json)
        .map_err(|error| ScenarioError::key(origin, "the scenario", error.to_string()))?;
    scenario_from_table(table, origin, sets)
}

fn scenario_from_table(
    mut table: Table,
    origin: &str,
    sets: &[String],
) -> Result<NamedScenario, ScenarioError> {
    for set in sets {
        override_key::apply(&mut table, set)?;
    }
    let parameters = take_cc_parameters(&mut table);
    let (given_path_keys, given_link_keys) = (keys_of(&table, "path"), keys_of(&table, "link"));
    let given_flow_keys = keys_of_each(&table, "flow");
    let given_links = table.get("links").and_then(Value::as_table).cloned().unwrap_or_default();
    let mut scenario: Scenario = serde_path_to_error::deserialize(Value::Table(table))
        .map_err(|error| key_error(origin, &error))?;
    for (flow, parameters) in scenario.flow.iter_mut().zip(parameters) {
        flow.parameters = parameters;
    }
    check(&scenario, &given_path_keys, &given_flow_keys, origin)?;
    check_topology(&scenario, &given_links, origin)?;
    let given_keys_of_links =
        given_links.keys().map(|name| (name.clone(), keys_of(&given_links, name))).collect();
    let named =
        NamedScenario { scenario, origin: origin.to_owned(), given_link_keys, given_keys_of_links };
    named.check_forecast()?;
    Ok(named)
}

fn syntax_error(text: &str, origin: &str, error: &toml::de::Error) -> ScenarioError {
    let start = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1;
    let reason = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    ScenarioError::Syntax { origin: origin.to_owned(), line, reason }
}

fn key_error(origin: &str, error: &serde_path_to_error::Error<toml::de::Error>) -> ScenarioError {
    let what = error.inner().message().split_whitespace().collect::<Vec<_>>().join(" ");
    // "flow[0].cc" is written flow.0.cc everywhere else.
    let key = error.path().to_string().replace('[', ".").replace(']', "");
    let key = if key == "." { "the scenario".to_owned() } else { key };
    ScenarioError::key(origin, key, what)
}

/// Takes the tables named after a congestion control out of each flow, where `deny_unknown_fields`
/// would refuse them.
fn take_cc_parameters(table: &mut Table) -> Vec<BTreeMap<String, serde_json::Value>> {
    let Some(Value::Array(flows)) = table.get_mut("flow") else { return Vec::new() };
    flows
        .iter_mut()
        .map(|flow| {
            let Value::Table(flow) = flow else { return BTreeMap::new() };
            let names: Vec<String> = flow
                .iter()
                .filter(|(name, value)| value.is_table() && *name != "tcp")
                .map(|(name, _)| name.clone())
                .collect();
            names
                .into_iter()
                .filter_map(|name| Some((name.clone(), flow.remove(&name)?)))
                .filter_map(|(name, value)| Some((name, serde_json::to_value(value).ok()?)))
                .collect()
        })
        .collect()
}

pub(crate) fn keys_of(table: &Table, section: &str) -> BTreeSet<String> {
    match table.get(section) {
        Some(Value::Table(section)) => section.keys().cloned().collect(),
        _ => BTreeSet::new(),
    }
}

fn keys_of_each(table: &Table, list: &str) -> Vec<BTreeSet<String>> {
    let entries = table.get(list).and_then(Value::as_array);
    let keys = |entry: &Value| entry.as_table().map(|t| t.keys().cloned().collect());
    entries.into_iter().flatten().map(|entry| keys(entry).unwrap_or_default()).collect()
}

/// Checks what the types alone cannot say.
fn check(
    scenario: &Scenario,
    given_path_keys: &BTreeSet<String>,
    given_flow_keys: &[BTreeSet<String>],
    origin: &str,
) -> Result<(), ScenarioError> {
    let wrong = |key: String, what: &str| Err(ScenarioError::key(origin, key, what));
    check_path(&scenario.path, given_path_keys, origin)?;
    let run = &scenario.run;
    for (key, value) in [("run.duration", run.duration), ("run.sample", run.sample)] {
        if value < SHORTEST_SAMPLE {
            return wrong(key.to_owned(), "is too short; expected at least 1 ms");
        }
    }
    let back_rate = scenario.link.back.as_ref().and_then(|back| back.rate);
    for (key, rate) in [("link.rate", Some(scenario.link.rate)), ("link.back.rate", back_rate)] {
        if rate == Some(Rate::ZERO) {
            return wrong(key.to_owned(), "is 0; expected a rate such as \"150 Mbit/s\"");
        }
    }
    if let Some(index) = scenario.change.iter().position(|change| change.at >= run.duration) {
        return wrong(format!("change.{index}.at"), "is not before the run's end");
    }
    for (index, (flow, given)) in scenario.flow.iter().zip(given_flow_keys).enumerate() {
        check_flow(flow, given, index, run.duration, origin)?;
    }
    check_signal(&scenario.signal, origin)
}

pub(crate) fn check_path(
    path: &PathSection,
    given: &BTreeSet<String>,
    origin: &str,
) -> Result<(), ScenarioError> {
    let wrong = |key: &str, what: String| Err(ScenarioError::key(origin, key, what));
    let allowed = PathSection::keys(path.kind);
    for key in given {
        if key != "kind" && !allowed.contains(&key.as_str()) {
            let what = format!(
                "does not belong to a path of kind \"{}\"; its keys are {}",
                path.kind.name(),
                allowed.join(", ")
            );
            return wrong(&format!("path.{key}"), what);
        }
    }
    let missing = |key: &str, example: &str| {
        wrong(&format!("path.{key}"), format!("is missing; expected {example}"))
    };
    match path.kind {
        PathKind::Constellation if path.from.is_none() => {
            missing("from", "a city such as \"San Diego\" or \"lat,lon\"")
        }
        PathKind::Constellation if path.to.is_none() => {
            missing("to", "a city such as \"New York\" or \"lat,lon\"")
        }
        PathKind::Constellation if path.step == Duration::ZERO => {
            wrong("path.step", "is 0 s; expected a time above zero".to_owned())
        }
        PathKind::Fixed if path.rtt.is_none() => missing("rtt", "a time such as \"50 ms\""),
        PathKind::Trace if path.file.is_none() => missing("file", "the name of a path file"),
        _ => Ok(()),
    }
}

fn check_flow(
    flow: &Flow,
    given: &BTreeSet<String>,
    index: usize,
    run: Duration,
    origin: &str,
) -> Result<(), ScenarioError> {
    let wrong = |key: &str, what: String| {
        Err(ScenarioError::key(origin, format!("flow.{index}{key}"), what))
    };
    if flow.start >= run {
        return wrong(".start", format!("is {}, but the run ends at {run}", flow.start));
    }
    if flow.stop.is_some_and(|stop| stop <= flow.start) {
        return wrong(".stop", format!("is not after the flow's start at {}", flow.start));
    }
    if flow.stop.is_some() && flow.bytes.is_some() {
        return wrong("", "has both stop and bytes; give one".to_owned());
    }
    if flow.bytes.is_some_and(|bytes| bytes.as_u64() == 0) {
        return wrong(".bytes", "is 0; expected a size such as \"10 MB\"".to_owned());
    }
    if !(1..=MOST_FLOWS).contains(&flow.count) {
        return wrong(".count", format!("is {}; expected 1 to {MOST_FLOWS}", flow.count));
    }
    let cc_name = skyhop_model::plain_cc_name(&flow.cc);
    if let Some(name) = flow.parameters.keys().find(|name| *name != cc_name) {
        let what = format!("is neither a key of a flow nor its congestion control ({cc_name})");
        return wrong(&format!(".{name}"), what);
    }
    let foreign: &[&str] = match flow.kind {
        FlowKind::Tcp => &["interval", "size"],
        FlowKind::Probe => &["cc", "bytes", "tcp"],
    };
    if let Some(key) = foreign.iter().find(|key| given.contains(**key)) {
        return wrong(&format!(".{key}"), "does not belong to this kind of flow".to_owned());
    }
    if flow.kind == FlowKind::Probe {
        if flow.interval < SHORTEST_INTERVAL {
            let what = format!("is {}; expected at least {SHORTEST_INTERVAL}", flow.interval);
            return wrong(".interval", what);
        }
        if !(16..=1472).contains(&flow.size.as_u64()) {
            return wrong(".size", format!("is {}; expected 16 B to 1472 B", flow.size));
        }
    }
    Ok(())
}
