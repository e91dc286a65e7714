//! Views of the network from the orbits of its satellites.

use std::sync::Arc;

use skyhop_experiment::NetworkPlan;
use skyhop_net::{Air, DOWN, Layout, NO_ROUTE, NO_SATELLITE, Port, View, Views};
use skyhop_path::PathError;
use skyhop_path::network::{NetworkStep, NetworkSteps};
use skyhop_path::routing::RoutesTo;
use skyhop_units::{Duration, Instant};

/// Computes the views step by step, and the round trips of the flows without queueing.
pub(crate) struct Orbits {
    steps: NetworkSteps,
    destinations: Vec<u32>,
    layout: Arc<Layout>,
    /// Sites of each flow's client and server.
    pairs: Vec<[u32; 2]>,
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
        layout: &Arc<Layout>,
        pairs: Vec<[u32; 2]>,
        threads: usize,
    ) -> Result<(View, Self), PathError> {
        let mut orbits = Self {
            steps: NetworkSteps::new(plan.request.clone(), threads)?,
            destinations: plan.request.destinations.clone(),
            layout: Arc::clone(layout),
            duration: plan.request.duration,
            base_rtts: vec![(0, 0); pairs.len()],
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

    fn next_view(&mut self) -> View {
        let step = self.steps.step();
        self.add_base_rtts(&step);
        let sites = self.layout.sites as usize;
        let mut view = View {
            from: step.from,
            until: if step.until == Instant::NEVER { LONG_AFTER } else { step.until },
            ports: vec![Box::default(); sites],
            up: vec![Box::default(); sites],
            air: step.sights.iter().map(|sights| sights.iter().map(air).collect()).collect(),
        };
        for (destination, routes) in self.destinations.iter().zip(step.routes.iter()) {
            view.ports[*destination as usize] = self.ports(routes);
            let satellite = |up: &Option<(u32, Duration)>| up.map_or(NO_SATELLITE, |up| up.0);
            view.up[*destination as usize] = routes.up.iter().map(satellite).collect();
        }
        view
    }

    fn add_base_rtts(&mut self, step: &NetworkStep) {
        let delay = |from: u32, to: u32| {
            let routes = self.destinations.binary_search(&to).ok()?;
            step.routes[routes].up[from as usize].map(|(_, delay)| delay)
        };
        let end = step.until.min(Instant::START + self.duration);
        let lasts_ns = u128::from(end.saturating_since(step.from).as_nanos());
        for ([client, server], (sum_ns, lasted_ns)) in self.pairs.iter().zip(&mut self.base_rtts) {
            if let (Some(there), Some(back)) = (delay(*client, *server), delay(*server, *client)) {
                *sum_ns += u128::from((there + back).as_nanos()) * lasts_ns;
                *lasted_ns += lasts_ns;
            }
        }
    }

    /// Ports of all satellites on the routes to a destination.
    fn ports(&self, routes: &RoutesTo) -> Box<[Port]> {
        let mut lasers = self.layout.lasers.iter().peekable();
        let port = |(satellite, next): (u32, &Option<u32>)| {
            let mut found = if *next == Some(satellite) { DOWN } else { NO_ROUTE };
            let mut number = 0;
            while let Some(laser) = lasers.next_if(|laser| laser.from == satellite) {
                if Some(laser.to) == *next {
                    found = number;
                }
                number += 1;
            }
            found
        };
        (0..).zip(&routes.next).map(port).collect()
    }
}

/// End of a view that holds throughout.
const LONG_AFTER: Instant = Instant::from_nanos(u64::MAX / 4);

fn air(sight: &skyhop_path::network::Sight) -> Air {
    Air { satellite: sight.satellite, delay: sight.delay, sets: !sight.lasts }
}

impl Views for Orbits {
    fn advance(&mut self, view: &mut View) {
        *view = self.next_view();
    }
}
