//! Routes of packets over links: the one router, for the simulator and for live runs.

use skyhop_units::{Duration, Instant};

/// Route of packets: the links that they cross, and a constant delay behind the last of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkRoute {
    /// Indices of links, in the order in which they are crossed; not empty.
    pub links: Vec<usize>,
    /// Constant delay behind the last link, without a queue; `None` if the last link is the end of the route.
    pub delay: Option<Duration>,
}

/// Routes of all traffic, by time. A packet keeps the route on which it began.
#[derive(Debug, Clone)]
pub struct Routes {
    /// Steps of all routes, one route after the other.
    steps: Vec<Step>,
    /// Times from which routes hold, with the first step of each, by index of the traffic.
    starts: Vec<Vec<(Instant, Hop)>>,
}

/// Next step of a packet on its route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Cross the link with this index.
    Link(usize),
    /// Leave the route, after a constant delay if it has one.
    End(Option<Duration>),
}

/// Place of a packet on its route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hop(u32);

impl Routes {
    /// Create the routes of traffic: of each its routes by time, the first of them from the run's start.
    pub fn new<R>(traffic: impl IntoIterator<Item = R>) -> Self
    where
        R: IntoIterator<Item = (Instant, LinkRoute)>,
    {
        let mut steps = Vec::new();
        let starts = traffic.into_iter().map(|routes| {
            let start = |(from, LinkRoute { links, delay })| {
                let first = Hop(steps.len() as u32);
                steps.extend(links.into_iter().map(Step::Link).chain([Step::End(delay)]));
                (from, first)
            };
            routes.into_iter().map(start).collect()
        });
        Self { starts: starts.collect(), steps }
    }

    /// Place before the first link of the route that this traffic takes at `now`. An index without an entry, such as
    /// that of packets of no known flow, takes the routes of the last entry.
    #[inline]
    pub fn start(&self, traffic: usize, now: Instant) -> Hop {
        let starts = &self.starts[traffic.min(self.starts.len() - 1)];
        starts.iter().rfind(|(from, _)| *from <= now).unwrap_or(&starts[0]).1
    }

    /// Return the step of a packet at `hop`, and move `hop` behind it.
    #[inline]
    pub fn next(&self, hop: &mut Hop) -> Step {
        let step = self.steps[hop.0 as usize];
        hop.0 += 1;
        step
    }
}
