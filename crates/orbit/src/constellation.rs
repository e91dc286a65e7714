//! Constellations as data: what data/constellations/*.toml say.

use std::path::Path;

use serde::Deserialize;
use skyhop_model::plain_error;
use skyhop_units::{Length, UtcInstant};
use thiserror::Error;

use crate::{Account, ElementSet};

/// The most satellites that a constellation may have.
const MOST_SATELLITES: u64 = 1_000_000;

/// A set of satellites.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constellation {
    /// The file's name without its ending.
    #[serde(skip)]
    pub name: String,
    /// What it is, in a line.
    pub description: String,
    /// Where its numbers come from.
    pub source: String,
    /// When the satellites are where the shells put them.
    pub epoch: UtcInstant,
    /// The lowest elevation at which terminals and gateways use a satellite, in degrees.
    pub minimum_elevation_deg: f64,
    /// How the names of its satellites begin in the public catalogue.
    #[serde(default)]
    pub satellite_prefix: Option<String>,
    /// Whether its satellites have links to each other, or are meant to.
    #[serde(default = "yes")]
    pub isl: bool,
    /// The list of its own gateways that comes with skyhop, where one is public.
    #[serde(default)]
    pub gateways: Option<String>,
    /// The same of its points of presence.
    #[serde(default)]
    pub pops: Option<String>,
    /// How the shells' satellites move.
    #[serde(default)]
    pub propagator: Propagator,
    /// The longest link between ground and satellite of a tool that limits it by distance.
    #[serde(default)]
    pub longest_ground_link: Option<Length>,
    /// The longest link between satellites of a tool that limits it by distance.
    #[serde(default)]
    pub longest_isl: Option<Length>,
    /// Groups of satellites at one altitude; they are numbered one after the other.
    #[serde(rename = "shell", default)]
    pub shells: Vec<Shell>,
    /// Satellites that stand above the equator; numbered after the shells' satellites.
    #[serde(default)]
    pub geostationary: Vec<Geostationary>,
    /// Satellites by element set, from a TLE or OMM file; numbered after all others.
    #[serde(skip)]
    pub element_sets: Vec<ElementSet>,
    /// What became of the records of the file that the element sets are from.
    #[serde(skip)]
    pub account: Option<Account>,
}

/// How the satellites of shells move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Propagator {
    /// Circular orbits with secular drift.
    #[default]
    Secular,
    /// SGP4 from an element set per satellite, its angles rounded to a TLE's four decimals.
    Sgp4,
}

/// A satellite that keeps its place above the equator.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Geostationary {
    /// What it is called.
    pub name: String,
    /// Its longitude in degrees, east positive.
    pub longitude_deg: f64,
}

/// A Walker pattern: circular orbits in evenly spaced planes (Walker 1984).
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shell {
    /// The number of orbital planes.
    pub planes: u32,
    /// The number of satellites in each plane.
    pub satellites_per_plane: u32,
    /// The mean altitude above `reference_radius`.
    pub altitude: Length,
    /// The radius that `altitude` counts from: the equator's where nothing else is said.
    #[serde(default = "equatorial_radius")]
    pub reference_radius: Length,
    /// The angle between the orbits and the equator, in degrees.
    pub inclination_deg: f64,
    /// Walker's F: each plane is ahead of the plane before by F * 360 deg / all satellites.
    #[serde(default)]
    pub phasing: u32,
    /// The range of right ascension over which the planes are spread: 360 (delta) or 180 (star).
    #[serde(default = "full_circle")]
    pub node_span_deg: f64,
    /// Instead of `phasing`: every second plane is ahead by half the distance between satellites.
    #[serde(default)]
    pub staggered: bool,
    /// For SGP4: revolutions per day, as an element set has them (Kozai's mean motion).
    #[serde(default)]
    pub mean_motion_rev_per_day: Option<f64>,
    /// For SGP4.
    #[serde(default)]
    pub eccentricity: f64,
}

fn equatorial_radius() -> Length {
    Length::from_metres(6_378_137.0)
}

const fn yes() -> bool {
    true
}

fn full_circle() -> f64 {
    360.0
}

