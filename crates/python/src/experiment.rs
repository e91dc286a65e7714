//! Scenarios, experiments, runs.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use skyhop_live::{Control, LiveOptions, LiveOutcome, Program};
use skyhop_orbit::Geodetic;
use skyhop_path::Place;
use skyhop_record::{RunData, RunDirectory};
use skyhop_scenario::{Experiment, FindPlace, NamedScenario, read_scenario, scenario_from_json};

use crate::errors::{from_live, from_record, from_scenario, input_error, run_error};
use crate::progress::PyProgress;

/// A checked scenario.
#[pyclass(name = "Scenario", frozen)]
pub(crate) struct PyScenario(pub(crate) NamedScenario);

#[pymethods]
impl PyScenario {
    #[staticmethod]
    fn read(path: &str, sets: Vec<String>) -> PyResult<Self> {
        read_scenario(Path::new(path), &sets).map(Self).map_err(|error| from_scenario(&error, None))
    }

    #[staticmethod]
    fn from_json(json: &str, origin: &str, sets: Vec<String>) -> PyResult<Self> {
        scenario_from_json(json, origin, &sets)
            .map(Self)
            .map_err(|error| from_scenario(&error, None))
    }

    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.0.scenario).map_err(|error| input_error(&error.to_string()))
    }
}

/// Name, latitude (deg), longitude (deg), altitude (m).
pub(crate) type FoundPlace = (String, f64, f64, f64);

pub(crate) fn place((name, latitude_deg, longitude_deg, altitude_m): FoundPlace) -> Place {
    let position = Geodetic { latitude_deg, longitude_deg, altitude_m };
    Place { name, position }
}

/// Calls `work` without the GIL and with a place finder that asks the Python callable
/// `find_place(text) -> (name, latitude_deg, longitude_deg, altitude_m)`.
pub(crate) fn with_place_finder<T: Send>(
    py: Python<'_>,
    find_place: Py<PyAny>,
    work: impl FnOnce(FindPlace<'_>) -> PyResult<T> + Send,
) -> PyResult<T> {
    let interruption = Mutex::new(None);
    let result = py.detach(|| {
        work(&|text: &str| {
            Python::attach(|py| {
                let found = find_place.call1(py, (text,)).and_then(|found| found.extract(py));
                let found: FoundPlace = found.map_err(|error: PyErr| {
                    let what = error.value(py).to_string();
                    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
                        *interruption.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    }
                    what
                })?;
                Ok(place(found))
            })
        })
    });
    match interruption.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(interrupted) => Err(interrupted),
        None => result,
    }
}

/// A scenario with its path computed and its links built.
#[pyclass(name = "Experiment", frozen)]
pub(crate) struct PyExperiment(Experiment);

#[pymethods]
impl PyExperiment {
    #[staticmethod]
    fn build(
        py: Python<'_>,
        scenario: &PyScenario,
        find_place: Py<PyAny>,
        progress: Py<PyAny>,
    ) -> PyResult<Self> {
        let progress = PyProgress::new(progress);
        with_place_finder(py, find_place, |find_place| {
            scenario
                .0
                .experiment(find_place, &mut |done, total| progress.tell(done, total))
                .map(Self)
                .map_err(|error| from_scenario(&error, progress.take_raised()))
        })
    }

    fn duration_s(&self) -> f64 {
        self.0.duration.as_secs_f64()
    }
}

/// What an engine measured.
#[pyclass(name = "Outcome", frozen)]
pub(crate) struct PyOutcome {
    data: RunData,
    /// The content of run.json.
    info: serde_json::Value,
    interrupted: bool,
    program_status: Option<i32>,
}

#[pymethods]
impl PyOutcome {
    #[getter]
    fn interrupted(&self) -> bool {
        self.interrupted
    }

    #[getter]
    fn program_status(&self) -> Option<i32> {
        self.program_status
    }

    fn summary_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.data.summary).map_err(|error| run_error(&error.to_string()))
    }
}

