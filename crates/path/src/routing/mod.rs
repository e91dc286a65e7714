//! Routings of a network, which choose the next hop of packets at every node: one file each, and the table [`ROUTINGS`].

mod equal_cost;
mod routes_to;
mod shortest;
mod snapshot;
mod table;

use serde::{Deserialize, Serialize};
use skyhop_units::{Duration, Instant};

use crate::handover::Link;
use crate::network::NetworkRequest;
use crate::request::PathError;
use crate::route::Graph;
use equal_cost::EqualCost;
pub use routes_to::RoutesTo;
use shortest::Shortest;
use snapshot::Snapshot;
use table::Table;
pub use table::{NextHop, Node};

/// Routing of a network, with its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum RoutingKind {
    /// Route of the least delay, computed at every step.
    #[default]
    Shortest,
    /// Route of the least delay at a moment, which holds for the given time.
    Snapshot(Duration),
    /// Rows of a table that never changes.
    Table(Vec<NextHop>),
    /// Routes over neighbours with which the least delay is longer by at most `slack`, in several ways to each destination.
    EqualCost {
        /// Largest difference to the least delay from a node, for its choice among its neighbours.
        slack: Duration,
        /// Number of ways to each destination, among which flows are spread.
        ways: u32,
    },
}

/// Largest number of ways to each destination: each has a table of its own.
pub const MOST_WAYS: u32 = 64;

/// Way of a flow, from 0 to less than `ways`, by a hash of the flow's number.
#[inline]
pub fn way_of(flow: u32, ways: u32) -> u32 {
    // Knuth's multiplicative hash; its upper bits depend on all bits of the number.
    ((u64::from(flow.wrapping_mul(0x9e37_79b1)) * u64::from(ways)) >> 32) as u32
}

/// Entry of the table of routings.
#[derive(Debug, Clone, Copy)]
pub struct RoutingEntry {
    /// Name of the routing in scenarios.
    pub name: &'static str,
    /// Summary for users, in one line.
    pub summary: &'static str,
    /// Routing with parameters that suit a network, for tests of all routings.
    pub example: fn(&NetworkRequest) -> RoutingKind,
}

/// Table of all routings by their names.
pub const ROUTINGS: [RoutingEntry; 4] = [
    RoutingEntry {
        name: "shortest",
        summary: "the route of the least delay, computed every `interval`",
        example: |_| RoutingKind::Shortest,
    },
    RoutingEntry {
        name: "snapshot",
        summary: "the route of the least delay at a moment, which holds for `every`, though satellites move",
        example: |request| RoutingKind::Snapshot(request.every.unwrap_or(request.duration) * 3),
    },
    RoutingEntry {
        name: "table",
        summary: "the routes of a file, which never change",
        example: |request| RoutingKind::Table(rows_at_start(request)),
    },
    RoutingEntry {
        name: "equal-cost",
        summary: "flows are spread over routes whose delay is the least within `slack` at each node",
        example: |_| RoutingKind::EqualCost { slack: Duration::from_millis(1), ways: 3 },
    },
];

/// Rows of the shortest routes at the start of a network.
fn rows_at_start(request: &NetworkRequest) -> Vec<NextHop> {
    let shortest = NetworkRequest { routing: RoutingKind::Shortest, ..request.clone() };
    let Ok(mut steps) = crate::network::NetworkSteps::new(shortest, 1) else { return Vec::new() };
    let step = steps.step();
    let rows = |(&destination, routes): (&u32, &RoutesTo)| {
        let next = (0..).zip(routes.all_next());
        let at_satellites = next.map(|(number, next)| (Node::Satellite(number), next));
        let up = (0..).zip(routes.all_up());
        let at_sites = up.map(|(index, up)| (Node::Site(index), up.map(|(next, _)| next)));
        let all = at_satellites.chain(at_sites);
        let row =
            move |(at, next): (Node, Option<u32>)| Some(NextHop { at, destination, next: next? });
        all.filter_map(row).collect::<Vec<_>>()
    };
    request.destinations.iter().zip(step.routes.iter()).flat_map(rows).collect()
}

