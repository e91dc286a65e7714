//! SGP4 of many satellites at once, for orbits with a period of less than 225 minutes.
//!
//! Equations and names of the constants: Vallado and others, Revisiting Spacetrack Report 3, AIAA 2006-6753, and
//! Hoots and Roehrich, Spacetrack Report 3, 1980. Satellites are computed in blocks whose numbers lie side by side, in
//! loops without branches, which compilers turn into vector instructions. A satellite's position depends on neither
//! the block nor the other satellites in it. Positions differ from those of the crate `sgp4` by less than a millimetre,
//! usually by micrometres. Where this form does not apply, `None` leaves the satellite to that crate: in deep space, where
//! the theory has no position, and a year or more after the epoch.

// The loops index the same lane of several arrays.
#![allow(clippy::needless_range_loop)]

use crate::sine::{LARGEST_ANGLE_RAD, LARGEST_TURN_RAD, sin_cos, turn};
use crate::{MeanElements, Vec3};

/// Number of satellites in a block.
pub(crate) const LANES: usize = 16;

/// Gravity of WGS72, with which element sets are fitted.
const GRAVITY: sgp4::Geopotential = sgp4::WGS72;

/// Largest number of steps of Kepler's equation, and the correction in radians below which it is solved.
const MOST_KEPLER_STEPS: usize = 10;
const KEPLER_PRECISION_RAD: f64 = 1e-12;

macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Constants of one satellite; lengths in equatorial radii, angles in radians, times in minutes.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub(crate) struct Constants {
            $($(#[$doc])* $name: f64,)*
        }

        /// Constants of some satellites, side by side.
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) struct Block<const N: usize> {
            $($name: [f64; N],)*
        }

        impl Constants {
            /// Constants of a satellite that this form of the theory does not propagate.
            pub(crate) const NONE: Self = Self { $($name: f64::NAN,)* };

            const ZERO: Self = Self { $($name: 0.0,)* };
        }

        impl<const N: usize> Block<N> {
            /// Fill a block from at least one satellite; the last one fills the lanes that are left.
            pub(crate) fn of(satellites: &[Constants]) -> Self {
                let at = |lane: usize| &satellites[lane.min(satellites.len() - 1)];
                Self { $($name: std::array::from_fn(|lane| at(lane).$name),)* }
            }

            /// Block of the satellite in one lane.
            pub(crate) fn lane(&self, lane: usize) -> Block<1> {
                Block { $($name: [self.$name[lane]],)* }
            }
        }
    };
}

constants! {
    /// Eccentricity of the orbit at the epoch.
    ecco,
    /// Argument of perigee and its rate.
    argpo,
    argpdot,
    /// Mean anomaly and its rate.
    mo,
    mdot,
    /// Right ascension of the ascending node, its rate and its acceleration by drag.
    nodeo,
    nodedot,
    nodecf,
    /// Semi-major axis, and mean motion without Kozai's correction.
    ao,
    no_unkozai,
    /// Sine and cosine of the inclination.
    sinio,
    cosio,
    /// Polynomials of drag in time: of the semi-major axis, of the eccentricity, of the mean longitude.
    cc1,
    d2,
    d3,
    d4,
    bstar_cc4,
    bstar_cc5,
    t2cof,
    t3cof,
    t4cof,
    t5cof,
    /// Drag at perigee by mean anomaly.
    omgcof,
    xmcof,
    eta,
    delmo,
    sinmao,
    /// Long-period terms of J3.
    aycof,
    xlcof,
    /// Short-period terms of J2.
    con41,
    x1mth2,
    x7thm1,
}

/// Numbers of an orbit at its epoch from which several constants follow.
struct Epoch {
    orbit: sgp4::Orbit,
    bstar: f64,
    /// Semi-major axis in equatorial radii.
    ao: f64,
    /// Square of the inclination's cosine, and 1 - eccentricity².
    cosio2: f64,
    omeosq: f64,
    /// Density of the atmosphere: its reference radius, powers of the distance from it, and eccentricity in its units.
    sfour: f64,
    tsi: f64,
    eta: f64,
    psisq: f64,
    coef: f64,
    coef1: f64,
}

/// Secular rates of the angles by J2 and J4.
struct Rates {
    mdot: f64,
    argpdot: f64,
    nodedot: f64,
    /// Part of `nodedot` of first order in J2.
    node_by_j2: f64,
}

