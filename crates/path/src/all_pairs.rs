//! Routes between all pairs of many sites, or from many sites to some, step by step, reported as changes.
//!
//! With the handover policy `immediate` each pair uses, at each step, the satellites over which its path is shortest;
//! other policies choose the satellites of each pair as for a path of its own. Routes go over satellites (isl) or over
//! satellites and gateways (bent-pipe).

mod by_policy;
mod delay_encoder;
mod ends;
mod shortest;
mod to_group;

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::thread;

use skyhop_model::Relay;
use skyhop_orbit::{Ephemeris, Sky, Vec3};
use skyhop_units::{Duration, Instant, UtcInstant};

use crate::compat::CompatRules;
use crate::failures::FailedParts;
use crate::handover::{IMMEDIATE, Link};
use crate::repeated_search::RepeatedSearch;
use crate::request::{PathError, PathRequest, Place};
use crate::topology::{Topology, look_up, sky, topology};
use by_policy::{Forecasts, OriginByPolicy};
pub use delay_encoder::DelayEncoder;
pub use ends::Destination;
use ends::{Ends, merge};
use shortest::ShortestOrigin;
use to_group::OriginToGroup;

/// Number of origins among which the routes to few destinations are divided, so that all threads have work.
const ORIGINS: usize = 32;
/// Smallest number of routes for which a search of its own pays off.
const ROUTES_OF_AN_ORIGIN: usize = 64;

/// Iterator over the routes of pairs of sites, one step after the other in constant memory.
///
/// All pairs ([`AllPairs::new`]) are ordered (0,1), (0,2), …, (1,2), …, each from the first site to the second. Routes from
/// sites to destinations ([`AllPairs::to`]) are ordered by the destination, and then by the site where they begin. Pairs with a common end are computed together, by as many threads as the machine has processors;
/// the result is the same for any number.
pub struct AllPairs<'r> {
    request: &'r PathRequest,
    next_step: u64,
    ephemeris: Ephemeris,
    positions: Vec<Vec3>,
    sky: Sky,
    /// Satellites in view of each site, and then of each group.
    in_view: Vec<Vec<Link>>,
    /// Sites of each group, at the nearest of which routes end.
    groups: Vec<Vec<u32>>,
    topology: Box<dyn Topology>,
    failed: FailedParts,
    origins: Vec<Box<dyn Origin>>,
    /// Buffers of each thread.
    workers: Vec<Worker>,
}

/// Buffers of a thread, which all origins use in turn.
#[derive(Default)]
struct Worker {
    search: RepeatedSearch,
    forecasts: Forecasts,
    /// Route that is being computed.
    route: Vec<u32>,
}

/// Pairs with one end in common: their routes of the previous step, and what the next step needs to find new ones.
trait Origin: Send {
    /// Compute the routes of a step.
    fn step(&mut self, view: &StepView<'_>, worker: &mut Worker);

    /// Delays of the last step, and changes since the one before; `pair` counts from this origin's first pair.
    fn result(&mut self) -> (&[Duration], &mut Vec<RouteChange>);
}

/// State of all satellites, sites and links at one step.
struct StepView<'a> {
    request: &'a PathRequest,
    at: Instant,
    utc: UtcInstant,
    ephemeris: &'a Ephemeris,
    positions: &'a [Vec3],
    sky: &'a Sky,
    /// Satellites in view of each site, and then of each group.
    in_view: &'a [Vec<Link>],
    topology: &'a dyn Topology,
}

/// Delays and route changes of one step.
#[derive(Debug, Clone, PartialEq)]
pub struct PairsStep {
    /// Time since the start of the request.
    pub at: Instant,
    /// One-way delay of each pair; zero for a pair without a path.
    pub delays: Vec<Duration>,
    /// Routes that differ from the previous step, in the order of pairs.
    pub changes: Vec<RouteChange>,
}

/// New route of a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteChange {
    /// Index of the pair.
    pub pair: u32,
    /// Satellites and gateways of the route, without the sites; empty if there is no path.
    pub nodes: Vec<u32>,
}

/// Number of pairs of `sites` sites.
pub const fn pairs(sites: usize) -> usize {
    sites * sites.saturating_sub(1) / 2
}

impl<'r> AllPairs<'r> {
    /// Prepare the computation of routes between `sites`, with the constellation, relay, handover policy, times and
    /// options of `request`; its ends and outages are ignored.
    ///
    /// # Errors
    /// The request is invalid, there are fewer than two sites, or the relay does not route between arbitrary sites.
    pub fn new(request: &'r PathRequest, sites: &[Place]) -> Result<Self, PathError> {
        if sites.len() < 2 {
            return wrong(format!("all pairs of {} sites", sites.len()), "at least two sites");
        }
        if !matches!(request.relay, Some(Relay::Isl | Relay::BentPipe)) {
            let relay = request.relay.map_or("none", Relay::name);
            return wrong(format!("all pairs with relay {relay}"), "isl or bent-pipe");
        }
        let ends =
            |from: usize| Ends { shared: from, others: from + 1..sites.len(), outward: true };
        Self::between(request, sites, Vec::new(), (0..sites.len() - 1).map(ends))
    }

