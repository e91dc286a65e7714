//! Rotation from inertial to earth-fixed axes.

use skyhop_units::UtcInstant;

use crate::Mat3;

const DAYS_PER_CENTURY: f64 = 36_525.0;
const ARC_SECOND: f64 = std::f64::consts::PI / (180.0 * 3600.0);

/// Rotation from inertial to earth-fixed axes. UT1 and TT are approximated by UTC, and polar motion is neglected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarthRotation {
    /// Inertial axes are the mean equator and equinox of date, rotated by GMST of 1982.
    MeanOfDate,
    /// Inertial axes are those of J2000, rotated by the IAU 1976 precession, the four largest terms of the
    /// 1980 nutation (0.5 arc seconds, 17 m), and apparent sidereal time.
    J2000,
}

impl EarthRotation {
    /// Matrix that rotates inertial coordinates at `time` into earth-fixed ones; its transpose is the inverse.
    pub fn at(self, time: UtcInstant) -> Mat3 {
        let days = time.days_since_j2000();
        let sidereal = gmst_rad(days);
        match self {
            Self::MeanOfDate => about_z(sidereal),
            Self::J2000 => {
                let centuries = days / DAYS_PER_CENTURY;
                let (nutation, equation_of_equinoxes) = nutation(centuries);
                about_z(sidereal + equation_of_equinoxes) * nutation * precession(centuries)
            }
        }
    }
}

/// Greenwich mean sidereal time (Aoki and others, 1982), from UT1 in days since J2000.
fn gmst_rad(days_ut1: f64) -> f64 {
    let t = days_ut1 / DAYS_PER_CENTURY;
    let seconds = 67_310.548_41 + (876_600.0 * 3600.0 + 8_640_184.812_866) * t + 0.093_104 * t * t
        - 6.2e-6 * t * t * t;
    (seconds.rem_euclid(86_400.0) / 240.0).to_radians()
}

/// Precession from J2000 to the mean equator and equinox of date (Lieske and others, 1977; IAU 1976).
fn precession(t: f64) -> Mat3 {
    let zeta = (2306.2181 + (0.30188 + 0.017_998 * t) * t) * t * ARC_SECOND;
    let z = (2306.2181 + (1.09468 + 0.018_203 * t) * t) * t * ARC_SECOND;
    let theta = (2004.3109 - (0.42665 + 0.041_833 * t) * t) * t * ARC_SECOND;
    about_z(-z) * Mat3::from_rotation_y(-theta) * about_z(-zeta)
}

/// Nutation from the mean to the true equator and equinox of date, and the equation of the equinoxes.
///
/// The four largest terms are used (Meeus, Astronomical Algorithms, chapter 22).
fn nutation(t: f64) -> (Mat3, f64) {
    let sun = (280.4665 + 36000.7698 * t).to_radians();
    let moon = (218.3165 + 481267.8813 * t).to_radians();
    let node = (125.044_52 - 1_934.136_261 * t).to_radians();
    let longitude = ARC_SECOND
        * (-17.20 * node.sin() - 1.32 * (2.0 * sun).sin() - 0.23 * (2.0 * moon).sin()
            + 0.21 * (2.0 * node).sin());
    let obliquity = ARC_SECOND
        * (9.20 * node.cos() + 0.57 * (2.0 * sun).cos() + 0.10 * (2.0 * moon).cos()
            - 0.09 * (2.0 * node).cos());
    let mean_obliquity = (84_381.448 - 46.8150 * t) * ARC_SECOND;
    let rotation = Mat3::from_rotation_x(mean_obliquity + obliquity)
        * about_z(-longitude)
        * Mat3::from_rotation_x(-mean_obliquity);
    (rotation, longitude * mean_obliquity.cos())
}

/// Rotation of the axes about z by an angle; glam's function rotates vectors, which is the inverse.
fn about_z(angle_rad: f64) -> Mat3 {
    Mat3::from_rotation_z(-angle_rad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gmst_is_that_of_vallados_example() {
        // Vallado, Fundamentals of Astrodynamics and Applications, example 3-5.
        let time: UtcInstant = "1992-08-20T12:14:00Z".parse().unwrap();
        let degrees = gmst_rad(time.days_since_j2000()).to_degrees();
        assert!((degrees - 152.578_787_81).abs() < 1e-6, "{degrees}");
    }

    #[test]
    fn nutation_is_that_of_meeus_example() {
        // Meeus, example 22.a: 1987-04-10 0h TD, -3.788" in longitude, accurate to 0.5".
        let time: UtcInstant = "1987-04-10T00:00:00Z".parse().unwrap();
        let (_, equation) = nutation(time.days_since_j2000() / DAYS_PER_CENTURY);
        let expected = -3.788 * ARC_SECOND * 23.4409_f64.to_radians().cos();
        assert!((equation - expected).abs() < 0.5 * ARC_SECOND);
    }

    #[test]
    fn the_pole_of_2050_is_where_precession_puts_it() {
        // About 50.29" a year along the ecliptic, 20.04" a year for the pole.
        let pole = precession(0.5).transpose() * crate::Vec3::Z;
        let angle = pole.x.hypot(pole.y).asin() / ARC_SECOND;
        assert!((angle - 1002.05).abs() < 0.2, "{angle}");
        assert!(pole.x > 0.0);
    }
}
