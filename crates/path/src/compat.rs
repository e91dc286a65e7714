//! Compatibility modes: rules that a path takes over from LeoEM or Hypatia.

use skyhop_model::Compat;
use skyhop_orbit::{Constellation, Coverage, EarthModel, Site, Vec3};

use crate::trace::BetweenFrames;

/// Maximum distance between a site and a satellite in LeoEM, in metres.
const LEOEM_COVERAGE_M: f64 = 811_944.74;

/// Rules of path computation that depend on the compatibility mode.
pub(crate) trait CompatRules {
    fn earth(self) -> EarthModel;

    fn coverage(self, constellation: &Constellation) -> Coverage;

    /// One-way delay between a satellite and a site, in seconds.
    fn ground_delay_s(self, satellite: Vec3, site: &Site) -> f64;

    /// Whether inter-satellite links join the last plane of a shell to the first.
    fn links_across_seam(self) -> bool;

    /// Whether an end may keep its satellite after the satellite has left coverage.
    fn keeps_lost_satellite(self) -> bool;

    /// Whether the hop between an end and its satellite keeps the delay that it had when the
    /// satellite was chosen.
    fn freezes_end_hops(self) -> bool;

    fn between_frames(self) -> BetweenFrames;
}

impl CompatRules for Compat {
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
            // LeoEM's distance formula uses y twice, where the second one should be z.
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
