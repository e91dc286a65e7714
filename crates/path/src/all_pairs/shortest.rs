//! Pairs whose routes are the shortest at each step.

use skyhop_units::Duration;

use super::{Origin, RouteChange, StepView, Worker};
use crate::handover::Link;
use crate::repeated_search::{RepeatedSearch, VisitingOrder};
use crate::route::Graph;

/// Shortest routes from one site to all later ones.
pub(super) struct ShortestOrigin {
    from: usize,
    order: VisitingOrder,
    /// Routes of the last step, site after site; empty for a pair without a path.
    routes: Vec<Vec<u32>>,
    delays: Vec<Duration>,
    changes: Vec<RouteChange>,
}

impl ShortestOrigin {
    pub(super) fn new(from: usize, sites: usize) -> Self {
        Self {
            from,
            order: VisitingOrder::default(),
            routes: vec![Vec::new(); sites - from - 1],
            delays: Vec::new(),
            changes: Vec::new(),
        }
    }
}

impl Origin for ShortestOrigin {
    fn step(&mut self, view: &StepView<'_>, worker: &mut Worker) {
        let (search, route) = (&mut worker.search, &mut worker.route);
        let graph = view.topology.graph();
        search.search(graph, &view.in_view[self.from], &mut self.order);
        self.delays.clear();
        let destinations = &view.in_view[self.from + 1..];
        for (pair, (in_view, previous)) in (0..).zip(destinations.iter().zip(&mut self.routes)) {
            let delay_s = shortest_to(graph, search, in_view, route);
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

/// Write the route of the last search to the site that has these links into `route`, and return its delay in seconds;
/// `None` and an empty route if there is none.
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
    route.reverse();
    Some(delay_s)
}
