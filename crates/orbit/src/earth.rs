//! Models of the Earth: its shape, places on it, and the direction and distance from them to satellites.

use serde::{Deserialize, Serialize};

use crate::{EarthRotation, LIGHT_M_PER_S, SecularRates, Vec3};

/// Equatorial radius and flattening of WGS84.
const EQUATORIAL_RADIUS_M: f64 = 6_378_137.0;
const FLATTENING: f64 = 1.0 / 298.257_223_563;
const ECCENTRICITY_SQUARED: f64 = FLATTENING * (2.0 - FLATTENING);
const POLAR_RADIUS_M: f64 = EQUATORIAL_RADIUS_M * (1.0 - FLATTENING);

/// Radius of LeoEM's and StarPerf's spherical Earth, in metres.
const LEOEM_RADIUS_M: f64 = 6_371_000.0;

/// Place in geodetic coordinates on WGS84.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Geodetic {
    /// Latitude in degrees, north positive.
    pub latitude_deg: f64,
    /// Longitude in degrees, east positive.
    pub longitude_deg: f64,
    /// Height above the ellipsoid in metres.
    pub altitude_m: f64,
}

impl Geodetic {
    /// Convert to an earth-fixed position, in metres.
    pub fn to_earth_fixed(self) -> Vec3 {
        let (sin_lat, cos_lat) = self.latitude_deg.to_radians().sin_cos();
        let (sin_lon, cos_lon) = self.longitude_deg.to_radians().sin_cos();
        let normal = EQUATORIAL_RADIUS_M / (1.0 - ECCENTRICITY_SQUARED * sin_lat * sin_lat).sqrt();
        let axial = (normal + self.altitude_m) * cos_lat;
        let z = (normal * (1.0 - ECCENTRICITY_SQUARED) + self.altitude_m) * sin_lat;
        Vec3::new(axial * cos_lon, axial * sin_lon, z)
    }

    /// Convert from an earth-fixed position; exact to a millimetre at altitudes from -10 km to 40,000 km.
    pub fn from_earth_fixed(position: Vec3) -> Self {
        let vertical = Vertical::at(position);
        Self {
            latitude_deg: vertical.sin_latitude.atan2(vertical.cos_latitude).to_degrees(),
            longitude_deg: position.y.atan2(position.x).to_degrees(),
            altitude_m: vertical.altitude_m,
        }
    }

    /// Direction of the zenith, a unit vector.
    fn up(self) -> Vec3 {
        let (sin_lat, cos_lat) = self.latitude_deg.to_radians().sin_cos();
        let (sin_lon, cos_lon) = self.longitude_deg.to_radians().sin_cos();
        Vec3::new(cos_lat * cos_lon, cos_lat * sin_lon, sin_lat)
    }
}

/// Geodetic latitude and altitude of a position, computed without angles (Bowring 1976, iterated).
struct Vertical {
    sin_latitude: f64,
    cos_latitude: f64,
    altitude_m: f64,
}

impl Vertical {
    fn at(position: Vec3) -> Self {
        const SECOND_ECCENTRICITY_SQUARED: f64 =
            ECCENTRICITY_SQUARED / (1.0 - ECCENTRICITY_SQUARED);
        let axial = length(position.x, position.y);
        // Sine and cosine of the reduced latitude, up to a common factor.
        let (mut sin, mut cos) = (position.z * EQUATORIAL_RADIUS_M, axial * POLAR_RADIUS_M);
        for _ in 0..2 {
            let norm = length(sin, cos);
            let (sin_reduced, cos_reduced) = (sin / norm, cos / norm);
            sin = position.z + SECOND_ECCENTRICITY_SQUARED * POLAR_RADIUS_M * sin_reduced.powi(3);
            cos = axial - ECCENTRICITY_SQUARED * EQUATORIAL_RADIUS_M * cos_reduced.powi(3);
            sin *= 1.0 - FLATTENING;
        }
        sin /= 1.0 - FLATTENING;
        let norm = length(sin, cos);
        let (sin_latitude, cos_latitude) = (sin / norm, cos / norm);
        let surface = (1.0 - ECCENTRICITY_SQUARED * sin_latitude * sin_latitude).sqrt();
        let altitude_m =
            axial * cos_latitude + position.z * sin_latitude - EQUATORIAL_RADIUS_M * surface;
        Self { sin_latitude, cos_latitude, altitude_m }
    }
}