impl RoutingKind {
    /// Check the parameters for a network with so many satellites and sites.
    ///
    /// # Errors
    /// A time is zero, or a table has a loop or nodes that the network does not have.
    pub(crate) fn check(&self, counts: [usize; 2]) -> Result<(), PathError> {
        match self {
            Self::Shortest => Ok(()),
            Self::Snapshot(Duration::ZERO) => Err(PathError::NoTime { what: "snapshot" }),
            Self::Snapshot(_) => Ok(()),
            Self::Table(rows) => table::check(rows, counts),
            Self::EqualCost { ways: 1..=MOST_WAYS, .. } => Ok(()),
            Self::EqualCost { ways, .. } => Err(PathError::Option {
                what: format!("routes in {ways} ways"),
                expected: "1 to 64 ways",
            }),
        }
    }

    /// Number of ways to each destination.
    pub fn ways(&self) -> u32 {
        match self {
            Self::EqualCost { ways, .. } => *ways,
            Self::Shortest | Self::Snapshot(_) | Self::Table(_) => 1,
        }
    }

    /// Create the routing of a network, whose searches use so many threads.
    pub(crate) fn routing(&self, request: &NetworkRequest, threads: usize) -> Box<dyn Routing> {
        let counts = [request.constellation.satellites() as usize, request.sites.len()];
        match self {
            Self::Shortest => Box::new(Shortest::new(threads)),
            Self::Snapshot(every) => Box::new(Snapshot::new(*every, threads)),
            Self::Table(rows) => Box::new(Table::new(rows, &request.destinations, counts)),
            Self::EqualCost { slack, ways } => Box::new(EqualCost::new(*slack, *ways)),
        }
    }
}

/// State of a network at a time at which routes may be computed.
#[derive(Clone, Copy)]
pub(crate) struct NetworkView<'a> {
    /// Time since the start.
    pub(crate) now: Instant,
    /// Links between satellites; those that have failed are closed.
    pub(crate) graph: &'a Graph,
    /// Satellites that each site can use, in ascending order.
    pub(crate) in_view: &'a [Vec<Link>],
    /// Indices of the sites to which packets go.
    pub(crate) destinations: &'a [u32],
}

impl NetworkView<'_> {
    /// Delay between a site and a satellite, in seconds; `None` if the site cannot use it.
    fn link_delay_s(&self, site: usize, satellite: u32) -> Option<f64> {
        let links = &self.in_view[site];
        let place = links.binary_search_by_key(&satellite, |link| link.satellite).ok()?;
        Some(links[place].delay_s)
    }

    /// Delay of the laser between two satellites, in seconds; `None` if there is none.
    fn laser_delay_s(&self, from: u32, to: u32) -> Option<f64> {
        let mut edges = self.graph.edges(from).iter();
        edges.find(|edge| edge.to == to && edge.is_open()).map(|edge| edge.weight)
    }

    /// Delay of the route between two sites that begins at the satellite `first` and has no loop, in seconds; `None` if
    /// one of its hops does not exist now.
    fn delay_s(&self, next: &[Option<u32>], [from, to]: [usize; 2], first: u32) -> Option<f64> {
        let mut satellite = first;
        let mut total_s = self.link_delay_s(from, first)?;
        loop {
            let following = next[satellite as usize]?;
            if following == satellite {
                return Some(total_s + self.link_delay_s(to, satellite)?);
            }
            total_s += self.laser_delay_s(satellite, following)?;
            satellite = following;
        }
    }
}

/// Choice of the routes to all destinations.
pub(crate) trait Routing: Send {
    /// Return the routes to each destination that hold from now on, all ways to the first destination first; `None` if
    /// those before hold on.
    fn routes(&mut self, view: &NetworkView<'_>) -> Option<Vec<RoutesTo>>;

    /// Whether new routes have only hops that exist when they are chosen.
    fn uses_existing_hops(&self) -> bool {
        true
    }
}
