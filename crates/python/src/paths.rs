//! Paths.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use skyhop_convert::export::export_path;
use skyhop_convert::import::{ImportOptions, import_log};
use skyhop_files::{path_to_parquet, read_path, replace_file, write_path};
use skyhop_orbit::{Constellation, EarthModel, Ephemeris};
use skyhop_path::{Endpoint, PathTrace};
use skyhop_scenario::catalogue;

use skyhop_units::{Duration, UtcInstant};

use crate::errors::{Fallible, input_error};
use crate::experiment::{FoundPlace, PyScenario, plan};

fn endpoint((name, latitude_deg, longitude_deg, _): FoundPlace) -> Endpoint {
    Endpoint { name, latitude_deg: Some(latitude_deg), longitude_deg: Some(longitude_deg) }
}

/// A time-varying path.
#[pyclass(name = "PathTrace", frozen)]
pub(crate) struct PyPathTrace {
    pub(crate) trace: Arc<PathTrace>,
    /// The path file that it was read from.
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
        plan(py, find_place, progress, |find, tell| scenario.0.path(find, tell)).map(Self::from)
    }

    #[staticmethod]
    fn read(path: &str) -> Fallible<Self> {
        let file = PathBuf::from(path);
        Ok(Self { trace: Arc::new(read_path(&file)?), file: Some(file) })
    }

    #[staticmethod]
    fn import_log(
        path: &str,
        log_format: &str,
        ends: (Option<FoundPlace>, Option<FoundPlace>),
        texts: BTreeMap<String, String>,
    ) -> Fallible<Self> {
        let options = ImportOptions { from: ends.0.map(endpoint), to: ends.1.map(endpoint), texts };
        Ok(import_log(Path::new(path), log_format, &options)?.into())
    }

    /// Writes the path for another tool, in one of the formats of `export_path`.
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

    fn to_parquet<'py>(&self, py: Python<'py>) -> Fallible<Bound<'py, PyBytes>> {
        let bytes = path_to_parquet(&self.trace)?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn header_json(&self) -> Fallible<String> {
        Ok(serde_json::to_string(&self.trace.header)?)
    }

    /// How many frames it has.
    fn __len__(&self) -> usize {
        self.trace.frames.len()
    }
}

/// Earth-fixed coordinates in metres.
type Position = (f64, f64, f64);

/// Earth-fixed positions (m) of a constellation's satellites at a moment, by number, and the
/// elevation (deg) from which they serve.
#[pyfunction]
pub(crate) fn satellites_at(
    constellation: &str,
    compat: &str,
    unix_ns: i64,
) -> Fallible<(Vec<Position>, f64)> {
    let (text, file) = catalogue::constellation_text(constellation, Path::new(""), "the path")?;
    let constellation = Constellation::parse(&text, &file)?;
    let earth = if compat == "leoem" { EarthModel::LeoemSphere } else { EarthModel::Wgs84 };
    let mut positions = Vec::new();
    Ephemeris::new(&constellation, earth)
        .earth_fixed(UtcInstant::from_unix_nanos(unix_ns), &mut positions);
    let positions = positions.into_iter().map(|position| (position.x, position.y, position.z));
    Ok((positions.collect(), constellation.minimum_elevation_deg))
}

/// Writes a file, whole or not at all.
#[pyfunction(name = "replace_file")]
pub(crate) fn write_bytes(path: &str, data: &[u8]) -> Fallible<()> {
    Ok(replace_file(Path::new(path), data)?)
}

/// The seconds of a text such as "2 min"; `origin` names it in the error.
#[pyfunction]
pub(crate) fn duration_s(origin: &str, text: &str) -> Fallible<f64> {
    let parsed: Result<Duration, _> = text.parse();
    parsed.map(Duration::as_secs_f64).map_err(|error| input_error(&format!("{origin}: {error}")))
}
