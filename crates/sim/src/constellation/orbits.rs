//! Views of the network from the orbits of its satellites.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use skyhop_experiment::NetworkPlan;
use skyhop_net::{Air, DOWN, Layout, NO_ROUTE, NO_SATELLITE, Port, Routes, View, Views};
use skyhop_path::PathError;
use skyhop_path::network::{NetworkStep, NetworkSteps};
use skyhop_path::routing::{RoutesTo, way_of};
use skyhop_units::{Duration, Instant};

use crate::constellation::route_log::RouteLog;

/// Next hops of a step, which are found when the first packet needs them: packets pass only few satellites on the way to
/// each site. Every thread finds the same, so that it does not matter which one does.
pub(crate) struct NextHops {
    routes: Arc<[RoutesTo]>,
    ways: Arc<Ways>,
    /// Ports of the first satellite for all ways, then those of the second, ….
    ports: Vec<AtomicU8>,
    /// Satellites to which the first site sends for all ways, then those of the second, ….
    up: Vec<AtomicU32>,
}

/// Ways to all sites, and lasers on them.
struct Ways {
    /// Number of ways to each site.
    of_site: u32,
    /// Number of all ways.
    all: usize,
    /// Place of the first way to each site to which packets go.
    places: Vec<u32>,
    /// Far ends of the lasers of each satellite, in the order of their ports.
    neighbours: Vec<Box<[u32]>>,
}

/// Entry of a port that no packet has needed yet.
const UNKNOWN_PORT: Port = NO_ROUTE - 2;
/// Entry of a satellite that no packet has needed yet.
const UNKNOWN_SATELLITE: u32 = NO_SATELLITE - 1;

impl Routes for NextHops {
    #[inline]
    fn port(&self, satellite: u32, destination: u32, flow: u32) -> Port {
        let place = self.ways.place(destination, flow);
        let entry = &self.ports[satellite as usize * self.ways.all + place];
        match entry.load(Ordering::Relaxed) {
            UNKNOWN_PORT => self.find_port(satellite, place, entry),
            port => port,
        }
    }

    #[inline]
    fn up(&self, site: u32, destination: u32, flow: u32) -> u32 {
        let place = self.ways.place(destination, flow);
        let entry = &self.up[site as usize * self.ways.all + place];
        match entry.load(Ordering::Relaxed) {
            UNKNOWN_SATELLITE => {
                let satellite = self.routes[place].up(site).map_or(NO_SATELLITE, |up| up.0);
                entry.store(satellite, Ordering::Relaxed);
                satellite
            }
            satellite => satellite,
        }
    }
}

impl NextHops {
    fn new(routes: Arc<[RoutesTo]>, ways: &Arc<Ways>, sites: usize) -> Self {
        let satellites = ways.neighbours.len();
        let ports = || AtomicU8::new(UNKNOWN_PORT);
        let up = || AtomicU32::new(UNKNOWN_SATELLITE);
        Self {
            routes,
            ports: std::iter::repeat_with(ports).take(satellites * ways.all).collect(),
            up: std::iter::repeat_with(up).take(sites * ways.all).collect(),
            ways: Arc::clone(ways),
        }
    }

    /// Take the routes of the next step.
    fn renew(&mut self, routes: Arc<[RoutesTo]>) {
        self.routes = routes;
        self.ports.iter_mut().for_each(|port| *port.get_mut() = UNKNOWN_PORT);
        self.up.iter_mut().for_each(|up| *up.get_mut() = UNKNOWN_SATELLITE);
    }

    #[cold]
    fn find_port(&self, satellite: u32, place: usize, entry: &AtomicU8) -> Port {
        let port = match self.routes[place].next(satellite) {
            None => NO_ROUTE,
            Some(next) if next == satellite => DOWN,
            Some(next) => self.ways.laser(satellite, next),
        };
        entry.store(port, Ordering::Relaxed);
        port
    }
}

impl Ways {
    /// Place of the way on which a flow's packets go to a site.
    #[inline]
    fn place(&self, destination: u32, flow: u32) -> usize {
        let first = self.places[destination as usize];
        match self.of_site {
            1 => first as usize,
            ways => (first + way_of(flow, ways)) as usize,
        }
    }

    /// Port of the laser from a satellite to another one.
    fn laser(&self, satellite: u32, next: u32) -> Port {
        let mut neighbours = self.neighbours[satellite as usize].iter();
        neighbours.position(|neighbour| *neighbour == next).map_or(NO_ROUTE, |port| port as Port)
    }
}

