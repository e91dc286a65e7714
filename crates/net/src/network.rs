//! The network: all partitions, the hosts, and the views by which packets are routed.

use std::sync::Arc;

use skyhop_link::{Drop, LinkError, LinkStats};
use skyhop_units::{Duration, Instant};

use crate::fleet::Fleet;
use crate::ground::{Ground, Hosts};
use crate::layout::Layout;
use crate::sky::{Sky, lookahead};
use crate::threads::{self, Exchange};
use crate::transfer::Routed;
use crate::view::{View, Views};

/// A packet that was lost at a device, or in the air behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost<P> {
    /// Number of the device; see [`Layout`].
    pub device: u32,
    /// Time, reason and packet.
    pub drop: Drop<P>,
    /// Whether the device's counters include the loss: not if there was no route, or the satellite has set.
    pub in_link: bool,
}

/// Satellites and sites with their devices, and the flows between the sites.
pub struct Network<P, H, V: Views> {
    ground: Ground<P>,
    hosts: H,
    sky: Vec<Sky<P>>,
    fleet: Arc<Fleet>,
    views: V,
    view: View<V::Routes>,
    exchange: Exchange<P>,
    /// Number of devices of all nodes.
    devices: usize,
    /// End of the last [`Self::run_until`].
    now: Instant,
}

impl<P: Routed + Send, H: Hosts<P>, V: Views> Network<P, H, V> {
    /// Create a network without packets at [`Instant::START`], for so many threads.
    ///
    /// # Errors
    /// A device's configuration breaks a rule.
    pub fn new(
        layout: Arc<Layout>,
        hosts: H,
        (view, views): (View<V::Routes>, V),
        threads: usize,
    ) -> Result<Self, LinkError> {
        let groups = if threads > 1 { GROUPS_PER_THREAD * threads } else { 1 };
        layout.check_own_downlinks()?;
        let fleet = Arc::new(Fleet::new(&layout, groups));
        let sky = (0..fleet.partitions).map(|number| Sky::new(number, &layout, &fleet));
        Ok(Self {
            sky: sky.collect::<Result<_, _>>()?,
            ground: Ground::new(&layout, &fleet)?,
            exchange: Exchange::new(fleet.partitions, threads),
            devices: layout.devices(),
            now: Instant::START,
            hosts,
            fleet,
            views,
            view,
        })
    }

    /// Process all events up to and including `until`, and bring the counters of all devices up to that time.
    pub fn run_until(&mut self, until: Instant) {
        loop {
            let end = until.min(self.view.until - Duration::from_nanos(1));
            self.run_step(end);
            if end == until {
                break;
            }
            self.views.advance(&mut self.view);
        }
        self.now = until;
        self.ground.settle(until, &self.view);
        for partition in &mut self.sky {
            partition.settle(until, &self.view);
        }
    }

    /// Process all events up to and including `end`, which lies in the current step.
    fn run_step(&mut self, end: Instant) {
        let Self { ground, hosts, sky, fleet, view, exchange, .. } = self;
        threads::run(exchange, (ground, hosts), sky, (view, lookahead(fleet, view), end));
    }

    /// Hosts at the sites.
    pub const fn hosts(&self) -> &H {
        &self.hosts
    }

    /// Hosts at the sites, to change them between calls of [`Self::run_until`].
    pub const fn hosts_mut(&mut self) -> &mut H {
        &mut self.hosts
    }

    /// Return the packets lost since the last call, in the order of time and then of devices.
    pub fn take_lost(&mut self) -> Vec<Lost<P>> {
        let mut lost = std::mem::take(&mut self.ground.losses.lost);
        for partition in &mut self.sky {
            lost.append(&mut partition.losses.lost);
        }
        // A partition's losses at one device are in order, and the sort is stable.
        lost.sort_by_key(|lost| (lost.drop.at, lost.device));
        lost
    }

    /// Return the flows of the packets marked since the last call, one entry per packet.
    pub fn take_marked(&mut self) -> Vec<u32> {
        let mut marked = std::mem::take(&mut self.ground.losses.marked);
        for partition in &mut self.sky {
            marked.append(&mut partition.losses.marked);
        }
        marked
    }

    /// Source of the views.
    pub fn views(&self) -> &V {
        &self.views
    }

    /// Source of the views, to change it between calls of [`Self::run_until`].
    pub fn views_mut(&mut self) -> &mut V {
        &mut self.views
    }

    /// End of the last [`Self::run_until`].
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Counters of all devices up to the end of the last [`Self::run_until`], by the number of the device.
    pub fn stats(&mut self) -> Vec<LinkStats> {
        let lasers = self.fleet.first_lasers.last().copied().unwrap_or(0);
        let mut arrived = vec![Default::default(); lasers as usize];
        for partition in &self.sky {
            partition.add_arrived(&mut arrived);
        }
        let mut stats = vec![LinkStats::default(); self.devices];
        self.ground.add_stats(self.now, &mut stats);
        for partition in &mut self.sky {
            partition.add_stats(self.now, &arrived, &mut stats);
        }
        stats
    }

    /// Number of packets that have arrived at a node so far, each once for each node.
    pub fn crossings(&self) -> u64 {
        self.ground.crossings + self.sky.iter().map(|partition| partition.crossings).sum::<u64>()
    }

    /// Number of packets in the air.
    pub fn in_air(&self) -> u64 {
        self.ground.in_air() + self.sky.iter().map(Sky::in_air).sum::<u64>()
    }
}

/// Partitions of satellites for each thread, so that threads can have equal loads.
const GROUPS_PER_THREAD: usize = 4;
