//! Routes to one destination: listed, or found when they are asked for.

use std::sync::Arc;

use skyhop_units::Duration;

use crate::handover::Link;
use crate::repeated_search::node_before;
use crate::route::Graph;

/// Routes to one destination, in one way.
///
/// After a search, the next hop of a node is found when it is asked for: packets pass only few of the nodes.
#[derive(Debug, Clone)]
pub struct RoutesTo(Form);

#[derive(Debug, Clone)]
enum Form {
    Listed { next: Vec<Option<u32>>, up: Vec<Option<(u32, Duration)>> },
    Searched { destination: u32, distances: Vec<f64>, network: Arc<SearchedNetwork> },
}

/// Network at the time of a search.
#[derive(Debug)]
pub(crate) struct SearchedNetwork {
    pub(crate) graph: Graph,
    /// Satellites that each site can use, in ascending order.
    pub(crate) in_view: Vec<Vec<Link>>,
}

impl RoutesTo {
    /// Create routes from the next node of each satellite, and the first one of each site with the delay of the whole
    /// route.
    pub(crate) const fn listed(next: Vec<Option<u32>>, up: Vec<Option<(u32, Duration)>>) -> Self {
        Self(Form::Listed { next, up })
    }

    /// Create shortest routes from the distances in seconds of all satellites to a destination; the search for them needs
    /// a graph without negligible edges.
    pub(crate) const fn searched(
        destination: u32,
        distances: Vec<f64>,
        network: Arc<SearchedNetwork>,
    ) -> Self {
        Self(Form::Searched { destination, distances, network })
    }

    /// Next node of a satellite: a neighbour; the satellite itself if it sends to the destination directly; `None` without
    /// a route.
    pub fn next(&self, satellite: u32) -> Option<u32> {
        match &self.0 {
            Form::Listed { next, .. } => next[satellite as usize],
            Form::Searched { destination, distances, network } => {
                let distance = distances[satellite as usize];
                let links = &network.in_view[*destination as usize];
                let first = links.partition_point(|link| link.satellite < satellite);
                let mut own = links[first..].iter().take_while(|link| link.satellite == satellite);
                let before = || match own.any(|link| link.delay_s == distance) {
                    true => satellite,
                    false => node_before(&network.graph, distances, satellite),
                };
                (distance < f64::INFINITY).then(before)
            }
        }
    }

    /// Satellite to which a site sends, and the delay of the whole route when it was chosen; `None` without a route.
    pub fn up(&self, site: u32) -> Option<(u32, Duration)> {
        match &self.0 {
            Form::Listed { up, .. } => up[site as usize],
            Form::Searched { distances, network, .. } => {
                first_satellite(&network.in_view[site as usize], distances)
            }
        }
    }

    /// Satellites on the route of a site from the first one on, up to one without a next node; at most as many as there
    /// are, in case a table has a loop.
    pub fn satellites(&self, site: u32) -> impl Iterator<Item = u32> {
        let after = |node: &u32| self.next(*node).filter(|next| next != node);
        let first = self.up(site).map(|(satellite, _)| satellite);
        std::iter::successors(first, after).take(self.all_next().len())
    }

    /// Next node of every satellite.
    pub fn all_next(&self) -> impl ExactSizeIterator<Item = Option<u32>> {
        let satellites = match &self.0 {
            Form::Listed { next, .. } => next.len(),
            Form::Searched { distances, .. } => distances.len(),
        };
        (0..satellites as u32).map(|satellite| self.next(satellite))
    }

    /// Satellite to which each site sends, with the delay of the whole route.
    pub fn all_up(&self) -> impl ExactSizeIterator<Item = Option<(u32, Duration)>> {
        let sites = match &self.0 {
            Form::Listed { up, .. } => up.len(),
            Form::Searched { network, .. } => network.in_view.len(),
        };
        (0..sites as u32).map(|site| self.up(site))
    }
}

/// Satellite in view that is on the shortest route, and the delay of that route; `distances` are those of the satellites
/// to the destination, in seconds.
pub(crate) fn first_satellite(links: &[Link], distances: &[f64]) -> Option<(u32, Duration)> {
    let total = |link: &Link| (distances[link.satellite as usize] + link.delay_s, link.satellite);
    let first = links.iter().map(total).reduce(|a, b| if b.0 < a.0 { b } else { a });
    let reached = first.filter(|(delay_s, _)| *delay_s < f64::INFINITY);
    reached.map(|(delay_s, satellite)| (satellite, Duration::from_secs_f64(delay_s)))
}

impl PartialEq for RoutesTo {
    fn eq(&self, other: &Self) -> bool {
        self.all_next().eq(other.all_next()) && self.all_up().eq(other.all_up())
    }
}
