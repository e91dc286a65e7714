//! Positions of satellites and sites, and their mutual visibility.
//!
//! A [`Constellation`] describes shells of satellites (read from TOML) or contains element sets (from
//! an [`ElementFile`]); an [`Ephemeris`] computes their positions at a given UTC; a [`Sky`] determines
//! the satellites in view of each [`Site`]; a [`Formation`] recovers planes and slots from element
//! sets.
//!
//! # Accuracy
//! Element sets are propagated with SGP4. Satellites of shells move on circular orbits with the secular drift of J2,
//! J2² and J4 ([`SecularRates`]). Short-periodic terms, drag and resonances are neglected: over the first day the
//! positions stay within 15 km of SGP4 started from the same mean elements (12 km, nearly all of it periodic), which
//! is 50 us of one-way delay at most. The rotation from inertial to earth-fixed axes uses GMST of 1982
//! with UT1 = UTC (up to 0.9 s, 0.4 km on the ground) and no polar motion (10 m).

mod batch;
pub mod constellation;
mod earth;
mod element_file;
mod element_set;
mod ephemeris;
mod formation;
mod near_earth;
mod rotation;
mod secular;
mod sine;
mod visibility;
mod walker;

pub use constellation::{Constellation, ConstellationError, Geostationary, Propagator, Shell};
pub use earth::{EarthModel, Geodetic, Site};
pub use element_file::{
    ElementFile, ElementFileError, FilterError, RecordReport, SatelliteFilter, Selection,
    SelectionError, SkipReason, Skipped,
};
pub use element_set::{ElementSet, ElementSetError, MeanElements};
pub use ephemeris::Ephemeris;
pub use formation::{
    Formation, FormationPlace, FormationPlane, FormationSatellite, FormationShell,
};
/// Rotation matrix of coordinate axes.
pub use glam::DMat3 as Mat3;
/// Position or difference of positions in metres, or direction: x points towards the equinox (inertial) or the
/// prime meridian (earth-fixed), y 90 degrees east of x, z towards the north pole.
pub use glam::DVec3 as Vec3;
pub use rotation::EarthRotation;
pub use secular::SecularRates;
pub use visibility::{Coverage, Sky};

/// Speed of light in vacuum, in m/s (exact by definition).
pub const LIGHT_M_PER_S: f64 = 299_792_458.0;

/// Radius of the geostationary orbit, in metres: a sidereal day by Kepler's third law (WGS84).
pub const GEOSTATIONARY_RADIUS_M: f64 = 42_164_172.0;
