//! Secular drift of a circular orbit around the oblate Earth.

/// Gravitational parameter of the Earth, m³/s² (WGS84).
const MU_M3_PER_S2: f64 = 3.986_004_418e14;
/// Equatorial radius of the Earth, m (WGS84).
const EQUATORIAL_RADIUS_M: f64 = 6_378_137.0;
/// Zonal harmonics of the Earth, unnormalised (WGS84/EGM96).
const J2: f64 = 1.082_629_989_05e-3;
const J4: f64 = -1.619_621_591_37e-6;

/// Constant rates of a circular orbit's angles, in rad/s.
///
/// They are of first and second order in J2 and of first order in J4, for eccentricity zero: the
/// secular part of Kozai, The Motion of a Close Earth Satellite, Astronomical Journal 64, 1959, page
/// 367.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SecularRates {
    /// Rate of the right ascension of the ascending node, in rad/s.
    pub node_rad_per_s: f64,
    /// Rate of the argument of latitude (argument of perigee plus mean anomaly), in rad/s.
    pub latitude_argument_rad_per_s: f64,
}

impl SecularRates {
    /// Compute the rates of a circular orbit with this mean semi-major axis and inclination.
    pub fn circular(semi_major_axis_m: f64, inclination_rad: f64) -> Self {
        let mean_motion = (MU_M3_PER_S2 / semi_major_axis_m.powi(3)).sqrt();
        let flattening = (EQUATORIAL_RADIUS_M / semi_major_axis_m).powi(2);
        let (j2, j4) = (J2 * flattening, J4 * flattening * flattening);
        let cos = inclination_rad.cos();
        let (s, c) = (1.0 - cos * cos, cos * cos);

        let anomaly = mean_motion
            * (1.0
                + 0.75 * j2 * (2.0 - 3.0 * s)
                + 3.0 / 128.0 * j2 * j2 * (26.0 - 156.0 * c + 274.0 * c * c));
        let first_order = 1.5 * j2 * mean_motion * (1.0 + 0.75 * j2 * (2.0 - 3.0 * s));
        let node = -first_order * cos * (1.0 + 1.5 * j2 * (4.0 / 3.0 * s - 0.5))
            + mean_motion * j4 * cos * (15.0 / 4.0 - 105.0 / 16.0 * s);
        let perigee = first_order * (2.0 - 2.5 * s) * (1.0 + 1.5 * j2 * (29.0 / 24.0) * s)
            - mean_motion * j4 * (7.5 - 465.0 / 16.0 * s + 735.0 / 32.0 * s * s);
        Self { node_rad_per_s: node, latitude_argument_rad_per_s: anomaly + perigee }
    }

    /// Compute the rates with the opposite sign of the node's J4 term, as in LeoEM's published paths, which were made
    /// with STK's J4Perturbation propagator. The sign changes positions by 27 m after one orbit at 550 km.
    pub fn circular_as_stk_j4(semi_major_axis_m: f64, inclination_rad: f64) -> Self {
        let rates = Self::circular(semi_major_axis_m, inclination_rad);
        let mean_motion = (MU_M3_PER_S2 / semi_major_axis_m.powi(3)).sqrt();
        let (sin, cos) = inclination_rad.sin_cos();
        let j4 = J4 * (EQUATORIAL_RADIUS_M / semi_major_axis_m).powi(4);
        let term = mean_motion * j4 * cos * (15.0 / 4.0 - 105.0 / 16.0 * sin * sin);
        Self { node_rad_per_s: rates.node_rad_per_s - 2.0 * term, ..rates }
    }
}
