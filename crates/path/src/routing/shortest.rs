//! Routing by the least delay: each node sends packets along the shortest route to their destination.

use std::thread;

use skyhop_units::Duration;

use super::{NetworkView, RoutesTo, Routing};
use crate::handover::Link;
use crate::repeated_search::{RepeatedSearch, VisitingOrder};
use crate::route::Graph;

/// Search of the shortest routes to all destinations, on several threads.
pub(crate) struct Shortest {
    /// Buffers of each thread's searches.
    searches: Vec<RepeatedSearch>,
    /// Order of the search from each destination.
    orders: Vec<VisitingOrder>,
}

impl Shortest {
    /// Prepare the search; it uses so many threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            searches: (0..threads.max(1)).map(|_| RepeatedSearch::default()).collect(),
            orders: Vec::new(),
        }
    }
}

impl Routing for Shortest {
    fn routes(&mut self, view: &NetworkView<'_>) -> Option<Vec<RoutesTo>> {
        let &NetworkView { graph, in_view, destinations, .. } = view;
        let Self { searches, orders } = self;
        orders.resize_with(destinations.len(), VisitingOrder::default);
        let share = destinations.len().div_ceil(searches.len()).max(1);
        let shares = destinations.chunks(share).zip(orders.chunks_mut(share));
        let find = |(destinations, orders): (&[u32], &mut [VisitingOrder]), search: &mut _| {
            let each = destinations.iter().zip(orders);
            let to = |(destination, order): (&u32, &mut VisitingOrder)| {
                routes_to(*destination, graph, in_view, search, order)
            };
            each.map(to).collect::<Vec<RoutesTo>>()
        };
        Some(thread::scope(|scope| {
            let threads: Vec<_> = shares
                .zip(searches)
                .map(|(share, search)| scope.spawn(|| find(share, search)))
                .collect();
            threads.into_iter().flat_map(|one| one.join().unwrap_or_default()).collect()
        }))
    }
}

/// Shortest routes to one destination.
fn routes_to(
    destination: u32,
    graph: &Graph,
    in_view: &[Vec<Link>],
    search: &mut RepeatedSearch,
    order: &mut VisitingOrder,
) -> RoutesTo {
    // Links have the same delay in both directions, so that the routes from the destination are those to it.
    search.search(graph, &in_view[destination as usize], order);
    let nearest = |links: &Vec<Link>| {
        let total = |link: &Link| (search.distance(link.satellite) + link.delay_s, link.satellite);
        let first = links.iter().map(total).reduce(|a, b| if b.0 < a.0 { b } else { a });
        let reached = first.filter(|(delay_s, _)| *delay_s < f64::INFINITY);
        reached.map(|(delay_s, satellite)| (satellite, Duration::from_secs_f64(delay_s)))
    };
    RoutesTo { next: search.nodes_before(graph), up: in_view.iter().map(nearest).collect() }
}
