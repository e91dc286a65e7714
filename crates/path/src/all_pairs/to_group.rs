//! Routes to the nearest of a group of sites, whose first satellites a handover policy chooses.

use skyhop_units::Duration;

use super::by_policy::{Choices, delay_of};
use super::{Ends, Origin, RouteChange, StepView, Worker};
use crate::handover::Link;
use crate::repeated_search::VisitingOrder;
use crate::request::{PathError, PathRequest};

/// Routes from sites to a group: a policy chooses each site's satellite, from which the route is the shortest.
pub(super) struct OriginToGroup {
    choices: Choices,
    order: VisitingOrder,
    /// Routes of the last step, site after site; empty for a site without a path.
    routes: Vec<Vec<u32>>,
    delays: Vec<Duration>,
    changes: Vec<RouteChange>,
}

impl OriginToGroup {
    /// # Errors
    /// No policy has the request's name.
    pub(super) fn new(ends: Ends, request: &PathRequest) -> Result<Self, PathError> {
        Ok(Self {
            order: VisitingOrder::default(),
            routes: vec![Vec::new(); ends.others.len()],
            delays: Vec::new(),
            changes: Vec::new(),
            choices: Choices::new(ends, request)?,
        })
    }
}

impl Origin for OriginToGroup {
    fn step(&mut self, view: &StepView<'_>, worker: &mut Worker) {
        self.choices.update(view, &mut worker.forecasts);
        let (search, route) = (&mut worker.search, &mut worker.route);
        let (graph, ends) = (view.topology.graph(), &self.choices.ends);
        let of_group = &view.in_view[ends.shared];
        search.search(graph, of_group, &mut self.order);
        self.delays.clear();
        let pairs = ends.pairs().zip(&self.choices.selections).zip(&mut self.routes);
        for (pair, (([site, group], selection), previous)) in (0..).zip(pairs) {
            route.clear();
            let first = selection[0].filter(|link| search.distance(link.satellite) < f64::INFINITY);
            let delay = first.map_or(Duration::ZERO, |first: Link| {
                route.extend(search.route_back(graph, first.satellite));
                let last = link_to(of_group, route.last().copied());
                last.map_or(Duration::ZERO, |last| {
                    delay_of(view, [(site, first), (group, last)], route)
                })
            });
            self.delays.push(delay);
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

/// Link of a group to a satellite.
fn link_to(of_group: &[Link], satellite: Option<u32>) -> Option<Link> {
    let place = of_group.binary_search_by_key(&satellite?, |link| link.satellite).ok()?;
    Some(of_group[place])
}
