//! Where every satellite of a constellation is at a moment.

use std::f64::consts::TAU;

use skyhop_units::UtcInstant;

use crate::{Constellation, EarthModel, SecularRates, Shell, Vec3};

/// The positions of a constellation's satellites over time.
///
/// Satellites are numbered shell after shell, and plane * satellites_per_plane + slot in a shell.
#[derive(Debug, Clone)]
pub struct Ephemeris {
    shells: Vec<ShellMotion>,
    epoch: UtcInstant,
    earth: EarthModel,
}

/// A shell with everything that does not change over time worked out.
#[derive(Debug, Clone)]
struct ShellMotion {
    semi_major_axis_m: f64,
    inclination_rad: f64,
    rates: SecularRates,
    /// Right ascension of each plane's ascending node at the epoch.
    nodes_rad: Vec<f64>,
    /// Cosine and sine of each satellite's argument of latitude at the epoch, plane after plane.
    latitude_arguments: Vec<(f64, f64)>,
}

impl Ephemeris {
    /// The constellation's satellites as they move around this Earth.
    pub fn new(constellation: &Constellation, earth: EarthModel) -> Self {
        let shells = constellation.shells.iter().map(|s| ShellMotion::new(s, earth)).collect();
        Self { shells, epoch: constellation.epoch, earth }
    }

    /// How many satellites there are.
    pub fn satellites(&self) -> usize {
        self.shells.iter().map(|shell| shell.latitude_arguments.len()).sum()
    }

    /// The largest distance from the Earth's centre at which a satellite may be, in metres.
    pub fn largest_radius_m(&self) -> f64 {
        // The LeoEM sphere moves satellites up by at most 14 km (at the poles).
        self.shells.iter().map(|shell| shell.semi_major_axis_m).fold(0.0, f64::max) + 15e3
    }

    /// A speed that no satellite exceeds in earth-fixed axes, in m/s.
    pub fn largest_speed_m_per_s(&self) -> f64 {
        const EARTH_TURN_RAD_PER_S: f64 = 7.3e-5;
        let speed = |shell: &ShellMotion| {
            let turn = shell.rates.latitude_argument_rad_per_s.abs()
                + shell.rates.node_rad_per_s.abs()
                + EARTH_TURN_RAD_PER_S;
            turn * shell.semi_major_axis_m
        };
        // One per cent for what the LeoEM sphere does to distances.
        self.shells.iter().map(speed).fold(0.0, f64::max) * 1.01
    }

    /// Writes all inertial positions at `time` into `positions`.
    pub fn inertial(&self, time: UtcInstant, positions: &mut Vec<Vec3>) {
        positions.clear();
        let elapsed_s = (time.unix_nanos() - self.epoch.unix_nanos()) as f64 / 1e9;
        for shell in &self.shells {
            shell.extend_inertial(elapsed_s, positions);
        }
    }

    /// Writes all earth-fixed positions at `time` into `positions`.
    pub fn earth_fixed(&self, time: UtcInstant, positions: &mut Vec<Vec3>) {
        self.inertial(time, positions);
        let rotation = self.earth.rotation().at(time);
        for position in positions {
            *position = self.earth.project(rotation.apply(*position));
        }
    }
}

impl ShellMotion {
    fn new(shell: &Shell, earth: EarthModel) -> Self {
        let semi_major_axis_m = shell.altitude.metres()
            + earth.reference_radius_m().unwrap_or(shell.reference_radius.metres());
        let inclination_rad = shell.inclination_deg.to_radians();
        let (planes, slots) = (f64::from(shell.planes), f64::from(shell.satellites_per_plane));
        let span = shell.node_span_deg.to_radians();
        let nodes_rad = (0..shell.planes).map(|p| span * f64::from(p) / planes).collect();
        let argument = |p: u32, slot: u32| {
            TAU * (f64::from(slot) + f64::from(shell.phasing) * f64::from(p) / planes) / slots
        };
        let latitude_arguments = (0..shell.planes)
            .flat_map(|p| (0..shell.satellites_per_plane).map(move |slot| (p, slot)))
            .map(|(p, slot)| argument(p, slot).sin_cos())
            .map(|(sin, cos)| (cos, sin))
            .collect();
        let rates = earth.secular_rates(semi_major_axis_m, inclination_rad);
        Self { semi_major_axis_m, inclination_rad, rates, nodes_rad, latitude_arguments }
    }

    fn extend_inertial(&self, elapsed_s: f64, positions: &mut Vec<Vec3>) {
        let (sin_turn, cos_turn) = (self.rates.latitude_argument_rad_per_s * elapsed_s).sin_cos();
        let (sin_inclination, cos_inclination) = self.inclination_rad.sin_cos();
        let slots = self.latitude_arguments.len() / self.nodes_rad.len();
        for (node_rad, plane) in self.nodes_rad.iter().zip(self.latitude_arguments.chunks(slots)) {
            let (sin, cos) = (node_rad + self.rates.node_rad_per_s * elapsed_s).sin_cos();
            let a = self.semi_major_axis_m;
            let ascending = Vec3::new(cos, sin, 0.0) * a;
            let ahead =
                Vec3::new(-sin * cos_inclination, cos * cos_inclination, sin_inclination) * a;
            positions.extend(plane.iter().map(|(cos_start, sin_start)| {
                let along = cos_start * cos_turn - sin_start * sin_turn;
                let across = sin_start * cos_turn + cos_start * sin_turn;
                ascending * along + ahead * across
            }));
        }
    }
}
