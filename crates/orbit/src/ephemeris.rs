//! Positions of a constellation's satellites over time.

use skyhop_units::UtcInstant;

use crate::batch::Batch;
use crate::walker::{ShellMotion, element_sets};
use crate::{
    Constellation, EarthModel, EarthRotation, ElementSet, GEOSTATIONARY_RADIUS_M, Propagator, Vec3,
};

/// Angular speed of the Earth's rotation, rounded up, in rad/s.
const EARTH_TURN_RAD_PER_S: f64 = 7.3e-5;

/// Positions of a constellation's satellites over time.
///
/// Satellites are numbered shell after shell, with plane * satellites_per_plane + slot within a shell;
/// geostationary satellites, and then the satellites from element sets, follow in their order.
#[derive(Debug, Clone)]
pub struct Ephemeris {
    groups: Vec<Motion>,
    epoch: UtcInstant,
    earth: EarthModel,
}

/// Motion of a group of satellites.
#[derive(Debug, Clone)]
enum Motion {
    Shell(ShellMotion),
    /// Orbits propagated by SGP4, in the true equator and mean equinox of date.
    ElementSets(Batch),
    /// Constant earth-fixed positions, in metres.
    Fixed(Vec<Vec3>),
}

impl Ephemeris {
    /// Prepare the positions of a constellation's satellites in a model of the Earth.
    pub fn new(constellation: &Constellation, earth: EarthModel) -> Self {
        let epoch = constellation.epoch;
        let mut groups: Vec<Motion> = constellation
            .shells
            .iter()
            .map(|shell| match constellation.propagator {
                Propagator::Secular => Motion::Shell(ShellMotion::new(shell, earth)),
                Propagator::Sgp4 => Motion::ElementSets(Batch::new(element_sets(shell, epoch))),
            })
            .collect();
        let fixed = constellation.geostationary.iter().map(|satellite| {
            let (sin, cos) = satellite.longitude_deg.to_radians().sin_cos();
            Vec3::new(cos, sin, 0.0) * GEOSTATIONARY_RADIUS_M
        });
        groups.push(Motion::Fixed(fixed.collect()));
        groups.push(Motion::ElementSets(Batch::new(constellation.element_sets.clone())));
        groups.retain(|group| group.satellites() > 0);
        Self { groups, epoch, earth }
    }

    /// Number of satellites in all groups.
    pub fn satellites(&self) -> usize {
        self.groups.iter().map(Motion::satellites).sum()
    }

    /// Upper bound of the satellites' distance from the Earth's centre, in metres.
    pub fn largest_radius_m(&self) -> f64 {
        // The LeoEM sphere moves satellites up by at most 14 km (at the poles).
        self.groups.iter().map(Motion::largest_radius_m).fold(0.0, f64::max) + 15e3
    }

    /// Upper bound of the satellites' speed in earth-fixed axes, in m/s.
    pub fn largest_speed_m_per_s(&self) -> f64 {
        // The LeoEM sphere changes distances by less than one per cent.
        self.groups.iter().map(Motion::largest_speed_m_per_s).fold(0.0, f64::max) * 1.01
    }

    /// Write all inertial positions at `time` into `positions`; NaN for a satellite whose elements cannot be
    /// propagated to that time.
    pub fn inertial(&self, time: UtcInstant, positions: &mut Vec<Vec3>) {
        positions.clear();
        for group in &self.groups {
            let first = positions.len();
            if group.extend(time, self.epoch, positions) == Axes::EarthFixed {
                let back = self.earth.rotation().at(time).transpose();
                for position in &mut positions[first..] {
                    *position = back * *position;
                }
            }
        }
    }

    /// Write all earth-fixed positions at `time` into `positions`; NaN for a satellite whose elements cannot be
    /// propagated to that time, which makes it invisible to all sites.
    pub fn earth_fixed(&self, time: UtcInstant, positions: &mut Vec<Vec3>) {
        positions.clear();
        for group in &self.groups {
            let first = positions.len();
            let rotation = match group.extend(time, self.epoch, positions) {
                Axes::EarthFixed => continue,
                Axes::Inertial => self.earth.rotation().at(time),
                Axes::OfDate => EarthRotation::MeanOfDate.at(time),
            };
            for position in &mut positions[first..] {
                *position = self.earth.project(rotation * *position);
            }
        }
    }
}

