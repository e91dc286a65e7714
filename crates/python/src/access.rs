//! Access profiles: names, checks, and draws of their processes.

use std::path::Path;

use pyo3::prelude::*;
use skyhop_access::{Process, Profile, RANKS};
use skyhop_scenario::catalogue;

use crate::catalogue::Entry;
use crate::errors::{Fallible, input_error};

/// Ranks of the values in the tables of quantiles of access profiles.
#[pyfunction]
pub(crate) fn access_ranks() -> Vec<f64> {
    RANKS.to_vec()
}

/// Access profiles that come with skyhop.
#[pyfunction]
pub(crate) fn list_access() -> Fallible<Vec<Entry>> {
    catalogue::profile_names()
        .into_iter()
        .map(|name| {
            let profile = catalogue::access_profile(&name, Path::new(""), "profile", &name)?;
            let Profile { description, source, licence, date, .. } = profile;
            Ok(Entry { name, description, source: format!("{source} ({date}; {licence})") })
        })
        .collect()
}

/// Check the TOML text of an access profile; the error names `file` and the place.
#[pyfunction]
pub(crate) fn check_access_profile(text: &str, file: &str) -> Fallible<()> {
    Profile::parse(text, file).map(|_| ()).map_err(|error| input_error(&error.to_string()))
}

/// Draw `steps` values of a process, which is given in JSON; `steps_of_a_slot` of them belong to each slot.
#[pyfunction]
pub(crate) fn draw_process(
    process: &str,
    steps: u64,
    steps_of_a_slot: u64,
    seed: u64,
) -> Fallible<Vec<f64>> {
    let process: Process = serde_json::from_str(process)?;
    Ok(process.drawn(steps, steps_of_a_slot, seed))
}