    /// Prepare the computation of the routes from each of the first `begins` sites to each destination, over lasers (relay
    /// isl) or without a relay over a single satellite.
    ///
    /// # Errors
    /// The request is invalid, there is no site of an index, or the relay is another one.
    pub fn to(
        request: &'r PathRequest,
        sites: &[Place],
        begins: usize,
        destinations: &[Destination],
    ) -> Result<Self, PathError> {
        let ends = destinations.iter().flat_map(Destination::sites).map(|site| *site as usize);
        if let Some(site) = ends.chain(begins.checked_sub(1)).find(|site| *site >= sites.len()) {
            return wrong(format!("site {site} of {} sites", sites.len()), "a number below that");
        }
        if let Some(relay) = request.relay.filter(|relay| *relay != Relay::Isl) {
            return wrong(format!("routes to sites with relay {}", relay.name()), "isl or none");
        }
        let mut groups = Vec::new();
        let mut shared = Vec::new();
        for destination in destinations {
            match destination {
                Destination::Site(site) => shared.push(*site as usize),
                Destination::Nearest(of_group) => {
                    shared.push(sites.len() + groups.len());
                    groups.push(of_group.clone());
                }
            }
        }
        let parts = (ORIGINS / destinations.len().max(1)).max(1);
        let each = begins.div_ceil(parts).max(ROUTES_OF_AN_ORIGIN);
        let ends = shared.into_iter().flat_map(|shared| {
            let part = move |first: usize| Ends {
                shared,
                others: first..begins.min(first + each),
                outward: false,
            };
            (0..begins).step_by(each).map(part)
        });
        Self::between(request, sites, groups, ends)
    }

    fn between(
        request: &'r PathRequest,
        sites: &[Place],
        groups: Vec<Vec<u32>>,
        ends: impl Iterator<Item = Ends>,
    ) -> Result<Self, PathError> {
        request.validate()?;
        sites.iter().try_for_each(Place::validate)?;
        let ephemeris = Ephemeris::new(&request.constellation, request.compat.earth());
        let origin = |ends: Ends| -> Result<Box<dyn Origin>, PathError> {
            if request.handover == IMMEDIATE {
                return Ok(Box::new(ShortestOrigin::new(ends)));
            }
            if ends.shared >= sites.len() {
                return Ok(Box::new(OriginToGroup::new(ends, request)?));
            }
            Ok(Box::new(OriginByPolicy::new(ends, request)?))
        };
        Ok(Self {
            request,
            next_step: 0,
            positions: Vec::new(),
            sky: sky(request, sites, &ephemeris),
            in_view: vec![Vec::new(); sites.len() + groups.len()],
            groups,
            topology: topology(request, &ephemeris),
            failed: FailedParts::default(),
            origins: ends.map(origin).collect::<Result<_, _>>()?,
            workers: Vec::new(),
            ephemeris,
        }
        .with_threads(thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)))
    }

    /// Compute with this number of threads.
    #[must_use]
    pub fn with_threads(mut self, threads: NonZeroUsize) -> Self {
        self.workers.resize_with(threads.get().min(self.origins.len()), Worker::default);
        self
    }

    fn step(&mut self, at: Instant) -> PairsStep {
        let utc = self.request.start.after(at - Instant::START);
        self.ephemeris.earth_fixed(utc, &mut self.positions);
        self.failed.update(&self.request.options.failures, at);
        self.failed.blank(&mut self.positions);
        self.topology.update(at, &self.positions);
        self.look_up(at);
        let view = StepView {
            request: self.request,
            at,
            utc,
            ephemeris: &self.ephemeris,
            positions: &self.positions,
            sky: &self.sky,
            in_view: &self.in_view,
            topology: self.topology.as_ref(),
        };
        work_off(&mut self.workers, &mut self.origins, |worker, origin| origin.step(&view, worker));
        self.collect(at)
    }

    /// Find the satellites in view of each site and group.
    fn look_up(&mut self, at: Instant) {
        self.sky.update(at, &self.positions);
        let (of_sites, of_groups) = self.in_view.split_at_mut(self.sky.sites().len());
        look_up(&self.sky, self.request.compat, &self.positions, of_sites);
        let failed = &self.failed;
        let of_failed = of_sites.iter_mut().enumerate().filter(|(site, _)| failed.has_site(*site));
        of_failed.for_each(|(_, in_view)| in_view.clear());
        for (group, in_view) in self.groups.iter().zip(of_groups) {
            merge(group.iter().map(|site| &*of_sites[*site as usize]), in_view);
        }
    }

    /// Join the results of all origins.
    fn collect(&mut self, at: Instant) -> PairsStep {
        let mut step = PairsStep { at, delays: Vec::new(), changes: Vec::new() };
        for origin in &mut self.origins {
            let first = step.delays.len() as u32;
            let (delays, changes) = origin.result();
            step.delays.extend_from_slice(delays);
            let changes = changes.drain(..);
            step.changes
                .extend(changes.map(|change| RouteChange { pair: first + change.pair, ..change }));
        }
        step
    }
}

fn wrong<T>(what: String, expected: &'static str) -> Result<T, PathError> {
    Err(PathError::Option { what, expected })
}

/// Call `work` for each item, in a thread per worker, one of them the caller's; each takes the next item when it is done.
fn work_off<W: Send, T: Send>(
    workers: &mut [W],
    items: &mut [T],
    work: impl Fn(&mut W, &mut T) + Sync,
) {
    let rest = Mutex::new(items.iter_mut());
    let take = || rest.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work_off = |worker: &mut W| {
        while let Some(item) = take() {
            work(worker, item);
        }
    };
    let Some((own, others)) = workers.split_first_mut() else { return };
    thread::scope(|scope| {
        for worker in others {
            scope.spawn(|| work_off(worker));
        }
        work_off(own);
    });
}

impl Iterator for AllPairs<'_> {
    type Item = PairsStep;

    fn next(&mut self) -> Option<PairsStep> {
        if self.next_step == self.request.steps() {
            return None;
        }
        let at = Instant::START + self.request.step * self.next_step;
        self.next_step += 1;
        Some(self.step(at))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.request.steps() - self.next_step) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for AllPairs<'_> {}
