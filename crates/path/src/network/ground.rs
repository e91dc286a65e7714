//! Places on the ground by their roles: terminals with a handover policy, gateways, and points of presence behind them.

use serde::{Deserialize, Serialize};
use skyhop_orbit::{Ephemeris, Sky};
use skyhop_units::{Duration, Instant, UtcInstant};

use super::NetworkRequest;
use crate::failures::FailedParts;
use crate::fibre::fibre_delay_s;
use crate::handover::{self, HandoverPolicy, IMMEDIATE, Link, OrbitForecast, View};
use crate::request::{PathError, UtcGrid};
use crate::route::Graph;

/// Role of a place on the ground.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Dish of users. With the policy `immediate` each packet goes over the satellite of its shortest route; with any
    /// other the terminal uses one satellite at a time, in both directions.
    Terminal {
        /// Name of the handover policy.
        handover: String,
    },
    /// Ground station that has an antenna for each satellite in view.
    Gateway,
    /// Place without antennas, to which fibre leads from every gateway.
    PointOfPresence,
}

impl Default for Role {
    fn default() -> Self {
        Self::Terminal { handover: IMMEDIATE.to_owned() }
    }
}

impl Role {
    /// Check the role of a place.
    ///
    /// # Errors
    /// No handover policy has the given name.
    pub(super) fn check(&self) -> Result<(), PathError> {
        match self {
            Self::Terminal { handover } => Ok(handover::policy(handover).map(drop)?),
            Self::Gateway | Self::PointOfPresence => Ok(()),
        }
    }
}

/// Antenna and fibre of a link between a place and a satellite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Via {
    /// Place with the antenna: the place itself, or a gateway.
    pub(super) antenna: u32,
    /// One-way delay of the fibre between both, in seconds.
    pub(super) fibre_s: f64,
}

/// Satellites that each place can use at one time, in ascending order.
#[derive(Debug, Default)]
pub(super) struct Usable {
    /// Links to the satellites; the delay of a link from a point of presence includes the fibre.
    pub(super) links: Vec<Vec<Link>>,
    /// Antenna of each link from a point of presence; empty for other places.
    vias: Vec<Vec<Via>>,
}

impl Usable {
    /// Whether a place can use a satellite.
    pub(super) fn has(&self, place: u32, satellite: u32) -> bool {
        self.link(place, satellite).is_some()
    }

    /// Link between a place and a satellite; `None` if the place cannot use it.
    pub(super) fn link(&self, place: u32, satellite: u32) -> Option<&Link> {
        let links = &self.links[place as usize];
        let found = links.binary_search_by_key(&satellite, |link| link.satellite).ok()?;
        Some(&links[found])
    }

    /// Antenna and fibre of a place's link with the given index.
    pub(super) fn via(&self, place: u32, index: usize) -> Via {
        let vias = &self.vias[place as usize];
        vias.get(index).copied().unwrap_or(Via { antenna: place, fibre_s: 0.0 })
    }
}

/// Fibre from the gateways to the points of presence that packets go to.
#[derive(Debug, Default)]
pub(super) struct Backhaul {
    /// Points of presence, each with its distances to all gateways.
    points: Vec<(u32, Vec<Via>)>,
    /// Best link of a point to each satellite; a buffer.
    best: Vec<Option<(Link, Via)>>,
}

impl Backhaul {
    pub(super) fn new(request: &NetworkRequest) -> Self {
        let with_role = |role: Role| {
            let all = (0..).zip(&request.sites);
            all.filter(move |(number, _)| *request.role(*number) == role)
        };
        let vias = |point: &crate::Place| {
            let stretch = request.options.fibre_stretch;
            let via = |(antenna, gateway): (u32, &crate::Place)| Via {
                antenna,
                fibre_s: fibre_delay_s(gateway.position, point.position, stretch),
            };
            with_role(Role::Gateway).map(via).collect()
        };
        let is_used = |number: &u32| request.destinations.binary_search(number).is_ok();
        let points = with_role(Role::PointOfPresence).filter(|(number, _)| is_used(number));
        Self {
            points: points.map(|(number, point)| (number, vias(point))).collect(),
            best: vec![None; request.constellation.satellites() as usize],
        }
    }

