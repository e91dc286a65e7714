//! Routing by the least delay: each node sends packets along the shortest route to their destination.

use std::sync::Arc;
use std::thread;

use super::routes_to::{SearchedNetwork, first_satellite};
use super::{NetworkView, RoutesTo, Routing};
use crate::repeated_search::{RepeatedSearch, VisitingOrder};

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
        let network = SearchedNetwork { graph: graph.clone(), in_view: in_view.to_vec() };
        let network = &Arc::new(network);
        let Self { searches, orders } = self;
        orders.resize_with(destinations.len(), VisitingOrder::default);
        let share = destinations.len().div_ceil(searches.len()).max(1);
        let shares = destinations.chunks(share).zip(orders.chunks_mut(share));
        let find = |(destinations, orders): (&[u32], &mut [VisitingOrder]), search: &mut _| {
            let each = destinations.iter().zip(orders);
            let to = |(destination, order): (&u32, &mut VisitingOrder)| {
                routes_to(*destination, network, search, order)
            };
            each.map(to).collect::<Vec<RoutesTo>>()
        };
        let mut work = shares.zip(searches);
        let own = work.next();
        Some(thread::scope(|scope| {
            let others: Vec<_> =
                work.map(|(share, search)| scope.spawn(|| find(share, search))).collect();
            let mut all = own.map(|(share, search)| find(share, search)).unwrap_or_default();
            all.extend(others.into_iter().flat_map(|one| one.join().unwrap_or_default()));
            all
        }))
    }
}

/// Shortest routes to one destination.
fn routes_to(
    destination: u32,
    network: &Arc<SearchedNetwork>,
    search: &mut RepeatedSearch,
    order: &mut VisitingOrder,
) -> RoutesTo {
    let SearchedNetwork { graph, in_view } = &**network;
    // Links have the same delay in both directions, so that the routes from the destination are those to it.
    search.search(graph, &in_view[destination as usize], order);
    if graph.has_negligible_edge() {
        let up = in_view.iter().map(|links| first_satellite(links, search.distances()));
        return RoutesTo::listed(search.nodes_before(graph), up.collect());
    }
    RoutesTo::searched(destination, search.distances().to_vec(), Arc::clone(network))
}
