//! Routing that spreads flows over routes of nearly the same delay.
//!
//! A node may send to each neighbour that is nearer to the destination and over which the rest of the route is longer
//! than the shortest by at most the slack. As every hop leads nearer, no route has a loop. A route of n hops is longer
//! than the shortest by at most n times the slack.

use skyhop_units::{Duration, Instant};

use super::{NetworkView, RoutesTo, Routing};
use crate::outage::Draw;
use crate::repeated_search::{RepeatedSearch, VisitingOrder};

/// Choice among the neighbours of each node, by a hash of the way, the node and the destination.
pub(crate) struct EqualCost {
    slack_s: f64,
    /// Number of ways to each destination.
    ways: u32,
    search: RepeatedSearch,
    /// Order of the search from each destination.
    orders: Vec<VisitingOrder>,
}

impl EqualCost {
    /// Prepare the routing of a network.
    pub(crate) fn new(slack: Duration, ways: u32) -> Self {
        let slack_s = slack.as_secs_f64();
        Self { slack_s, ways, search: RepeatedSearch::default(), orders: Vec::new() }
    }

    /// Ways to one destination, of which the search from it has found the distances.
    fn ways_to(&self, view: &NetworkView<'_>, destination: u32) -> impl Iterator<Item = RoutesTo> {
        let satellites = 0..view.graph.nodes() as u32;
        let next: Vec<Vec<u32>> =
            satellites.map(|satellite| self.next(view, satellite, destination)).collect();
        let up: Vec<Vec<u32>> = (0..view.in_view.len()).map(|site| self.up(view, site)).collect();
        let route = move |way: u32| {
            let choose =
                |(node, choices): (u32, &Vec<u32>)| chosen(choices, [way, node, destination]);
            let next: Vec<Option<u32>> = (0..).zip(&next).map(choose).collect();
            // Sites draw independently of the satellites with the same numbers.
            let first_site = next.len() as u32;
            let up =
                (first_site..).zip(&up).map(choose).zip(0..).map(|(first, site): (_, usize)| {
                    let first = first?;
                    let delay_s = view.delay_s(&next, [site, destination as usize], first)?;
                    Some((first, Duration::from_secs_f64(delay_s)))
                });
            let up = up.collect();
            RoutesTo::listed(next, up)
        };
        (0..self.ways).map(route).collect::<Vec<_>>().into_iter()
    }

    /// Satellites to which a satellite may send, in ascending order; itself if it may send to the destination directly.
    fn next(&self, view: &NetworkView<'_>, satellite: u32, destination: u32) -> Vec<u32> {
        let own_s = self.search.distance(satellite);
        if own_s == f64::INFINITY {
            return Vec::new();
        }
        let edges = view.graph.edges(satellite).iter().filter(|edge| edge.is_open());
        let nearer = edges.filter(|edge| {
            let rest_s = self.search.distance(edge.to);
            rest_s < own_s && rest_s + edge.weight <= own_s + self.slack_s
        });
        let down = view.link_delay_s(destination as usize, satellite);
        let down = down.filter(|delay_s| *delay_s <= own_s + self.slack_s).map(|_| satellite);
        let mut choices: Vec<u32> = nearer.map(|edge| edge.to).chain(down).collect();
        choices.sort_unstable();
        choices
    }

    /// Satellites to which a site may send, in ascending order.
    fn up(&self, view: &NetworkView<'_>, site: usize) -> Vec<u32> {
        let total_s = |satellite: u32, delay_s: f64| self.search.distance(satellite) + delay_s;
        let links = &view.in_view[site];
        let totals = links.iter().map(|link| total_s(link.satellite, link.delay_s));
        let least_s = totals.fold(f64::INFINITY, f64::min);
        let usable = links.iter().filter(|link| {
            let total_s = total_s(link.satellite, link.delay_s);
            total_s < f64::INFINITY && total_s <= least_s + self.slack_s
        });
        usable.map(|link| link.satellite).collect()
    }
}

/// One of the choices, by a hash of the numbers; `None` if there are none.
fn chosen(choices: &[u32], [way, node, destination]: [u32; 3]) -> Option<u32> {
    let seed = u64::from(way) << 32 | u64::from(destination);
    let hash = u128::from(Draw::new(seed, Instant::START, node.into()).bits());
    choices.get(((hash * choices.len() as u128) >> 64) as usize).copied()
}

impl Routing for EqualCost {
    fn routes(&mut self, view: &NetworkView<'_>) -> Option<Vec<RoutesTo>> {
        self.orders.resize_with(view.destinations.len(), VisitingOrder::default);
        let mut routes = Vec::with_capacity(view.destinations.len() * self.ways as usize);
        for (place, destination) in view.destinations.iter().enumerate() {
            let in_view = &view.in_view[*destination as usize];
            self.search.search(view.graph, in_view, &mut self.orders[place]);
            routes.extend(self.ways_to(view, *destination));
        }
        Some(routes)
    }
}
