//! Scenario with its origin: the input of checks and plans.

use std::path::Path;

use crate::ScenarioError;
use crate::types::{PathSection, Scenario};

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

    /// Section `[path]`.
    ///
    /// # Errors
    /// The scenario has none, because it has `[network]`.
    pub(crate) fn path_section(&self) -> Result<&PathSection, ScenarioError> {
        self.scenario.path.as_ref().ok_or_else(|| {
            let what = "is missing: the scenario has a [network], which is no single path; expected a scenario with \
                        [path]";
            self.key_error("path", what)
        })
    }

    pub(crate) fn key_error(
        &self,
        key: impl Into<String>,
        what: impl Into<String>,
    ) -> ScenarioError {
        ScenarioError::key(&self.origin, key, what)
    }
}