/// Length of a vector, several times faster than `hypot`: positions neither overflow nor underflow.
fn length(x: f64, y: f64) -> f64 {
    (x * x + y * y).sqrt()
}

/// Site on the ground, with its position and zenith.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Site {
    /// Earth-fixed position, in metres.
    pub position: Vec3,
    /// Direction of the zenith, a unit vector.
    pub up: Vec3,
}

impl Site {
    /// Straight-line distance to a satellite, in metres.
    pub fn range_m(&self, satellite: Vec3) -> f64 {
        self.position.distance(satellite)
    }

    /// Sine of a satellite's elevation above the horizon.
    pub fn sin_elevation(&self, satellite: Vec3) -> f64 {
        let sight = satellite - self.position;
        sight.dot(self.up) / sight.length()
    }

    /// Elevation of a satellite above the horizon, in degrees.
    pub fn elevation_deg(&self, satellite: Vec3) -> f64 {
        self.sin_elevation(satellite).clamp(-1.0, 1.0).asin().to_degrees()
    }
}

/// Model of the Earth: shape, rotation and speed of light.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarthModel {
    /// WGS84 ellipsoid; [`EarthRotation::MeanOfDate`]; speed of light 299,792,458 m/s.
    Wgs84,
    /// LeoEM's model, made with StarPerf and STK: orbits in J2000 axes ([`EarthRotation::J2000`]) with
    /// [`SecularRates::circular_as_stk_j4`]; geodetic coordinates on WGS84, which are then used as spherical
    /// coordinates on a sphere of 6,371 km; speed of light 3e8 m/s.
    LeoemSphere,
}

impl EarthModel {
    /// Site at `place`, with its position in this model.
    pub fn site(self, place: Geodetic) -> Site {
        let position = match self {
            Self::Wgs84 => place.to_earth_fixed(),
            Self::LeoemSphere => place.up() * (LEOEM_RADIUS_M + place.altitude_m),
        };
        Site { position, up: place.up() }
    }

    /// Speed of light in this model, in m/s.
    pub const fn light_m_per_s(self) -> f64 {
        match self {
            Self::Wgs84 => LIGHT_M_PER_S,
            Self::LeoemSphere => 3e8,
        }
    }

    /// Rotation from inertial to earth-fixed axes.
    pub const fn rotation(self) -> EarthRotation {
        match self {
            Self::Wgs84 => EarthRotation::MeanOfDate,
            Self::LeoemSphere => EarthRotation::J2000,
        }
    }

    pub(crate) fn secular_rates(
        self,
        semi_major_axis_m: f64,
        inclination_rad: f64,
    ) -> SecularRates {
        match self {
            Self::Wgs84 => SecularRates::circular(semi_major_axis_m, inclination_rad),
            Self::LeoemSphere => {
                SecularRates::circular_as_stk_j4(semi_major_axis_m, inclination_rad)
            }
        }
    }

    /// Radius above which altitudes of orbits are measured, in metres; `None` for the reference
    /// radius of each shell.
    pub(crate) const fn reference_radius_m(self) -> Option<f64> {
        match self {
            Self::Wgs84 => None,
            Self::LeoemSphere => Some(LEOEM_RADIUS_M),
        }
    }

    /// Map a true earth-fixed position to its position in this model.
    pub(crate) fn project(self, position: Vec3) -> Vec3 {
        match self {
            Self::Wgs84 => position,
            Self::LeoemSphere => {
                let vertical = Vertical::at(position);
                let radius_m = LEOEM_RADIUS_M + vertical.altitude_m;
                let axial = length(position.x, position.y);
                let scale = radius_m * vertical.cos_latitude / axial;
                let z = radius_m * vertical.sin_latitude;
                Vec3::new(position.x * scale, position.y * scale, z)
            }
        }
    }
}
