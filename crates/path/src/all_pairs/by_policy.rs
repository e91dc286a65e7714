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

/// Pairs with one end in common, each with its own policy.
pub(super) struct OriginByPolicy {
    ends: Ends,
    pairs: Vec<Pair>,
    /// Indices of pairs in the order in which their routes are searched.
    by_satellite: Vec<usize>,
    /// Order of the search from each satellite that the shared end uses in some pair.
    orders: BTreeMap<u32, VisitingOrder>,
    delays: Vec<Duration>,
    changes: Vec<RouteChange>,
}

struct Pair {
    policy: Box<dyn HandoverPolicy>,
    selection: Selection,
    /// Route of the last step; empty without a path.
    route: Vec<u32>,
}

/// Forecasts of one step, each computed once for all pairs of an end.
#[derive(Default)]
pub(super) struct Forecasts {
    at: Option<Instant>,
    /// Time in view by end and satellite.
    known: RefCell<HashMap<(usize, u32), Duration>>,
}

/// View of the forecasts for one pair.
struct PairForecast<'a> {
    view: &'a StepView<'a>,
    ends: [usize; 2],
    forecasts: &'a Forecasts,
}

impl VisibilityForecast for PairForecast<'_> {
    fn time_in_view(&self, end: usize, satellite: u32) -> Duration {
        let (view, end) = (self.view, self.ends[end]);
        let orbits = OrbitForecast { ephemeris: view.ephemeris, sky: view.sky, now: view.utc };
        let position = view.positions[satellite as usize];
        let longest = || {
            let sites = view.sites_of(end).filter(|site| view.sky.includes(*site, position));
            let times = sites.map(|site| orbits.time_in_view(site, satellite));
            times.max().unwrap_or(Duration::ZERO)
        };
        let mut known = self.forecasts.known.borrow_mut();
        *known.entry((end, satellite)).or_insert_with(longest)
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

impl OriginByPolicy {
    /// # Errors
    /// No policy has the request's name.
    pub(super) fn new(ends: Ends, request: &PathRequest) -> Result<Self, PathError> {
        let entry = handover::policy(&request.handover)?;
        let pair = |_| Pair {
            policy: (entry.make)(request.options.grid),
            selection: [None; 2],
            route: Vec::new(),
        };
        let pairs: Vec<Pair> = ends.others.clone().map(pair).collect();
        Ok(Self {
            ends,
            by_satellite: (0..pairs.len()).collect(),
            orders: BTreeMap::new(),
            delays: vec![Duration::ZERO; pairs.len()],
            changes: Vec::new(),
            pairs,
        })
    }

    fn choose_satellites(&mut self, view: &StepView<'_>, forecasts: &Forecasts) {
        for (ends, pair) in self.ends.pairs().zip(&mut self.pairs) {
            pair.selection = pair.policy.choose(&View {
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

    /// Find the routes of the pairs in which the shared end uses `satellite`.
    fn search(&mut self, view: &StepView<'_>, satellite: u32, search: &mut RepeatedSearch) {
        let order = self.orders.entry(satellite).or_default();
        let start = Link { satellite, delay_s: 0.0, sin_elevation: 1.0 };
        search.search(view.topology.graph(), &[start], order);
    }
}

impl Origin for OriginByPolicy {
    fn step(&mut self, view: &StepView<'_>, worker: &mut Worker) {
        worker.forecasts.begin(view.at);
        self.choose_satellites(view, &worker.forecasts);
        let (pairs, graph) = (&self.pairs, view.topology.graph());
        let shared = self.ends.place_of_shared();
        let satellite = |index: &usize| pairs[*index].selection[shared].map(|link| link.satellite);
        self.by_satellite.sort_by_key(satellite);
        let used: Vec<u32> = self.by_satellite.iter().filter_map(satellite).collect();
        self.orders.retain(|known, _| used.binary_search(known).is_ok());
        let ends: Vec<[usize; 2]> = self.ends.pairs().collect();
        let mut searched = None;
        for place in 0..self.by_satellite.len() {
            let index = self.by_satellite[place];
            worker.route.clear();
            let mut delay = Duration::ZERO;
            if let [Some(from), Some(to)] = self.pairs[index].selection {
                let links = [from, to];
                let (first, last) = (links[shared].satellite, links[1 - shared].satellite);
                if searched.replace(first) != Some(first) {
                    self.search(view, first, &mut worker.search);
                }
                if worker.search.distance(last) < f64::INFINITY {
                    worker.route.extend(worker.search.route_back(graph, last));
                    if self.ends.outward {
                        worker.route.reverse();
                    }
                    let [begin, end] = ends[index];
                    delay = delay_of(view, [(begin, from), (end, to)], &worker.route);
                }
            }
            self.delays[index] = delay;
            let previous = &mut self.pairs[index].route;
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
fn delay_of(view: &StepView<'_>, ends: [(usize, Link); 2], route: &[u32]) -> Duration {
    let freezes = view.request.compat.freezes_end_hops();
    let end_delay = |(end, link): (usize, Link)| {
        let now_s = || view.ground_delay_s(end, link.satellite);
        Duration::from_secs_f64(if freezes { link.delay_s } else { now_s() })
    };
    let mut hops = Hops::default();
    view.topology.hops(route, view.positions, &mut hops);
    let between: Duration = hops.delays.iter().copied().sum();
    end_delay(ends[0]) + between + end_delay(ends[1])
}
