//! Runs over a whole network of satellites and sites.

mod announcements;
mod background;
mod ends;
mod layout;
mod orbits;
mod route_log;

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use skyhop_engine::Unsupported;
use skyhop_experiment::{Experiment, NetworkPlan};
use skyhop_link::LinkStats;
use skyhop_model::{Counts as _, Direction};
use skyhop_net::{Laser, Layout, Lost, Network};
use skyhop_path::PathError;
use skyhop_record::{EventRow, FileError, Recorder};
use skyhop_signal::blind::Estimate;
use skyhop_units::{Duration, Instant};

use crate::Simulation;
use crate::constellation::announcements::{Announcements, RouteEvents};
use crate::constellation::background::{Backgrounds, Meters};
use crate::constellation::ends::{Ends, Parcel};
use crate::constellation::layout::layout;
use crate::constellation::orbits::Orbits;
use crate::flow::Flow;
use crate::order::seeded_in_order;
use crate::sampler::Sampler;

/// Links by their numbers in results, and devices by their numbers in the network.
struct Numbers {
    /// Devices of each link, forward and back.
    devices: Vec<[Option<usize>; 2]>,
    /// Link and direction of each device.
    places: Vec<(u16, Direction)>,
}

/// A run over a network.
pub(crate) struct Constellation {
    network: Network<Parcel, Ends, Orbits>,
    numbers: Numbers,
    /// Packets lost outside of the links: for lack of a route, or in the air of a satellite that set; by device.
    lost_outside: Vec<LinkStats>,
    meters: Meters,
    /// Warnings about the background and about announcements; reported once.
    warnings: Vec<String>,
}

/// Values that a run needs ahead: the loads of a background, and the events of routes that are announced.
#[derive(Default)]
pub(crate) struct Ahead {
    backgrounds: Backgrounds,
    route_events: RouteEvents,
}

impl Ahead {
    /// Compute the values that a plan needs, on so many threads.
    pub(crate) fn new(
        experiment: &Experiment,
        plan: &NetworkPlan,
        threads: usize,
    ) -> Result<Self, PathError> {
        Ok(Self {
            backgrounds: Backgrounds::new(plan, threads)?,
            route_events: RouteEvents::new(experiment, plan, threads)?,
        })
    }
}

impl Constellation {
    /// Prepare a run on so many threads.
    pub(crate) fn new(
        experiment: &Experiment,
        plan: &NetworkPlan,
        Ahead { mut backgrounds, route_events }: Ahead,
        threads: usize,
    ) -> Result<Self, Unsupported> {
        let unsupported = |what: String| Unsupported::new("network", what);
        let layout = Arc::new(layout(plan, experiment.seed, &mut backgrounds));
        let flows = seeded_in_order(experiment.seed, &experiment.flows)
            .into_iter()
            .map(|(plan, seed)| Flow::new(plan, (seed, experiment.seed), None))
            .collect::<Result<Vec<_>, _>>()?;
        let mut announcements = Announcements::new(experiment, plan, &flows, &route_events);
        let told = announcements.warning.take();
        let ends = Ends::new(flows, announcements);
        let orbits = Orbits::new(plan, &layout, ends.pairs.clone(), threads);
        let views = orbits.map_err(|error| unsupported(error.to_string()))?;
        let numbers = Numbers::of(&layout);
        let network = Network::new(Arc::clone(&layout), ends, views, threads);
        Ok(Self {
            network: network.map_err(|error| unsupported(error.to_string()))?,
            lost_outside: vec![LinkStats::default(); layout.devices()],
            meters: Meters::new(&layout),
            warnings: backgrounds.warning.into_iter().chain(told).collect(),
            numbers,
        })
    }

    /// Record the packets that were lost.
    fn note_losses(&mut self) {
        for Lost { device, drop, in_link } in self.network.take_lost() {
            if !in_link {
                self.lost_outside[device as usize].drops[drop.reason] += 1;
            }
            let content = drop.packet.payload.content();
            let ends = self.network.hosts_mut();
            let flow = &mut ends.flows[content.flow as usize];
            flow.lost(content);
            let place = self.numbers.places[device as usize];
            ends.events.push(EventRow::lost(drop.at, drop.reason, place, Some(flow.plan.id)));
        }
    }

