//! What a path computation is asked for.

use skyhop_model::{Compat, Relay, UnknownWord};
use skyhop_orbit::{Constellation, Geodetic};
use skyhop_units::{Duration, Length, UtcInstant};
use thiserror::Error;

use crate::trace::TraceError;
use crate::{Endpoint, OutageModel, handover};

/// The most steps of a path unless it may be large: three weeks of seconds, half a gigabyte.
pub const MOST_STEPS: u64 = 2_000_000;

/// A path between two places, to be computed.
#[derive(Debug, Clone, PartialEq)]
pub struct PathRequest {
    /// The satellites.
    pub constellation: Constellation,
    /// The end that becomes node -1.
    pub from: Place,
    /// The end that becomes node -2.
    pub to: Place,
    /// The gateways of a bent-pipe or access path; their order gives the node ids.
    pub gateways: Vec<Place>,
    /// How satellites pass traffic on; `None`: not at all, but the satellite that a terminal uses is
    /// seen alone. Both ends are the terminal's place then.
    pub relay: Option<Relay>,
    /// The handover policy's name, one of [`handover::POLICIES`].
    pub handover: String,
    /// How long the link is down at an end handover.
    pub outage: OutageModel,
    /// Whose Earth, speed of light and habits to take.
    pub compat: Compat,
    /// When the path begins.
    pub start: UtcInstant,
    /// The time between frames.
    pub step: Duration,
    /// How long the path lasts; rounded up to whole steps.
    pub duration: Duration,
    /// The seed of whatever is drawn at random.
    pub seed: u64,
    /// What is rarely asked for.
    pub options: PathOptions,
}

/// The finer choices of a path; their defaults suit most.
#[derive(Debug, Clone, PartialEq)]
pub struct PathOptions {
    /// Whether the last plane of a shell links to its first.
    pub isl_seam: bool,
    /// How far above the ground links between satellites must pass.
    pub isl_clearance: Length,
    /// How far from the geostationary arc sites keep, in degrees.
    pub geo_avoidance_deg: Option<f64>,
    /// The points of presence of an access path; `from` uses the nearest.
    pub pops: Vec<Place>,
    /// How much longer fibre is than the great circle.
    pub fibre_stretch: f64,
    /// When policies that follow a grid choose.
    pub grid: UtcGrid,
}

/// Moments of UTC at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UtcGrid {
    /// The time between two moments.
    pub period: Duration,
    /// When in each period, counted from the full minute where a minute has whole periods.
    pub offset: Duration,
}

impl Default for UtcGrid {
    /// Starlink's: 12, 27, 42 and 57 seconds past each minute (SatPipe; Tanveer and others, Making
    /// Sense of Constellations, 2023).
    fn default() -> Self {
        Self { period: Duration::from_secs(15), offset: Duration::from_secs(12) }
    }
}

impl UtcGrid {
    /// How long it is since the last moment.
    pub fn since(&self, time: UtcInstant) -> Duration {
        let period_ns = self.period.as_nanos().max(1) as i64;
        let since_ns = (time.unix_nanos() - self.offset.as_nanos() as i64).rem_euclid(period_ns);
        Duration::from_nanos(since_ns as u64)
    }

    /// How many moments have passed since 1970.
    pub fn index(&self, time: UtcInstant) -> i64 {
        let period_ns = self.period.as_nanos().max(1) as i64;
        (time.unix_nanos() - self.offset.as_nanos() as i64).div_euclid(period_ns)
    }
}

impl Default for PathOptions {
    /// With a seam; links pass 80 km above the ground, where the atmosphere does not disturb them;
    /// sites use all of the sky; no point of presence; fibre 1.4 times the great circle.
    fn default() -> Self {
        Self {
            isl_seam: true,
            isl_clearance: Length::from_kilometres(80.0),
            geo_avoidance_deg: None,
            pops: Vec::new(),
            fibre_stretch: 1.4,
            grid: UtcGrid::default(),
        }
    }
}

/// A named place.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// What to call it.
    pub name: String,
    /// Where it is.
    pub position: Geodetic,
}

impl Place {
    /// A place on the ellipsoid (altitude 0).
    pub fn new(name: &str, latitude_deg: f64, longitude_deg: f64) -> Self {
        let position = Geodetic { latitude_deg, longitude_deg, altitude_m: 0.0 };
        Self { name: name.to_owned(), position }
    }

    /// What a path's header says about it.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            name: self.name.clone(),
            latitude_deg: Some(self.position.latitude_deg),
            longitude_deg: Some(self.position.longitude_deg),
        }
    }
}

/// Why a path cannot be computed.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum PathError {
    /// The step or the duration is zero.
    #[error("{what} is 0 s; expected more than that")]
    NoTime {
        /// "step" or "duration".
        what: &'static str,
    },
    /// A place is not on Earth.
    #[error(
        "{place} is at latitude {latitude_deg}, longitude {longitude_deg}, altitude {altitude_m} m; \
         expected -90 to 90 deg, -180 to 360 deg and -1000 to 100000 m"
    )]
    Place {
        /// Its name.
        place: String,
        /// As given.
        latitude_deg: f64,
        /// As given.
        longitude_deg: f64,
        /// As given.
        altitude_m: f64,
    },
    /// There is no handover policy of this name.
    #[error(transparent)]
    Handover(#[from] UnknownWord),
    /// A bent-pipe or access path needs gateways.
    #[error("a path of this kind needs gateways, but the list is empty")]
    NoGateways,
    /// An access path needs a point of presence.
    #[error("an access path needs points of presence, but the list is empty")]
    NoPops,
    /// A geo path needs geostationary satellites.
    #[error(
        "a geo path needs a constellation of geostationary satellites, but {constellation} has none; \
         \"geo:-95\" is one at 95 degrees west"
    )]
    NotGeostationary {
        /// Its name.
        constellation: String,
    },
    /// An option makes no sense.
    #[error("{what}; expected {expected}")]
    Option {
        /// What is wrong.
        what: String,
        /// What may be.
        expected: &'static str,
    },
    /// The progress callback said to stop.
    #[error("stopped after {done} of {steps} steps")]
    Stopped {
        /// Frames computed until then.
        done: u64,
        /// Frames that were asked for.
        steps: u64,
    },
    /// What was computed is not a path.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

impl PathRequest {
    /// The number of frames.
    pub fn steps(&self) -> u64 {
        self.duration.as_nanos().div_ceil(self.step.as_nanos().max(1))
    }

    /// Checks what can be wrong before anything is computed.
    ///
    /// # Errors
    /// The first thing that is wrong.
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
        if self.relay == Some(Relay::Access) && self.options.pops.is_empty() {
            return Err(PathError::NoPops);
        }
        if self.relay == Some(Relay::Geo) && self.constellation.geostationary.is_empty() {
            let constellation = self.constellation.name.clone();
            return Err(PathError::NotGeostationary { constellation });
        }
        self.options.validate()?;
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
