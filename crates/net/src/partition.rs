//! Partition: some nodes of the network, with their devices and the packets on the way to them.

use std::collections::VecDeque;
use std::sync::Arc;

use skyhop_link::{Drop, Link, LinkError, LinkStats, Packet};
use skyhop_model::LossReason;
use skyhop_units::{Duration, Instant};

use crate::arrivals::InAir;
use crate::calendar::Calendar;
use crate::fleet::Fleet;
use crate::layout::Layout;
use crate::network::Lost;
use crate::view::{DOWN, NO_ROUTE, NO_SATELLITE, View};

/// Payload of a packet that says where the packet goes.
pub trait Routed {
    /// Site to which the packet goes.
    fn destination(&self) -> u32;
}

/// Ends of flows, at all sites.
pub trait Hosts<P> {
    /// Time at which [`Self::visit`] has to be called next.
    fn next(&self) -> Option<Instant>;

    /// Process what is due at `now`, and send packets.
    fn visit(&mut self, now: Instant, network: &mut impl Uplinks<P>);

    /// Process a packet that has arrived at its destination.
    fn arrive(&mut self, packet: Packet<P>, now: Instant, network: &mut impl Uplinks<P>);
}

/// Entrance of the network for packets of the hosts.
pub trait Uplinks<P> {
    /// Hand a packet to the device of a site.
    fn send(&mut self, site: u32, now: Instant, packet: Packet<P>);
}

/// Packet on the way to a node of another partition.
#[derive(Debug)]
pub(crate) struct Transfer<P> {
    pub(crate) at: Instant,
    pub(crate) over: Way,
    pub(crate) packet: Packet<P>,
}

/// Way of a packet to the next node.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    Laser(u32),
    Air { from: u32, to: u32 },
}

/// Some nodes of the network.
pub(crate) struct Partition<P> {
    number: u16,
    layout: Arc<Layout>,
    fleet: Arc<Fleet>,
    calendar: Calendar,
    /// Device number of each local device.
    device_numbers: Vec<u32>,
    devices: Vec<Link<P>>,
    /// Node that each local line of packets over a laser arrives at.
    line_ends: Vec<u32>,
    lines: Vec<VecDeque<(Instant, Packet<P>)>>,
    nodes: Vec<u32>,
    in_air: Vec<InAir<P>>,
    /// Packets for the other partitions, since the last [`Self::take_outbox`].
    outboxes: Vec<Vec<Transfer<P>>>,
    /// Packets lost since they were last taken.
    pub(crate) lost: Vec<Lost<P>>,
    /// Flows of the packets marked since they were last taken.
    pub(crate) marked: Vec<u32>,
    /// Packets that have arrived at a node so far.
    pub(crate) crossings: u64,
}

/// Receiver of the packets that have arrived at their destination.
pub(crate) trait Receiver<P> {
    fn receive(
        &mut self,
        packet: Packet<P>,
        now: Instant,
        partition: &mut Partition<P>,
        view: &View,
    );
}

impl<P: Routed> Partition<P> {
    pub(crate) fn new(
        number: u16,
        layout: &Arc<Layout>,
        fleet: &Arc<Fleet>,
    ) -> Result<Self, LinkError> {
        let is_here = |node: u32| fleet.home(node) == number;
        let device_numbers: Vec<u32> = (0..layout.devices() as u32)
            .filter(|device| is_here(layout.device_node(*device as usize)))
            .collect();
        let devices = device_numbers
            .iter()
            .map(|device| Link::new(layout.config(*device as usize).clone()))
            .collect::<Result<Vec<_>, _>>()?;
        let line_ends: Vec<u32> =
            layout.lasers.iter().map(|laser| laser.to).filter(|to| is_here(*to)).collect();
        let nodes: Vec<u32> = (0..layout.nodes() as u32).filter(|node| is_here(*node)).collect();
        let mut partition = Self {
            number,
            calendar: Calendar::new(devices.len() + line_ends.len() + nodes.len(), 0),
            lines: line_ends.iter().map(|_| VecDeque::new()).collect(),
            in_air: nodes.iter().map(|_| InAir::new()).collect(),
            outboxes: (0..fleet.partitions).map(|_| Vec::new()).collect(),
            lost: Vec::new(),
            marked: Vec::new(),
            crossings: 0,
            layout: Arc::clone(layout),
            fleet: Arc::clone(fleet),
            device_numbers,
            devices,
            line_ends,
            nodes,
        };
        for device in 0..partition.devices.len() {
            let next = partition.next_of(device);
            partition.calendar.set(device, next);
        }
        Ok(partition)
    }

