//! A scenario and where it comes from: what is checked, and what experiments are made of.

use std::path::Path;

use crate::ScenarioError;
use crate::types::Scenario;

/// A scenario with the name under which its errors are reported.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedScenario {
    /// The scenario.
    pub scenario: Scenario,
    /// The file it came from, or a word for where else it came from.
    pub origin: String,
}

impl NamedScenario {
    /// The directory that relative file names begin from.
    pub(crate) fn base(&self) -> &Path {
        Path::new(&self.origin).parent().unwrap_or(Path::new(""))
    }

    pub(crate) fn wrong(&self, key: impl Into<String>, what: impl Into<String>) -> ScenarioError {
        ScenarioError::key(&self.origin, key, what)
    }
}