    /// Counters of all links, forward before back.
    fn stats(&mut self) -> Vec<LinkStats> {
        let mut by_device = self.network.stats();
        self.meters.add(self.network.now(), &mut by_device);
        let of = |device: Option<usize>| {
            device.map_or_else(LinkStats::default, |device| {
                let outside = self.lost_outside[device].drops;
                LinkStats { drops: by_device[device].drops.plus(outside), ..by_device[device] }
            })
        };
        self.numbers.devices.iter().flatten().map(|device| of(*device)).collect()
    }
}

impl Simulation for Constellation {
    fn run_until(&mut self, until: Instant) -> ControlFlow<()> {
        self.network.run_until(until);
        self.note_losses();
        ControlFlow::Break(())
    }

    fn flows(&self) -> &[Flow] {
        &self.network.hosts().flows
    }

    fn events(&mut self) -> &mut Vec<EventRow> {
        &mut self.network.hosts_mut().events
    }

    fn sample(
        &mut self,
        sampler: &mut Sampler,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), FileError> {
        recorder.routes(self.network.views_mut().route_log.take())?;
        let stats = self.stats();
        let marked = self.network.take_marked();
        let ends = self.network.hosts_mut();
        let id = |flow: u32| ends.flows[flow as usize].plan.id;
        let marked = marked.into_iter().map(id).collect();
        sampler.sample(&mut ends.flows, (&mut ends.events, marked), stats, recorder)
    }

    fn capture(&mut self, _flows: &dyn Fn(u32) -> bool) -> Result<(), Unsupported> {
        let what = "packets are captured in runs over a [path]; leave out the capture";
        Err(Unsupported::new("network", what))
    }

    fn conclude(&mut self, sampler: &Sampler, recorder: &mut Recorder<'_>) -> Instant {
        self.warnings.drain(..).for_each(|warning| recorder.warn(warning));
        let base_rtts = self.network.views().mean_base_rtts();
        let flows = &mut self.network.hosts_mut().flows;
        let own: Vec<Duration> = flows.iter().map(|flow| flow.plan.extra_rtt).collect();
        let base_rtt = |flow: usize| match base_rtts[flow] {
            // The flow never had a route.
            Duration::ZERO => Duration::ZERO,
            of_network => of_network + own[flow],
        };
        sampler.conclude(flows, |flow| Some(base_rtt(flow)), recorder)
    }

    fn packet_hops(&self) -> u64 {
        self.network.crossings()
    }

    fn estimate(&self) -> Option<Estimate> {
        self.network.hosts().announcements.estimate()
    }
}

/// Largest number of threads of a run: each pair of partitions exchanges packets after every window, and all sites are
/// on one thread, so that more threads wait for each other.
const MOST_THREADS: usize = 8;

/// Number of threads for a run: as many as the machine has processors for this process, up to [`MOST_THREADS`].
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS)
}

impl Numbers {
    fn of(layout: &Layout) -> Self {
        let number = |from: u32, to: u32| {
            layout.lasers.binary_search_by_key(&(from, to), |laser| (laser.from, laser.to)).ok()
        };
        let forward = layout.lasers.iter().filter(|laser| laser.from < laser.to);
        let both = |laser: &Laser| [number(laser.from, laser.to), number(laser.to, laser.from)];
        let mut devices: Vec<[Option<usize>; 2]> = forward.map(both).collect();
        let of_air = layout.lasers.len()..layout.devices();
        devices.extend(of_air.map(|device| [Some(device), None]));
        let mut places = vec![(0, Direction::Forward); layout.devices()];
        for (link, of_link) in (0..).zip(&devices) {
            for (device, direction) in of_link.iter().zip(Direction::ALL) {
                if let Some(device) = device {
                    places[*device] = (link, *direction);
                }
            }
        }
        Self { devices, places }
    }
}