/// A reserved output directory.
#[pyclass(name = "RunDirectory", frozen)]
pub(crate) struct PyRunDirectory(Mutex<Option<RunDirectory>>);

#[pymethods]
impl PyRunDirectory {
    #[staticmethod]
    fn reserve(path: &str, force: bool) -> PyResult<Self> {
        RunDirectory::reserve(Path::new(path), force)
            .map(|directory| Self(Mutex::new(Some(directory))))
            .map_err(|error| from_record(&error))
    }

    fn write(&self, experiment: &PyExperiment, outcome: &PyOutcome) -> PyResult<()> {
        let guard = self.0.lock().map_err(|error| run_error(&error.to_string()))?;
        let directory = guard.as_ref().ok_or_else(|| run_error("the directory was abandoned"))?;
        directory
            .write(&outcome.data, &experiment.0.trace, &outcome.info)
            .map_err(|error| from_record(&error))
    }

    fn abandon(&self) -> PyResult<()> {
        let mut guard = self.0.lock().map_err(|error| run_error(&error.to_string()))?;
        match guard.take() {
            Some(directory) => directory.abandon().map_err(|error| from_record(&error)),
            None => Ok(()),
        }
    }
}

struct PyControl<'p>(&'p PyProgress);

impl Control for PyControl<'_> {
    fn progress(&mut self, elapsed: Duration, total: Duration) {
        // What the callable raises is kept, and answers `interrupted` next.
        let _: ControlFlow<()> = self.0.tell(elapsed.as_millis() as u64, total.as_millis() as u64);
    }

    fn interrupted(&mut self) -> bool {
        self.0.interrupted()
    }
}

/// Runs an experiment on this machine's kernel.
#[pyfunction]
#[pyo3(signature = (experiment, client, server, default_cc, progress))]
pub(crate) fn run_live(
    py: Python<'_>,
    experiment: &PyExperiment,
    client: Option<Vec<String>>,
    server: Option<String>,
    default_cc: Option<String>,
    progress: Py<PyAny>,
) -> PyResult<PyOutcome> {
    let program = client.map(|client| Program { client, server });
    let mut options = LiveOptions { program, ..Default::default() };
    if let Some(cc) = default_cc {
        options.default_cc = cc;
    }
    let progress = PyProgress::new(progress);
    let outcome = py
        .detach(|| skyhop_live::run(&experiment.0, &options, &mut PyControl(&progress)))
        .map_err(|error| from_live(&error))?;
    match progress.take_raised() {
        // Ctrl-C ends a run early; anything else that the callable raised is the caller's error.
        Some(error) if !error.is_instance_of::<PyKeyboardInterrupt>(py) => Err(error),
        _ => live_outcome(&experiment.0, &options, outcome),
    }
}

fn live_outcome(
    experiment: &Experiment,
    options: &LiveOptions,
    outcome: LiveOutcome,
) -> PyResult<PyOutcome> {
    let info = serde_json::to_value(skyhop_live::run_info(experiment, options, &outcome))
        .map_err(|error| run_error(&error.to_string()))?;
    let LiveOutcome { data, interrupted, program_status, .. } = outcome;
    Ok(PyOutcome { data, info, interrupted, program_status })
}

/// Runs an experiment in virtual time.
#[pyfunction]
pub(crate) fn run_sim(
    py: Python<'_>,
    experiment: &PyExperiment,
    progress: Py<PyAny>,
) -> PyResult<PyOutcome> {
    let progress = PyProgress::new(progress);
    let started = Instant::now();
    let result =
        py.detach(|| skyhop_sim::run(&experiment.0, &mut |done, total| progress.tell(done, total)));
    let mut data = result.map_err(|error| {
        progress.take_raised().unwrap_or_else(|| input_error(&error.to_string()))
    })?;
    data.summary.wall_s = started.elapsed().as_secs_f64();
    let info = skyhop_sim::run_info(&experiment.0, data.summary.wall_s);
    Ok(PyOutcome { data, info, interrupted: false, program_status: None })
}
