//! Python classes for scenarios, experiments and run directories.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyImportError, PyKeyboardInterrupt, PyMemoryError};
use pyo3::prelude::*;
use skyhop_app::{App, Predicted, RateOracle};
use skyhop_ccfile::Sources;
use skyhop_experiment::{Experiment, FlowPlan, Traffic};
use skyhop_model::{CcLanguage, cc_language};
use skyhop_orbit::Geodetic;
use skyhop_path::Place;
use skyhop_record::{RunDirectory, RunWriter};
use skyhop_scenario::{
    CcFiles, FindPlace, NamedScenario, Progress, ScenarioError, read_scenario, scenario_from_json,
};

use crate::errors::{Fallible, input_error, run_error};
use crate::paths::PyPathTrace;
use crate::progress::PyProgress;
use crate::python_cc;
use crate::video::prediction_history;

/// Scenario that has been parsed and checked.
#[pyclass(name = "Scenario", frozen)]
pub(crate) struct PyScenario(pub(crate) NamedScenario);

#[pymethods]
impl PyScenario {
    #[staticmethod]
    fn read(path: &str, sets: Vec<String>) -> Fallible<Self> {
        Ok(Self(read_scenario(Path::new(path), &sets)?))
    }

    #[staticmethod]
    fn from_json(json: &str, origin: &str, sets: Vec<String>) -> Fallible<Self> {
        Ok(Self(scenario_from_json(json, origin, &sets)?))
    }

    /// File of the scenario, relative to which file names are resolved; or a description of the
    /// origin if it is not a file.
    #[getter]
    fn origin(&self) -> &str {
        &self.0.origin
    }

    fn to_json(&self) -> String {
        self.0.scenario.to_json().to_string()
    }

    /// Compile and load those congestion controls of the flows that are user files, also for the kernel if
    /// `for_kernel`. Return the compiler's warnings.
    fn load_cc_files(&self, py: Python<'_>, for_kernel: bool) -> Fallible<String> {
        let files = load_cc_files(py, &self.0)?;
        if for_kernel {
            let in_c = files.in_c.into_iter();
            py.detach(|| in_c.map(skyhop_kernel::compile).collect::<Result<Vec<_>, _>>())?;
        }
        Ok(files.messages)
    }

    /// SHA-256 of all source files of the flows' congestion controls that are user files, by absolute path.
    fn cc_file_digests(&self) -> Fallible<BTreeMap<String, String>> {
        Ok(self.0.cc_file_digests()?)
    }

    /// Congestion controls of the flows: from each name in the scenario to a name that is valid in any directory,
    /// which for a file is its absolute path.
    fn congestion_controls(&self) -> BTreeMap<String, String> {
        self.0.congestion_controls()
    }

    /// Notes about limitations of the scenario's path.
    fn path_notes(&self) -> Fallible<Vec<String>> {
        Ok(self.0.path_notes()?)
    }
}

/// Load the congestion controls of a scenario that are user files: C natively, Python by the Python reader.
fn load_cc_files(py: Python<'_>, scenario: &NamedScenario) -> Fallible<CcFiles> {
    let files = py.detach(|| scenario.load_cc_files())?;
    files.in_python.iter().try_for_each(|file| python_cc::adopt(py, file))?;
    Ok(files)
}

/// Place in the form that Python returns: name, latitude (deg), longitude (deg) and altitude (m).
pub(crate) type FoundPlace = (String, f64, f64, f64);

pub(crate) fn place((name, latitude_deg, longitude_deg, altitude_m): FoundPlace) -> Place {
    let position = Geodetic { latitude_deg, longitude_deg, altitude_m };
    Place { name, position }
}

/// Functions of Python that know places.
pub(crate) struct PyPlaces {
    /// Finder of a place by its name: `find_place(text) -> (name, latitude_deg, longitude_deg, altitude_m)`.
    pub(crate) find: Py<PyAny>,
    /// Knowledge of cities: `largest_cities(count) -> [(name, latitude_deg, longitude_deg, altitude_m, population)]`, and
    /// `population_of(text) -> population or None`.
    pub(crate) cities: Option<(Py<PyAny>, Py<PyAny>)>,
}

impl From<Py<PyAny>> for PyPlaces {
    fn from(find: Py<PyAny>) -> Self {
        Self { find, cities: None }
    }
}

/// Places of Python, for work without the GIL.
struct Places {
    python: PyPlaces,
    /// Exception that is no problem of a place: Ctrl-C, lack of memory, a missing package.
    interruption: Mutex<Option<PyErr>>,
}

