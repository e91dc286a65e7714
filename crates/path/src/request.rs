//! Request for the computation of a path.

use serde::{Deserialize, Serialize};
use skyhop_model::{Compat, Relay, ShellLinks, UnknownName};
use skyhop_orbit::{Constellation, Geodetic};
use skyhop_units::{Duration, Length, UtcInstant};
use thiserror::Error;

use crate::failures::Failures;
use crate::trace::TraceError;
use crate::{Endpoint, OutageModel, handover};

/// Maximum number of steps of a path, unless the user allows large ones: three weeks in steps of 1
/// s, which take half a gigabyte.
pub const MOST_STEPS: u64 = 2_000_000;

/// Request for a path between two places.
#[derive(Debug, Clone, PartialEq)]
pub struct PathRequest {
    /// Satellites over which the path goes.
    pub constellation: Constellation,
    /// First end, which becomes node -1.
    pub from: Place,
    /// Second end, which becomes node -2.
    pub to: Place,
    /// Gateways of a bent-pipe or access path; their order gives the node ids.
    pub gateways: Vec<Place>,
    /// Relay between the satellites of both ends. `None` computes only the satellite of one terminal, whose place is
    /// then both `from` and `to`.
    pub relay: Option<Relay>,
    /// Name of the handover policy, one of [`handover::POLICIES`].
    pub handover: String,
    /// Model of the outage at an end handover.
    pub outage: OutageModel,
    /// Outage of a link in the middle of the path that goes down at an intermediate handover.
    pub intermediate_outage: Duration,
    /// Other simulator whose Earth model, speed of light and rules the path uses, if any.
    pub compat: Compat,
    /// Start of the path in UTC.
    pub start: UtcInstant,
    /// Time between two consecutive frames.
    pub step: Duration,
    /// Duration of the path, rounded up to whole steps.
    pub duration: Duration,
    /// Seed of all random draws.
    pub seed: u64,
    /// Options that are rarely used.
    pub options: PathOptions,
}

/// Rarely used options of a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathOptions {
    /// Whether inter-satellite links join the last plane of a shell to the first.
    pub isl_seam: bool,
    /// Minimum height of inter-satellite links above a sphere with the equator's radius.
    pub isl_clearance: Length,
    /// Whether packets of an access path may go over inter-satellite links to a satellite with a gateway in view.
    #[serde(default)]
    pub isl_backhaul: bool,
    /// Rule for inter-satellite links between shells.
    #[serde(default, skip_serializing_if = "ShellLinks::is_apart")]
    pub isl_shells: ShellLinks,
    /// Minimum angle that sites keep from the geostationary arc, in degrees; `None` for no limit.
    pub geo_avoidance_deg: Option<f64>,
    /// Points of presence of an access path; `from` uses the nearest.
    pub pops: Vec<Place>,
    /// Length of fibre divided by the great-circle distance.
    pub fibre_stretch: f64,
    /// Times at which policies that follow a grid choose satellites.
    pub grid: UtcGrid,
    /// Satellites, lasers and sites that fail.
    #[serde(default)]
    pub failures: Failures,
}

/// Equally spaced times in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UtcGrid {
    /// Time between two grid times.
    pub period: Duration,
    /// Offset of the grid times within a period. Periods are counted from 1970-01-01T00:00:00Z, so that a period that
    /// divides a minute begins at the full minute.
    pub offset: Duration,
}

impl Default for UtcGrid {
    /// Starlink's grid: 12, 27, 42 and 57 seconds past each minute (SatPipe; Tanveer and others, Making
    /// Sense of Constellations, 2023).
    fn default() -> Self {
        Self { period: Duration::from_secs(15), offset: Duration::from_secs(12) }
    }
}

impl UtcGrid {
    /// Time since the last grid time.
    pub fn since(&self, time: UtcInstant) -> Duration {
        let period_ns = self.period.as_nanos().max(1) as i64;
        let since_ns = (time.unix_nanos() - self.offset.as_nanos() as i64).rem_euclid(period_ns);
        Duration::from_nanos(since_ns as u64)
    }

    /// Number of grid times since 1970-01-01.
    pub fn index(&self, time: UtcInstant) -> i64 {
        let period_ns = self.period.as_nanos().max(1) as i64;
        (time.unix_nanos() - self.offset.as_nanos() as i64).div_euclid(period_ns)
    }
}

impl Default for PathOptions {
    /// Default options: inter-satellite links across the seam, and at least 80 km above the ground, where the
    /// atmosphere does not disturb them, and not between shells; no avoidance of the geostationary arc; no point of presence; fibre 1.4
    /// times the great circle; no failures.
    fn default() -> Self {
        Self {
            isl_seam: true,
            isl_clearance: Length::from_kilometres(80.0),
            isl_backhaul: false,
            isl_shells: ShellLinks::Apart,
            geo_avoidance_deg: None,
            pops: Vec::new(),
            fibre_stretch: 1.4,
            grid: UtcGrid::default(),
            failures: Failures::default(),
        }
    }
}

/// Named place on the ground.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// Name of the place in messages and path files.
    pub name: String,
    /// Geodetic position on WGS84.
    pub position: Geodetic,
}

