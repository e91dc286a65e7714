//! Scenario with its origin: the input of checks and plans.

use std::path::Path;

use crate::ScenarioError;
use crate::types::Scenario;

/// Scenario and the file name that its error messages state.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedScenario {
    /// Parsed scenario with its overrides.
    pub scenario: Scenario,
    /// File name of the scenario, or a word for its origin if it is not from a file.
    pub origin: String,
}

impl NamedScenario {
    /// Directory of the scenario file, in which relative file names are looked up first.
    pub(crate) fn base(&self) -> &Path {
        Path::new(&self.origin).parent().unwrap_or(Path::new(""))
    }

    pub(crate) fn key_error(
        &self,
        key: impl Into<String>,
        what: impl Into<String>,
    ) -> ScenarioError {
        ScenarioError::key(&self.origin, key, what)
    }
}
