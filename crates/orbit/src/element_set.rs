//! Mean elements of one satellite, propagated with SGP4.

use serde::{Deserialize, Serialize};
use skyhop_units::UtcInstant;
use thiserror::Error;

use crate::Vec3;

/// Mean elements of a satellite's orbit at its epoch: the numbers of a TLE or an OMM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeanElements {
    /// Name of the satellite; empty if the file has none.
    pub name: String,
    /// Number in the public catalogue (NORAD_CAT_ID).
    pub catalogue_number: u64,
    /// Time at which the elements are valid.
    pub epoch: UtcInstant,
    /// Inclination of the orbit to the equator, in degrees.
    pub inclination_deg: f64,
    /// Right ascension of the ascending node, in degrees.
    pub node_deg: f64,
    /// Eccentricity of the orbit, 0 to 1.
    pub eccentricity: f64,
    /// Argument of perigee, from the ascending node, in degrees.
    pub perigee_deg: f64,
    /// Mean anomaly, from the perigee, in degrees.
    pub anomaly_deg: f64,
    /// Kozai's mean motion, in revolutions per day.
    pub mean_motion_rev_per_day: f64,
    /// SGP4's drag term B*, in inverse Earth radii.
    pub bstar: f64,
}

/// Reason for which elements are not a valid orbit.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ElementSetError {
    /// A number is infinite or NaN.
    #[error("{what} is {value}")]
    NotFinite {
        /// Name of the element.
        what: &'static str,
        /// Value of the element.
        value: f64,
    },
    /// SGP4 refuses the elements; the text is SGP4's message.
    #[error("{0}")]
    Refused(String),
}

/// Mean elements, with the constants that SGP4 computes once from them.
///
/// The propagation follows the implementation of the US Space Force (WGS72 gravity, the older sidereal time), because
/// element sets are fitted that way (Vallado and others, Revisiting Spacetrack Report 3, AIAA 2006-6753). The
/// "improved" mode of other programs gives the same results for satellites near the Earth and differs by up to 1 km
/// for some satellites in deep space.
#[derive(Debug, Clone, PartialEq)]
pub struct ElementSet {
    elements: MeanElements,
    constants: sgp4::Constants,
}

impl ElementSet {
    /// Name of the satellite; empty if the file has none.
    pub fn name(&self) -> &str {
        &self.elements.name
    }

    /// Prepare the propagation of `elements`.
    ///
    /// # Errors
    /// A number is not finite, or SGP4 refuses the elements.
    pub fn new(elements: MeanElements) -> Result<Self, ElementSetError> {
        elements.check()?;
        let refused = |error: &dyn std::fmt::Display| ElementSetError::Refused(error.to_string());
        let orbit = elements.orbit().map_err(|error| refused(&error))?;
        let constants = sgp4::Constants::new(
            sgp4::WGS72,
            sgp4::afspc_epoch_to_sidereal_time,
            elements.epoch.days_since_j2000() / 365.25,
            elements.bstar,
            orbit,
        )
        .map_err(|error| refused(&error))?;
        Ok(Self { elements, constants })
    }

    /// Mean elements at the epoch.
    pub const fn elements(&self) -> &MeanElements {
        &self.elements
    }

    /// Inertial position at `time` in metres (true equator, mean equinox); `None` if SGP4 fails, for example because
    /// the satellite has decayed.
    pub fn position(&self, time: UtcInstant) -> Option<Vec3> {
        let [x, y, z] = self.propagate(time).ok()?.position;
        let position = Vec3::new(x, y, z) * 1e3;
        position.length_squared().is_finite().then_some(position)
    }

    /// Inertial position (m) and velocity (m/s) at `time`.
    ///
    /// # Errors
    /// The message of SGP4 if it cannot propagate the orbit to that time.
    pub fn state(&self, time: UtcInstant) -> Result<(Vec3, Vec3), String> {
        let state = self.propagate(time).map_err(|error| error.to_string())?;
        let metres = |[x, y, z]: [f64; 3]| Vec3::new(x, y, z) * 1e3;
        let (position, velocity) = (metres(state.position), metres(state.velocity));
        let finite = (position.length_squared() + velocity.length_squared()).is_finite();
        finite
            .then_some((position, velocity))
            .ok_or_else(|| "the position is not finite".to_owned())
    }

    fn propagate(&self, time: UtcInstant) -> Result<sgp4::Prediction, sgp4::Error> {
        let minutes = sgp4::MinutesSinceEpoch(minutes_since(self.elements.epoch, time));
        self.constants.propagate_afspc_compatibility_mode(minutes)
    }

    /// Mean semi-major axis in metres, to first order (Kepler's third law, WGS72).
    pub fn semi_major_axis_m(&self) -> f64 {
        self.elements.semi_major_axis_m()
    }
}

/// Minutes from an epoch to a time.
pub(crate) fn minutes_since(epoch: UtcInstant, time: UtcInstant) -> f64 {
    time.unix_nanos().saturating_sub(epoch.unix_nanos()) as f64 / 60e9
}

impl MeanElements {
    /// Orbit for SGP4, whose mean motion is without Kozai's correction.
    pub(crate) fn orbit(&self) -> Result<sgp4::Orbit, sgp4::KozaiElementsError> {
        sgp4::Orbit::from_kozai_elements(
            &sgp4::WGS72,
            self.inclination_deg.to_radians(),
            self.node_deg.to_radians(),
            self.eccentricity,
            self.perigee_deg.to_radians(),
            self.anomaly_deg.to_radians(),
            self.mean_motion_rev_per_day * std::f64::consts::TAU / 1_440.0,
        )
    }

    fn semi_major_axis_m(&self) -> f64 {
        const MU_M3_PER_S2: f64 = 3.986_008e14;
        let rad_per_s = self.mean_motion_rev_per_day * std::f64::consts::TAU / 86_400.0;
        (MU_M3_PER_S2 / (rad_per_s * rad_per_s)).cbrt()
    }

    fn check(&self) -> Result<(), ElementSetError> {
        let numbers = [
            ("the inclination", self.inclination_deg),
            ("the right ascension of the node", self.node_deg),
            ("the eccentricity", self.eccentricity),
            ("the argument of perigee", self.perigee_deg),
            ("the mean anomaly", self.anomaly_deg),
            ("the mean motion", self.mean_motion_rev_per_day),
            ("the drag term", self.bstar),
        ];
        match numbers.into_iter().find(|(_, value)| !value.is_finite()) {
            Some((what, value)) => Err(ElementSetError::NotFinite { what, value }),
            None => Ok(()),
        }
    }
}
