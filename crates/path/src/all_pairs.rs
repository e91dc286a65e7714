//! Shortest routes between all pairs of many sites, step by step, reported as changes.
//!
//! Each pair uses, at each step, the satellites over which its path is shortest. Routes go over
//! satellites (isl) or over satellites and gateways (bent-pipe).

use crate::compat::CompatRules;
use skyhop_model::Relay;
use skyhop_orbit::{Ephemeris, Sky, Vec3};
use skyhop_units::{Duration, Instant};

use crate::handover::Link;
use crate::request::{PathError, PathRequest, Place};
use crate::route::Router;
use crate::topology::{Topology, sky, topology};

/// Iterator over the routes between all pairs of sites, one step after the other in constant memory.
///
/// Pairs are ordered (0,1), (0,2), …, (1,2), …, each from the first site to the second.
pub struct AllPairs<'r> {
    request: &'r PathRequest,
    next_step: u64,
    ephemeris: Ephemeris,
    positions: Vec<Vec3>,
    sky: Sky,
    in_view: Vec<Vec<Link>>,
    topology: Box<dyn Topology>,
    router: Router,
    /// Routes of the previous step, pair after pair; empty for a pair without a path.
    routes: Vec<Vec<u32>>,
    route: Vec<u32>,
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
    /// Prepare the computation of routes between `sites`, with the constellation, relay, times and options of
    /// `request`; its ends, handover policy and outages are ignored.
    ///
    /// # Errors
    /// The request is invalid, there are fewer than two sites, or the relay does not route between arbitrary sites.
    pub fn new(request: &'r PathRequest, sites: &[Place]) -> Result<Self, PathError> {
        request.validate()?;
        sites.iter().try_for_each(Place::validate)?;
        let wrong = |what: String, expected| Err(PathError::Option { what, expected });
        if sites.len() < 2 {
            return wrong(format!("all pairs of {} sites", sites.len()), "at least two sites");
        }
        if !matches!(request.relay, Some(Relay::Isl | Relay::BentPipe)) {
            let relay = request.relay.map_or("none", Relay::name);
            return wrong(format!("all pairs with relay {relay}"), "isl or bent-pipe");
        }
        let ephemeris = Ephemeris::new(&request.constellation, request.compat.earth());
        Ok(Self {
            request,
            next_step: 0,
            positions: Vec::new(),
            sky: sky(request, sites, &ephemeris),
            in_view: vec![Vec::new(); sites.len()],
            topology: topology(request, &ephemeris),
            router: Router::default(),
            routes: vec![Vec::new(); pairs(sites.len())],
            route: Vec::new(),
            ephemeris,
        })
    }

    fn step(&mut self, at: Instant) -> PairsStep {
        let time = self.request.start.after(at - Instant::START);
        self.ephemeris.earth_fixed(time, &mut self.positions);
        self.topology.update(at, &self.positions);
        self.look_up(at);
        let sites = self.in_view.len();
        let (mut delays, mut changes) = (Vec::with_capacity(pairs(sites)), Vec::new());
        for from in 0..sites - 1 {
            self.router.search_all(self.topology.graph(), &self.in_view[from]);
            for to in from + 1..sites {
                let pair = delays.len();
                delays.push(self.route_to(to));
                if self.route != self.routes[pair] {
                    self.routes[pair].clone_from(&self.route);
                    changes.push(RouteChange { pair: pair as u32, nodes: self.route.clone() });
                }
            }
        }
        PairsStep { at, delays, changes }
    }

    /// Find the satellites in view of each site.
    fn look_up(&mut self, at: Instant) {
        self.sky.update(at, &self.positions);
        for (site, in_view) in self.in_view.iter_mut().enumerate() {
            let place = &self.sky.sites()[site];
            in_view.clear();
            in_view.extend(self.sky.visible(site, &self.positions).map(|satellite| {
                let position = self.positions[satellite as usize];
                let delay_s = self.request.compat.ground_delay_s(position, place);
                Link { satellite, delay_s, sin_elevation: place.sin_elevation(position) }
            }));
        }
    }

    /// Write the route that the last search found to a site into `self.route` and return its delay; zero and an empty
    /// route if there is none.
    fn route_to(&mut self, to: usize) -> Duration {
        self.route.clear();
        let total =
            |link: &Link| Some((self.router.reached(link.satellite)? + link.delay_s, *link));
        let reached = self.in_view[to].iter().filter_map(total);
        let Some((delay_s, last)) = reached.reduce(|a, b| if b.0 < a.0 { b } else { a }) else {
            return Duration::ZERO;
        };
        self.route.extend(self.router.route_back(last.satellite));
        self.route.reverse();
        Duration::from_secs_f64(delay_s)
    }
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

/// Encoder of delays as second differences, the form in which a file of all pairs holds them.
///
/// Satellites move steadily, so that second differences are small integers while a route stays the same. The values
/// before the first step count as zero: `cumsum(cumsum(encoded)) = delays`.
#[derive(Debug, Clone, Default)]
pub struct DelayEncoder {
    last_ns: Vec<i64>,
    last_change_ns: Vec<i64>,
}

impl DelayEncoder {
    /// Encode the delays of a step as second differences, in ns.
    pub fn encode(&mut self, delays: &[Duration]) -> Vec<i64> {
        self.last_ns.resize(delays.len(), 0);
        self.last_change_ns.resize(delays.len(), 0);
        let state = self.last_ns.iter_mut().zip(&mut self.last_change_ns);
        delays
            .iter()
            .zip(state)
            .map(|(delay, (last_ns, last_change_ns))| {
                let delay_ns = delay.as_nanos() as i64;
                let change_ns = delay_ns - std::mem::replace(last_ns, delay_ns);
                change_ns - std::mem::replace(last_change_ns, change_ns)
            })
            .collect()
    }
}
