//! Whose Earth, speed of light and habits a path takes.

use std::fmt;
use std::str::FromStr;

use skyhop_orbit::{Constellation, Coverage, EarthModel, Site, Vec3};

use crate::request::UnknownName;
use crate::trace::BetweenFrames;

/// The farthest satellite that LeoEM lets a site use, in metres.
const LEOEM_COVERAGE_M: f64 = 811_944.74;

/// Whose model a path follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compat {
    /// Ours: WGS84, true distances, minimum elevation, a full +Grid torus.
    None,
    /// LeoEM's, as its published paths were made.
    Leoem,
    /// Hypatia's: WGS84 ground, ranges instead of elevations, the same slot in the plane beside.
    Hypatia,
}

impl Compat {
    /// All modes, in the order in which lists show them.
    pub const ALL: [Self; 3] = [Self::None, Self::Leoem, Self::Hypatia];

    /// The name in scenarios and path files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Leoem => "leoem",
            Self::Hypatia => "hypatia",
        }
    }

    /// The handover policy that belongs to the mode: what the other tool does.
    pub const fn handover(self) -> &'static str {
        match self {
            Self::None | Self::Leoem => "leoem",
            Self::Hypatia => "immediate",
        }
    }

    pub(crate) const fn earth(self) -> EarthModel {
        match self {
            Self::None | Self::Hypatia => EarthModel::Wgs84,
            Self::Leoem => EarthModel::LeoemSphere,
        }
    }

    pub(crate) const fn coverage(self, constellation: &Constellation) -> Coverage {
        let elevation = Coverage::Elevation { degrees: constellation.minimum_elevation_deg };
        match (self, constellation.longest_ground_link) {
            (Self::Leoem, _) => Coverage::Range { metres: LEOEM_COVERAGE_M },
            (Self::Hypatia, Some(longest)) => Coverage::Range { metres: longest.metres() },
            _ => elevation,
        }
    }

    /// One-way delay between a satellite and a site, in seconds.
    pub(crate) fn ground_delay_s(self, satellite: Vec3, site: &Site) -> f64 {
        let distance_m = match self {
            Self::None | Self::Hypatia => site.range_m(satellite),
            // LeoEM's distance takes y a second time where z should be.
            Self::Leoem => {
                let sight = satellite - site.position;
                (sight.x * sight.x + 2.0 * sight.y * sight.y).sqrt()
            }
        };
        distance_m / self.earth().light_m_per_s()
    }

    /// Whether the last plane of a shell links to its first.
    pub(crate) const fn links_across_seam(self) -> bool {
        !matches!(self, Self::Leoem)
    }

    /// Whether an end keeps its satellite after it has left coverage.
    pub(crate) const fn keeps_lost_satellite(self) -> bool {
        matches!(self, Self::Leoem)
    }

    /// Whether an end hop keeps the delay that it had when its satellite was chosen.
    pub(crate) const fn freezes_end_hops(self) -> bool {
        matches!(self, Self::Leoem)
    }

    pub(crate) const fn between_frames(self) -> BetweenFrames {
        match self {
            Self::None | Self::Hypatia => BetweenFrames::Linear,
            Self::Leoem => BetweenFrames::Step,
        }
    }
}

impl fmt::Display for Compat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Compat {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let unknown = || UnknownName::new("compatibility mode", name, &Self::ALL.map(Self::name));
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(unknown)
    }
}
