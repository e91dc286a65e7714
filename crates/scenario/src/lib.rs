//! The scenario file: its types, its errors, its schema, and what is built from it.

mod announce;
mod assemble;
pub mod blind;
pub mod catalogue;
mod change;
mod check_topology;
mod error;
mod experiment;
pub mod export;
mod forecast;
mod format;
pub mod import;
mod override_key;
mod parse;
mod path_request;
mod schedule;
mod seed;
mod topology;
pub mod types;

pub use assemble::{FindPlace, Progress};
pub use error::ScenarioError;
pub use experiment::{
    Experiment, FlowPlan, LinkPlan, PlannedChange, Route, Traffic, cc_parameters,
};
pub use format::Format;
pub use parse::{NamedScenario, parse_scenario, read_scenario, scenario_from_json};
pub use seed::seed_for;
pub use types::Scenario;

/// The JSON Schema of a scenario file.
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(Scenario)
}
