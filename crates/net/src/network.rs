//! The network: all partitions, the hosts, and the views by which packets are routed.

use std::sync::Arc;

use skyhop_link::{Drop, LinkError, LinkStats};
use skyhop_units::{Duration, Instant};

use crate::fleet::Fleet;
use crate::layout::Layout;
use crate::partition::{Entrance, Hosts, Partition, Receiver, Routed, lookahead};
use crate::threads::{self, Exchange};
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
pub struct Network<P, H, V> {
    ground: Partition<P>,
    hosts: H,
    /// Satellites, unless the partition of the sites has them all.
    sky: Vec<Partition<P>>,
    fleet: Arc<Fleet>,
    views: V,
    view: View,
    exchange: Exchange<P>,
}

impl<P: Routed + Send, H: Hosts<P>, V: Views> Network<P, H, V> {
    /// Create a network without packets at [`Instant::START`], for so many threads.
    ///
    /// # Errors
    /// A device's configuration breaks a rule.
    pub fn new(
        layout: Arc<Layout>,
        hosts: H,
        (view, views): (View, V),
        threads: usize,
    ) -> Result<Self, LinkError> {
        // The partition of the sites, which has most work, gets a thread of its own with some of the satellites.
        let groups = if threads > 1 { GROUPS_PER_THREAD * threads } else { 0 };
        let fleet = Arc::new(Fleet::new(&layout, groups));
        let mut partitions = (0..fleet.partitions as u16)
            .map(|number| Partition::new(number, &layout, &fleet))
            .collect::<Result<Vec<_>, _>>()?;
        let sky = partitions.split_off(1);
        let exchange = Exchange::new(fleet.partitions, threads);
        let ground = partitions.remove(0);
        Ok(Self { ground, hosts, sky, fleet, views, view, exchange })
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
        self.ground.settle(until, &self.view);
        for partition in &mut self.sky {
            partition.settle(until, &self.view);
        }
    }

    /// Process all events up to and including `end`, which lies in the current step.
    fn run_step(&mut self, end: Instant) {
        let Self { ground, hosts, sky, fleet, view, exchange, .. } = self;
        if sky.is_empty() {
            run_ground(ground, hosts, view, end);
            return;
        }
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
        let mut lost = std::mem::take(&mut self.ground.lost);
        for partition in &mut self.sky {
            lost.append(&mut partition.lost);
        }
        // A partition's losses at one device are in order, and the sort is stable.
        lost.sort_by_key(|lost| (lost.drop.at, lost.device));
        lost
    }

    /// Return the flows of the packets marked since the last call, one entry per packet.
    pub fn take_marked(&mut self) -> Vec<u32> {
        let mut marked = std::mem::take(&mut self.ground.marked);
        for partition in &mut self.sky {
            marked.append(&mut partition.marked);
        }
        marked
    }

    /// Source of the views.
    pub fn views(&self) -> &V {
        &self.views
    }

    /// Counters of all devices up to the end of the last [`Self::run_until`], by the number of the device.
    pub fn stats(&self) -> Vec<LinkStats> {
        let partitions = [&self.ground].into_iter().chain(&self.sky);
        let devices = self.fleet.device_places.len();
        let mut stats = vec![LinkStats::default(); devices];
        for (device, of_device) in partitions.flat_map(Partition::stats) {
            stats[device as usize] = of_device;
        }
        stats
    }

    /// Number of packets that have arrived at a node so far, each once for each node.
    pub fn crossings(&self) -> u64 {
        self.ground.crossings + self.sky.iter().map(|partition| partition.crossings).sum::<u64>()
    }

    /// Number of packets in the air.
    pub fn in_air(&self) -> u64 {
        self.ground.in_air() + self.sky.iter().map(Partition::in_air).sum::<u64>()
    }
}

/// Partitions of satellites for each thread, so that threads can have equal loads.
const GROUPS_PER_THREAD: usize = 4;

/// Hosts as the receiver of the partition of the sites.
struct AtSites<'h, H>(&'h mut H);

impl<P: Routed, H: Hosts<P>> Receiver<P> for AtSites<'_, H> {
    #[inline]
    fn receive(
        &mut self,
        packet: skyhop_link::Packet<P>,
        now: Instant,
        partition: &mut Partition<P>,
        view: &View,
    ) {
        self.0.arrive(packet, now, &mut Entrance { partition, view });
    }
}

/// Process the events of the sites' partition and of the hosts up to and including `end`.
pub(crate) fn run_ground<P: Routed, H: Hosts<P>>(
    ground: &mut Partition<P>,
    hosts: &mut H,
    view: &View,
    end: Instant,
) {
    loop {
        let (of_network, of_hosts) = (ground.next(), hosts.next());
        let network_is_first = match (of_network, of_hosts) {
            (Some(network), Some(host)) => network <= host,
            (network, _) => network.is_some(),
        };
        let Some(now) = (if network_is_first { of_network } else { of_hosts }) else { return };
        if now > end {
            return;
        }
        if network_is_first {
            ground.visit(view, &mut AtSites(hosts));
        } else {
            hosts.visit(now, &mut Entrance { partition: ground, view });
        }
    }
}

/// Earliest event of the sites' partition and of the hosts.
pub(crate) fn next_on_ground<P: Routed, H: Hosts<P>>(
    ground: &Partition<P>,
    hosts: &H,
) -> Option<Instant> {
    ground.next().into_iter().chain(hosts.next()).min()
}
