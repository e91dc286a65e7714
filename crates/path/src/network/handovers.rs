//! Handovers of a network's routes: the changes of each route, as events of a path.

use std::collections::BTreeSet;

use skyhop_units::{Duration, Instant};

use super::{NetworkRequest, NetworkStep, NetworkSteps, Role};
use crate::OutageModel;
use crate::events::{EventRules, LinkTeardown};
use crate::request::PathError;
use crate::routing::RoutesTo;
use crate::trace::{Frame, NODE_FROM, NODE_TO, PathEvent};

/// Two sites with packets between them, both of which go on the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoutePair {
    /// Indices of the sites: the events are those of the route from the first to the second one.
    pub sites: [u32; 2],
    /// Number of the way to both sites.
    pub way: u32,
}

impl NetworkRequest {
    /// Compute the events of the route of each pair for the whole run, in the order of the pairs and by time; the steps
    /// use so many threads.
    ///
    /// They are those of a path between the sites without outages: the route there decides, and events of the route back
    /// count if the route there has none of the same kind at the time. Sites at gateways and points of presence are on
    /// the ground: their links to satellites are links in the middle of the path.
    /// A failure in the middle of a route shows where routes are computed next.
    ///
    /// # Errors
    /// The errors of [`Self::validate`].
    pub fn route_events(
        &self,
        pairs: &[RoutePair],
        threads: usize,
    ) -> Result<Vec<Vec<PathEvent>>, PathError> {
        let sites: BTreeSet<u32> = pairs.iter().flat_map(|pair| pair.sites).collect();
        let request = Self { destinations: sites.into_iter().collect(), ..self.clone() };
        let mut watches: Vec<Watch<'_>> =
            pairs.iter().map(|pair| Watch::new(&request, *pair)).collect();
        let end = Instant::START + self.duration;
        let mut steps = NetworkSteps::new(request.clone(), threads)?;
        let mut from = Instant::START;
        while from < end && !pairs.is_empty() {
            let step = steps.step();
            watches.iter_mut().for_each(|watch| watch.add(&step));
            from = step.until;
        }
        Ok(watches.into_iter().map(|watch| watch.events).collect())
    }

    /// Rules of the events of routes: handovers have no outage of their own, because packets on the way are lost
    /// instead.
    fn event_rules(&self) -> EventRules {
        EventRules {
            outage: OutageModel::None,
            intermediate_outage: Duration::ZERO,
            teardown: LinkTeardown::GatewayLinks { satellites: self.constellation.satellites() },
            seed: 0,
        }
    }
}

/// Pair whose routes are followed from step to step.
struct Watch<'r> {
    request: &'r NetworkRequest,
    rules: EventRules,
    pair: RoutePair,
    /// Routes there and back of the last step; `None` before the first one.
    last: [Option<Frame>; 2],
    events: Vec<PathEvent>,
}

impl<'r> Watch<'r> {
    fn new(request: &'r NetworkRequest, pair: RoutePair) -> Self {
        Self { request, rules: request.event_rules(), pair, last: [None, None], events: Vec::new() }
    }

    /// Add the events at the begin of a step.
    fn add(&mut self, step: &NetworkStep) {
        let [from, to] = self.pair.sites;
        let there = self.change(step, 0, [from, to]);
        let back = self.change(step, 1, [to, from]);
        let is_new = |event: &PathEvent| there.iter().all(|known| known.kind != event.kind);
        let hops = self.last[1].as_ref().map_or(0, |frame| frame.hop_delays.len() as u16);
        let mirrored = back
            .into_iter()
            .filter(is_new)
            .map(|event| PathEvent { hop: event.hop.map(|hop| hops - 1 - hop), ..event });
        let mirrored: Vec<PathEvent> = mirrored.collect();
        self.events.extend(there.into_iter().chain(mirrored));
    }

    /// Events of the route in one direction at the begin of a step.
    fn change(&mut self, step: &NetworkStep, direction: usize, sites: [u32; 2]) -> Vec<PathEvent> {
        let nodes = self.nodes(step, sites);
        let last = &mut self.last[direction];
        if last.as_ref().is_some_and(|last| last.nodes == nodes) {
            return Vec::new();
        }
        let (hops, has_route) = (nodes.len().saturating_sub(1), !nodes.is_empty());
        // Only lengths of zero, because outages do not depend on them here.
        let delay = has_route.then_some(Duration::ZERO);
        let hop_delays = vec![Duration::ZERO; hops];
        let frame = Frame { at: step.from, nodes, hop_delays, delay, ..Frame::default() };
        let events = self.rules.between(last.as_ref(), &frame);
        *last = Some(frame);
        events
    }

    /// Nodes of the route from one site to another in a step, as in a path; none without a route.
    fn nodes(&self, step: &NetworkStep, [from, to]: [u32; 2]) -> Vec<i32> {
        let Some(satellites) = self.satellites(step, [from, to]) else { return Vec::new() };
        let (first, last) = (satellites[0], satellites[satellites.len() - 1]);
        let mut ends = [self.on_ground(step, from, first), self.on_ground(step, to, last)];
        ends[0].reverse();
        let [of_from, of_to] = ends;
        let satellites = satellites.into_iter().map(|satellite| satellite as i32);
        let middle = of_from.into_iter().chain(satellites).chain(of_to);
        [NODE_FROM].into_iter().chain(middle).chain([NODE_TO]).collect()
    }

    /// Satellites of the route from one site to another in a step; `None` without a route.
    fn satellites(&self, step: &NetworkStep, [from, to]: [u32; 2]) -> Option<Vec<u32>> {
        let place = self.request.destinations.binary_search(&to).ok()?;
        let ways = self.request.routing.ways() as usize;
        let routes: &RoutesTo = &step.routes[place * ways + self.pair.way as usize];
        let satellites: Vec<u32> = routes.satellites(from).collect();
        // The last one sends to the site itself, unless a hop of the route does not exist.
        let last = *satellites.last()?;
        (routes.next(last) == Some(last)).then_some(satellites)
    }

    /// Nodes between a satellite and a site on the ground: its gateway, and its point of presence.
    fn on_ground(&self, step: &NetworkStep, site: u32, satellite: u32) -> Vec<i32> {
        let first = self.request.constellation.satellites();
        let role = self.request.role(site);
        if matches!(role, Role::Terminal { .. }) {
            return Vec::new();
        }
        let sights = &step.sights[site as usize];
        let sight = sights.iter().find(|sight| sight.satellite == satellite);
        let gateway = sight.map(|sight| sight.antenna);
        let point = (*role == Role::PointOfPresence).then_some(site);
        gateway.into_iter().chain(point).map(|site| (first + site) as i32).collect()
    }
}
