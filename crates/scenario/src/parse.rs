//! Parser of scenario files, with overrides and checks.

use std::fs;
use std::path::Path;

use skyhop_model::{line_at, one_line};
use toml::{Table, Value};

use crate::error::unreadable;
use crate::keys::read;
use crate::named::NamedScenario;
use crate::types::Scenario;
use crate::{ScenarioError, override_key};

/// Read a scenario file and apply the overrides `sets` ("flow.0.cc=bbr").
///
/// # Errors
/// The file cannot be read or is not a valid scenario; the message is one line with the file, the
/// key and the expected value.
pub fn read_scenario(path: &Path, sets: &[String]) -> Result<NamedScenario, ScenarioError> {
    let text = fs::read_to_string(path).map_err(|source| unreadable(path, source))?;
    parse_scenario(&text, &path.display().to_string(), sets)
}

/// Parse a scenario from text; `origin` stands for the file's name in errors.
///
/// # Errors
/// The errors of [`read_scenario`].
pub fn parse_scenario(
    text: &str,
    origin: &str,
    sets: &[String],
) -> Result<NamedScenario, ScenarioError> {
    let table = text.parse::<Table>().map_err(|error| syntax_error(text, origin, &error))?;
    scenario_from_table(table, origin, sets)
}

/// Parse a scenario from JSON of the same structure.
///
/// # Errors
/// The errors of [`read_scenario`].
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
    for key in override_key::LISTS {
        if table.get(key).is_some_and(|value| !value.is_array()) {
            return Err(ScenarioError::key(
                origin,
                key,
                format!("expected [[{key}]], one for each {key}"),
            ));
        }
    }
    let scenario: Scenario = read(Value::Table(table)).map_err(|error| {
        let key = if error.key.is_empty() { "the scenario".to_owned() } else { error.key };
        ScenarioError::key(origin, key, error.what)
    })?;
    let named = NamedScenario { scenario, origin: origin.to_owned() };
    named.check()?;
    Ok(named)
}

fn syntax_error(text: &str, origin: &str, error: &toml::de::Error) -> ScenarioError {
    let line = line_at(text, error.span().map_or(0, |span| span.start));
    let reason = one_line(error.message());
    ScenarioError::Syntax { origin: origin.to_owned(), line, reason }
}