impl Epoch {
    fn new(orbit: sgp4::Orbit, bstar: f64) -> Self {
        let ecco = orbit.eccentricity;
        let ao = (GRAVITY.ke / orbit.mean_motion).powf(2.0 / 3.0);
        let height_km = GRAVITY.ae * (ao * (1.0 - ecco) - 1.0);
        let s_km = if height_km < 98.0 { 20.0 } else { (height_km - 78.0).min(78.0) };
        let sfour = s_km / GRAVITY.ae + 1.0;
        let tsi = 1.0 / (ao - sfour);
        let eta = ao * ecco * tsi;
        let psisq = (1.0 - eta * eta).abs();
        let coef = ((120.0 - s_km) / GRAVITY.ae).powi(4) * tsi.powi(4);
        let cosio2 = orbit.inclination.cos().powi(2);
        let (omeosq, coef1) = (1.0 - ecco * ecco, coef / psisq.powf(3.5));
        Self { orbit, bstar, ao, cosio2, omeosq, sfour, tsi, eta, psisq, coef, coef1 }
    }

    /// 3 cos² of the inclination - 1.
    fn con41(&self) -> f64 {
        3.0 * self.cosio2 - 1.0
    }

    /// Drag of the semi-major axis.
    fn cc1(&self) -> f64 {
        let (etasq, eeta) = (self.eta * self.eta, self.orbit.eccentricity * self.eta);
        let by_j2 = 0.375 * GRAVITY.j2 * self.tsi / self.psisq * self.con41();
        self.bstar
            * self.coef1
            * self.orbit.mean_motion
            * (self.ao * (1.0 + 1.5 * etasq + eeta * (4.0 + etasq))
                + by_j2 * (8.0 + 3.0 * etasq * (8.0 + etasq)))
    }

    /// Drag of the eccentricity.
    fn cc4(&self) -> f64 {
        let (eta, ecco) = (self.eta, self.orbit.eccentricity);
        let (etasq, eeta) = (eta * eta, ecco * eta);
        let along = -3.0 * self.con41() * (1.0 - 2.0 * eeta + etasq * (1.5 - 0.5 * eeta));
        let across = 0.75
            * (1.0 - self.cosio2)
            * (2.0 * etasq - eeta * (1.0 + etasq))
            * (2.0 * self.orbit.argument_of_perigee).cos();
        2.0 * self.orbit.mean_motion
            * self.coef1
            * self.ao
            * self.omeosq
            * (eta * (2.0 + 0.5 * etasq) + ecco * (0.5 + 2.0 * etasq)
                - GRAVITY.j2 * self.tsi / (self.ao * self.psisq) * (along + across))
    }

    fn rates(&self) -> Rates {
        let (no, cosio, cosio2) =
            (self.orbit.mean_motion, self.orbit.inclination.cos(), self.cosio2);
        let cosio4 = cosio2 * cosio2;
        let posq = 1.0 / (self.ao * self.omeosq).powi(2);
        let temp1 = 1.5 * GRAVITY.j2 * posq * no;
        let temp2 = 0.5 * temp1 * GRAVITY.j2 * posq;
        let temp3 = -0.46875 * GRAVITY.j4 * posq * posq * no;
        let betao = self.omeosq.sqrt();
        let node_by_j2 = -temp1 * cosio;
        Rates {
            mdot: no
                + 0.5 * temp1 * betao * self.con41()
                + 0.0625 * temp2 * betao * (13.0 - 78.0 * cosio2 + 137.0 * cosio4),
            argpdot: -0.5 * temp1 * (1.0 - 5.0 * cosio2)
                + 0.0625 * temp2 * (7.0 - 114.0 * cosio2 + 395.0 * cosio4)
                + temp3 * (3.0 - 36.0 * cosio2 + 49.0 * cosio4),
            nodedot: node_by_j2
                + (0.5 * temp2 * (4.0 - 19.0 * cosio2) + 2.0 * temp3 * (3.0 - 7.0 * cosio2))
                    * cosio,
            node_by_j2,
        }
    }
}