impl Place {
    /// Create a place on the ellipsoid (altitude 0).
    pub fn new(name: &str, latitude_deg: f64, longitude_deg: f64) -> Self {
        let position = Geodetic { latitude_deg, longitude_deg, altitude_m: 0.0 };
        Self { name: name.to_owned(), position }
    }

    /// Entry of the place in a path's header.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            name: self.name.clone(),
            latitude_deg: Some(self.position.latitude_deg),
            longitude_deg: Some(self.position.longitude_deg),
        }
    }
}

/// Reason for which a path cannot be computed.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PathError {
    /// The step or the duration is zero.
    #[error("{what} is 0 s; expected more than that")]
    NoTime {
        /// Name of the zero value, "step" or "duration".
        what: &'static str,
    },
    /// A place is not on Earth.
    #[error(
        "{place} is at latitude {latitude_deg}, longitude {longitude_deg}, altitude {altitude_m} m; \
         expected -90 to 90 deg, -180 to 360 deg and -1000 to 100000 m"
    )]
    Place {
        /// Name of the place.
        place: String,
        /// Latitude as given, in degrees.
        latitude_deg: f64,
        /// Longitude as given, in degrees.
        longitude_deg: f64,
        /// Altitude as given, in metres.
        altitude_m: f64,
    },
    /// No handover policy has this name.
    #[error(transparent)]
    Handover(#[from] UnknownName),
    /// A bent-pipe or access path has no gateways.
    #[error("a path of this kind needs gateways, but the list is empty")]
    NoGateways,
    /// An access path has no point of presence.
    #[error("an access path needs points of presence, but the list is empty")]
    NoPops,
    /// A geo path's constellation has no geostationary satellites.
    #[error(
        "a geo path needs a constellation of geostationary satellites, but {constellation} has none; \
         \"geo:-95\" is one at 95 degrees west"
    )]
    NotGeostationary {
        /// Name of the constellation.
        constellation: String,
    },
    /// An option has an invalid value.
    #[error("{what}; expected {expected}")]
    Option {
        /// Invalid option with its value.
        what: String,
        /// Range of valid values.
        expected: &'static str,
    },
    /// The progress callback has stopped the computation.
    #[error("stopped after {done} of {steps} steps")]
    Stopped {
        /// Number of frames computed.
        done: u64,
        /// Number of frames requested.
        steps: u64,
    },
    /// No frame has a satellite in view of one of the ends.
    #[error(
        "there is never a path: none of the {satellites} satellites of {constellation} is ever in view of {place}"
    )]
    NeverInView {
        /// Name of the constellation.
        constellation: String,
        /// Number of its satellites.
        satellites: u32,
        /// Name of the end.
        place: String,
    },
    /// The computed frames do not form a valid path.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

impl PathRequest {
    /// Number of frames: duration over step, rounded up.
    pub fn steps(&self) -> u64 {
        self.duration.as_nanos().div_ceil(self.step.as_nanos().max(1))
    }

    /// Check the request before anything is computed.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn validate(&self) -> Result<(), PathError> {
        for (what, time) in [("step", self.step), ("duration", self.duration)] {
            if time == Duration::ZERO {
                return Err(PathError::NoTime { what });
            }
        }
        handover::policy(&self.handover)?;
        if self.relay.is_some_and(Relay::uses_gateways) && self.gateways.is_empty() {
            return Err(PathError::NoGateways);
        }
        if self.relay.is_some_and(Relay::is_access) && self.options.pops.is_empty() {
            return Err(PathError::NoPops);
        }
        if self.relay == Some(Relay::Geo) && self.constellation.geostationary.is_empty() {
            let constellation = self.constellation.name.clone();
            return Err(PathError::NotGeostationary { constellation });
        }
        self.options.validate()?;
        self.options.failures.check(self.constellation.satellites())?;
        let ends = [&self.from, &self.to].into_iter();
        ends.chain(&self.gateways).chain(&self.options.pops).try_for_each(Place::validate)
    }
}

impl PathOptions {
    fn validate(&self) -> Result<(), PathError> {
        let wrong = |what: String, expected| Err(PathError::Option { what, expected });
        if !(1.0..=10.0).contains(&self.fibre_stretch) {
            let what = format!("fibre is {} times as long as the great circle", self.fibre_stretch);
            return wrong(what, "1 to 10 times");
        }
        if self.grid.period == Duration::ZERO {
            return wrong("the grid's period is 0 s".to_owned(), "more than that");
        }
        match self.geo_avoidance_deg {
            Some(degrees) if !(0.0..90.0).contains(&degrees) => {
                let what = format!("{degrees} deg are kept from the geostationary arc");
                wrong(what, "0 to less than 90 deg")
            }
            _ => Ok(()),
        }
    }
}

impl Place {
    pub(crate) fn validate(&self) -> Result<(), PathError> {
        let Geodetic { latitude_deg, longitude_deg, altitude_m } = self.position;
        let on_earth = (-90.0..=90.0).contains(&latitude_deg)
            && (-180.0..=360.0).contains(&longitude_deg)
            && (-1e3..=1e5).contains(&altitude_m);
        if on_earth {
            return Ok(());
        }
        Err(PathError::Place { place: self.name.clone(), latitude_deg, longitude_deg, altitude_m })
    }
}
