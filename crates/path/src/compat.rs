//! Whose Earth, speed of light and habits a path takes.

use skyhop_model::Compat;
use skyhop_orbit::{Constellation, Coverage, EarthModel, Site, Vec3};

use crate::trace::BetweenFrames;

/// The farthest satellite that LeoEM lets a site use, in metres.
const LEOEM_COVERAGE_M: f64 = 811_944.74;

/// What a path takes over from the tool that it is compared with.
pub(crate) trait Habits {
    fn earth(self) -> EarthModel;

    fn coverage(self, constellation: &Constellation) -> Coverage;

    /// One-way delay between a satellite and a site, in seconds.
    fn ground_delay_s(self, satellite: Vec3, site: &Site) -> f64;

    /// Whether the last plane of a shell links to its first.
    fn links_across_seam(self) -> bool;

    /// Whether an end keeps its satellite after it has left coverage.
    fn keeps_lost_satellite(self) -> bool;

    /// Whether an end hop keeps the delay that it had when its satellite was chosen.
    fn freezes_end_hops(self) -> bool;

    fn between_frames(self) -> BetweenFrames;
}

impl Habits for Compat {
    fn earth(self) -> EarthModel {
        match self {
            Self::None | Self::Hypatia => EarthModel::Wgs84,
            Self::Leoem => EarthModel::LeoemSphere,
        }
    }

    fn coverage(self, constellation: &Constellation) -> Coverage {
        let elevation = Coverage::Elevation { degrees: constellation.minimum_elevation_deg };
        match (self, constellation.longest_ground_link) {
            (Self::Leoem, _) => Coverage::Range { metres: LEOEM_COVERAGE_M },
            (Self::Hypatia, Some(longest)) => Coverage::Range { metres: longest.metres() },
            _ => elevation,
        }
    }

    fn ground_delay_s(self, satellite: Vec3, site: &Site) -> f64 {
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

    fn links_across_seam(self) -> bool {
        !matches!(self, Self::Leoem)
    }

    fn keeps_lost_satellite(self) -> bool {
        matches!(self, Self::Leoem)
    }

    fn freezes_end_hops(self) -> bool {
        matches!(self, Self::Leoem)
    }

    fn between_frames(self) -> BetweenFrames {
        match self {
            Self::None | Self::Hypatia => BetweenFrames::Linear,
            Self::Leoem => BetweenFrames::Step,
        }
    }
}
