//! Python classes for paths, their satellites, and files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::prelude::*;
use skyhop_convert::export::export_path;
use skyhop_convert::import::{ImportOptions, import_log};
use skyhop_files::{Staging, path_frames, read_path, replace_file, write_error, write_path};
use skyhop_orbit::{Constellation, EarthModel, Ephemeris};
use skyhop_path::import::Imported;
use skyhop_path::{Endpoint, PathHeader, PathTrace};
use skyhop_scenario::constellation_of;
use skyhop_units::{Duration, UtcInstant};

use crate::errors::{Fallible, input_error};
use crate::experiment::{FoundPlace, PyScenario, plan};
use crate::tables::PyTable;

fn endpoint((name, latitude_deg, longitude_deg, _): FoundPlace) -> Endpoint {
    Endpoint { name, latitude_deg: Some(latitude_deg), longitude_deg: Some(longitude_deg) }
}

/// Time-varying path between two ends.
#[pyclass(name = "PathTrace", frozen)]
pub(crate) struct PyPathTrace {
    pub(crate) trace: Arc<PathTrace>,
    /// Path file that the path was read from.
    pub(crate) file: Option<PathBuf>,
}

impl From<PathTrace> for PyPathTrace {
    fn from(trace: PathTrace) -> Self {
        Self { trace: Arc::new(trace), file: None }
    }
}

#[pymethods]
impl PyPathTrace {
    #[staticmethod]
    fn compute(
        py: Python<'_>,
        scenario: &PyScenario,
        find_place: Py<PyAny>,
        progress: Py<PyAny>,
    ) -> Fallible<Self> {
        plan(py, find_place.into(), progress, |find, tell| scenario.0.path(find, tell))
            .map(Self::from)
    }

    #[staticmethod]
    #[pyo3(signature = (path, force_size=false))]
    fn read(path: &str, force_size: bool) -> Fallible<Self> {
        let file = PathBuf::from(path);
        Ok(Self { trace: Arc::new(read_path(&file, force_size)?), file: Some(file) })
    }

    /// Read another tool's log; return the path and the account of the file.
    #[staticmethod]
    fn import_log(
        path: &str,
        log_format: Option<&str>,
        ends: (Option<FoundPlace>, Option<FoundPlace>),
        texts: BTreeMap<String, String>,
    ) -> Fallible<(Self, String)> {
        let options = ImportOptions { from: ends.0.map(endpoint), to: ends.1.map(endpoint), texts };
        let Imported { trace, account } = import_log(Path::new(path), log_format, &options)?;
        Ok((trace.into(), account.to_string()))
    }

    /// Write the path for another tool, in one of `EXPORT_FORMATS`.
    fn export(
        &self,
        path: &str,
        path_format: &str,
        texts: BTreeMap<String, String>,
    ) -> Fallible<()> {
        Ok(export_path(&self.trace, Path::new(path), path_format, &texts)?)
    }

    fn write(&self, path: &str) -> Fallible<()> {
        Ok(write_path(&self.trace, Path::new(path))?)
    }

    /// Frames as a table with the columns of a path file.
    fn frames(&self) -> Fallible<PyTable> {
        Ok(PyTable(vec![path_frames(&self.trace)?]))
    }

    fn header_json(&self) -> Fallible<String> {
        Ok(serde_json::to_string(&self.trace.header)?)
    }

    /// Number of frames of the path.
    fn __len__(&self) -> usize {
        self.trace.frames.len()
    }
}

/// Earth-fixed coordinates x, y and z, in metres.
type Position = (f64, f64, f64);

/// Satellites that a path was computed with.
#[pyclass(name = "Satellites", frozen)]
pub(crate) struct PySatellites {
    constellation: Constellation,
    ephemeris: Ephemeris,
}

#[pymethods]
impl PySatellites {
    /// Rebuild the satellites of a path from its header.
    #[staticmethod]
    fn of(header_json: &str) -> Fallible<Self> {
        let wrong =
            |error: serde_json::Error| input_error(&format!("not a path's header: {error}"));
        let header: PathHeader = serde_json::from_str(header_json).map_err(wrong)?;
        let constellation = constellation_of(&header)?;
        if constellation.satellites() != header.satellites {
            return Err(input_error(&format!(
                "the path was computed with {} satellites, but {} has {}, so that their positions are unknown; compute the \
                 path again",
                header.satellites,
                constellation.name,
                constellation.satellites()
            )));
        }
        let earth = match header.compat.as_deref() {
            Some("leoem") => EarthModel::LeoemSphere,
            _ => EarthModel::Wgs84,
        };
        let ephemeris = Ephemeris::new(&constellation, earth);
        Ok(Self { constellation, ephemeris })
    }

    /// Earth-fixed positions at a time, in metres, by satellite number.
    fn at(&self, unix_ns: i64) -> Vec<Position> {
        let mut positions = Vec::new();
        self.ephemeris.earth_fixed(UtcInstant::from_unix_nanos(unix_ns), &mut positions);
        positions.into_iter().map(|position| (position.x, position.y, position.z)).collect()
    }

    /// Minimum elevation for a link, in degrees.
    #[getter]
    fn minimum_elevation_deg(&self) -> f64 {
        self.constellation.minimum_elevation_deg
    }

    /// Names by satellite number; empty strings for satellites without a name.
    fn names(&self) -> Vec<String> {
        let Constellation { geostationary, element_sets, .. } = &self.constellation;
        let in_shells =
            self.constellation.satellites() as usize - geostationary.len() - element_sets.len();
        let named = geostationary.iter().map(|one| one.name.clone());
        let named = named.chain(element_sets.iter().map(|one| one.name().to_owned()));
        std::iter::repeat_n(String::new(), in_shells).chain(named).collect()
    }
}

/// Temporary directory inside another one. The directory is removed by `remove` or when the object is deleted. If the
/// process is killed, the next temporary directory that is created in the same place removes it.
#[pyclass(name = "Staging")]
pub(crate) struct PyStaging {
    path: PathBuf,
    staging: Option<Staging>,
}

#[pymethods]
impl PyStaging {
    #[new]
    fn new(directory: PathBuf) -> Fallible<Self> {
        let staging = Staging::cleaned(&directory).map_err(|e| write_error(&directory, e))?;
        Ok(Self { path: staging.path().to_owned(), staging: Some(staging) })
    }

    /// Path of the directory, also after its removal.
    #[getter]
    fn path(&self) -> &Path {
        &self.path
    }

    /// Remove the directory with its content.
    fn remove(&mut self) {
        self.staging = None;
    }
}

/// Write a file atomically: completely or not at all.
#[pyfunction(name = "replace_file")]
pub(crate) fn write_bytes(path: &str, data: &[u8]) -> Fallible<()> {
    Ok(replace_file(Path::new(path), data)?)
}

/// Parse a duration such as "2 min" to seconds; `origin` is its name in error messages.
#[pyfunction]
pub(crate) fn duration_s(origin: &str, text: &str) -> Fallible<f64> {
    let parsed: Result<Duration, _> = text.parse();
    parsed.map(Duration::as_secs_f64).map_err(|error| input_error(&format!("{origin}: {error}")))
}
