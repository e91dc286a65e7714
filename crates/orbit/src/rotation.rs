//! From inertial to earth-fixed axes.

use skyhop_units::UtcInstant;

use crate::Vec3;

const DAYS_PER_CENTURY: f64 = 36_525.0;
const ARC_SECOND: f64 = std::f64::consts::PI / (180.0 * 3600.0);

/// How inertial positions become earth-fixed ones. UT1 and TT are taken as UTC, without polar motion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarthRotation {
    /// The inertial axes are the mean equator and equinox of date; GMST of 1982 turns them.
    MeanOfDate,
    /// The inertial axes are those of J2000: IAU 1976 precession, the four largest terms of the
    /// 1980 nutation (0.5 arc seconds, 17 m), then apparent sidereal time.
    J2000,
}

impl EarthRotation {
    /// The rotation at a moment.
    pub fn at(self, time: UtcInstant) -> Rotation {
        let days = time.days_since_j2000();
        let sidereal = gmst_rad(days);
        match self {
            Self::MeanOfDate => Rotation::about_z(sidereal),
            Self::J2000 => {
                let centuries = days / DAYS_PER_CENTURY;
                let (nutation, equation_of_equinoxes) = nutation(centuries);
                Rotation::about_z(sidereal + equation_of_equinoxes)
                    .after(nutation)
                    .after(precession(centuries))
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

/// From J2000 to the mean equator and equinox of date (Lieske and others, 1977; IAU 1976).
fn precession(t: f64) -> Rotation {
    let zeta = (2306.2181 + (0.30188 + 0.017_998 * t) * t) * t * ARC_SECOND;
    let z = (2306.2181 + (1.09468 + 0.018_203 * t) * t) * t * ARC_SECOND;
    let theta = (2004.3109 - (0.42665 + 0.041_833 * t) * t) * t * ARC_SECOND;
    Rotation::about_z(-z).after(Rotation::about_y(theta)).after(Rotation::about_z(-zeta))
}

/// From the mean to the true equator and equinox of date, and the equation of the equinoxes.
///
/// The four largest terms (Meeus, Astronomical Algorithms, chapter 22).
fn nutation(t: f64) -> (Rotation, f64) {
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
    let rotation = Rotation::about_x(-(mean_obliquity + obliquity))
        .after(Rotation::about_z(-longitude))
        .after(Rotation::about_x(mean_obliquity));
    (rotation, longitude * mean_obliquity.cos())
}

/// A turn of the axes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rotation {
    rows: [Vec3; 3],
}

impl Rotation {
    /// The coordinates of `vector` in the turned axes.
    pub fn apply(&self, vector: Vec3) -> Vec3 {
        let [x, y, z] = self.rows;
        Vec3::new(x.dot(vector), y.dot(vector), z.dot(vector))
    }

    /// The opposite turn.
    pub fn inverse(&self) -> Self {
        let [a, b, c] = self.rows;
        let rows = [Vec3::new(a.x, b.x, c.x), Vec3::new(a.y, b.y, c.y), Vec3::new(a.z, b.z, c.z)];
        Self { rows }
    }

    fn about_x(angle_rad: f64) -> Self {
        let (s, c) = angle_rad.sin_cos();
        let rows = [Vec3::new(1.0, 0.0, 0.0), Vec3::new(0.0, c, s), Vec3::new(0.0, -s, c)];
        Self { rows }
    }

    fn about_y(angle_rad: f64) -> Self {
        let (s, c) = angle_rad.sin_cos();
        let rows = [Vec3::new(c, 0.0, -s), Vec3::new(0.0, 1.0, 0.0), Vec3::new(s, 0.0, c)];
        Self { rows }
    }

    fn about_z(angle_rad: f64) -> Self {
        let (s, c) = angle_rad.sin_cos();
        let rows = [Vec3::new(c, s, 0.0), Vec3::new(-s, c, 0.0), Vec3::new(0.0, 0.0, 1.0)];
        Self { rows }
    }

    /// `first`, then this one.
    fn after(self, first: Self) -> Self {
        let columns = first.inverse().rows;
        let rows = self
            .rows
            .map(|row| Vec3::new(row.dot(columns[0]), row.dot(columns[1]), row.dot(columns[2])));
        Self { rows }
    }
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
        let pole = precession(0.5).inverse().apply(Vec3::new(0.0, 0.0, 1.0));
        let angle = pole.x.hypot(pole.y).asin() / ARC_SECOND;
        assert!((angle - 1002.05).abs() < 0.2, "{angle}");
        assert!(pole.x > 0.0);
    }
}
