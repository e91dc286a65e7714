//! Python class for a constellation: its satellites, skipped records and positions.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use skyhop_orbit::{Constellation, EarthModel, Ephemeris, Formation, FormationPlace};
use skyhop_units::UtcInstant;

use crate::errors::{Fallible, input_error};
use crate::experiment::PyScenario;

/// Constellation, with the satellites that a scenario uses.
#[pyclass(name = "Constellation", frozen)]
pub(crate) struct PyConstellation(Constellation);

/// Satellite: id, name, catalogue number, shell, plane and slot; None where the satellite has no such value.
type SatelliteRow = (u32, Option<String>, Option<u64>, Option<u32>, Option<u32>, Option<u32>);

#[pymethods]
impl PyConstellation {
    #[staticmethod]
    fn of(py: Python<'_>, scenario: &PyScenario) -> Fallible<Self> {
        Ok(Self(py.detach(|| scenario.0.constellation())?))
    }

    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether its satellites are known to have inter-satellite links.
    #[getter]
    fn isl(&self) -> bool {
        self.0.isl
    }

    #[getter]
    fn epoch(&self) -> String {
        self.0.epoch.to_string()
    }

    #[getter]
    fn minimum_elevation_deg(&self) -> f64 {
        self.0.minimum_elevation_deg
    }

    /// One-line summary of the records in a file of element sets.
    #[getter]
    fn account(&self) -> Option<String> {
        self.0.report.as_ref().map(ToString::to_string)
    }

    /// Skipped records: name, kind of reason, and reason.
    fn skipped(&self) -> Vec<(String, String, String)> {
        let skipped = self.0.report.iter().flat_map(|report| &report.skipped);
        skipped
            .map(|s| (s.name.clone(), s.reason.kind().to_owned(), s.reason.to_string()))
            .collect()
    }

    fn satellites(&self) -> Vec<SatelliteRow> {
        let shells = (0_u32..).zip(&self.0.shells).flat_map(|(shell, of)| {
            let slots = of.satellites_per_plane;
            (0..of.satellites()).map(move |id| (shell, id / slots, id % slots))
        });
        let regular = shells
            .map(|(shell, plane, slot)| (None, None, Some(FormationPlace { shell, plane, slot })));
        let fixed = self.0.geostationary.iter().map(|s| (Some(s.name.clone()), None, None));
        let formation = Formation::recover(&self.0.element_sets, self.0.epoch);
        let by_set = self.0.element_sets.iter().zip(formation.places).map(|(set, place)| {
            let elements = set.elements();
            (Some(elements.name.clone()), Some(elements.catalogue_number), place)
        });
        (0..)
            .zip(regular.chain(fixed).chain(by_set))
            .map(|(id, (name, number, place))| {
                let [shell, plane, slot] = match place {
                    Some(p) => [p.shell, p.plane, p.slot].map(Some),
                    None => [None; 3],
                };
                (id, name, number, shell, plane, slot)
            })
            .collect()
    }

    /// Epochs of the element sets, in ns since 1970, in the order of their satellites. These
    /// satellites have the highest ids.
    fn element_epochs_ns(&self) -> Vec<i64> {
        self.0.element_sets.iter().map(|set| set.elements().epoch.unix_nanos()).collect()
    }

    /// Positions at a time, inertial or earth-fixed, as little-endian doubles: x, y and z of each satellite, in metres.
    fn positions<'py>(
        &self,
        py: Python<'py>,
        time: &str,
        inertial: bool,
    ) -> Fallible<Bound<'py, PyBytes>> {
        let time: UtcInstant = time.parse().map_err(|e| input_error(&format!("{e}")))?;
        let mut positions = Vec::new();
        let ephemeris = Ephemeris::new(&self.0, EarthModel::Wgs84);
        if inertial {
            ephemeris.inertial(time, &mut positions);
        } else {
            ephemeris.earth_fixed(time, &mut positions);
        }
        let bytes: Vec<u8> =
            positions.iter().flat_map(|p| [p.x, p.y, p.z]).flat_map(f64::to_le_bytes).collect();
        Ok(PyBytes::new(py, &bytes))
    }
}