/// Why a constellation cannot be used.
#[derive(Debug, Error)]
pub enum ConstellationError {
    /// The file cannot be opened or read.
    #[error("cannot read the constellation file {file}: {source}")]
    Read {
        /// The file.
        file: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is not the TOML that a constellation file holds.
    #[error("{file}, line {line}: {what}")]
    Syntax {
        /// The file.
        file: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong, and what was expected.
        what: String,
    },
    /// A value makes no sense.
    #[error("{file}: {key} is {value}; expected {expected}")]
    Value {
        /// The file.
        file: String,
        /// The key, with its shell.
        key: String,
        /// What the file says.
        value: String,
        /// What it may say.
        expected: &'static str,
    },
}

impl Constellation {
    /// Reads a constellation file.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML of this form, or has a value that makes no sense.
    pub fn load(path: &Path) -> Result<Self, ConstellationError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConstellationError::Read { file: file.clone(), source })?;
        Self::parse(&text, &file)
    }

    /// Reads the text of a constellation file; `file` is its name, for the constellation's own name
    /// and for messages.
    ///
    /// # Errors
    /// The text is not TOML of this form or has a value that makes no sense.
    pub fn parse(text: &str, file: &str) -> Result<Self, ConstellationError> {
        let mut constellation: Self = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start).min(text.len());
            let line = 1 + text.as_bytes()[..start].iter().filter(|b| **b == b'\n').count();
            let what = plain_error(error.message());
            ConstellationError::Syntax { file: file.to_owned(), line, what }
        })?;
        let stem = Path::new(file).file_stem().unwrap_or_default();
        constellation.name = stem.to_string_lossy().into_owned();
        constellation.check().map_err(|(key, value, expected)| ConstellationError::Value {
            file: file.to_owned(),
            key,
            value,
            expected,
        })?;
        Ok(constellation)
    }

    /// How many satellites there are.
    pub fn satellites(&self) -> u32 {
        let others = self.geostationary.len() + self.element_sets.len();
        self.shells.iter().map(Shell::satellites).sum::<u32>() + others as u32
    }

    /// The first value that makes no sense: key, value, what was expected.
    fn check(&self) -> Result<(), (String, String, &'static str)> {
        let elevation = self.minimum_elevation_deg;
        if !(0.0..90.0).contains(&elevation) {
            let key = "minimum_elevation_deg".to_owned();
            return Err((key, elevation.to_string(), "0 to less than 90 degrees"));
        }
        if self.shells.is_empty() && self.geostationary.is_empty() {
            let expected = "at least one [[shell]] or [[geostationary]]";
            return Err(("shell".to_owned(), "missing".to_owned(), expected));
        }
        for (index, shell) in self.shells.iter().enumerate() {
            shell.check(self.propagator).map_err(|(key, value, expected)| {
                (format!("shell.{index}.{key}"), value, expected)
            })?;
        }
        for (index, satellite) in self.geostationary.iter().enumerate() {
            if !(-180.0..=360.0).contains(&satellite.longitude_deg) {
                let key = format!("geostationary.{index}.longitude_deg");
                let value = satellite.longitude_deg.to_string();
                return Err((key, value, "-180 to 360 degrees"));
            }
        }
        let total: u64 = self
            .shells
            .iter()
            .map(|shell| u64::from(shell.planes) * u64::from(shell.satellites_per_plane))
            .sum();
        if total > MOST_SATELLITES {
            let value = format!("{total} satellites altogether");
            return Err(("shell".to_owned(), value, "at most 1,000,000"));
        }
        Ok(())
    }
}

impl Shell {
    /// How many satellites there are.
    pub const fn satellites(&self) -> u32 {
        self.planes * self.satellites_per_plane
    }

    /// How far ahead of plane 0 the satellites of a plane are, in slots.
    pub fn slots_ahead(&self, plane: u32) -> f64 {
        if self.staggered {
            return 0.5 * f64::from(plane % 2);
        }
        f64::from(self.phasing) * f64::from(plane) / f64::from(self.planes)
    }

    fn check(&self, propagator: Propagator) -> Result<(), (&'static str, String, &'static str)> {
        let altitude_km = self.altitude.metres() / 1e3;
        let radius_km = self.reference_radius.metres() / 1e3;
        let wrong = |key, value: &dyn ToString, expected| Err((key, value.to_string(), expected));
        if self.planes == 0 {
            return wrong("planes", &self.planes, "at least 1 plane");
        }
        if self.satellites_per_plane == 0 {
            return wrong("satellites_per_plane", &0, "at least 1 satellite");
        }
        if !(100.0..=100_000.0).contains(&altitude_km) {
            return wrong("altitude", &self.altitude, "100 km to 100000 km");
        }
        if !(6_300.0..=6_400.0).contains(&radius_km) {
            return wrong("reference_radius", &self.reference_radius, "6300 km to 6400 km");
        }
        if !(0.0..=180.0).contains(&self.inclination_deg) {
            return wrong("inclination_deg", &self.inclination_deg, "0 to 180 degrees");
        }
        if self.phasing >= self.planes {
            return wrong(
                "phasing",
                &self.phasing,
                "Walker's F, 0 to less than the number of planes",
            );
        }
        if !(self.node_span_deg > 0.0 && self.node_span_deg <= 360.0) {
            return wrong("node_span_deg", &self.node_span_deg, "more than 0, at most 360 degrees");
        }
        if self.staggered && self.phasing != 0 {
            return wrong("phasing", &self.phasing, "no phasing where planes are staggered");
        }
        if !(0.0..0.9).contains(&self.eccentricity) {
            return wrong("eccentricity", &self.eccentricity, "0 to less than 0.9");
        }
        match self.mean_motion_rev_per_day {
            None if propagator == Propagator::Sgp4 => {
                wrong("mean_motion_rev_per_day", &"missing", "one where propagator = \"sgp4\"")
            }
            Some(rev) if !(0.1..18.0).contains(&rev) => {
                wrong("mean_motion_rev_per_day", &rev, "0.1 to less than 18")
            }
            _ => Ok(()),
        }
    }
}
