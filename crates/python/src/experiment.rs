//! Scenarios, experiments, run directories.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use skyhop_experiment::Experiment;
use skyhop_orbit::Geodetic;
use skyhop_path::Place;
use skyhop_record::{RunDirectory, RunWriter};
use skyhop_scenario::{FindPlace, NamedScenario, read_scenario, scenario_from_json};

use crate::errors::{from_file, from_scenario, input_error, run_error};
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

    fn to_json(&self) -> String {
        self.0.scenario.to_json().to_string()
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
pub(crate) struct PyExperiment(pub(crate) Experiment);

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

    /// What another process or machine builds the same from.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.0).map_err(|error| input_error(&error.to_string()))
    }

    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Self> {
        let wrong = |error: serde_json::Error| input_error(&format!("not an experiment: {error}"));
        serde_json::from_str(text).map(Self).map_err(wrong)
    }

    fn duration_s(&self) -> f64 {
        self.0.duration.as_secs_f64()
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
            .map_err(|error| from_file(&error))
    }

    fn abandon(&self) -> PyResult<()> {
        let mut guard = self.0.lock().map_err(|error| run_error(&error.to_string()))?;
        match guard.take() {
            Some(directory) => directory.abandon().map_err(|error| from_file(&error)),
            None => Ok(()),
        }
    }
}

impl PyRunDirectory {
    /// Begins to write a run into it.
    pub(crate) fn writer(&self, experiment: &Experiment) -> PyResult<RunWriter> {
        let guard = self.0.lock().map_err(|error| run_error(&error.to_string()))?;
        let directory = guard.as_ref().ok_or_else(|| run_error("the directory was abandoned"))?;
        directory.writer(experiment.path()).map_err(|error| from_file(&error))
    }
}
