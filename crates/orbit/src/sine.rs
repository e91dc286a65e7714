//! Sines and cosines of many angles at once, in plain arithmetic that compilers turn into vector instructions.
//!
//! All functions act on lanes, the elements of arrays. A lane's result depends on that lane alone and is the same on all
//! machines, because it consists of IEEE 754 additions, multiplications and selections in a fixed order.

/// Largest absolute angle of [`sin_cos`], in radians: a satellite of a low orbit takes a year to turn so far. The last
/// bit of such an angle is 7e-12 rad, and the number of quarter turns times the first part of π/2 is exact.
pub(crate) const LARGEST_ANGLE_RAD: f64 = 32_768.0;

/// Largest absolute angle of [`turn`] in radians.
pub(crate) const LARGEST_TURN_RAD: f64 = 1.0 / 16.0;

/// Sine and cosine of an angle of up to [`LARGEST_ANGLE_RAD`], each with an error of at most 2e-16.
///
/// Reduction by quarter turns (Cody and Waite 1980), and the polynomials of fdlibm (`k_sin.c`, `k_cos.c`).
#[inline(always)]
pub(crate) fn sin_cos(angle_rad: f64) -> (f64, f64) {
    // A sum with this number has no bits for fractions: it rounds, and its lowest bits are the integer.
    const ROUNDS: f64 = 6_755_399_441_055_744.0;
    // π/2 to 33 bits, and the rest.
    const QUARTER_TURN: f64 = 1.570_796_326_734_125_6;
    const QUARTER_TURN_REST: f64 = 6.077_100_506_506_192e-11;
    let rounded = angle_rad * std::f64::consts::FRAC_2_PI + ROUNDS;
    let (quarter, turns) = (rounded.to_bits(), rounded - ROUNDS);
    let rest = (angle_rad - turns * QUARTER_TURN) - turns * QUARTER_TURN_REST;

    let z = rest * rest;
    let odd = -0.166_666_666_666_666_32
        + z * (0.008_333_333_333_322_49
            + z * (-0.000_198_412_698_298_579_5
                + z * (2.755_731_370_707_006_8e-6
                    + z * (-2.505_076_025_340_686_3e-8 + z * 1.589_690_995_211_55e-10))));
    let even = 0.041_666_666_666_666_6
        + z * (-0.001_388_888_888_887_411
            + z * (2.480_158_728_947_673e-5
                + z * (-2.755_731_435_139_066_3e-7
                    + z * (2.087_572_321_298_175e-9 + z * -1.135_964_755_778_819_5e-11))));
    let sin = (rest + rest * z * odd).to_bits();
    let cos = (1.0 - (0.5 * z - z * z * even)).to_bits();

    let swapped = 0_u64.wrapping_sub(quarter & 1);
    let exchange = (sin ^ cos) & swapped;
    let sin_sign = (quarter & 2) << 62;
    let cos_sign = (quarter.wrapping_add(1) & 2) << 62;
    (f64::from_bits(sin ^ exchange ^ sin_sign), f64::from_bits(cos ^ exchange ^ cos_sign))
}

/// Sine and cosine of an angle plus `turn_rad`, from those of the angle. The error grows by at most 2e-16 for turns of
/// up to [`LARGEST_TURN_RAD`].
#[inline(always)]
pub(crate) fn turn((sin, cos): (f64, f64), turn_rad: f64) -> (f64, f64) {
    let z = turn_rad * turn_rad;
    let by_sin = turn_rad
        * (1.0
            - z / 6.0
                * (1.0 - z * (1.0 / 20.0) * (1.0 - z * (1.0 / 42.0) * (1.0 - z * (1.0 / 72.0)))));
    // 1 - cos, because a cosine near 1 has no bits for the difference.
    let by_versine =
        0.5 * z * (1.0 - z * (1.0 / 12.0) * (1.0 - z * (1.0 / 30.0) * (1.0 - z * (1.0 / 56.0))));
    (sin + (cos * by_sin - sin * by_versine), cos - (sin * by_sin + cos * by_versine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sines_of_all_quarters_are_those_of_the_standard_library() {
        let angles = (-40_000..40_000).map(|n| f64::from(n) * 0.731_312_5);
        let near_quarters = (-2_000..2_000).map(|n| f64::from(n) * std::f64::consts::FRAC_PI_2);
        for angle in
            angles.chain(near_quarters).chain([LARGEST_ANGLE_RAD, -LARGEST_ANGLE_RAD, 0.0, 1e-300])
        {
            let (sin, cos) = sin_cos(angle);
            assert!((sin - angle.sin()).abs() <= 2.3e-16, "sin {angle}: {sin} {}", angle.sin());
            assert!((cos - angle.cos()).abs() <= 2.3e-16, "cos {angle}: {cos} {}", angle.cos());
        }
    }

    #[test]
    fn turns_add_up() {
        for n in -1_000..=1_000 {
            let (angle, by) = (f64::from(n) * 0.017, f64::from(n) * 1e-3 * LARGEST_TURN_RAD);
            let (sin, cos) = turn(angle.sin_cos(), by);
            assert!((sin - (angle + by).sin()).abs() < 2e-15, "{angle} {by}");
            assert!((cos - (angle + by).cos()).abs() < 2e-15, "{angle} {by}");
        }
    }
}
