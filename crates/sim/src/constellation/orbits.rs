//! Views of the network from the orbits of its satellites.

use skyhop_experiment::NetworkPlan;
use skyhop_net::{Air, DOWN, Layout, NO_ROUTE, NO_SATELLITE, Port, Routes, View, Views};
use skyhop_path::PathError;
use skyhop_path::network::{NetworkStep, NetworkSteps};
use skyhop_path::routing::{RoutesTo, way_of};
use skyhop_units::{Duration, Instant};

use crate::constellation::route_log::RouteLog;

/// Next hops of a step: those of all ways towards site 0, then those towards site 1, …; empty for a site to which no
/// packets go.
pub(crate) struct NextHops {
    /// Number of ways to each site.
    ways: u32,
    /// Ports of the satellites.
    ports: Vec<Box<[Port]>>,
    /// Satellites that the sites send to.
    up: Vec<Box<[u32]>>,
}

impl Routes for NextHops {
    #[inline]
    fn port(&self, satellite: u32, destination: u32, flow: u32) -> Port {
        self.ports[self.place(destination, flow)][satellite as usize]
    }

    #[inline]
    fn up(&self, site: u32, destination: u32, flow: u32) -> u32 {
        self.up[self.place(destination, flow)][site as usize]
    }
}

impl NextHops {
    /// Place of the way on which a flow's packets go to a site.
    #[inline]
    fn place(&self, destination: u32, flow: u32) -> usize {
        match self.ways {
            1 => destination as usize,
            ways => (destination * ways + way_of(flow, ways)) as usize,
        }
    }
}

/// Computes the views step by step, and the round trips of the flows without queueing.
pub(crate) struct Orbits {
    steps: NetworkSteps,
    destinations: Vec<u32>,
    /// Number of ways to each destination.
    ways: u32,
    sites: usize,
    /// Far ends of the lasers of each satellite, in the order of their ports.
    neighbours: Vec<Box<[u32]>>,
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
        let mut orbits = Self {
            steps: NetworkSteps::new(plan.request.clone(), threads)?,
            destinations: plan.request.destinations.clone(),
            ways: plan.request.routing.ways(),
            sites: layout.sites as usize,
            neighbours: neighbours(layout),
            duration: plan.request.duration,
            base_rtts: vec![(0, 0); pairs.len()],
            route_log: RouteLog::new(
                &pairs,
                &plan.request.destinations,
                plan.request.routing.ways(),
            ),
            pairs,
        };
        Ok((orbits.next_view(), orbits))
    }

    /// Mean RTT of each flow without queueing, over the time so far in which it had a route.
    pub(crate) fn mean_base_rtts(&self) -> Vec<Duration> {
        let mean = |(sum_ns, lasted_ns): &(u128, u128)| {
            Duration::from_nanos(sum_ns.checked_div(*lasted_ns).unwrap_or(0) as u64)
        };
        self.base_rtts.iter().map(mean).collect()
    }

    fn next_view(&mut self) -> View<NextHops> {
        let step = self.steps.step();
        self.add_base_rtts(&step);
        self.route_log.add(&step);
        let (ways, all) = (self.ways as usize, self.sites * self.ways as usize);
        let mut next_hops = NextHops {
            ways: self.ways,
            ports: vec![Box::default(); all],
            up: vec![Box::default(); all],
        };
        let places = self.destinations.iter().map(|destination| *destination as usize * ways);
        let places = places.flat_map(|first| first..first + ways);
        for (place, routes) in places.zip(step.routes.iter()) {
            next_hops.ports[place] = self.ports(routes);
            let satellite = |up: &Option<(u32, Duration)>| up.map_or(NO_SATELLITE, |up| up.0);
            next_hops.up[place] = routes.up.iter().map(satellite).collect();
        }
        View {
            from: step.from,
            until: if step.until == Instant::NEVER { LONG_AFTER } else { step.until },
            routes: next_hops,
            air: step.sights.iter().map(|sights| sights.iter().map(air).collect()).collect(),
        }
    }

    fn add_base_rtts(&mut self, step: &NetworkStep) {
        let delay = |from: u32, to: u32, way: u32| {
            let place = self.destinations.binary_search(&to).ok()? * self.ways as usize;
            step.routes[place + way as usize].up[from as usize].map(|(_, delay)| delay)
        };
        let end = step.until.min(Instant::START + self.duration);
        let lasts_ns = u128::from(end.saturating_since(step.from).as_nanos());
        let flows = (0..).zip(self.pairs.iter().zip(&mut self.base_rtts));
        for (flow, ([client, server], (sum_ns, lasted_ns))) in flows {
            let way = way_of(flow, self.ways);
            let delays = (delay(*client, *server, way), delay(*server, *client, way));
            if let (Some(there), Some(back)) = delays {
                *sum_ns += u128::from((there + back).as_nanos()) * lasts_ns;
                *lasted_ns += lasts_ns;
            }
        }
    }

    /// Ports of all satellites on the routes to a destination.
    fn ports(&self, routes: &RoutesTo) -> Box<[Port]> {
        let port = |(satellite, next): (u32, &Option<u32>)| match next {
            None => NO_ROUTE,
            Some(next) if *next == satellite => DOWN,
            Some(next) => {
                let neighbours = self.neighbours[satellite as usize].iter();
                let port = neighbours.copied().position(|neighbour| neighbour == *next);
                port.map_or(NO_ROUTE, |port| port as Port)
            }
        };
        (0..).zip(&routes.next).map(port).collect()
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
        *view = self.next_view();
    }
}
