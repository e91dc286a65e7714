//! The scenario file: its types, its errors, its schema, and what is built from it.

mod announce;
mod assemble;
pub mod blind;
pub mod by_kind;
pub mod catalogue;
mod change;
mod check;
mod check_topology;
mod error;
mod experiment;
pub mod export;
mod forecast;
mod format;
pub mod import;
pub mod keys;
mod override_key;
mod parse;
mod path_request;
mod schedule;
mod seed;
mod topology;
pub mod types;

use schemars::transform::Transform as _;

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
    let mut schema = schemars::schema_for!(Scenario);
    // A key that may be missing has no default to show.
    let show_defaults = |schema: &mut schemars::Schema| {
        if let Some(default) = schema.remove("default").map(types::without_nulls) {
            if !default.is_null() {
                schema.insert("default".to_owned(), default);
            }
        }
    };
    schemars::transform::RecursiveTransform(show_defaults).transform(&mut schema);
    schema
}
