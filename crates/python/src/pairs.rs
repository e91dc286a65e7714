//! Python binding of the computation of routes between all pairs of sites.

use std::path::Path;

use pyo3::prelude::*;
use skyhop_files::{PAIRS_SOURCE, PairsWriter};
use skyhop_model::Relay;
use skyhop_path::all_pairs::AllPairs;
use skyhop_path::{PathRequest, Place};
use skyhop_scenario::{FindPlace, ScenarioError};

use crate::errors::{Fallible, input_error};
use crate::experiment::{PyScenario, with_places};
use crate::progress::PyProgress;

/// Compute the routes between all pairs of `sites` and write them to a file; `failures` is a JSON list of tables as
/// `[[failure]]` of a scenario has them.
#[pyfunction]
pub(crate) fn write_all_pairs(
    py: Python<'_>,
    scenario: &PyScenario,
    find_place: Py<PyAny>,
    sites: Vec<String>,
    failures: &str,
    file: &str,
    progress: Py<PyAny>,
) -> Fallible<()> {
    let progress = PyProgress::new(progress);
    with_places(py, find_place.into(), |find_place| {
        let places = places(find_place, &sites)?;
        let request = scenario.0.pairs_request_with_failures(&places, failures)?;
        write(&request, &places, Path::new(file), &progress)
    })
}

fn places(find_place: FindPlace<'_>, names: &[String]) -> Fallible<Vec<Place>> {
    names.iter().map(|name| find_place.find(name).map_err(|what| input_error(&what))).collect()
}

fn write(
    request: &PathRequest,
    sites: &[Place],
    file: &Path,
    progress: &PyProgress,
) -> Fallible<()> {
    let steps = AllPairs::new(request, sites)?;
    let mut writer = PairsWriter::create(file, header(request, sites).to_string())?;
    for (done, step) in (1..).zip(steps) {
        writer.push(&step)?;
        if progress.report(done, request.steps()).is_break() {
            return Err(progress.failure(ScenarioError::Interrupted));
        }
    }
    Ok(writer.finish()?)
}

fn header(request: &PathRequest, sites: &[Place]) -> serde_json::Value {
    let place = |place: &Place| serde_json::json!(place.endpoint());
    serde_json::json!({
        "schema": 1,
        "source": PAIRS_SOURCE,
        "constellation": request.constellation.name,
        "satellites": request.constellation.satellites(),
        "relay": request.relay.map(Relay::name),
        "handover": request.handover,
        "compat": request.compat.name(),
        "start": request.start,
        "step_ns": request.step.as_nanos(),
        "sites": sites.iter().map(place).collect::<Vec<_>>(),
        "gateways": request.gateways.iter().map(place).collect::<Vec<_>>(),
    })
}
