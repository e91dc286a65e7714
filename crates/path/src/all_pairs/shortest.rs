//! Pairs whose routes are the shortest at each step.

use skyhop_units::Duration;

use super::{Ends, Origin, RouteChange, StepView, Worker};
use crate::handover::Link;
use crate::repeated_search::{RepeatedSearch, VisitingOrder};
use crate::route::Graph;

/// Shortest routes of pairs with one end in common.
pub(super) struct ShortestOrigin {
    ends: Ends,
    order: VisitingOrder,
    /// Routes of the last step, pair after pair; empty for a pair without a path.
    routes: Vec<Vec<u32>>,
    delays: Vec<Duration>,
    changes: Vec<RouteChange>,
}

impl ShortestOrigin {
    pub(super) fn new(ends: Ends) -> Self {
        Self {
            order: VisitingOrder::default(),
            routes: vec![Vec::new(); ends.others.len()],
            delays: Vec::new(),
            changes: Vec::new(),
            ends,
        }
    }
}

impl Origin for ShortestOrigin {
    fn step(&mut self, view: &StepView<'_>, worker: &mut Worker) {
        let (search, route) = (&mut worker.search, &mut worker.route);
        let graph = view.topology.graph();
        // Links have the same delay in both directions, so that routes may be searched from their end.
        search.search(graph, &view.in_view[self.ends.shared], &mut self.order);
        self.delays.clear();
        let others = &view.in_view[self.ends.others.clone()];
        for (pair, (in_view, previous)) in (0..).zip(others.iter().zip(&mut self.routes)) {
            let delay_s = shortest_to(graph, search, in_view, route);
            if self.ends.outward {
                route.reverse();
            }
            self.delays.push(delay_s.map_or(Duration::ZERO, Duration::from_secs_f64));
            if route != previous {
                previous.clone_from(route);
                self.changes.push(RouteChange { pair, nodes: route.clone() });
            }
        }
    }

    fn result(&mut self) -> (&[Duration], &mut Vec<RouteChange>) {
        (&self.delays, &mut self.changes)
    }
}

/// Write the route of the last search to the site that has these links into `route`, backwards from this site, and return
/// its delay in seconds; `None` and an empty route if there is none.
fn shortest_to(
    graph: &Graph,
    search: &RepeatedSearch,
    in_view: &[Link],
    route: &mut Vec<u32>,
) -> Option<f64> {
    route.clear();
    let totals = in_view.iter().map(|link| (search.distance(link.satellite) + link.delay_s, link));
    let reached = totals.filter(|(total_s, _)| *total_s < f64::INFINITY);
    // Of equal sums the first wins: the one of the lowest satellite id.
    let (delay_s, last) = reached.reduce(|a, b| if b.0 < a.0 { b } else { a })?;
    route.extend(search.route_back(graph, last.satellite));
    Some(delay_s)
}
