//! Constellations, as described by data/constellations/*.toml.

use std::path::Path;

use serde::{Deserialize, Serialize};
use skyhop_model::{line_at, one_line, with_hint};
use skyhop_units::{Length, UtcInstant};
use thiserror::Error;

use crate::{ElementSet, RecordReport};

/// Maximum number of satellites of a constellation.
const MOST_SATELLITES: u64 = 1_000_000;

/// Set of satellites: in shells, in geostationary orbit, or with an element set each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constellation {
    /// Name of the file without its suffix.
    #[serde(skip)]
    pub name: String,
    /// Description in one line.
    pub description: String,
    /// Publication or other source of the constellation's numbers.
    pub source: String,
    /// Time at which the satellites are at their initial positions in the shells.
    pub epoch: UtcInstant,
    /// Lowest elevation at which terminals and gateways use a satellite, in degrees.
    pub minimum_elevation_deg: f64,
    /// Common prefix of the satellites' names in the public catalogue.
    #[serde(default)]
    pub satellite_prefix: Option<String>,
    /// Whether the satellites have inter-satellite links, or are planned to have them.
    #[serde(default = "default_true")]
    pub isl: bool,
    /// Name of the list of gateways that comes with skyhop; `None` if the operator's gateways are not public.
    #[serde(default)]
    pub gateways: Option<String>,
    /// Name of the list of points of presence that comes with skyhop; `None` if the operator's
    /// points of presence are not public.
    #[serde(default)]
    pub pops: Option<String>,
    /// Propagator of the shells' satellites.
    #[serde(default)]
    pub propagator: Propagator,
    /// Longest link between ground and satellite, for the compatibility mode of a tool that limits
    /// such links by distance.
    #[serde(default)]
    pub longest_ground_link: Option<Length>,
    /// Longest link between satellites, for the compatibility mode of a tool that limits such links
    /// by distance.
    #[serde(default)]
    pub longest_isl: Option<Length>,
    /// Shells, each with satellites at one altitude. Satellites are numbered shell after shell.
    #[serde(rename = "shell", default)]
    pub shells: Vec<Shell>,
    /// Geostationary satellites, numbered after the shells' satellites.
    #[serde(default)]
    pub geostationary: Vec<Geostationary>,
    /// Element sets from a TLE or OMM file, one per satellite; these satellites are numbered after all others.
    #[serde(skip)]
    pub element_sets: Vec<ElementSet>,
    /// Report on the use of the records in the file of element sets.
    #[serde(skip)]
    pub report: Option<RecordReport>,
}

/// Propagator of the satellites of shells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Propagator {
    /// Circular orbits with the secular drift of J2 and J4.
    #[default]
    Secular,
    /// SGP4 from one element set per satellite, with angles rounded to the four decimals of a TLE.
    Sgp4,
}

/// Satellite at a fixed longitude above the equator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Geostationary {
    /// Name of the satellite.
    pub name: String,
    /// Longitude in degrees, east positive.
    pub longitude_deg: f64,
}

/// Walker pattern: circular orbits in evenly spaced planes (Walker 1984).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shell {
    /// Number of orbital planes.
    pub planes: u32,
    /// Number of satellites in each plane.
    pub satellites_per_plane: u32,
    /// Mean altitude above `reference_radius`.
    pub altitude: Length,
    /// Radius above which `altitude` is measured; by default the equator's.
    #[serde(default = "equatorial_radius")]
    pub reference_radius: Length,
    /// Inclination of the orbits to the equator, in degrees.
    pub inclination_deg: f64,
    /// Walker's F: each plane is ahead of the previous one by F * 360 deg / number of all satellites.
    #[serde(default)]
    pub phasing: u32,
    /// Range of right ascension over which the planes are spread: 360 (delta) or 180 (star).
    #[serde(default = "full_circle")]
    pub node_span_deg: f64,
    /// Whether every second plane is ahead by half the distance between the satellites of a plane;
    /// in place of `phasing`.
    #[serde(default)]
    pub staggered: bool,
    /// Kozai's mean motion for SGP4, in revolutions per day as in an element set.
    #[serde(default)]
    pub mean_motion_rev_per_day: Option<f64>,
    /// Eccentricity of the orbits, for SGP4.
    #[serde(default)]
    pub eccentricity: f64,
}

fn equatorial_radius() -> Length {
    Length::from_metres(6_378_137.0)
}

const fn default_true() -> bool {
    true
}

fn full_circle() -> f64 {
    360.0
}

/// Reason for which a constellation cannot be used.
#[derive(Debug, Error)]
pub enum ConstellationError {
    /// The file cannot be opened or read.
    #[error("cannot read the constellation file {file}: {source}")]
    Read {
        /// Name of the constellation file.
        file: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file is not valid TOML, or has unknown or missing keys.
    #[error("{file}, line {line}: {what}")]
    Syntax {
        /// Name of the constellation file.
        file: String,
        /// Line number, counted from 1.
        line: usize,
        /// Description of the error, including what was expected.
        what: String,
    },
    /// A value is out of range.
    #[error("{file}: {key} is {value}; expected {expected}")]
    Value {
        /// Name of the constellation file.
        file: String,
        /// Key of the value, including its shell.
        key: String,
        /// Value in the file.
        value: String,
        /// Range of valid values.
        expected: &'static str,
    },
}

/// Serde format of a constellation with its name and its element sets, which are not in its file.
pub mod whole {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Constellation;
    use crate::{ElementSet, MeanElements};

    #[derive(Serialize, Deserialize)]
    struct Whole {
        name: String,
        file: Constellation,
        element_sets: Vec<MeanElements>,
    }

    /// Write the constellation with all that its file lacks.
    pub fn serialize<S: Serializer>(of: &Constellation, to: S) -> Result<S::Ok, S::Error> {
        let element_sets = of.element_sets.iter().map(|set| set.elements().clone()).collect();
        Whole { name: of.name.clone(), file: of.clone(), element_sets }.serialize(to)
    }

    /// Read the constellation with all that its file lacks.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Constellation, D::Error> {
        let Whole { name, file, element_sets } = Whole::deserialize(from)?;
        let sets = element_sets.into_iter().map(ElementSet::new).collect::<Result<_, _>>();
        Ok(Constellation { name, element_sets: sets.map_err(D::Error::custom)?, ..file })
    }
}

impl Constellation {
    /// Read a constellation file.
    ///
    /// # Errors
    /// The file cannot be read, is not a constellation in TOML, or has an invalid value.
    pub fn load(path: &Path) -> Result<Self, ConstellationError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConstellationError::Read { file: file.clone(), source })?;
        Self::parse(&text, &file)
    }

    /// Parse the text of a constellation file; `file` is its name, for the constellation's name and for messages.
    ///
    /// # Errors
    /// The text is not a constellation in TOML, or has an invalid value.
    pub fn parse(text: &str, file: &str) -> Result<Self, ConstellationError> {
        let mut constellation: Self = toml::from_str(text).map_err(|error| {
            let line = line_at(text, error.span().map_or(0, |span| span.start));
            let what = one_line(&with_hint(error.message()));
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

    /// Number of satellites of all kinds.
    pub fn satellites(&self) -> u32 {
        let others = self.geostationary.len() + self.element_sets.len();
        self.shells.iter().map(Shell::satellites).sum::<u32>() + others as u32
    }

    /// Check all values; the error is the key, the value and the valid range of the first invalid one.
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
    /// Number of satellites in the shell.
    pub const fn satellites(&self) -> u32 {
        self.planes * self.satellites_per_plane
    }

    /// Offset by which a plane's satellites are ahead of those of plane 0, in slots.
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
