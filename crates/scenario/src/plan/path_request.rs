//! Request for the computation of `[path]`: resolves its names and reads its files.

use std::path::PathBuf;

use skyhop_model::End;
use skyhop_orbit::{Constellation, ElementFile, Geostationary, Propagator, Selection};
use skyhop_path::failures::Failures;
use skyhop_path::handover::IMMEDIATE;
use skyhop_path::{PathOptions, PathRequest, Place, UtcGrid};
use skyhop_units::UtcInstant;

use crate::named::NamedScenario;
use crate::plan::places::FindPlace;
use crate::types::{ConstellationPath, PathKind};
use crate::{ScenarioError, catalogue};

impl NamedScenario {
    /// Build the request for a `[path]` of kind "constellation". The terminal of a path with one is the request's `from`.
    ///
    /// # Errors
    /// Unknown names, files that cannot be read, or element sets of which none is usable.
    pub fn path_request(&self, find_place: FindPlace<'_>) -> Result<PathRequest, ScenarioError> {
        let path = self.orbits()?;
        let end = |key: &str, name: &Option<String>| {
            find_place
                .find(name.as_deref().unwrap_or_default())
                .map_err(|what| self.key_error(key, what))
        };
        let (from, to) = (end("path.from", &path.from)?, end("path.to", &path.to)?);
        match self.path_section()?.dish.unwrap_or_default() {
            End::From => self.request_between(from, to),
            End::To => self.request_between(to, from),
        }
    }

    /// Build the request for the paths between all pairs of `sites`; without a handover policy, each path is the
    /// shortest at each step. The request's own ends, which that computation ignores, are the first and the last site.
    ///
    /// # Errors
    /// The errors of [`NamedScenario::path_request`], and fewer than two sites.
    pub fn pairs_request(&self, sites: &[Place]) -> Result<PathRequest, ScenarioError> {
        let [first, .., last] = sites else {
            return Err(self.key_error("sites", "expected at least two places"));
        };
        let request = self.request_between(first.clone(), last.clone())?;
        Ok(match self.orbits()?.handover {
            Some(_) => request,
            None => PathRequest { handover: IMMEDIATE.to_owned(), ..request },
        })
    }

    /// Build the request for a path between two places.
    pub(crate) fn request_between(
        &self,
        from: Place,
        to: Place,
    ) -> Result<PathRequest, ScenarioError> {
        let path = self.orbits()?;
        let (relay, compat) = (path.relay, path.compat);
        let handover = self.handover(path)?;
        let constellation = self.constellation()?;
        Ok(PathRequest {
            from,
            to,
            gateways: self.places("path.gateways", &path.gateways, relay.uses_gateways())?,
            relay: Some(relay),
            handover,
            outage: path
                .outage()
                .parse()
                .map_err(|e| self.key_error("path.outage", format!("{e}")))?,
            intermediate_outage: path.intermediate_outage(),
            compat,
            start: path.start.unwrap_or(constellation.epoch),
            step: path.step,
            duration: self.scenario.run.duration,
            seed: self.scenario.run.seed,
            options: PathOptions {
                isl_seam: path.isl_seam,
                isl_clearance: path.isl_clearance,
                isl_backhaul: path.isl_backhaul,
                isl_shells: path.isl_shells,
                geo_avoidance_deg: path.geo_avoidance.map(|angle| angle.degrees()),
                pops: self.places("path.pops", &path.pops, relay.is_access())?,
                fibre_stretch: path.fibre_stretch,
                grid: UtcGrid { period: path.grid_period, offset: path.grid_offset },
                failures: Failures::default(),
            },
            constellation,
        })
    }

    /// Keys of a `[path]` of kind "constellation"; other kinds are an error.
    pub(crate) fn orbits(&self) -> Result<&ConstellationPath, ScenarioError> {
        match &self.path_section()?.kind {
            PathKind::Constellation(path) => Ok(path),
            _ => Err(self.key_error("path.kind", "has no satellites; expected \"constellation\"")),
        }
    }

    /// Name of the handover policy; by default the one of the compatibility mode.
    fn handover(&self, path: &ConstellationPath) -> Result<String, ScenarioError> {
        let usual = skyhop_path::handover::default_policy(path.compat);
        match skyhop_path::handover::policy(path.handover.as_deref().unwrap_or(usual)) {
            Ok(policy) => Ok(policy.name.to_owned()),
            Err(unknown) => Err(self.key_error("path.handover", unknown.to_string())),
        }
    }

    /// Build the constellation with the satellites and the minimum elevation that `[path]` gives.
    ///
    /// # Errors
    /// The errors of [`NamedScenario::path_request`].
    pub fn constellation(&self) -> Result<Constellation, ScenarioError> {
        let path = self.orbits()?;
        let name = &path.constellation;
        let mut constellation = match (name.strip_prefix("geo:"), self.element_file(name)?) {
            (Some(longitude), _) => self.geostationary(longitude)?,
            (None, Some(file)) => {
                let elevation_deg = match path.minimum_elevation {
                    Some(minimum) => Some(self.elevation(minimum.degrees())?),
                    None => None,
                };
                return self.by_element_sets(
                    "path.constellation",
                    &file,
                    path.start,
                    elevation_deg,
                );
            }
            (None, None) => self.constellation_by_name(name)?,
        };
        self.choose_shells(&mut constellation)?;
        if let Some(minimum) = path.minimum_elevation {
            constellation.minimum_elevation_deg = self.elevation(minimum.degrees())?;
        }
        Ok(constellation)
    }