impl Places {
    /// Call one of the functions; the error is one line.
    fn call<T: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>>(
        &self,
        call: impl FnOnce(Python<'_>) -> PyResult<Py<PyAny>>,
    ) -> Result<T, String> {
        Python::attach(|py| {
            let found = call(py).and_then(|found| found.extract(py));
            found.map_err(|error: PyErr| {
                let what = error.value(py).to_string();
                if error.is_instance_of::<PyKeyboardInterrupt>(py)
                    || error.is_instance_of::<PyMemoryError>(py)
                    || error.is_instance_of::<PyImportError>(py)
                {
                    *self.interruption.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
                what
            })
        })
    }
}

impl skyhop_scenario::Places for Places {
    fn find(&self, text: &str) -> Result<Place, String> {
        self.call(|py| self.python.find.call1(py, (text,))).map(place)
    }

    fn population(&self, text: &str) -> Option<u64> {
        let (_, population_of) = self.python.cities.as_ref()?;
        self.call(|py| population_of.call1(py, (text,))).ok().flatten()
    }

    fn largest(&self, count: usize) -> Result<Vec<(Place, u64)>, String> {
        let Some((largest_cities, _)) = &self.python.cities else {
            return Err("expected a list of sites: cities are not known here".to_owned());
        };
        let found: Vec<(String, f64, f64, f64, u64)> =
            self.call(|py| largest_cities.call1(py, (count,)))?;
        let city = |(name, latitude_deg, longitude_deg, altitude_m, population)| {
            (place((name, latitude_deg, longitude_deg, altitude_m)), population)
        };
        Ok(found.into_iter().map(city).collect())
    }
}

/// Call `work` without the GIL and with the places that Python knows.
pub(crate) fn with_places<T: Send>(
    py: Python<'_>,
    python: PyPlaces,
    work: impl FnOnce(FindPlace<'_>) -> Fallible<T> + Send,
) -> Fallible<T> {
    let places = Places { python, interruption: Mutex::new(None) };
    let result = py.detach(|| work(&places));
    match places.interruption.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(interrupted) => Err(interrupted.into()),
        None => result,
    }
}

/// Call `work` as [`with_places`] does, and with a function that reports progress to `progress`.
pub(crate) fn plan<T: Send>(
    py: Python<'_>,
    places: PyPlaces,
    progress: Py<PyAny>,
    work: impl FnOnce(FindPlace<'_>, Progress<'_>) -> Result<T, ScenarioError> + Send,
) -> Fallible<T> {
    let progress = PyProgress::new(progress);
    with_places(py, places, |places| {
        work(places, &mut |done, total| progress.report(done, total))
            .map_err(|error| progress.failure(error))
    })
}

/// Experiment: a scenario with its path computed and its links built.
#[pyclass(name = "Experiment", frozen)]
pub(crate) struct PyExperiment {
    pub(crate) experiment: Experiment,
    /// Path file that contains exactly the experiment's path, if there is one.
    path_file: Option<PathBuf>,
}

#[pymethods]
impl PyExperiment {
    /// Build an experiment from a scenario. `path` is the scenario's path if it is already known; it is then used
    /// instead of being computed again. `default_cc` is the congestion control of a program's sockets, which may be a
    /// user's file. With `for_program` the path extends beyond the scenario's duration. `predict_rates(file, path,
    /// rates_bps) -> (at_s, every_s, rates_bps)` runs a throughput predictor along a path, given the mean rate of
    /// each second. `cities` are the functions `largest_cities(count)` and `population_of(text)` for the sites of a network.
    #[staticmethod]
    #[pyo3(signature = (scenario, find_place, progress, path=None, default_cc=None, for_program=false, predict_rates=None, cities=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn build(
        py: Python<'_>,
        scenario: &PyScenario,
        find_place: Py<PyAny>,
        progress: Py<PyAny>,
        path: Option<&PyPathTrace>,
        default_cc: Option<&str>,
        for_program: bool,
        predict_rates: Option<Py<PyAny>>,
        cities: Option<(Py<PyAny>, Py<PyAny>)>,
    ) -> Fallible<Self> {
        load_cc_files(py, &scenario.0)?;
        let known = path.map(|path| Arc::clone(&path.trace));
        let places = PyPlaces { find: find_place, cities };
        let mut experiment = plan(py, places, progress, |find, tell| match known {
            Some(trace) => scenario.0.experiment_over(trace, find, tell),
            None if for_program => scenario.0.experiment_for_program(find, tell),
            None => scenario.0.experiment(find, tell),
        })?;
        run_predictors(py, &mut experiment, predict_rates.as_ref())?;
        if let Some(file) = default_cc.filter(|cc| cc_language(cc).is_some()) {
            experiment.cc_files.extend(Sources::read(Path::new(file))?.digests().clone());
        }
        let is_as_given = |path: &&PyPathTrace| std::ptr::eq(experiment.path(), &*path.trace);
        let path_file = path.filter(is_as_given).and_then(|path| path.file.clone());
        Ok(Self { experiment, path_file })
    }

    /// Serialise the experiment. Another process or machine can restore it with `from_json`.
    fn to_json(&self) -> Fallible<String> {
        Ok(serde_json::to_string(&self.experiment)?)
    }

    #[staticmethod]
    fn from_json(py: Python<'_>, text: &str) -> Fallible<Self> {
        let wrong = |error: serde_json::Error| input_error(&format!("not an experiment: {error}"));
        let experiment: Experiment = serde_json::from_str(text).map_err(wrong)?;
        for file in experiment.flows.iter().filter_map(FlowPlan::cc) {
            match cc_language(file) {
                Some(CcLanguage::C) => drop(skyhop_ccfile::load(Path::new(file))?),
                Some(CcLanguage::Python) => python_cc::adopt(py, file)?,
                Some(CcLanguage::Card) => drop(skyhop_ccfile::load_policy(Path::new(file))?),
                None => {}
            }
        }
        Ok(Self { experiment, path_file: None })
    }

    fn duration_s(&self) -> f64 {
        self.experiment.duration.as_secs_f64()
    }
}

/// Run the throughput predictors of video players, which are implemented in Python.
fn run_predictors(
    py: Python<'_>,
    experiment: &mut Experiment,
    predict_rates: Option<&Py<PyAny>>,
) -> Fallible<()> {
    // Over a network, no player predicts rates with a model.
    let path_link = usize::from(experiment.path_link());
    let Some(trace) = experiment.links.get(path_link).map(|link| Arc::clone(&link.trace)) else {
        return Ok(());
    };
    let seconds = experiment.duration.as_secs_f64().floor() as usize;
    for flow in &mut experiment.flows {
        let Traffic::Tcp { app: App::Dash(dash), .. } = &mut flow.traffic else { continue };
        let (Predicted::Model(file), Some(RateOracle::Truth(truth))) =
            (&dash.predicted, &dash.rate_oracle)
        else {
            continue;
        };
        let Some(predict_rates) = predict_rates else {
            return Err(input_error(&format!(
                "{file}: no predictor is available to run the model"
            )));
        };
        let path = PyPathTrace { trace: Arc::clone(&trace), file: None };
        let rates: Vec<f64> = (0..seconds)
            .map(|second| truth.trace.mean_bps(second as f64, (second + 1) as f64))
            .collect();
        let found = predict_rates.call1(py, (&file[..], Py::new(py, path)?, rates))?;
        dash.rate_oracle = Some(RateOracle::Predicted(prediction_history(
            found.extract(py)?,
            truth.payload_share,
        )?));
    }
    Ok(())
}

/// Reserved output directory of a run.
#[pyclass(name = "RunDirectory", frozen)]
pub(crate) struct PyRunDirectory(Mutex<Option<RunDirectory>>);

#[pymethods]
impl PyRunDirectory {
    #[staticmethod]
    fn reserve(path: &str, force: bool) -> Fallible<Self> {
        let directory = RunDirectory::reserve(Path::new(path), force)?;
        Ok(Self(Mutex::new(Some(directory))))
    }