    /// Time of the next event.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.calendar.next().map(|(_, at)| at)
    }

    /// Process the next event, which is at `now`.
    #[inline]
    pub(crate) fn visit(&mut self, view: &View, receiver: &mut impl Receiver<P>) {
        let Some((component, now)) = self.calendar.next() else { return };
        let (devices, lines) = (self.devices.len(), self.lines.len());
        if component < devices {
            self.visit_device(component, now, view);
        } else if component < devices + lines {
            self.visit_line(component - devices, now, view, receiver);
        } else {
            self.visit_air(component - devices - lines, now, view, receiver);
        }
    }

    fn visit_line(
        &mut self,
        line: usize,
        now: Instant,
        view: &View,
        receiver: &mut impl Receiver<P>,
    ) {
        let node = self.line_ends[line];
        while let Some((at, _)) = self.lines[line].front()
            && *at <= now
            && let Some((_, packet)) = self.lines[line].pop_front()
        {
            self.arrive(node, packet, now, view, receiver);
        }
        let next = self.lines[line].front().map(|(at, _)| *at);
        self.calendar.set(self.devices.len() + line, next);
    }

    fn visit_air(
        &mut self,
        place: usize,
        now: Instant,
        view: &View,
        receiver: &mut impl Receiver<P>,
    ) {
        let node = self.nodes[place];
        while let Some(packet) = self.in_air[place].pop(now) {
            self.arrive(node, packet, now, view, receiver);
        }
        let component = self.devices.len() + self.lines.len() + place;
        self.calendar.set(component, self.in_air[place].next());
    }

    #[inline]
    fn arrive(
        &mut self,
        node: u32,
        packet: Packet<P>,
        now: Instant,
        view: &View,
        receiver: &mut impl Receiver<P>,
    ) {
        self.crossings += 1;
        if node < self.layout.satellites {
            self.forward(node, packet, now, view);
        } else {
            receiver.receive(packet, now, self, view);
        }
    }

    /// Hand a packet to the device of a satellite that the route leads through.
    #[inline]
    fn forward(&mut self, satellite: u32, packet: Packet<P>, now: Instant, view: &View) {
        let ports = &view.ports[packet.payload.destination() as usize];
        match ports[satellite as usize] {
            NO_ROUTE => self.lose(self.layout.air_device(satellite), packet, now),
            DOWN => self.enqueue(self.layout.air_device(satellite), packet, now, view),
            port => {
                let laser = self.fleet.first_lasers[satellite as usize] + u32::from(port);
                self.enqueue(laser as usize, packet, now, view);
            }
        }
    }

    /// Hand a packet to a device of this partition.
    #[inline]
    pub(crate) fn enqueue(&mut self, device: usize, packet: Packet<P>, now: Instant, view: &View) {
        let place = self.fleet.device_places[device] as usize;
        self.devices[place].enqueue(now, packet);
        self.visit_device(place, now, view);
    }

    /// Carry on what leaves a device, and record its losses.
    #[inline]
    fn visit_device(&mut self, place: usize, now: Instant, view: &View) {
        let device = self.device_numbers[place] as usize;
        if device < self.layout.lasers.len() {
            while let Some(arrival) = self.devices[place].poll_ahead(now) {
                self.carry(arrival.at, Way::Laser(device as u32), arrival.packet);
            }
        } else {
            while let Some(departure) = self.devices[place].poll(now) {
                self.leave(device, departure.packet, now, view);
            }
        }
        if self.devices[place].has_drops_or_marks() {
            self.take_drops(place);
        }
        let next = self.next_of(place);
        self.calendar.set(place, next);
    }

    /// Time at which a device has to be visited next.
    #[inline]
    fn next_of(&self, place: usize) -> Option<Instant> {
        let is_laser = (self.device_numbers[place] as usize) < self.layout.lasers.len();
        let device = &self.devices[place];
        if is_laser { device.next_change() } else { device.next_wakeup() }
    }

    /// Send a packet that leaves the air device of a node through the air.
    fn leave(&mut self, device: usize, packet: Packet<P>, now: Instant, view: &View) {
        let node = (device - self.layout.lasers.len()) as u32;
        let destination = packet.payload.destination();
        let (satellite, site, to) = match node.checked_sub(self.layout.satellites) {
            None => (node, destination, self.layout.satellites + destination),
            Some(site) => {
                let satellite = view.up[destination as usize][site as usize];
                (satellite, site, satellite)
            }
        };
        if satellite == NO_SATELLITE {
            return self.lose(device, packet, now);
        }
        let Some(air) = view.air(site, satellite) else {
            // The satellite no longer sees the site: the packet takes the satellite's new route, if there is one.
            return self.turn(satellite, packet, now, view);
        };
        let at = now + view.delay(air, now);
        if air.sets && at > view.until {
            return self.lost.push(Lost {
                device: device as u32,
                drop: Drop { at: view.until, reason: LossReason::Dismantled, packet },
                in_link: false,
            });
        }
        self.carry(at, Way::Air { from: node, to }, packet);
    }

    /// Forward a packet that has waited at a satellite while its destination went out of view.
    #[cold]
    fn turn(&mut self, satellite: u32, packet: Packet<P>, now: Instant, view: &View) {
        let port = view.ports[packet.payload.destination() as usize][satellite as usize];
        match port {
            NO_ROUTE | DOWN => self.lose(self.layout.air_device(satellite), packet, now),
            _ => self.forward(satellite, packet, now, view),
        }
    }

    /// Put a packet on the way to the next node.
    #[inline]
    fn carry(&mut self, at: Instant, over: Way, packet: Packet<P>) {
        let to = match over {
            Way::Laser(laser) => self.fleet.far_ends[laser as usize],
            Way::Air { to, .. } => to,
        };
        let home = self.fleet.home(to);
        let transfer = Transfer { at, over, packet };
        if home == self.number {
            self.accept(transfer);
        } else {
            self.outboxes[usize::from(home)].push(transfer);
        }
    }

    /// Take over a packet on the way to a node of this partition.
    #[inline]
    pub(crate) fn accept(&mut self, transfer: Transfer<P>) {
        let Transfer { at, over, packet } = transfer;
        match over {
            Way::Laser(laser) => {
                let place = self.fleet.line_places[laser as usize] as usize;
                let line = &mut self.lines[place];
                if line.is_empty() {
                    self.calendar.set(self.devices.len() + place, Some(at));
                }
                line.push_back((at, packet));
            }
            Way::Air { from, to } => {
                let place = self.fleet.node_places[to as usize] as usize;
                self.in_air[place].enter(at, from, packet);
                let component = self.devices.len() + self.lines.len() + place;
                self.calendar.set(component, self.in_air[place].next());
            }
        }
    }

    /// Whether there are packets for another partition.
    pub(crate) fn has_sent(&self, to: usize) -> bool {
        !self.outboxes[to].is_empty()
    }

    /// Move the packets for another partition into `slot`, which is empty.
    pub(crate) fn swap_outbox(&mut self, to: usize, slot: &mut Vec<Transfer<P>>) {
        debug_assert!(slot.is_empty(), "the packets of two windows ago have been taken");
        std::mem::swap(&mut self.outboxes[to], slot);
    }

    /// Earliest arrival of the packets for other partitions.
    pub(crate) fn earliest_sent(&self) -> Option<Instant> {
        self.outboxes.iter().flatten().map(|transfer| transfer.at).min()
    }

    /// Record that a node has no way for a packet.
    #[cold]
    fn lose(&mut self, device: usize, packet: Packet<P>, now: Instant) {
        let drop = Drop { at: now, reason: LossReason::Outage, packet };
        self.lost.push(Lost { device: device as u32, drop, in_link: false });
    }

    #[cold]
    fn take_drops(&mut self, place: usize) {
        let device = self.device_numbers[place];
        let drops = self.devices[place].take_drops();
        self.lost.extend(drops.into_iter().map(|drop| Lost { device, drop, in_link: true }));
        self.marked.append(&mut self.devices[place].take_marks());
    }

    /// Bring the counters of all devices up to `now`, after all events up to that time.
    pub(crate) fn settle(&mut self, now: Instant, view: &View) {
        for place in 0..self.devices.len() {
            self.visit_device(place, now, view);
        }
    }

    /// Counters of the devices, with the number of each.
    pub(crate) fn stats(&self) -> impl Iterator<Item = (u32, LinkStats)> {
        self.device_numbers.iter().zip(&self.devices).map(|(number, link)| (*number, link.stats()))
    }

    /// Number of packets in the air on the way to nodes of this partition.
    pub(crate) fn in_air(&self) -> u64 {
        self.in_air.iter().map(InAir::len).sum()
    }
}

/// Entrance of the network for the hosts, which are in the partition of the sites.
pub(crate) struct Entrance<'p, P> {
    pub(crate) partition: &'p mut Partition<P>,
    pub(crate) view: &'p View,
}

impl<P: Routed> Uplinks<P> for Entrance<'_, P> {
    fn send(&mut self, site: u32, now: Instant, packet: Packet<P>) {
        let device = self.partition.layout.air_device(self.partition.layout.satellites + site);
        self.partition.enqueue(device, packet, now, self.view);
    }
}

/// Shortest time in which a packet goes from a node of one partition to one of another.
pub(crate) fn lookahead(fleet: &Fleet, view: &View) -> Duration {
    fleet.lookahead.min(view.least_delay())
}
