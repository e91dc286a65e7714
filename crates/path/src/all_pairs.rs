//! Shortest routes between many sites at once, step by step and as changes.
//!
//! Each pair uses, at each step, the satellites over which its path is shortest; routes over
//! satellites (isl) or over satellites and gateways (bent-pipe).

use crate::compat::Habits;
use skyhop_model::Relay;
use skyhop_orbit::{Ephemeris, Sky, Vec3};
use skyhop_units::{Duration, Instant};

use crate::handover::Link;
use crate::request::{PathError, PathRequest, Place};
use crate::route::Router;
use crate::topology::{Topology, sky, topology};

/// The routes between all pairs of sites, computed one step after the other in constant memory.
///
/// Pairs are ordered (0,1), (0,2), …, (1,2), …: from the first site to the second.
pub struct AllPairs<'r> {
    request: &'r PathRequest,
    next_step: u64,
    ephemeris: Ephemeris,
    positions: Vec<Vec3>,
    sky: Sky,
    in_view: Vec<Vec<Link>>,
    topology: Box<dyn Topology>,
    router: Router,
    /// The routes of the last step, pair after pair; empty where there is none.
    routes: Vec<Vec<u32>>,
    route: Vec<u32>,
}

/// What one step brings.
#[derive(Debug, Clone, PartialEq)]
pub struct PairsStep {
    /// When.
    pub at: Instant,
    /// The one-way delay of each pair; zero where it has no path.
    pub delays: Vec<Duration>,
    /// The routes that differ from the step before, by pair.
    pub changes: Vec<RouteChange>,
}

/// A pair's new route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteChange {
    /// The index of the pair.
    pub pair: u32,
    /// Satellites and gateways, without the sites; empty where there is no path.
    pub nodes: Vec<u32>,
}

/// How many pairs so many sites make.
pub const fn pairs(sites: usize) -> usize {
    sites * sites.saturating_sub(1) / 2
}

impl<'r> AllPairs<'r> {
    /// Prepares the computation between `sites`, with everything else as in `request`: its own ends,
    /// handover policy and outages do not count.
    ///
    /// # Errors
    /// The request makes no sense, there are fewer than two sites, or the relay has no routes between
    /// any two sites.
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

    /// Finds the satellites that each site sees.
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

    /// Writes the route that the last search found to a site into `self.route`; its delay, or zero
    /// and an empty route.
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

/// Delays as differences of differences: small whole numbers while a route stays the same, because
/// satellites move steadily. What a file of all pairs holds.
///
/// The first step stands for itself, with nothing before it: `sum(sum(encoded)) = delays`.
#[derive(Debug, Clone, Default)]
pub struct DelayEncoder {
    last_ns: Vec<i64>,
    last_change_ns: Vec<i64>,
}

impl DelayEncoder {
    /// The differences of a step's delays, in ns.
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