    #[staticmethod]
    fn aside(path: &str) -> Self {
        Self(Mutex::new(Some(RunDirectory::moved_by_caller(Path::new(path)))))
    }

    /// Copy the files of a complete run from another directory into this one.
    fn take(&self, py: Python<'_>, run: &str) -> Fallible<()> {
        let guard = self.0.lock().map_err(|error| run_error(&error.to_string()))?;
        let directory = guard.as_ref().ok_or_else(|| run_error("the directory was abandoned"))?;
        Ok(py.detach(|| directory.copy_run(Path::new(run)))?)
    }

    fn abandon(&self) -> Fallible<()> {
        let mut guard = self.0.lock().map_err(|error| run_error(&error.to_string()))?;
        match guard.take() {
            Some(directory) => Ok(directory.abandon()?),
            None => Ok(()),
        }
    }
}

impl PyRunDirectory {
    /// Open a writer for a run into the directory.
    pub(crate) fn writer(&self, of: &PyExperiment) -> Fallible<RunWriter> {
        let guard = self.0.lock().map_err(|error| run_error(&error.to_string()))?;
        let directory = guard.as_ref().ok_or_else(|| run_error("the directory was abandoned"))?;
        Ok(directory.writer(of.experiment.path(), of.path_file.as_deref())?)
    }
}
