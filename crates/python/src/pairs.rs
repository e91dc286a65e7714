//! Python bindings of the computation of routes between all pairs of sites, and from sites to some ends.

use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use skyhop_files::{PAIRS_SOURCE, PairsWriter};
use skyhop_model::Relay;
use skyhop_path::all_pairs::{AllPairs, Destination};
use skyhop_path::failures::Part;
use skyhop_path::{PathRequest, Place};
use skyhop_scenario::{FindPlace, ScenarioError};

use crate::errors::{Fallible, input_error};
use crate::experiment::{FoundPlace, PyScenario, place, with_places};
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

/// One-way delays in ns (i64, 0 without a route), satellites to which the sites send (i32, -1 without a route), both
/// little-endian and ordered by time, destination and site, and the numbers of the satellites that fail.
type Routes<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Vec<u32>);

/// Compute the routes from each of the first `begins` sites to each destination, a site or the nearest of a list of
/// sites, all as indices of `sites`; over lasers, or else over one satellite. `failures` is as in [`write_all_pairs`], and
/// a `site` in it is the name of one of `sites`.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "a function for Python alone")]
pub(crate) fn site_routes<'py>(
    py: Python<'py>,
    scenario: &PyScenario,
    sites: Vec<FoundPlace>,
    begins: usize,
    destinations: Vec<PyDestination>,
    lasers: bool,
    failures: &str,
    progress: Py<PyAny>,
) -> Fallible<Routes<'py>> {
    let progress = PyProgress::new(progress);
    let sites: Vec<Place> = sites.into_iter().map(place).collect();
    let destinations: Vec<Destination> = destinations.into_iter().map(Into::into).collect();
    let found = py.detach(|| {
        let mut request = scenario.0.pairs_request_with_failures(&sites, failures)?;
        if !lasers {
            request.relay = None;
        }
        let steps = AllPairs::to(&request, &sites, begins, &destinations)?;
        collected(&request, steps, &progress)
    })?;
    Ok((PyBytes::new(py, &found.delays), PyBytes::new(py, &found.satellites), found.failed))
}

/// Destination as Python gives it: an index, or a list of indices.
#[derive(FromPyObject)]
pub(crate) enum PyDestination {
    #[pyo3(transparent)]
    Site(u32),
    #[pyo3(transparent)]
    Nearest(Vec<u32>),
}

impl From<PyDestination> for Destination {
    fn from(given: PyDestination) -> Self {
        match given {
            PyDestination::Site(site) => Self::Site(site),
            PyDestination::Nearest(sites) => Self::Nearest(sites),
        }
    }
}

struct Collected {
    delays: Vec<u8>,
    satellites: Vec<u8>,
    failed: Vec<u32>,
}

fn collected(
    request: &PathRequest,
    steps: AllPairs<'_>,
    progress: &PyProgress,
) -> Fallible<Collected> {
    let mut serving = Vec::new();
    let (mut delays, mut satellites) = (Vec::new(), Vec::new());
    for (done, step) in (1..).zip(steps) {
        serving.resize(step.delays.len(), -1_i32);
        for change in step.changes {
            serving[change.pair as usize] = change.nodes.first().map_or(-1, |first| *first as i32);
        }
        delays.extend(step.delays.iter().flat_map(|delay| (delay.as_nanos() as i64).to_le_bytes()));
        satellites.extend(serving.iter().flat_map(|satellite| satellite.to_le_bytes()));
        if progress.report(done, request.steps()).is_break() {
            return Err(progress.failure(ScenarioError::Interrupted));
        }
    }
    let satellite = |part| match part {
        Part::Satellite(number) => Some(number),
        Part::Laser(..) | Part::Site(_) => None,
    };
    let failed = request.options.failures.parts().filter_map(satellite).collect();
    Ok(Collected { delays, satellites, failed })
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
