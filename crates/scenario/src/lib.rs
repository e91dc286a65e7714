//! Scenario files: parsed, checked, and turned into experiments.
//!
//! The modules here read and check scenarios; `plan` builds from them what an engine runs, and readers do not
//! depend on it.

pub mod by_kind;
pub mod catalogue;
mod check;
mod check_background;
mod check_network;
mod check_size;
mod check_topology;
mod csv_table;
mod error;
pub mod films;
pub mod keys;
mod named;
mod override_key;
mod parse;
mod plan;
mod sites;
pub mod types;

use schemars::transform::Transform as _;

pub use error::ScenarioError;
pub use named::NamedScenario;
pub use parse::{parse_scenario, read_scenario, scenario_from_json};
pub use plan::{CcFiles, FindPlace, Places, Progress, constellation_of};
pub use types::Scenario;

/// Return the JSON Schema of a scenario file.
pub fn schema() -> schemars::Schema {
    let mut schema = schemars::schema_for!(Scenario);
    // An optional key has no default to show.
    let show_defaults = |schema: &mut schemars::Schema| {
        if let Some(default) = schema.remove("default").map(types::without_nulls)
            && !default.is_null()
        {
            schema.insert("default".to_owned(), default);
        }
    };
    schemars::transform::RecursiveTransform(show_defaults).transform(&mut schema);
    schema
}