impl Constants {
    /// Compute the constants; `None` for an orbit in deep space, or one that SGP4 refuses.
    pub(crate) fn new(elements: &MeanElements) -> Option<Self> {
        let orbit = elements.orbit().ok()?;
        let period_min = std::f64::consts::TAU / orbit.mean_motion;
        if !(0.0..1.0).contains(&orbit.eccentricity) || period_min >= 225.0 {
            return None;
        }
        let epoch = Epoch::new(orbit, elements.bstar);
        let simple = Self::without_high_terms(&epoch);
        let perigee = epoch.ao * (1.0 - epoch.orbit.eccentricity);
        // Below 220 km, drag has no terms of higher order.
        let is_low = perigee < 220.0 / GRAVITY.ae + 1.0;
        Some(if is_low { simple } else { simple.with_high_terms(&epoch) })
    }

    fn without_high_terms(epoch: &Epoch) -> Self {
        let (orbit, cosio2) = (&epoch.orbit, epoch.cosio2);
        let (sinio, cosio) = (orbit.inclination.sin(), orbit.inclination.cos());
        let j3oj2 = GRAVITY.j3 / GRAVITY.j2;
        let one_plus = if (1.0 + cosio).abs() > 1.5e-12 { 1.0 + cosio } else { 1.5e-12 };
        let (cc1, rates) = (epoch.cc1(), epoch.rates());
        Self {
            ecco: orbit.eccentricity,
            argpo: orbit.argument_of_perigee,
            argpdot: rates.argpdot,
            mo: orbit.mean_anomaly,
            mdot: rates.mdot,
            nodeo: orbit.right_ascension,
            nodedot: rates.nodedot,
            nodecf: 3.5 * epoch.omeosq * rates.node_by_j2 * cc1,
            ao: epoch.ao,
            no_unkozai: orbit.mean_motion,
            sinio,
            cosio,
            cc1,
            bstar_cc4: epoch.bstar * epoch.cc4(),
            t2cof: 1.5 * cc1,
            aycof: -0.5 * j3oj2 * sinio,
            xlcof: -0.25 * j3oj2 * sinio * (3.0 + 5.0 * cosio) / one_plus,
            con41: epoch.con41(),
            x1mth2: 1.0 - cosio2,
            x7thm1: 7.0 * cosio2 - 1.0,
            eta: epoch.eta,
            ..Self::ZERO
        }
    }

    fn with_high_terms(self, epoch: &Epoch) -> Self {
        let Epoch { ao, tsi, eta, coef, coef1, bstar, sfour, omeosq, .. } = *epoch;
        let (orbit, cc1) = (&epoch.orbit, self.cc1);
        let (ecco, eeta, cc1sq) = (orbit.eccentricity, orbit.eccentricity * eta, cc1 * cc1);
        let d2 = 4.0 * ao * tsi * cc1sq;
        let temp = d2 * tsi * cc1 / 3.0;
        let d3 = (17.0 * ao + sfour) * temp;
        let d4 = 0.5 * temp * ao * tsi * (221.0 * ao + 31.0 * sfour) * cc1;
        let cc5 = 2.0 * coef1 * ao * omeosq * (1.0 + 2.75 * (eta * eta + eeta) + eeta * eta * eta);
        // The division by the eccentricity has no meaning for a circle.
        let (omgcof, xmcof) = if ecco > 1e-4 {
            let j3oj2 = GRAVITY.j3 / GRAVITY.j2;
            let cc3 = -2.0 * coef * tsi * j3oj2 * orbit.mean_motion * self.sinio / ecco;
            (bstar * cc3 * orbit.argument_of_perigee.cos(), -2.0 / 3.0 * coef * bstar / eeta)
        } else {
            (0.0, 0.0)
        };
        let of_t5 = 3.0 * d4 + 12.0 * cc1 * d3 + 6.0 * d2 * d2 + 15.0 * cc1sq * (2.0 * d2 + cc1sq);
        Self {
            d2,
            d3,
            d4,
            bstar_cc5: bstar * cc5,
            t3cof: d2 + 2.0 * cc1sq,
            t4cof: 0.25 * (3.0 * d3 + cc1 * (12.0 * d2 + 10.0 * cc1sq)),
            t5cof: 0.2 * of_t5,
            omgcof,
            xmcof,
            delmo: (1.0 + eta * orbit.mean_anomaly.cos()).powi(3),
            sinmao: orbit.mean_anomaly.sin(),
            ..self
        }
    }
}

/// Mean orbits of a block's satellites at some time, after secular and long-period terms.
struct MeanOrbits<const N: usize> {
    /// Semi-major axis; NaN where the theory, in the form of this file, does not apply.
    am: [f64; N],
    /// Eccentricity vector along and across the node.
    axnl: [f64; N],
    aynl: [f64; N],
    /// Mean argument of latitude, with the long-period term.
    u: [f64; N],
    /// Right ascension of the ascending node.
    node: [f64; N],
}

