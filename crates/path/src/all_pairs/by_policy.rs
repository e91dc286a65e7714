//! Pairs whose satellites a handover policy chooses, each pair as a path of its own.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use skyhop_units::{Duration, Instant};

use super::{Origin, RouteChange, StepView, Worker};
use crate::compat::CompatRules;
use crate::handover::{
    self, HandoverPolicy, Link, OrbitForecast, Selection, View, VisibilityForecast,
};
use crate::repeated_search::{RepeatedSearch, VisitingOrder};
use crate::request::{PathError, PathRequest};
use crate::topology::Hops;

/// Pairs from one site to all later ones, each with its own policy.
pub(super) struct OriginByPolicy {
    from: usize,
    pairs: Vec<Pair>,
    /// Indices of pairs in the order in which their routes are searched.
    by_satellite: Vec<usize>,
    /// Order of the search from each satellite that some pair's `from` uses.
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

/// Forecasts of one step, each computed once for all pairs of a site.
#[derive(Default)]
pub(super) struct Forecasts {
    at: Option<Instant>,
    /// Time in view by site and satellite.
    known: RefCell<HashMap<(usize, u32), Duration>>,
}

/// View of the forecasts for one pair.
struct PairForecast<'a> {
    orbits: OrbitForecast<'a>,
    sites: [usize; 2],
    forecasts: &'a Forecasts,
}

impl VisibilityForecast for PairForecast<'_> {
    fn time_in_view(&self, end: usize, satellite: u32) -> Duration {
        let site = self.sites[end];
        let mut known = self.forecasts.known.borrow_mut();
        *known.entry((site, satellite)).or_insert_with(|| self.orbits.time_in_view(site, satellite))
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
    pub(super) fn new(from: usize, sites: usize, request: &PathRequest) -> Result<Self, PathError> {
        let entry = handover::policy(&request.handover)?;
        let pair = |_| Pair {
            policy: (entry.make)(request.options.grid),
            selection: [None; 2],
            route: Vec::new(),
        };
        let pairs: Vec<Pair> = (from + 1..sites).map(pair).collect();
        Ok(Self {
            from,
            by_satellite: (0..pairs.len()).collect(),
            orders: BTreeMap::new(),
            delays: vec![Duration::ZERO; pairs.len()],
            changes: Vec::new(),
            pairs,
        })
    }

    fn choose_satellites(&mut self, view: &StepView<'_>, forecasts: &Forecasts) {
        for (to, pair) in (self.from + 1..).zip(&mut self.pairs) {
            let orbits = OrbitForecast { ephemeris: view.ephemeris, sky: view.sky, now: view.utc };
            pair.selection = pair.policy.choose(&View {
                now: view.at,
                utc: view.utc,
                in_view: [&view.in_view[self.from], &view.in_view[to]],
                keeps_lost_satellite: view.request.compat.keeps_lost_satellite(),
                components: view.topology.components(),
                graph: view.topology.graph(),
                visibility: &PairForecast { orbits, sites: [self.from, to], forecasts },
            });
        }
    }

    /// Find the routes of the pairs whose `from` uses `satellite`.
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
        let satellite = |index: &usize| pairs[*index].selection[0].map(|link| link.satellite);
        self.by_satellite.sort_by_key(satellite);
        let used: Vec<u32> = self.by_satellite.iter().filter_map(satellite).collect();
        self.orders.retain(|known, _| used.binary_search(known).is_ok());
        let mut searched = None;
        for place in 0..self.by_satellite.len() {
            let index = self.by_satellite[place];
            worker.route.clear();
            let mut delay = Duration::ZERO;
            if let [Some(from), Some(to)] = self.pairs[index].selection {
                if searched.replace(from.satellite) != Some(from.satellite) {
                    self.search(view, from.satellite, &mut worker.search);
                }
                if worker.search.distance(to.satellite) < f64::INFINITY {
                    worker.route.extend(worker.search.route_back(graph, to.satellite));
                    worker.route.reverse();
                    let ends = [(self.from, from), (self.from + 1 + index, to)];
                    delay = delay_of(view, ends, &worker.route);
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

/// Delay of a route between two sites over their links: the sum of its hops, each rounded to a nanosecond as in a path.
fn delay_of(view: &StepView<'_>, ends: [(usize, Link); 2], route: &[u32]) -> Duration {
    let compat = view.request.compat;
    let end_delay = |(site, link): (usize, Link)| {
        if compat.freezes_end_hops() {
            return Duration::from_secs_f64(link.delay_s);
        }
        let position = view.positions[link.satellite as usize];
        Duration::from_secs_f64(compat.ground_delay_s(position, &view.sky.sites()[site]))
    };
    let mut hops = Hops::default();
    view.topology.hops(route, view.positions, &mut hops);
    let between: Duration = hops.delays.iter().copied().sum();
    end_delay(ends[0]) + between + end_delay(ends[1])
}
