//! Motion of a shell: circular orbits with secular drift.

use std::f64::consts::TAU;

use skyhop_units::UtcInstant;

use crate::{EarthModel, ElementSet, MeanElements, SecularRates, Shell, Vec3};

/// Shell with precomputed values that do not depend on time.
#[derive(Debug, Clone)]
pub(crate) struct ShellMotion {
    semi_major_axis_m: f64,
    inclination_rad: f64,
    rates: SecularRates,
    /// Right ascension of each plane's ascending node at the epoch, in radians.
    nodes_rad: Vec<f64>,
    /// Cosine and sine of each satellite's argument of latitude at the epoch, plane after plane.
    latitude_arguments: Vec<(f64, f64)>,
}

impl ShellMotion {
    pub(crate) fn new(shell: &Shell, earth: EarthModel) -> Self {
        let semi_major_axis_m = shell.altitude.metres()
            + earth.reference_radius_m().unwrap_or(shell.reference_radius.metres());
        let inclination_rad = shell.inclination_deg.to_radians();
        let slots = f64::from(shell.satellites_per_plane);
        let nodes_rad = (0..shell.planes).map(|p| node_deg(shell, p).to_radians()).collect();
        let argument = |p: u32, slot: u32| TAU * (f64::from(slot) + shell.slots_ahead(p)) / slots;
        let latitude_arguments = (0..shell.planes)
            .flat_map(|p| (0..shell.satellites_per_plane).map(move |slot| (p, slot)))
            .map(|(p, slot)| argument(p, slot).sin_cos())
            .map(|(sin, cos)| (cos, sin))
            .collect();
        let rates = earth.secular_rates(semi_major_axis_m, inclination_rad);
        Self { semi_major_axis_m, inclination_rad, rates, nodes_rad, latitude_arguments }
    }

    /// Append the inertial positions of all satellites, plane after plane, `elapsed_s` after the epoch.
    pub(crate) fn extend_inertial(&self, elapsed_s: f64, positions: &mut Vec<Vec3>) {
        let turn = (self.rates.latitude_argument_rad_per_s * elapsed_s).sin_cos();
        let slots = self.latitude_arguments.len() / self.nodes_rad.len();
        for (node_rad, plane) in self.nodes_rad.iter().zip(self.latitude_arguments.chunks(slots)) {
            let axes = self.plane_axes(*node_rad, elapsed_s);
            positions.extend(plane.iter().map(|start| position_after_turn(axes, *start, turn)));
        }
    }

    /// Inertial position of one satellite `elapsed_s` after the epoch.
    pub(crate) fn inertial(&self, index: usize, elapsed_s: f64) -> Vec3 {
        let turn = (self.rates.latitude_argument_rad_per_s * elapsed_s).sin_cos();
        let slots = self.latitude_arguments.len() / self.nodes_rad.len();
        let axes = self.plane_axes(self.nodes_rad[index / slots], elapsed_s);
        position_after_turn(axes, self.latitude_arguments[index], turn)
    }

    /// Positions of a plane's satellites at the ascending node, and a quarter of an orbit later.
    fn plane_axes(&self, node_rad: f64, elapsed_s: f64) -> [Vec3; 2] {
        let (sin_inclination, cos_inclination) = self.inclination_rad.sin_cos();
        let (sin, cos) = (node_rad + self.rates.node_rad_per_s * elapsed_s).sin_cos();
        let ahead = Vec3::new(-sin * cos_inclination, cos * cos_inclination, sin_inclination);
        [Vec3::new(cos, sin, 0.0) * self.semi_major_axis_m, ahead * self.semi_major_axis_m]
    }

    /// Number of satellites in the shell.
    pub(crate) fn satellites(&self) -> usize {
        self.latitude_arguments.len()
    }

    /// Distance of the satellites from the Earth's centre, in metres.
    pub(crate) fn largest_radius_m(&self) -> f64 {
        self.semi_major_axis_m
    }

    /// Upper bound of the satellites' angular speed in inertial axes, in rad/s.
    pub(crate) fn largest_turn_rad_per_s(&self) -> f64 {
        self.rates.latitude_argument_rad_per_s.abs() + self.rates.node_rad_per_s.abs()
    }
}

/// Position of a satellite in a plane: its argument of latitude was `start` (cosine, sine), and
/// then increased by the angle `turn` (sine, cosine).
fn position_after_turn([ascending, ahead]: [Vec3; 2], start: (f64, f64), turn: (f64, f64)) -> Vec3 {
    let along = start.0 * turn.1 - start.1 * turn.0;
    let across = start.1 * turn.1 + start.0 * turn.0;
    ascending * along + ahead * across
}

/// Right ascension of a plane's ascending node at the epoch, in degrees.
fn node_deg(shell: &Shell, plane: u32) -> f64 {
    shell.node_span_deg * f64::from(plane) / f64::from(shell.planes)
}

/// Create an element set for each satellite of a shell, plane after plane.
///
/// # Panics
/// The shell has no mean motion or SGP4 refuses it, which the check of a constellation file rules out.
pub(crate) fn element_sets(shell: &Shell, epoch: UtcInstant) -> Vec<ElementSet> {
    // A TLE has four decimals for angles.
    let printed = |degrees: f64| (degrees * 1e4).round() / 1e4;
    let slots = shell.satellites_per_plane;
    let elements = |plane: u32, slot: u32| {
        let ahead = f64::from(slot) + shell.slots_ahead(plane);
        ElementSet::new(MeanElements {
            name: String::new(),
            catalogue_number: u64::from(plane * slots + slot),
            epoch,
            inclination_deg: printed(shell.inclination_deg),
            node_deg: printed(node_deg(shell, plane)),
            eccentricity: shell.eccentricity,
            perigee_deg: 0.0,
            anomaly_deg: printed(360.0 * ahead / f64::from(slots)),
            mean_motion_rev_per_day: shell.mean_motion_rev_per_day.unwrap_or(f64::NAN),
            bstar: 0.0,
        })
        .expect("the shell was checked when its file was read")
    };
    (0..shell.planes)
        .flat_map(|plane| (0..slots).map(move |slot| (plane, slot)))
        .map(|(plane, slot)| elements(plane, slot))
        .collect()
}
