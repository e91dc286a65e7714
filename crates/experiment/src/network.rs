//! Plan of a whole network: its satellites and sites, and the links between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use skyhop_link::{LinkConfig, LinkSchedule};
use skyhop_path::network::{LaserPath, NetworkRequest, Role};
use skyhop_path::{Endpoint, PathEvent, PathTrace};
use skyhop_signal::Timing;
use skyhop_units::Duration;

use crate::{BackgroundPlan, QueueSize};

/// Network of the experiment, over which packets go hop by hop.
///
/// Its links are numbered by [`NetworkLink`]: laser links first, and so on. A laser link is forward from the satellite with
/// the lower number to the other one; all other links have the direction forward only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkPlan {
    /// Satellites, sites, and the times at which routes are computed.
    pub request: NetworkRequest,
    /// Laser links, one entry per direction, in ascending order of (`from`, `to`).
    pub lasers: Vec<LaserPath>,
    /// Rates, queues and losses of the links of each kind.
    pub hops: NetworkHops,
    /// Whether each site has downlinks of its own, rather than a share of each satellite's downlink.
    pub downlink_per_site: bool,
    /// Schedules of the uplink and the downlink of sites with an access profile, by the index of the site.
    pub access: BTreeMap<u32, [LinkSchedule; 2]>,
    /// Traffic without packets; `None` for a network without such traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<BackgroundPlan>,
    /// Announcements of the handovers of each flow's own route; `None` if nothing announces these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced: Option<RouteSignal>,
    /// Path without delay, which stands for the network where there has to be a single path.
    pub trace: Arc<PathTrace>,
}

/// Announcements of the handovers of routes, which an engine computes before it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RouteSignal {
    /// Lead times, errors and latency; the seed is that of the first pair of sites.
    pub timing: Timing,
    /// Handovers and outages of the links of sites with an access profile, by the index of the site.
    pub of_access: BTreeMap<u32, Vec<PathEvent>>,
}

/// Rates, queues and losses of the links of each kind, without delay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkHops {
    /// Lasers, in each direction.
    pub laser: HopPlan,
    /// Downlinks of satellites to sites.
    pub down: HopPlan,
    /// Uplinks of sites to satellites.
    pub up: HopPlan,
    /// Downlinks of satellites to gateways.
    pub gateway_down: HopPlan,
    /// Uplinks of gateways to satellites.
    pub gateway_up: HopPlan,
}

/// Rate, queue and loss of all links of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HopPlan {
    /// Configuration with a delay of zero.
    pub config: LinkConfig,
    /// Size of the queue as the scenario gives it.
    pub queue: QueueSize,
}

/// Link of a network, in the order of the links' numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkLink {
    /// Laser between two satellites, the lower number first.
    Laser(u32, u32),
    /// Downlink of a satellite to the sites, or to those without downlinks of their own.
    Down(u32),
    /// Uplink of a site.
    Up(u32),
    /// Downlink of a satellite to the gateways.
    GatewayDown(u32),
    /// Downlinks of all satellites to one site.
    OwnDown(u32),
}

impl NetworkPlan {
    /// Plan a network in which sites share the downlinks of satellites; [`Self::lasers`] are computed here.
    ///
    /// # Errors
    /// The request is invalid.
    pub fn new(request: NetworkRequest, hops: NetworkHops) -> Result<Self, skyhop_path::PathError> {
        let lasers = request.lasers()?;
        let ends = ["sites", "sites"].map(Endpoint::named);
        let mut trace = PathTrace::fixed(ends, Duration::ZERO, request.duration);
        trace.header.start = Some(request.start);
        Ok(Self {
            lasers,
            hops,
            downlink_per_site: false,
            access: BTreeMap::new(),
            background: None,
            announced: None,
            trace: Arc::new(trace),
            request,
        })
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

    /// Indices of the sites with terminals, or of the gateways.
    fn with_antennas(&self, gateways: bool) -> impl Iterator<Item = u32> {
        let sites = 0..self.request.sites.len() as u32;
        sites.filter(move |site| match self.request.role(*site) {
            Role::Terminal { .. } => !gateways,
            Role::Gateway => gateways,
            Role::PointOfPresence => false,
        })
    }

    /// Whether the network has gateways.
    pub fn has_gateways(&self) -> bool {
        self.with_antennas(true).next().is_some()
    }

    /// Kinds of links, by their keys in `[network]`, with rate, queue and loss.
    pub fn kinds(&self) -> impl Iterator<Item = (&'static str, &HopPlan)> {
        let NetworkHops { laser, down, up, gateway_down, gateway_up } = &self.hops;
        let of_all = [("lasers", laser), ("user_links.down", down), ("user_links.up", up)];
        let of_gateways = [("gateway_links.down", gateway_down), ("gateway_links.up", gateway_up)];
        let count = if self.has_gateways() { of_gateways.len() } else { 0 };
        of_all.into_iter().chain(of_gateways.into_iter().take(count))
    }

    /// Links of all kinds, in the order of their numbers.
    pub fn links(&self) -> impl Iterator<Item = NetworkLink> {
        let lasers = self.laser_links().map(|(from, to)| NetworkLink::Laser(from, to));
        let satellites = 0..self.satellites();
        let gateway_down = if self.has_gateways() { satellites.clone() } else { 0..0 }
            .map(NetworkLink::GatewayDown);
        let up = (0..self.request.sites.len() as u32).map(NetworkLink::Up);
        let own = self.with_antennas(false).filter(|_| self.downlink_per_site);
        lasers
            .chain(satellites.map(NetworkLink::Down))
            .chain(up)
            .chain(gateway_down)
            .chain(own.map(NetworkLink::OwnDown))
    }

    /// Number of links of all kinds.
    pub fn link_count(&self) -> usize {
        self.links().count()
    }

    /// Names of the links, by their number.
    pub fn link_names(&self) -> Vec<String> {
        let site = |index: u32| &self.request.sites[index as usize].name;
        let name = |link: NetworkLink| match link {
            NetworkLink::Laser(from, to) => format!("satellite {from} - {to}"),
            NetworkLink::Down(number) => format!("satellite {number} - sites"),
            NetworkLink::Up(index) => format!("{} - satellites", site(index)),
            NetworkLink::GatewayDown(number) => format!("satellite {number} - gateways"),
            NetworkLink::OwnDown(index) => format!("satellites - {}", site(index)),
        };
        self.links().map(name).collect()
    }

    /// Rate, queue and loss of a link's kind.
    pub fn hop(&self, link: NetworkLink) -> &HopPlan {
        let NetworkHops { laser, down, up, gateway_down, gateway_up } = &self.hops;
        match link {
            NetworkLink::Laser(..) => laser,
            NetworkLink::Down(_) | NetworkLink::OwnDown(_) => down,
            NetworkLink::GatewayDown(_) => gateway_down,
            NetworkLink::Up(site) if *self.request.role(site) == Role::Gateway => gateway_up,
            NetworkLink::Up(_) => up,
        }
    }

    /// Rates of a link over time.
    pub fn schedule(&self, link: NetworkLink) -> &LinkSchedule {
        let own = match link {
            NetworkLink::Up(site) => self.access.get(&site).map(|both| &both[0]),
            NetworkLink::OwnDown(site) => self.access.get(&site).map(|both| &both[1]),
            _ => None,
        };
        own.unwrap_or(&self.hop(link).config.schedule)
    }
}
