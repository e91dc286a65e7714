//! The scenario file: read and checked, and what comes of it.
//!
//! What reads it stands here; `plan` makes of it what an engine runs, and is not known to what reads.

pub mod by_kind;
pub mod catalogue;
mod check;
mod check_size;
mod check_topology;
mod error;
pub mod films;
pub mod keys;
mod named;
mod override_key;
mod parse;
mod plan;
pub mod types;

use schemars::transform::Transform as _;

pub use error::ScenarioError;
pub use named::NamedScenario;
pub use parse::{parse_scenario, read_scenario, scenario_from_json};
pub use plan::{CcFiles, FindPlace, Progress, constellation_of};
pub use types::Scenario;

/// The JSON Schema of a scenario file.
pub fn schema() -> schemars::Schema {
    let mut schema = schemars::schema_for!(Scenario);
    // A key that may be missing has no default to show.
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
