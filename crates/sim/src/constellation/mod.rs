//! Runs over a whole network of satellites and sites.

mod ends;
mod orbits;
mod route_log;

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use skyhop_engine::Unsupported;
use skyhop_experiment::{Experiment, HopPlan, NetworkLink, NetworkPlan, seed_for};
use skyhop_link::{DelayPiece, Dismantled, LinkConfig, LinkStats, Outage};
use skyhop_model::{Counts as _, Direction};
use skyhop_net::{Downlink, Laser, Layout, Lost, Network};
use skyhop_path::failures::{FailureTime, Part};
use skyhop_path::network::{LaserPath, Role};
use skyhop_record::{EventRow, FileError, Recorder};
use skyhop_units::{Duration, Instant};

use crate::Simulation;
use crate::constellation::ends::{Ends, Parcel};
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
}

impl Constellation {
    /// Prepare a run on so many threads.
    pub(crate) fn new(
        experiment: &Experiment,
        plan: &NetworkPlan,
        threads: usize,
    ) -> Result<Self, Unsupported> {
        let unsupported = |what: String| Unsupported::new("network", what);
        let layout = Arc::new(layout(plan, experiment.seed));
        let flows = seeded_in_order(experiment.seed, &experiment.flows)
            .into_iter()
            .map(|(plan, seed)| Flow::new(plan, (seed, experiment.seed), None))
            .collect::<Result<Vec<_>, _>>()?;
        let ends = Ends::new(flows);
        let orbits = Orbits::new(plan, &layout, ends.pairs.clone(), threads);
        let views = orbits.map_err(|error| unsupported(error.to_string()))?;
        let numbers = Numbers::of(&layout);
        let network = Network::new(Arc::clone(&layout), ends, views, threads);
        Ok(Self {
            network: network.map_err(|error| unsupported(error.to_string()))?,
            lost_outside: vec![LinkStats::default(); layout.devices()],
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
        let by_device = self.network.stats();
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

    fn conclude(&mut self, sampler: &Sampler, recorder: &mut Recorder<'_>) -> Instant {
        let base_rtts = self.network.views().mean_base_rtts();
        let flows = &mut self.network.hosts_mut().flows;
        sampler.conclude(flows, |flow| Some(base_rtts[flow]), recorder)
    }

    fn packet_hops(&self) -> u64 {
        self.network.crossings()
    }
}

/// Largest number of threads of a run: each pair of partitions exchanges packets after every window, and all sites are
/// on one thread, so that more threads wait for each other.
const MOST_THREADS: usize = 8;

/// Number of threads for a run: as many as the machine has processors for this process, up to [`MOST_THREADS`].
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS)
}

/// Nodes and devices of a plan.
fn layout(plan: &NetworkPlan, seed: u64) -> Layout {
    let laser = |path: &LaserPath| {
        let name = format!("laser {} {}", path.from, path.to);
        let mut config = device(&plan.hops.laser, seed, &name);
        config.schedule.delay = pieces(&path.delays);
        config.schedule.dismantled = path.breaks.iter().map(|at| dismantled(*at)).collect();
        fail(&mut config, &path.failed);
        Laser { from: path.from, to: path.to, config }
    };
    let sites = 0..plan.request.sites.len() as u32;
    let roles = || sites.clone().map(|site| plan.request.role(site));
    let mut groups = vec![(&plan.hops.down, "down")];
    if plan.has_gateways() {
        groups.push((&plan.hops.gateway_down, "gateway down"));
    }
    Layout {
        satellites: plan.satellites(),
        sites: sites.end,
        lasers: plan.lasers.iter().map(laser).collect(),
        down: groups.into_iter().map(|(hop, name)| of_satellites(plan, hop, seed, name)).collect(),
        downlinks: sites.clone().map(|site| downlink(plan, seed, site)).collect(),
        up: sites.clone().map(|site| uplink(plan, seed, site)).collect(),
        is_behind: roles().map(|role| *role == Role::PointOfPresence).collect(),
    }
}

/// Device of a kind, with random draws of its own.
fn device(hop: &HopPlan, seed: u64, name: &str) -> LinkConfig {
    LinkConfig { seed: seed_for(seed, name), ..hop.config.clone() }
}

/// Devices of all satellites towards a group of sites.
fn of_satellites(plan: &NetworkPlan, hop: &HopPlan, seed: u64, name: &str) -> Vec<LinkConfig> {
    let of = |number: u32| {
        let mut config = device(hop, seed, &format!("{name} {number}"));
        fail(&mut config, &plan.request.options.failures.times_of(Part::Satellite(number)));
        config
    };
    (0..plan.satellites()).map(of).collect()
}

/// Downlinks to a site: those of its group, or its own.
fn downlink(plan: &NetworkPlan, seed: u64, site: u32) -> Downlink {
    match plan.request.role(site) {
        Role::Terminal { .. } if plan.downlink_per_site => {
            let name = format!("down {}", plan.request.sites[site as usize].name);
            let mut config = device(&plan.hops.down, seed, &name);
            config.schedule = plan.schedule(NetworkLink::OwnDown(site)).clone();
            Downlink::Own(Box::new(config))
        }
        Role::Terminal { .. } => Downlink::Shared(0),
        Role::Gateway | Role::PointOfPresence => Downlink::Shared(1),
    }
}

/// Device of a site towards the satellites.
fn uplink(plan: &NetworkPlan, seed: u64, site: u32) -> LinkConfig {
    let link = NetworkLink::Up(site);
    let name = format!("up {}", plan.request.sites[site as usize].name);
    let mut config = device(plan.hop(link), seed, &name);
    config.schedule = plan.schedule(link).clone();
    fail(&mut config, &plan.request.options.failures.times_of(Part::Site(site)));
    config
}

/// Loss of all packets in the queue of a link and on it.
const fn dismantled(at: Instant) -> Dismantled {
    Dismantled { at, near: Duration::ZERO, far: Duration::MAX, queue: true }
}

/// Add failures to the schedule of a link: what is in its queue or on it is lost, and what comes during the failure.
fn fail(config: &mut LinkConfig, times: &[FailureTime]) {
    let schedule = &mut config.schedule;
    let begun = times.iter().filter(|[from, _]| *from > Instant::START);
    schedule.dismantled.extend(begun.map(|[from, _]| dismantled(*from)));
    schedule.dismantled.sort_by_key(|hop| hop.at);
    schedule.add_outages(times.iter().map(|&[from, until]| Outage { from, until }));
}

/// Pieces of a delay that changes linearly between points.
fn pieces(points: &[(Instant, Duration)]) -> Vec<DelayPiece> {
    let at_end = |next: usize| points.get(next).or(points.last()).map_or(Duration::ZERO, |at| at.1);
    let piece = |(index, &(from, delay)): (usize, &(Instant, Duration))| DelayPiece {
        // The delay before the link exists is that of its first time.
        from: if index == 0 { Instant::START } else { from },
        delay,
        delay_at_end: at_end(index + 1),
        new_route: false,
    };
    points.iter().enumerate().map(piece).collect()
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