/// Computes the views step by step, and the round trips of the flows without queueing.
pub(crate) struct Orbits {
    steps: NetworkSteps,
    ways: Arc<Ways>,
    /// Sites of each flow's client and server.
    pairs: Vec<[u32; 2]>,
    pub(crate) route_log: RouteLog,
    /// Duration of the run.
    duration: Duration,
    /// Sum of each flow's base RTT over the steps with a route, in ns, times the durations of the steps in ns, and these
    /// durations.
    base_rtts: Vec<(u128, u128)>,
}

impl Orbits {
    /// Prepare the views, and compute the first.
    pub(crate) fn new(
        plan: &NetworkPlan,
        layout: &Layout,
        pairs: Vec<[u32; 2]>,
        threads: usize,
    ) -> Result<(View<NextHops>, Self), PathError> {
        let (destinations, of_site) = (&plan.request.destinations, plan.request.routing.ways());
        let place = |site| destinations.partition_point(|other| *other < site) as u32 * of_site;
        let ways = Arc::new(Ways {
            of_site,
            all: destinations.len() * of_site as usize,
            places: (0..layout.sites).map(place).collect(),
            neighbours: neighbours(layout),
        });
        let mut orbits = Self {
            steps: NetworkSteps::new(plan.request.clone(), threads)?,
            ways: Arc::clone(&ways),
            duration: plan.request.duration,
            base_rtts: vec![(0, 0); pairs.len()],
            route_log: RouteLog::new(
                &pairs,
                &plan.request.destinations,
                plan.request.routing.ways(),
            ),
            pairs,
        };
        let step = orbits.next_step();
        let next_hops = NextHops::new(Arc::clone(&step.routes), &ways, layout.sites as usize);
        let view =
            View { from: step.from, until: end(&step), routes: next_hops, air: air_of(&step) };
        Ok((view, orbits))
    }

    /// Mean RTT of each flow without queueing, over the time so far in which it had a route.
    pub(crate) fn mean_base_rtts(&self) -> Vec<Duration> {
        let mean = |(sum_ns, lasted_ns): &(u128, u128)| {
            Duration::from_nanos(sum_ns.checked_div(*lasted_ns).unwrap_or(0) as u64)
        };
        self.base_rtts.iter().map(mean).collect()
    }

    fn next_step(&mut self) -> NetworkStep {
        let step = self.steps.step();
        self.add_base_rtts(&step);
        self.route_log.add(&step);
        step
    }

    fn add_base_rtts(&mut self, step: &NetworkStep) {
        let delay = |from: u32, to: u32, flow: u32| {
            step.routes[self.ways.place(to, flow)].up(from).map(|(_, delay)| delay)
        };
        let end = step.until.min(Instant::START + self.duration);
        let lasts_ns = u128::from(end.saturating_since(step.from).as_nanos());
        let flows = (0..).zip(self.pairs.iter().zip(&mut self.base_rtts));
        for (flow, ([client, server], (sum_ns, lasted_ns))) in flows {
            let delays = (delay(*client, *server, flow), delay(*server, *client, flow));
            if let (Some(there), Some(back)) = delays {
                *sum_ns += u128::from((there + back).as_nanos()) * lasts_ns;
                *lasted_ns += lasts_ns;
            }
        }
    }
}

/// Far ends of the lasers of each satellite.
fn neighbours(layout: &Layout) -> Vec<Box<[u32]>> {
    let of = |satellite: u32| {
        let first = layout.lasers.partition_point(|laser| laser.from < satellite);
        let own = layout.lasers[first..].iter().take_while(|laser| laser.from == satellite);
        own.map(|laser| laser.to).collect()
    };
    (0..layout.satellites).map(of).collect()
}

/// End of a view that holds throughout.
const LONG_AFTER: Instant = Instant::from_nanos(u64::MAX / 4);

/// End of the view of a step.
fn end(step: &NetworkStep) -> Instant {
    if step.until == Instant::NEVER { LONG_AFTER } else { step.until }
}

/// Satellites in view of each site during a step.
fn air_of(step: &NetworkStep) -> Vec<Vec<Air>> {
    step.sights.iter().map(|sights| sights.iter().map(air).collect()).collect()
}

fn air(sight: &skyhop_path::network::Sight) -> Air {
    Air {
        satellite: sight.satellite,
        antenna: sight.antenna,
        fibre: sight.fibre,
        delay: sight.delay,
        sets: !sight.lasts,
    }
}

impl Views for Orbits {
    type Routes = NextHops;

    fn advance(&mut self, view: &mut View<NextHops>) {
        let step = self.next_step();
        view.routes.renew(Arc::clone(&step.routes));
        (view.from, view.until, view.air) = (step.from, end(&step), air_of(&step));
    }
}