    fn constellation_by_name(&self, name: &str) -> Result<Constellation, ScenarioError> {
        let (text, found) = catalogue::constellation_text(name, self.base(), &self.origin)?;
        Constellation::parse(&text, &found)
            .map_err(|error| self.key_error("path.constellation", error.to_string()))
    }

    /// Find the user's file `name`; `None` if it does not contain element sets.
    fn element_file(&self, name: &str) -> Result<Option<PathBuf>, ScenarioError> {
        let shipped = catalogue::constellation_names().iter().any(|known| known == name);
        let Some(path) = catalogue::find_file(self.base(), name).filter(|_| !shipped) else {
            return Ok(None);
        };
        let likely = ElementFile::is_likely(&path)
            .map_err(|source| ScenarioError::Read { path: path.clone(), source })?;
        Ok(Some(path).filter(|_| likely))
    }

    /// Build the constellation of the file of element sets that the key `key` names, at the time `start` or
    /// else at the median epoch of the sets; without a minimum elevation, it gets that of its fleet.
    pub(crate) fn by_element_sets(
        &self,
        key: &str,
        file: &std::path::Path,
        start: Option<UtcInstant>,
        minimum_elevation_deg: Option<f64>,
    ) -> Result<Constellation, ScenarioError> {
        let wrong = |what: String| self.key_error(key, what);
        let file = ElementFile::load(file).map_err(|error| wrong(error.to_string()))?;
        let fleet = catalogue::fleet_of(&file)?;
        let usual = fleet.as_ref().map_or(USUAL_ELEVATION_DEG, |fleet| fleet.minimum_elevation_deg);
        let selection = Selection {
            start,
            duration: self.scenario.run.duration,
            stale_after: self.orbits()?.stale_after,
            satellites: self.satellites()?,
            minimum_elevation_deg: minimum_elevation_deg.unwrap_or(usual),
        };
        let found = file.constellation(&selection).map_err(|error| wrong(error.to_string()))?;
        Ok(match fleet {
            Some(Constellation { isl, gateways, pops, .. }) => {
                Constellation { isl, gateways, pops, ..found }
            }
            None => found,
        })
    }

    fn satellites(&self) -> Result<skyhop_orbit::SatelliteFilter, ScenarioError> {
        let text = &self.orbits()?.satellites;
        text.parse().map_err(|error| self.key_error("path.satellites", format!("{error}")))
    }

    /// Keep only the shells that the key `satellites` selects. Selection by plane or name is an
    /// error, because it needs element sets.
    fn choose_shells(&self, constellation: &mut Constellation) -> Result<(), ScenarioError> {
        let filter = self.satellites()?;
        if filter.chooses_names() || filter.chooses_planes() {
            let what = "names and planes can be chosen from element sets only, here only shells";
            return Err(self.key_error("path.satellites", what));
        }
        if filter.chooses_places() {
            let mut shell = 0..;
            constellation.shells.retain(|_| shell.next().is_some_and(|s| filter.wants_shell(s)));
            if constellation.satellites() == 0 {
                let what = format!("{} has no such shell", constellation.name);
                return Err(self.key_error("path.satellites", what));
            }
        }
        Ok(())
    }

    fn geostationary(&self, longitude: &str) -> Result<Constellation, ScenarioError> {
        let degrees = longitude.trim().parse::<f64>().ok();
        let Some(longitude_deg) = degrees.filter(|deg| (-180.0..=360.0).contains(deg)) else {
            let what =
                format!("\"geo:{longitude}\" is not a longitude; expected one such as geo:-95");
            return Err(self.key_error("path.constellation", what));
        };
        Ok(Constellation {
            name: format!("geo:{longitude_deg}"),
            description: format!("a geostationary satellite at {longitude_deg} deg east"),
            source: "the scenario".to_owned(),
            epoch: DEFAULT_START,
            minimum_elevation_deg: GEOSTATIONARY_ELEVATION_DEG,
            isl: false,
            gateways: None,
            pops: None,
            propagator: Propagator::Secular,
            longest_ground_link: None,
            longest_isl: None,
            satellite_prefix: None,
            shells: Vec::new(),
            geostationary: vec![Geostationary {
                name: format!("{longitude_deg} E"),
                longitude_deg,
            }],
            element_sets: Vec::new(),
            report: None,
        })
    }

    fn elevation(&self, degrees: f64) -> Result<f64, ScenarioError> {
        if (0.0..90.0).contains(&degrees) {
            return Ok(degrees);
        }
        let what = format!("is {degrees} deg; expected 0 to less than 90 deg");
        Err(self.key_error("path.minimum_elevation", what))
    }

    /// Read the rows of a list of sites; return none unless `needed`.
    fn places(&self, key: &str, name: &str, needed: bool) -> Result<Vec<Place>, ScenarioError> {
        if !needed {
            return Ok(Vec::new());
        }
        let rows = catalogue::site_list(name, self.base(), &self.origin, key)?;
        Ok(rows.into_iter().map(catalogue::SiteRow::into_place).collect())
    }
}

/// Start of paths whose constellation has no epoch of its own: that of LeoEM's published paths.
pub(crate) const DEFAULT_START: UtcInstant = UtcInstant::from_unix_nanos(1_575_158_400_000_000_000);

/// Minimum elevation of terminals of unknown fleets: Starlink's.
const USUAL_ELEVATION_DEG: f64 = 25.0;

/// Minimum elevation of terminals for geostationary satellites: ITU-R S.1066 and common practice use at
/// least 10 degrees where rain matters.
const GEOSTATIONARY_ELEVATION_DEG: f64 = 10.0;
