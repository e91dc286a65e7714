//! Plan of a whole network: its satellites and sites, and the links between them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skyhop_link::LinkConfig;
use skyhop_path::network::{LaserPath, NetworkRequest};
use skyhop_path::{Endpoint, PathTrace};
use skyhop_units::Duration;

use crate::{BackgroundPlan, QueueSize};

/// Network of the experiment, over which packets go hop by hop.
///
/// Its links are numbered: first the laser links, then those of each satellite to the sites, then those of each site to
/// the satellites. A laser link is forward from the satellite with the lower number to the other one; a satellite's link
/// to the sites and a site's link to the satellites have the direction forward only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkPlan {
    /// Satellites, sites, and the times at which routes are computed.
    pub request: NetworkRequest,
    /// Laser links, one entry per direction, in ascending order of (`from`, `to`).
    pub lasers: Vec<LaserPath>,
    /// Rate, queue and loss of each laser, without delay.
    pub laser: HopPlan,
    /// Device of each satellite towards the sites.
    pub down: HopPlan,
    /// Device of each site towards the satellites.
    pub up: HopPlan,
    /// Traffic without packets; `None` for a network without such traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<BackgroundPlan>,
    /// Path without delay, which stands for the network where there has to be a single path.
    pub trace: Arc<PathTrace>,
}

/// Rate, queue and loss of all links of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HopPlan {
    /// Configuration with a delay of zero.
    pub config: LinkConfig,
    /// Size of the queue as the scenario gives it.
    pub queue: QueueSize,
}

impl NetworkPlan {
    /// Plan a network; [`Self::lasers`] are computed here.
    ///
    /// # Errors
    /// The request is invalid.
    pub fn new(
        request: NetworkRequest,
        [laser, down, up]: [HopPlan; 3],
    ) -> Result<Self, skyhop_path::PathError> {
        let lasers = request.lasers()?;
        let ends = ["sites", "sites"].map(Endpoint::named);
        let mut trace = PathTrace::fixed(ends, Duration::ZERO, request.duration);
        trace.header.start = Some(request.start);
        Ok(Self { lasers, laser, down, up, background: None, trace: Arc::new(trace), request })
    }

    /// Number of satellites of the constellation.
    pub fn satellites(&self) -> u32 {
        self.request.constellation.satellites()
    }

    /// Laser links, each with both its ends, the lower number first.
    pub fn laser_links(&self) -> impl Iterator<Item = (u32, u32)> {
        let ends = self.lasers.iter().map(|laser| (laser.from, laser.to));
        ends.filter(|(from, to)| from < to)
    }

    /// Kinds of links, by their keys in `[network]`, with rate, queue and loss.
    pub fn kinds(&self) -> [(&'static str, &HopPlan); 3] {
        [("lasers", &self.laser), ("user_links.down", &self.down), ("user_links.up", &self.up)]
    }

    /// Number of links of all kinds.
    pub fn link_count(&self) -> usize {
        let ground = self.satellites() as usize + self.request.sites.len();
        self.laser_links().count() + ground
    }

    /// Names of the links, by their number.
    pub fn link_names(&self) -> Vec<String> {
        let lasers = self.laser_links().map(|(from, to)| format!("satellite {from} - {to}"));
        let down = (0..self.satellites()).map(|number| format!("satellite {number} - sites"));
        let up = self.request.sites.iter().map(|site| format!("{} - satellites", site.name));
        lasers.chain(down).chain(up).collect()
    }

    /// Rate, queue and loss of a link.
    pub fn hop(&self, link: usize) -> &HopPlan {
        let lasers = self.laser_links().count();
        match link.checked_sub(lasers) {
            None => &self.laser,
            Some(place) if place < self.satellites() as usize => &self.down,
            Some(_) => &self.up,
        }
    }
}