    /// Give each point of presence that has not failed links to the satellites of all gateways, each over the nearest one,
    /// counted with the fibre.
    pub(super) fn connect(&mut self, usable: &mut Usable, failed: &FailedParts) {
        let Self { points, best } = self;
        usable.vias.resize(usable.links.len(), Vec::new());
        for (point, vias) in points {
            let point = *point as usize;
            for via in vias.iter().filter(|_| !failed.has_site(point)) {
                for link in &usable.links[via.antenna as usize] {
                    let delay_s = link.delay_s + via.fibre_s;
                    let best = &mut best[link.satellite as usize];
                    if best.is_none_or(|(best, _)| delay_s < best.delay_s) {
                        *best = Some((Link { delay_s, ..*link }, *via));
                    }
                }
            }
            let found = best.iter_mut().filter_map(Option::take);
            (usable.links[point], usable.vias[point]) = found.unzip();
        }
    }

    /// Take the satellites away that points of presence seem to see, as they have no antennas.
    pub(super) fn clear_points(&self, in_view: &mut [Vec<Link>]) {
        for (point, _) in &self.points {
            in_view[*point as usize].clear();
        }
    }
}

/// Satellites that serve the terminals with handover policies, one each.
pub(super) struct Serving {
    terminals: Vec<Terminal>,
    /// Connected component of each satellite for the policies, to which all are connected.
    components: Vec<u32>,
    /// Graph without links, in which the shortest path from a place to itself is that over its nearest satellite.
    graph: Graph,
}

struct Terminal {
    site: u32,
    policy: Box<dyn HandoverPolicy>,
    satellite: Option<u32>,
}

/// Time of a choice, and the geometry that forecasts need.
pub(super) struct Moment<'a> {
    pub(super) now: Instant,
    pub(super) utc: UtcInstant,
    pub(super) ephemeris: &'a Ephemeris,
    pub(super) sky: &'a Sky,
}

impl Serving {
    pub(super) fn new(request: &NetworkRequest, grid: UtcGrid) -> Self {
        let satellites = request.constellation.satellites() as usize;
        let mut graph = Graph::default();
        graph.rebuild(satellites, &[]);
        let terminal = |site: u32| match request.role(site) {
            Role::Terminal { handover } if handover != IMMEDIATE => {
                let policy = (handover::policy(handover).ok()?.make)(grid);
                Some(Terminal { site, policy, satellite: None })
            }
            _ => None,
        };
        let terminals = (0..request.sites.len() as u32).filter_map(terminal).collect();
        Self { terminals, components: vec![0; satellites], graph }
    }

    /// Let each policy choose among the satellites that its terminal can use.
    ///
    /// A policy chooses as for a path from the terminal to itself, so that no other place matters.
    pub(super) fn choose(&mut self, moment: &Moment<'_>, usable: &Usable) {
        let Self { terminals, components, graph } = self;
        for Terminal { site, policy, satellite } in terminals {
            let links = usable.links[*site as usize].as_slice();
            let &Moment { now, utc, ephemeris, sky } = moment;
            let forecast = OfTerminal(OrbitForecast { ephemeris, sky, now: utc }, *site);
            let selection = policy.choose(&View {
                now,
                utc,
                in_view: [links; 2],
                keeps_lost_satellite: false,
                components,
                graph,
                visibility: &forecast,
            });
            *satellite = selection[0].map(|link| link.satellite);
        }
    }

    /// Leave each terminal the satellite that serves it.
    pub(super) fn restrict(&self, usable: &mut Usable) {
        for Terminal { site, satellite, .. } in &self.terminals {
            usable.links[*site as usize].retain(|link| Some(link.satellite) == *satellite);
        }
    }
}

/// Forecast for both ends of a path from a terminal to itself.
struct OfTerminal<'a>(OrbitForecast<'a>, u32);

impl handover::VisibilityForecast for OfTerminal<'_> {
    fn time_in_view(&self, _: usize, satellite: u32) -> Duration {
        self.0.time_in_view(self.1 as usize, satellite)
    }
}
