//! Delay of optical fibre along the ground.

use skyhop_orbit::{Geodetic, LIGHT_M_PER_S};

/// Mean radius of the Earth, m (IUGG).
const MEAN_RADIUS_M: f64 = 6_371_008.8;
/// Speed of light in fibre relative to vacuum (refractive index 1.5).
const FIBRE_SPEED: f64 = 2.0 / 3.0;

/// Great-circle distance between two places on a sphere of the Earth's mean radius, in metres.
pub fn great_circle_m(a: Geodetic, b: Geodetic) -> f64 {
    let (lat_a, lat_b) = (a.latitude_deg.to_radians(), b.latitude_deg.to_radians());
    let half_lat = ((lat_b - lat_a) / 2.0).sin();
    let half_lon = ((b.longitude_deg - a.longitude_deg).to_radians() / 2.0).sin();
    let haversine = half_lat * half_lat + lat_a.cos() * lat_b.cos() * half_lon * half_lon;
    2.0 * MEAN_RADIUS_M * haversine.sqrt().min(1.0).asin()
}

/// One-way delay of fibre between two places, in seconds: `stretch` times the great circle at two thirds of the
/// speed of light.
pub fn fibre_delay_s(a: Geodetic, b: Geodetic, stretch: f64) -> f64 {
    stretch * great_circle_m(a, b) / (FIBRE_SPEED * LIGHT_M_PER_S)
}
