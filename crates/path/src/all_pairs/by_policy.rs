//! Pairs whose satellites a handover policy chooses, each pair as a path of its own.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use skyhop_units::{Duration, Instant};

use super::{Ends, Origin, RouteChange, StepView, Worker};
use crate::compat::CompatRules;
use crate::handover::{
    self, HandoverPolicy, Link, OrbitForecast, Selection, View, VisibilityForecast,
};
use crate::repeated_search::{RepeatedSearch, VisitingOrder};
use crate::request::{PathError, PathRequest};
use crate::topology::Hops;

/// Pairs with one end in common, each with its own policy, which chooses the satellites of both ends.
pub(super) struct OriginByPolicy {
    choices: Choices,
    /// Routes of the last step, pair after pair; empty for a pair without a path.
    routes: Vec<Vec<u32>>,
    /// Indices of pairs in the order in which their routes are searched.
    by_satellite: Vec<usize>,
    /// Order of the search from each satellite that the shared end uses in some pair.
    orders: BTreeMap<u32, VisitingOrder>,
    delays: Vec<Duration>,
    changes: Vec<RouteChange>,
}

/// Policies of pairs with one end in common, and what they have chosen.
pub(super) struct Choices {
    pub(super) ends: Ends,
    policies: Vec<Box<dyn HandoverPolicy>>,
    /// Selection of each pair at the last step.
    pub(super) selections: Vec<Selection>,
}

/// Forecasts of one step, each computed once for all pairs of a site.
#[derive(Default)]
pub(super) struct Forecasts {
    at: Option<Instant>,
    /// Time in view by site and satellite.
    known: RefCell<HashMap<(usize, u32), Duration>>,
}

/// View of the forecasts for one pair.
struct PairForecast<'a> {
    view: &'a StepView<'a>,
    ends: [usize; 2],
    forecasts: &'a Forecasts,
}

impl VisibilityForecast for PairForecast<'_> {
    /// The sites of a group hand satellites on to each other, so that a group is never the end that loses one first.
    fn time_in_view(&self, end: usize, satellite: u32) -> Duration {
        let (view, end) = (self.view, self.ends[end]);
        if view.is_group(end) {
            return Duration::MAX;
        }
        let orbits = OrbitForecast { ephemeris: view.ephemeris, sky: view.sky, now: view.utc };
        let mut known = self.forecasts.known.borrow_mut();
        *known.entry((end, satellite)).or_insert_with(|| orbits.time_in_view(end, satellite))
    }
}

impl Forecasts {
    /// Forget the forecasts of other steps.
    fn begin(&mut self, at: Instant) {
        if self.at != Some(at) {
            self.at = Some(at);
            self.known.get_mut().clear();
        }
    }
}

impl Choices {
    /// # Errors
    /// No policy has the request's name.
    pub(super) fn new(ends: Ends, request: &PathRequest) -> Result<Self, PathError> {
        let entry = handover::policy(&request.handover)?;
        let count = ends.others.len();
        let policies = (0..count).map(|_| (entry.make)(request.options.grid)).collect();
        Ok(Self { ends, policies, selections: vec![[None; 2]; count] })
    }

    /// Choose the satellites of a step.
    pub(super) fn update(&mut self, view: &StepView<'_>, forecasts: &mut Forecasts) {
        forecasts.begin(view.at);
        let choices = self.policies.iter_mut().zip(&mut self.selections);
        for (ends, (policy, selection)) in self.ends.pairs().zip(choices) {
            *selection = policy.choose(&View {
                now: view.at,
                utc: view.utc,
                in_view: ends.map(|end| &*view.in_view[end]),
                keeps_lost_satellite: view.request.compat.keeps_lost_satellite(),
                components: view.topology.components(),
                graph: view.topology.graph(),
                visibility: &PairForecast { view, ends, forecasts },
            });
        }
    }
}

impl OriginByPolicy {
    /// # Errors
    /// No policy has the request's name.
    pub(super) fn new(ends: Ends, request: &PathRequest) -> Result<Self, PathError> {
        let count = ends.others.len();
        Ok(Self {
            choices: Choices::new(ends, request)?,
            routes: vec![Vec::new(); count],
            by_satellite: (0..count).collect(),
            orders: BTreeMap::new(),
            delays: vec![Duration::ZERO; count],
            changes: Vec::new(),
        })
    }

    /// Find the routes of the pairs in which the shared end uses `satellite`.
    fn search(&mut self, view: &StepView<'_>, satellite: u32, search: &mut RepeatedSearch) {
        let order = self.orders.entry(satellite).or_default();
        let start = Link { satellite, delay_s: 0.0, sin_elevation: 1.0 };
        search.search(view.topology.graph(), &[start], order);
    }
}

impl Origin for OriginByPolicy {
    fn step(&mut self, view: &StepView<'_>, worker: &mut Worker) {
        self.choices.update(view, &mut worker.forecasts);
        let graph = view.topology.graph();
        let (ends, selections) = (self.choices.ends.clone(), self.choices.selections.clone());
        let shared = ends.place_of_shared();
        let satellite = |index: &usize| selections[*index][shared].map(|link| link.satellite);
        self.by_satellite.sort_by_key(satellite);
        let used: Vec<u32> = self.by_satellite.iter().filter_map(satellite).collect();
        self.orders.retain(|known, _| used.binary_search(known).is_ok());
        let pairs: Vec<[usize; 2]> = ends.pairs().collect();
        let mut searched = None;
        for place in 0..self.by_satellite.len() {
            let index = self.by_satellite[place];
            worker.route.clear();
            let mut delay = Duration::ZERO;
            if let [Some(from), Some(to)] = selections[index] {
                let links = [from, to];
                let (first, last) = (links[shared].satellite, links[1 - shared].satellite);
                if searched.replace(first) != Some(first) {
                    self.search(view, first, &mut worker.search);
                }
                if worker.search.distance(last) < f64::INFINITY {
                    worker.route.extend(worker.search.route_back(graph, last));
                    if ends.outward {
                        worker.route.reverse();
                    }
                    let [begin, end] = pairs[index];
                    delay = delay_of(view, [(begin, from), (end, to)], &worker.route);
                }
            }
            self.delays[index] = delay;
            let previous = &mut self.routes[index];
            if worker.route != *previous {
                previous.clone_from(&worker.route);
                let nodes = worker.route.clone();
                self.changes.push(RouteChange { pair: index as u32, nodes });
            }
        }
        self.changes.sort_by_key(|change| change.pair);
    }

    fn result(&mut self) -> (&[Duration], &mut Vec<RouteChange>) {
        (&self.delays, &mut self.changes)
    }
}

/// Delay of a route between two ends over their links: the sum of its hops, each rounded to a nanosecond as in a path.
pub(super) fn delay_of(view: &StepView<'_>, ends: [(usize, Link); 2], route: &[u32]) -> Duration {
    let freezes = view.request.compat.freezes_end_hops();
    let end_delay = |(end, link): (usize, Link)| {
        let frozen = freezes || view.is_group(end);
        let now_s = || {
            let position = view.positions[link.satellite as usize];
            view.request.compat.ground_delay_s(position, &view.sky.sites()[end])
        };
        Duration::from_secs_f64(if frozen { link.delay_s } else { now_s() })
    };
    let mut hops = Hops::default();
    view.topology.hops(route, view.positions, &mut hops);
    let between: Duration = hops.delays.iter().copied().sum();
    end_delay(ends[0]) + between + end_delay(ends[1])
}
