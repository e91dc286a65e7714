//! Checks of links, of the flows' ways over them, and of what changes when.

use skyhop_model::PATH_LINK;
use std::collections::BTreeSet;

use skyhop_units::Rate;
use toml::Table;

use crate::ScenarioError;
use crate::parse::{check_path, keys_of};
use crate::types::{Change, ExtraLink, Scenario};

/// The most links beside the one of `[path]`.
const MOST_LINKS: usize = 1000;

/// Checks what the types alone cannot say of `[links]`, `[[change]]` and `flow.via`; `given` is the
/// table of `[links]` as it was written.
pub(crate) fn check_topology(
    scenario: &Scenario,
    given: &Table,
    origin: &str,
) -> Result<(), ScenarioError> {
    if scenario.links.len() > MOST_LINKS {
        let what = format!("are {}; expected at most {MOST_LINKS}", scenario.links.len());
        return Err(ScenarioError::key(origin, "links", what));
    }
    for (name, link) in &scenario.links {
        check_link(name, link, &keys_of(given, name), origin)?;
        if let (Some(path), Some(own)) = (&link.path, given.get(name).and_then(|v| v.as_table())) {
            check_path(path, &keys_of(own, "path"), origin)
                .map_err(|error| error.under(&format!("links.{name}")))?;
        }
    }
    for (index, flow) in scenario.flow.iter().enumerate() {
        check_via(scenario, &flow.via, &format!("flow.{index}.via"), origin)?;
    }
    for (index, change) in scenario.change.iter().enumerate() {
        check_change(scenario, change, &format!("change.{index}"), origin)?;
    }
    Ok(())
}

fn check_link(
    name: &str,
    link: &ExtraLink,
    given: &BTreeSet<String>,
    origin: &str,
) -> Result<(), ScenarioError> {
    let wrong =
        |key: &str, what: &str| Err(ScenarioError::key(origin, format!("links.{name}{key}"), what));
    if name == PATH_LINK {
        return wrong("", "is the name of the link that [path] and [link] describe; take another");
    }
    if given.contains("rtt") && given.contains("path") {
        return wrong("", "has both rtt and path; give one");
    }
    let back_rate = link.back.as_ref().and_then(|back| back.rate);
    for (key, rate) in [(".rate", Some(link.rate)), (".back.rate", back_rate)] {
        if rate == Some(Rate::ZERO) {
            return wrong(key, "is 0; expected a rate such as \"150 Mbit/s\"");
        }
    }
    Ok(())
}

fn check_change(
    scenario: &Scenario,
    change: &Change,
    key: &str,
    origin: &str,
) -> Result<(), ScenarioError> {
    let wrong = |key: String, what: String| Err(ScenarioError::key(origin, key, what));
    let of_a_link =
        (&change.rtt, &change.rate, &change.loss, &change.outage) != (&None, &None, &None, &None);
    match (change.flow, &change.via) {
        (None, None) if !of_a_link => {
            wrong(key.to_owned(), "changes nothing; give rtt, rate, loss or outage".to_owned())
        }
        (None, None) => {
            check_name(scenario, change.link.as_deref(), &format!("{key}.link"), origin)
        }
        (Some(_), None) => wrong(format!("{key}.via"), "is missing: the flow's new way".to_owned()),
        (None, Some(_)) => wrong(format!("{key}.flow"), "is missing: whose way it is".to_owned()),
        (Some(_), Some(_)) if of_a_link || change.link.is_some() => {
            wrong(key.to_owned(), "is of a flow and of a link; make two of it".to_owned())
        }
        (Some(flow), Some(_)) if flow as usize >= scenario.flow.len() => {
            let what = format!("is {flow}; expected less than {}", scenario.flow.len());
            wrong(format!("{key}.flow"), what)
        }
        (Some(_), Some(via)) => check_via(scenario, via, &format!("{key}.via"), origin),
    }
}

fn check_via(
    scenario: &Scenario,
    via: &[String],
    key: &str,
    origin: &str,
) -> Result<(), ScenarioError> {
    let distinct: BTreeSet<&String> = via.iter().collect();
    if via.is_empty() || distinct.len() < via.len() {
        let what = "crosses no link, or one twice; expected names such as [\"path\"]";
        return Err(ScenarioError::key(origin, key, what));
    }
    via.iter().try_for_each(|name| check_name(scenario, Some(name), key, origin))
}

fn check_name(
    scenario: &Scenario,
    name: Option<&str>,
    key: &str,
    origin: &str,
) -> Result<(), ScenarioError> {
    match name {
        Some(name) if name != PATH_LINK && !scenario.links.contains_key(name) => {
            let known: Vec<&str> =
                [PATH_LINK].into_iter().chain(scenario.links.keys().map(String::as_str)).collect();
            let what = format!("there is no link \"{name}\"; there are {}", known.join(", "));
            Err(ScenarioError::key(origin, key, what))
        }
        _ => Ok(()),
    }
}