impl Ephemeris {
    /// Earth-fixed position of one satellite at `time`; NaN as in [`Ephemeris::earth_fixed`], and if there is no
    /// satellite with this number.
    pub fn earth_fixed_of(&self, satellite: u32, time: UtcInstant) -> Vec3 {
        let mut index = satellite as usize;
        for group in &self.groups {
            if index < group.satellites() {
                let (position, axes) = group.position(index, time, self.epoch);
                return self.to_earth_fixed(position, axes, time);
            }
            index -= group.satellites();
        }
        UNKNOWN_POSITION
    }

    fn to_earth_fixed(&self, position: Vec3, axes: Axes, time: UtcInstant) -> Vec3 {
        let rotation = match axes {
            Axes::EarthFixed => return position,
            Axes::Inertial => self.earth.rotation().at(time),
            Axes::OfDate => EarthRotation::MeanOfDate.at(time),
        };
        self.earth.project(rotation * position)
    }
}

/// Position of a satellite that cannot be propagated.
const UNKNOWN_POSITION: Vec3 = Vec3::new(f64::NAN, f64::NAN, f64::NAN);

/// Coordinate axes of positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Axes {
    /// Inertial axes of the Earth's model.
    Inertial,
    /// Axes of SGP4: true equator and mean equinox of date.
    OfDate,
    EarthFixed,
}

impl Motion {
    fn satellites(&self) -> usize {
        match self {
            Self::Shell(shell) => shell.satellites(),
            Self::ElementSets(batch) => batch.sets().len(),
            Self::Fixed(positions) => positions.len(),
        }
    }

    /// Append the positions of all satellites; return their axes.
    fn extend(&self, time: UtcInstant, epoch: UtcInstant, positions: &mut Vec<Vec3>) -> Axes {
        match self {
            Self::Shell(shell) => {
                let elapsed_s = time.unix_nanos().saturating_sub(epoch.unix_nanos()) as f64 / 1e9;
                shell.extend_inertial(elapsed_s, positions);
                Axes::Inertial
            }
            Self::ElementSets(batch) => {
                batch.extend(time, UNKNOWN_POSITION, positions);
                Axes::OfDate
            }
            Self::Fixed(fixed) => {
                positions.extend(fixed);
                Axes::EarthFixed
            }
        }
    }

    /// Position of one satellite, and its axes.
    fn position(&self, index: usize, time: UtcInstant, epoch: UtcInstant) -> (Vec3, Axes) {
        match self {
            Self::Shell(shell) => {
                let elapsed_s = time.unix_nanos().saturating_sub(epoch.unix_nanos()) as f64 / 1e9;
                (shell.inertial(index, elapsed_s), Axes::Inertial)
            }
            Self::ElementSets(batch) => {
                (batch.position(index, time).unwrap_or(UNKNOWN_POSITION), Axes::OfDate)
            }
            Self::Fixed(fixed) => (fixed[index], Axes::EarthFixed),
        }
    }

    fn largest_radius_m(&self) -> f64 {
        match self {
            Self::Shell(shell) => shell.largest_radius_m(),
            Self::ElementSets(batch) => batch.sets().iter().map(apogee_m).fold(0.0, f64::max),
            Self::Fixed(positions) => positions.iter().map(|p| p.length()).fold(0.0, f64::max),
        }
    }

    fn largest_speed_m_per_s(&self) -> f64 {
        match self {
            Self::Shell(shell) => {
                (shell.largest_turn_rad_per_s() + EARTH_TURN_RAD_PER_S) * shell.largest_radius_m()
            }
            Self::ElementSets(batch) => {
                batch.sets().iter().map(fastest_m_per_s).fold(0.0, f64::max)
            }
            Self::Fixed(_) => 0.0,
        }
    }
}

/// Margin for the periodic terms of SGP4's radius and for the change of the semi-major axis by drag, in metres.
const RADIUS_MARGIN_M: f64 = 50e3;

fn apogee_m(set: &ElementSet) -> f64 {
    set.semi_major_axis_m() * (1.0 + set.elements().eccentricity) + RADIUS_MARGIN_M
}

/// Upper bound of the earth-fixed speed, in m/s: the speed at the perigee (vis-viva) plus the speed of the
/// Earth's rotation at the apogee.
fn fastest_m_per_s(set: &ElementSet) -> f64 {
    const MU_M3_PER_S2: f64 = 3.986_008e14;
    let axis_m = set.semi_major_axis_m();
    let perigee_m = axis_m * (1.0 - set.elements().eccentricity) - RADIUS_MARGIN_M;
    let at_perigee = (MU_M3_PER_S2 * (2.0 / perigee_m.max(6.3e6) - 1.0 / axis_m)).max(0.0).sqrt();
    at_perigee + EARTH_TURN_RAD_PER_S * apogee_m(set)
}