/// Positions of a block's satellites in metres; NaN where the theory, in the form of this file, does not apply.
pub(crate) struct Positions<const N: usize> {
    x: [f64; N],
    y: [f64; N],
    z: [f64; N],
}

impl<const N: usize> Positions<N> {
    /// Position in metres of the satellite in a lane (true equator, mean equinox); `None` if this form of the theory does
    /// not apply.
    pub(crate) fn lane(&self, lane: usize) -> Option<Vec3> {
        let position = Vec3::new(self.x[lane], self.y[lane], self.z[lane]);
        position.length_squared().is_finite().then_some(position)
    }
}

impl<const N: usize> Block<N> {
    /// Compute the positions, each at a time in minutes since the satellite's epoch.
    #[inline]
    pub(crate) fn positions(&self, minutes: &[f64; N]) -> Positions<N> {
        let orbits = self.mean_orbits(minutes);
        let eccentric = eccentric_anomalies(&orbits);
        self.short_period(&orbits, &eccentric)
    }

    #[inline(always)]
    fn mean_orbits(&self, minutes: &[f64; N]) -> MeanOrbits<N> {
        let mut orbits = MeanOrbits {
            am: [0.0; N],
            axnl: [0.0; N],
            aynl: [0.0; N],
            u: [0.0; N],
            node: [0.0; N],
        };
        for i in 0..N {
            let t = minutes[i];
            let t2 = t * t;
            let xmdf = self.mo[i] + self.mdot[i] * t;
            let argpdf = self.argpo[i] + self.argpdot[i] * t;
            let (sin_xmdf, cos_xmdf) = sin_cos(xmdf);
            let at_perigee = 1.0 + self.eta[i] * cos_xmdf;
            let delm = self.xmcof[i] * (at_perigee * at_perigee * at_perigee - self.delmo[i]);
            let shift = self.omgcof[i] * t + delm;
            let (mm, argpm) = (xmdf + shift, argpdf - shift);
            let (sin_mm, _) = turn((sin_xmdf, cos_xmdf), shift);

            let tempa =
                1.0 - t * (self.cc1[i] + t * (self.d2[i] + t * (self.d3[i] + t * self.d4[i])));
            let tempe = self.bstar_cc4[i] * t + self.bstar_cc5[i] * (sin_mm - self.sinmao[i]);
            let templ = t2
                * (self.t2cof[i] + t * (self.t3cof[i] + t * (self.t4cof[i] + t * self.t5cof[i])));
            let am = self.ao[i] * tempa * tempa;
            let drifted = self.ecco[i] - tempe;
            let em = if drifted < 1e-6 { 1e-6 } else { drifted };

            let (sin_argpm, cos_argpm) = sin_cos(argpm);
            let axnl = em * cos_argpm;
            let by_j3 = 1.0 / (am * (1.0 - em * em));
            orbits.axnl[i] = axnl;
            orbits.aynl[i] = em * sin_argpm + by_j3 * self.aycof[i];
            orbits.u[i] = mm + self.no_unkozai[i] * templ + argpm + by_j3 * self.xlcof[i] * axnl;
            orbits.node[i] = self.nodeo[i] + self.nodedot[i] * t + self.nodecf[i] * t2;
            let applies = (-0.001..1.0).contains(&drifted)
                & (shift.abs() <= LARGEST_TURN_RAD)
                & (xmdf.abs() <= LARGEST_ANGLE_RAD)
                & (argpm.abs() <= LARGEST_ANGLE_RAD)
                & (orbits.u[i].abs() <= LARGEST_ANGLE_RAD)
                & (orbits.node[i].abs() <= LARGEST_ANGLE_RAD);
            orbits.am[i] = if applies { am } else { f64::NAN };
        }
        orbits
    }

