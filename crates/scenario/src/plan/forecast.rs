//! Forecast of handovers for `[signal] source = "forecast"`: computes the path a second time, from
//! the forecaster's element sets.

use std::collections::BTreeSet;
use std::path::Path;

use skyhop_orbit::{Constellation, EarthModel, Ephemeris, Vec3};
use skyhop_path::{PathRequest, Place};
use skyhop_signal::Handover;
use skyhop_signal::forecast::Forecast;
use skyhop_units::{Duration, UtcInstant};

use crate::named::NamedScenario;
use crate::plan::path::Progress;
use crate::plan::places::FindPlace;
use crate::{ScenarioError, catalogue};

/// Largest distance between the positions that two element sets of the same satellite give: two
/// weeks of orbital decay and an operator's corrections move a satellite by less, and neighbours in
/// a plane are further apart.
const SAME_SATELLITE_M: f64 = 100e3;
/// Number of satellites whose positions are compared to identify a fleet.
const LOOKED_AT: usize = 200;

impl NamedScenario {
    /// Handovers that the forecaster expects.
    pub(crate) fn forecast(
        &self,
        find_place: FindPlace<'_>,
        progress: Progress<'_>,
    ) -> Result<Vec<Handover>, ScenarioError> {
        let request = self.forecast_request(self.path_request(find_place)?)?;
        let (steps, mut connected) = (request.steps(), false);
        let mut handovers = Vec::new();
        let forecast = Forecast::new(&request).map_err(|error| self.path_error(&error))?;
        for (done, step) in (1..).zip(forecast) {
            connected |= step.connected;
            handovers.extend(step.handover);
            if progress(done, steps).is_break() {
                return Err(ScenarioError::Interrupted);
            }
        }
        if !connected {
            let what = format!("the path is never connected over {}", request.constellation.name);
            return Err(self.key_error("signal.elements", what));
        }
        Ok(handovers)
    }

    /// Build the request of a forecast outside of a run. It uses the settings of `[path]`, but the
    /// element sets in the file `elements`, these ends and this start. Without `to` it covers only the
    /// satellite of the terminal at `from`.
    ///
    /// # Errors
    /// A file is missing, its element sets cannot be used at that time, or `[path]` is wrong.
    pub fn forecast_from(
        &self,
        elements: &Path,
        (from, to): (&Place, Option<&Place>),
        start: UtcInstant,
        duration: Duration,
    ) -> Result<PathRequest, ScenarioError> {
        let mut named = self.clone();
        named.scenario.run.duration = duration;
        let request = named.request_between(from.clone(), to.unwrap_or(from).clone())?;
        let elevation_deg = named.orbits()?.minimum_elevation.map(|minimum| minimum.degrees());
        let constellation =
            named.by_element_sets("--elements", elements, Some(start), elevation_deg)?;
        let relay = if to.is_some() { request.relay } else { None };
        let request = PathRequest { constellation, relay, start, ..request };
        request.validate().map_err(|error| self.path_error(&error))?;
        Ok(request)
    }

    /// Build the path's request with the forecaster's satellites in place of its own.
    fn forecast_request(&self, path: PathRequest) -> Result<PathRequest, ScenarioError> {
        let wrong = |what: String| Err(self.key_error("signal.elements", what));
        let Some(name) = &self.scenario.signal.elements else {
            if path.constellation.element_sets.is_empty() {
                let what = "is missing: the path's own satellites have no element sets; expected a TLE or OMM file";
                return wrong(what.to_owned());
            }
            return Ok(path);
        };
        let Some(file) = catalogue::find_file(self.base(), name) else {
            return wrong(format!("no such file: \"{name}\"; expected a TLE or OMM file"));
        };
        let elevation_deg = Some(path.constellation.minimum_elevation_deg);
        let constellation =
            self.by_element_sets("signal.elements", &file, Some(path.start), elevation_deg)?;
        match fleet_mismatch(&path, &constellation) {
            Some(how) => wrong(format!("these are not the satellites of the path: {how}")),
            None => Ok(PathRequest { constellation, ..path }),
        }
    }
}

/// Explain why the satellites of `elements` are not of the path's fleet; `None` if they are.
fn fleet_mismatch(path: &PathRequest, elements: &Constellation) -> Option<String> {
    let own = &path.constellation;
    if own.element_sets.is_empty() {
        return position_mismatch(path, elements);
    }
    let [known, used] = [elements, own].map(catalogue_numbers);
    let common = known.intersection(&used).count();
    (2 * common < known.len().min(used.len())).then(|| {
        let (known, used) = (known.len(), used.len());
        format!("{common} of its {known} are among the {used} of {}", own.name)
    })
}

fn catalogue_numbers(constellation: &Constellation) -> BTreeSet<u64> {
    constellation.element_sets.iter().map(|set| set.elements().catalogue_number).collect()
}

/// Compare fleets by their positions at the path's start, for paths whose satellites have no catalogue
/// numbers.
fn position_mismatch(path: &PathRequest, elements: &Constellation) -> Option<String> {
    let places = |constellation: &Constellation| {
        let mut places = Vec::new();
        Ephemeris::new(constellation, EarthModel::Wgs84).earth_fixed(path.start, &mut places);
        places
    };
    let (own, known) = (places(&path.constellation), places(elements));
    let nearest_m = |place: &Vec3| {
        let distances = own.iter().map(|own| (*own - *place).length());
        distances.fold(f64::INFINITY, f64::min)
    };
    let every = known.len().div_ceil(LOOKED_AT);
    let mut apart_m: Vec<f64> = known.iter().step_by(every).map(nearest_m).collect();
    apart_m.sort_unstable_by(f64::total_cmp);
    let median_m = apart_m[apart_m.len() / 2];
    (median_m > SAME_SATELLITE_M).then(|| {
        let name = &path.constellation.name;
        format!("when the path begins they are {:.0} km from those of {name}", median_m / 1e3)
    })
}
