//! One satellite's mean elements, propagated with SGP4.

use skyhop_units::UtcInstant;
use thiserror::Error;

use crate::Vec3;

/// A satellite's orbit at its epoch: the numbers of a TLE or an OMM.
#[derive(Debug, Clone, PartialEq)]
pub struct MeanElements {
    /// What the satellite is called; empty where the file has no name.
    pub name: String,
    /// The number in the public catalogue.
    pub catalogue_number: u64,
    /// When the elements hold.
    pub epoch: UtcInstant,
    /// The angle between orbit and equator, in degrees.
    pub inclination_deg: f64,
    /// Right ascension of the ascending node, in degrees.
    pub node_deg: f64,
    /// The orbit's eccentricity.
    pub eccentricity: f64,
    /// From the node to the perigee, in degrees.
    pub perigee_deg: f64,
    /// From the perigee to the satellite, in degrees.
    pub anomaly_deg: f64,
    /// Kozai's mean motion.
    pub mean_motion_rev_per_day: f64,
    /// SGP4's drag term, in inverse Earth radii.
    pub bstar: f64,
}

/// Why elements are no orbit.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ElementSetError {
    /// A number is infinite or none.
    #[error("{what} is {value}")]
    NotFinite {
        /// Which number.
        what: &'static str,
        /// What it is.
        value: f64,
    },
    /// SGP4 refuses the elements.
    #[error("{0}")]
    Refused(String),
}

/// Mean elements with what SGP4 works out of them once.
///
/// As the US Space Force runs it, because element sets are fitted that way (Vallado and others,
/// Revisiting Spacetrack Report 3, AIAA 2006-6753): gravity of WGS72, the older sidereal time. The
/// "improved" mode of other programs is the same for satellites near the Earth and up to 1 km off for
/// some in deep space.
#[derive(Debug, Clone, PartialEq)]
pub struct ElementSet {
    elements: MeanElements,
    constants: sgp4::Constants,
}

impl ElementSet {
    /// What the satellite is called; empty where the file has no name.
    pub fn name(&self) -> &str {
        &self.elements.name
    }

    /// Prepares the propagation of `elements`.
    ///
    /// # Errors
    /// A number is not finite, or SGP4 refuses the elements.
    pub fn new(elements: MeanElements) -> Result<Self, ElementSetError> {
        elements.check()?;
        let refused = |error: &dyn std::fmt::Display| ElementSetError::Refused(error.to_string());
        let orbit = sgp4::Orbit::from_kozai_elements(
            &sgp4::WGS72,
            elements.inclination_deg.to_radians(),
            elements.node_deg.to_radians(),
            elements.eccentricity,
            elements.perigee_deg.to_radians(),
            elements.anomaly_deg.to_radians(),
            elements.mean_motion_rev_per_day * std::f64::consts::TAU / 1_440.0,
        )
        .map_err(|error| refused(&error))?;
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

    /// The elements.
    pub const fn elements(&self) -> &MeanElements {
        &self.elements
    }

    /// The inertial position at `time` in metres (true equator, mean equinox); `None` where SGP4
    /// cannot tell, as for a satellite that has come down.
    pub fn position(&self, time: UtcInstant) -> Option<Vec3> {
        let [x, y, z] = self.propagate(time).ok()?.position;
        let position = Vec3::new(x, y, z) * 1e3;
        position.length_squared().is_finite().then_some(position)
    }

    /// Position (m) and velocity (m/s) at `time`, or why SGP4 cannot tell.
    ///
    /// # Errors
    /// What SGP4 says about the orbit at that time.
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
        let elapsed_ns = time.unix_nanos().saturating_sub(self.elements.epoch.unix_nanos());
        self.constants
            .propagate_afspc_compatibility_mode(sgp4::MinutesSinceEpoch(elapsed_ns as f64 / 60e9))
    }

    /// The mean semi-major axis in metres, to the first order (Kepler's third law, WGS72).
    pub fn semi_major_axis_m(&self) -> f64 {
        self.elements.semi_major_axis_m()
    }
}

impl MeanElements {
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