    /// Add the short-period terms of J2, and turn into positions.
    #[inline(always)]
    fn short_period(&self, orbits: &MeanOrbits<N>, eccentric: &[[f64; N]; 2]) -> Positions<N> {
        let (mut x, mut y, mut z) = ([0.0; N], [0.0; N], [0.0; N]);
        let mut nodes = [0.0; N];
        for i in 0..N {
            let (am, axnl, aynl) = (orbits.am[i], orbits.axnl[i], orbits.aynl[i]);
            let (sineo1, coseo1) = (eccentric[0][i], eccentric[1][i]);
            let ecose = axnl * coseo1 + aynl * sineo1;
            let esine = axnl * sineo1 - aynl * coseo1;
            let el2 = axnl * axnl + aynl * aynl;
            let pl = am * (1.0 - el2);
            let rl = am * (1.0 - ecose);
            let betal = (1.0 - el2).sqrt();
            let across = esine / (1.0 + betal);
            let am_by_rl = am / rl;
            let sinu = am_by_rl * (sineo1 - aynl - axnl * across);
            let cosu = am_by_rl * (coseo1 - axnl + aynl * across);
            let sin2u = 2.0 * cosu * sinu;
            let cos2u = 1.0 - 2.0 * sinu * sinu;

            let by_pl = 1.0 / pl;
            let temp1 = 0.5 * GRAVITY.j2 * by_pl;
            let temp2 = temp1 * by_pl;
            let mrt = rl * (1.0 - 1.5 * temp2 * betal * self.con41[i])
                + 0.5 * temp1 * self.x1mth2[i] * cos2u;
            let by_u = -0.25 * temp2 * self.x7thm1[i] * sin2u;
            let by_inclination = 1.5 * temp2 * self.cosio[i] * self.sinio[i] * cos2u;
            nodes[i] = orbits.node[i] + 1.5 * temp2 * self.cosio[i] * sin2u;
            let (sinsu, cossu) = turn((sinu, cosu), by_u);
            let (sini, cosi) = turn((self.sinio[i], self.cosio[i]), by_inclination);
            let applies = (pl > 0.0)
                & (by_u.abs() <= LARGEST_TURN_RAD)
                & (by_inclination.abs() <= LARGEST_TURN_RAD);
            let radius_m = if applies { mrt * (GRAVITY.ae * 1e3) } else { f64::NAN };
            x[i] = radius_m * cossu;
            y[i] = radius_m * (cosi * sinsu);
            z[i] = radius_m * (sini * sinsu);
        }
        // From along and across the node to the equator's axes.
        for i in 0..N {
            let (along, across) = (x[i], y[i]);
            let (snod, cnod) = sin_cos(nodes[i]);
            x[i] = along * cnod - across * snod;
            y[i] = along * snod + across * cnod;
        }
        Positions { x, y, z }
    }
}

/// Solve Kepler's equation for eccentric anomaly plus argument of perigee; return its sine and cosine.
///
/// Newton's method, whose correction is limited to 0.95 rad, as Vallado's. Sine and cosine are turned by small
/// corrections and computed again after large ones.
#[inline(always)]
fn eccentric_anomalies<const N: usize>(orbits: &MeanOrbits<N>) -> [[f64; N]; 2] {
    let (mut sines, mut cosines, mut angles) = ([0.0; N], [0.0; N], orbits.u);
    let mut corrections = [0.0; N];
    for i in 0..N {
        (sines[i], cosines[i]) = sin_cos(angles[i]);
    }
    for _ in 0..MOST_KEPLER_STEPS {
        let mut moved = 0.0_f64;
        for i in 0..N {
            let (axnl, aynl, sin, cos) = (orbits.axnl[i], orbits.aynl[i], sines[i], cosines[i]);
            let newton = (orbits.u[i] - aynl * cos + axnl * sin - angles[i])
                / (1.0 - cos * axnl - sin * aynl);
            let solved = newton.abs() < KEPLER_PRECISION_RAD;
            let limited = if newton > 0.95 { 0.95 } else { newton };
            let limited = if limited < -0.95 { -0.95 } else { limited };
            corrections[i] = if solved { 0.0 } else { limited };
            angles[i] += corrections[i];
            let size = corrections[i].abs();
            moved = if size > moved { size } else { moved };
        }
        if moved == 0.0 {
            break;
        }
        for i in 0..N {
            (sines[i], cosines[i]) = turn((sines[i], cosines[i]), corrections[i]);
        }
        if moved > LARGEST_TURN_RAD {
            for i in 0..N {
                let again = sin_cos(angles[i]);
                let far = corrections[i].abs() > LARGEST_TURN_RAD;
                sines[i] = if far { again.0 } else { sines[i] };
                cosines[i] = if far { again.1 } else { cosines[i] };
            }
        }
    }
    [sines, cosines]
}
