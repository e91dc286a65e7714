//! Some of the satellites, with their devices and the packets on the way to them.
//!
//! Every packet takes some time from one node to the next. In a window of time that is shorter than all these delays, no
//! packet that enters a link arrives, so that each satellite processes its events of the window without a look at the
//! others.

use std::ops::Range;
use std::sync::Arc;

use skyhop_link::{LinkError, LinkStats, NO_NODE, Packet};
use skyhop_model::LossReason;
use skyhop_units::{Bytes, Duration, Instant};

use crate::arrivals::InAir;
use crate::device::{Egress, Losses, enqueue, enter};
use crate::downlinks::Downlinks;
use crate::fleet::Fleet;
use crate::layout::Layout;
use crate::queue::Queue;
use crate::transfer::{FarEnd, Outboxes, Routed, Transfer, Way};
use crate::view::{Crossing, DOWN, NO_ROUTE, Routes, View};

/// Event of a satellite: the first of its lasers with events of their own.
const LASERS: usize = 0;
/// Event of a satellite: the end of a transmission to the ground.
const DOWNLINK: usize = 1;
/// Event of a satellite: the next arrival over its first incoming laser; those over the others follow, and then the next
/// arrival through the air.
const LINES: usize = 2;

/// Packets that arrive over a laser, in order, and what has arrived so far.
struct Line<P> {
    /// Satellite from which the laser comes.
    from: u32,
    packets: Queue<P>,
    arrived: (u64, Bytes),
}

/// Laser device of a satellite.
struct LaserDevice<P> {
    egress: Egress<P>,
    /// Partition of the far end, and the far end there.
    to: u32,
    end: FarEnd,
}

/// Consecutive satellites, with the packets on the way to them.
pub(crate) struct Sky<P> {
    number: usize,
    satellites: Range<u32>,
    layout: Arc<Layout>,
    fleet: Arc<Fleet>,
    /// Time of the next event of each satellite.
    next: Vec<Instant>,
    /// Times of the next events by their kind: those of the first satellite, then those of the second, ….
    events: Vec<Instant>,
    /// Index in `events` of the first event of each satellite, and the number of all.
    first_events: Vec<u32>,
    lasers: Vec<LaserDevice<P>>,
    /// Index of each satellite's first laser, and the number of all.
    first_lasers: Vec<u32>,
    downlinks: Vec<Downlinks<P>>,
    lines: Vec<Line<P>>,
    /// Index of each satellite's first line.
    first_lines: Vec<u32>,
    in_air: Vec<InAir<P>>,
    pub(crate) outboxes: Outboxes<P>,
    pub(crate) losses: Losses<P>,
    /// Packets that have arrived at a satellite so far.
    pub(crate) crossings: u64,
}

impl<P: Routed> Sky<P> {
    pub(crate) fn new(
        number: usize,
        layout: &Arc<Layout>,
        fleet: &Arc<Fleet>,
    ) -> Result<Self, LinkError> {
        let satellites = fleet.satellites(number);
        let places = fleet.arriving_at(&satellites);
        let mut first_events = vec![0];
        let (mut lines, mut first_lines) = (Vec::with_capacity(places.len()), Vec::new());
        for satellite in satellites.clone() {
            let arriving = fleet.arriving_at(&(satellite..satellite + 1));
            first_events
                .push(first_events[first_events.len() - 1] + (LINES + arriving.len() + 1) as u32);
            first_lines.push(lines.len() as u32);
            let from = |place| layout.lasers[fleet.arriving(place)].from;
            let line = |place| Line {
                from: from(place),
                packets: Queue::new(),
                arrived: (0, Bytes::ZERO),
            };
            lines.extend(arriving.map(line));
        }
        let device = |laser: usize| {
            let to = fleet.home(layout.lasers[laser].to);
            let there = fleet.satellites(to);
            let end = FarEnd {
                line: fleet.arriving_places[laser] - fleet.arriving_at(&there).start as u32,
                satellite: layout.lasers[laser].to - there.start,
            };
            let egress = Egress::new(&layout.lasers[laser].config)?;
            Ok::<_, LinkError>(LaserDevice { egress, to: to as u32, end })
        };
        let lasers = fleet.lasers_from(&satellites);
        let of_satellites =
            &fleet.first_lasers[satellites.start as usize..=satellites.end as usize];
        let first_lasers = of_satellites.iter().map(|first| first - lasers.start as u32).collect();
        let downlink = |satellite: u32| Downlinks::new(layout, satellite);
        let mut sky = Self {
            number,
            next: vec![Instant::NEVER; satellites.len()],
            events: vec![Instant::NEVER; first_events[satellites.len()] as usize],
            first_events,
            first_lasers,
            lasers: lasers.map(device).collect::<Result<_, _>>()?,
            downlinks: satellites.clone().map(downlink).collect::<Result<_, _>>()?,
            lines,
            first_lines,
            in_air: satellites.clone().map(|_| InAir::new()).collect(),
            outboxes: Outboxes::new(fleet.partitions + 1),
            losses: Losses::new(),
            crossings: 0,
            layout: Arc::clone(layout),
            fleet: Arc::clone(fleet),
            satellites,
        };
        for index in 0..sky.satellites.len() {
            sky.plan_lasers(index);
            sky.next[index] = sky.earliest(index).1;
        }
        Ok(sky)
    }

    /// Time of the next event; [`Instant::NEVER`] if there is none.
    pub(crate) fn next(&self) -> Instant {
        self.next.iter().copied().min().unwrap_or(Instant::NEVER)
    }

    /// Process all events up to and including `until`, within a window.
    pub(crate) fn run_until(&mut self, until: Instant, view: &View<impl Routes>) {
        for index in 0..self.next.len() {
            if self.next[index] <= until {
                self.run_satellite(index, until, view);
            }
        }
    }

    fn run_satellite(&mut self, index: usize, until: Instant, view: &View<impl Routes>) {
        let air = self.air_event(index);
        loop {
            let (event, now) = self.earliest(index);
            if now > until {
                self.next[index] = now;
                return;
            }
            match event {
                LASERS => self.visit_lasers(index, now),
                DOWNLINK => self.visit_downlink(index, now, view),
                event if event == air => self.visit_air(index, now, view),
                event => self.visit_line(index, event - LINES, now, view),
            }
        }
    }

    /// First of a satellite's next events, and its time.
    #[inline]
    fn earliest(&self, index: usize) -> (usize, Instant) {
        let [first, end] = [0, 1].map(|next| self.first_events[index + next] as usize);
        let mut earliest = (0, Instant::NEVER);
        for (event, at) in self.events[first..end].iter().enumerate() {
            if *at < earliest.1 {
                earliest = (event, *at);
            }
        }
        earliest
    }

    /// Kind of a satellite's event that is the next arrival through the air.
    #[inline]
    fn air_event(&self, index: usize) -> usize {
        (self.first_events[index + 1] - self.first_events[index]) as usize - 1
    }

    #[inline]
    fn set_event(&mut self, index: usize, event: usize, at: Instant) {
        self.events[self.first_events[index] as usize + event] = at;
    }

    fn visit_line(&mut self, index: usize, number: usize, now: Instant, view: &View<impl Routes>) {
        let line = self.first_lines[index] as usize + number;
        let from = self.lines[line].from;
        while let Some(packet) = self.lines[line].packets.pop(now) {
            let arrived = &mut self.lines[line].arrived;
            arrived.0 += 1;
            arrived.1 += packet.wire_size;
            self.crossings += 1;
            self.forward(index, (from, packet), now, view);
        }
        let next = self.lines[line].packets.next();
        self.set_event(index, LINES + number, next);
    }

    fn visit_air(&mut self, index: usize, now: Instant, view: &View<impl Routes>) {
        while let Some(arrived) = self.in_air[index].pop(now) {
            self.crossings += 1;
            self.forward(index, arrived, now, view);
        }
        let next = self.in_air[index].next().unwrap_or(Instant::NEVER);
        self.set_event(index, self.air_event(index), next);
    }

    /// Hand a packet from a node to the device of a satellite that the route leads through.
    #[inline]
    fn forward(
        &mut self,
        index: usize,
        (from, packet): (u32, Packet<P>),
        now: Instant,
        view: &View<impl Routes>,
    ) {
        let satellite = self.satellites.start + index as u32;
        match view.routes.port(satellite, packet.payload.destination(), packet.flow) {
            NO_ROUTE => self.lose(index, packet, now, LossReason::Outage),
            DOWN => match self.downlinks[index].enqueue(&self.layout, now, from, packet) {
                Ok(()) => {
                    let next = self.downlinks[index].next();
                    self.set_event(index, DOWNLINK, next);
                }
                Err((device, packet)) => self.losses.overflow(device, packet, now),
            },
            port => self.enter_laser(index, usize::from(port), (from, packet), now),
        }
    }

    /// Hand a packet to a laser of a satellite.
    #[inline]
    fn enter_laser(
        &mut self,
        index: usize,
        port: usize,
        (from, mut packet): (u32, Packet<P>),
        now: Instant,
    ) {
        let number = self.first_lasers[index] as usize + port;
        let laser = &mut self.lasers[number];
        match &mut laser.egress {
            Egress::Plain(plain) => match enter(plain, now, from, &mut packet) {
                Some(at) => {
                    let to = (laser.to, laser.end);
                    self.carry(at, to, packet);
                }
                None => self.losses.overflow(self.first_laser() + number, packet, now),
            },
            Egress::General(link) => {
                enqueue(link, now, from, packet);
                self.visit_laser(number, now);
                self.plan_lasers(index);
            }
        }
    }

    #[inline]
    fn first_laser(&self) -> usize {
        self.fleet.first_lasers[self.satellites.start as usize] as usize
    }

    /// Lasers of a satellite, by their index in the partition.
    fn lasers_of(&self, index: usize) -> Range<usize> {
        self.first_lasers[index] as usize..self.first_lasers[index + 1] as usize
    }

    /// Carry on what leaves the lasers of a satellite that have events of their own.
    fn visit_lasers(&mut self, index: usize, now: Instant) {
        for laser in self.lasers_of(index) {
            self.visit_laser(laser, now);
        }
        self.plan_lasers(index);
    }

    fn visit_laser(&mut self, laser: usize, now: Instant) {
        while let LaserDevice { egress: Egress::General(link), to, end } = &mut self.lasers[laser] {
            let Some(arrival) = link.poll_ahead(now) else {
                let first = self.fleet.first_lasers[self.satellites.start as usize] as usize;
                return self.losses.take_from(first + laser, link);
            };
            let to = (*to, *end);
            self.carry(arrival.at, to, arrival.packet);
        }
    }

    /// Set the time at which a laser of a satellite has an event of its own.
    fn plan_lasers(&mut self, index: usize) {
        let next =
            self.lasers[self.lasers_of(index)].iter().filter_map(|laser| match &laser.egress {
                Egress::Plain(_) => None,
                Egress::General(link) => link.next_change(),
            });
        let next = next.min().unwrap_or(Instant::NEVER);
        self.set_event(index, LASERS, next);
    }

    /// Put a packet on the way to the far end of a laser, in the given partition.
    #[inline]
    fn carry(&mut self, at: Instant, (to, end): (u32, FarEnd), packet: Packet<P>) {
        if to as usize == self.number {
            self.arrive_later(at, end, packet);
        } else {
            self.outboxes.push(to as usize, Transfer { at, over: Way::Laser(end), packet });
        }
    }

    #[inline]
    fn arrive_later(&mut self, at: Instant, end: FarEnd, packet: Packet<P>) {
        // If others are on the way, they arrive first, so that both times stay as they are.
        let event = &mut self.events[arrival_event(end)];
        *event = at.min(*event);
        let next = &mut self.next[end.satellite as usize];
        *next = at.min(*next);
        self.lines[end.line as usize].packets.push(at, packet);
    }

    /// Take over a packet on the way to a satellite of this partition.
    pub(crate) fn accept(&mut self, transfer: Transfer<P>) {
        let Transfer { at, over, packet } = transfer;
        match over {
            Way::Laser(end) => self.arrive_later(at, end, packet),
            Way::Air { from, to } => {
                let index = (to - self.satellites.start) as usize;
                self.in_air[index].enter(at, from, packet);
                self.set_event(
                    index,
                    self.air_event(index),
                    self.in_air[index].next().unwrap_or(at),
                );
                self.next[index] = self.next[index].min(at);
            }
        }
    }

    /// Send the packets that leave a satellite's downlinks through the air, and record their losses.
    fn visit_downlink(&mut self, index: usize, now: Instant, view: &View<impl Routes>) {
        while let Some(packet) = self.downlinks[index].pop(now) {
            self.leave(index, packet, now, view);
        }
        self.downlinks[index].take_losses(&mut self.losses);
        let next = self.downlinks[index].next();
        self.set_event(index, DOWNLINK, next);
    }

    fn leave(&mut self, index: usize, packet: Packet<P>, now: Instant, view: &View<impl Routes>) {
        let satellite = self.satellites.start + index as u32;
        let site = packet.payload.destination();
        match view.crossing(site, satellite, now) {
            Crossing::Arrives(at) => {
                let over = Way::Air { from: satellite, to: site };
                self.outboxes.push(self.fleet.partitions, Transfer { at, over, packet });
            }
            Crossing::Sets => self.lose(index, packet, view.until, LossReason::Dismantled),
            Crossing::NotInView => self.turn(index, packet, now, view),
        }
    }

    /// Forward a packet that has waited at a satellite while its destination went out of view: it takes the satellite's
    /// new route, if there is one.
    #[cold]
    fn turn(&mut self, index: usize, packet: Packet<P>, now: Instant, view: &View<impl Routes>) {
        let satellite = self.satellites.start + index as u32;
        match view.routes.port(satellite, packet.payload.destination(), packet.flow) {
            NO_ROUTE | DOWN => self.lose(index, packet, now, LossReason::Outage),
            _ => self.forward(index, (NO_NODE, packet), now, view),
        }
    }

    #[cold]
    fn lose(&mut self, index: usize, packet: Packet<P>, at: Instant, reason: LossReason) {
        let device = self.layout.air_device(self.satellites.start + index as u32);
        self.losses.outside(device, packet, at, reason);
    }

    /// Bring devices with events of their own up to `now`, after all events up to that time.
    pub(crate) fn settle(&mut self, now: Instant, view: &View<impl Routes>) {
        for index in 0..self.satellites.len() {
            self.visit_lasers(index, now);
            self.visit_downlink(index, now, view);
        }
    }

    /// Add the counters of the devices, by their numbers, after all events up to `now`.
    pub(crate) fn add_stats(
        &mut self,
        now: Instant,
        arrived: &[(u64, Bytes)],
        stats: &mut [LinkStats],
    ) {
        let first = self.first_laser();
        for (laser, device) in (first..).zip(&mut self.lasers) {
            stats[laser] = device.egress.stats(now, arrived[laser]);
        }
        for downlinks in &mut self.downlinks {
            downlinks.add_stats(now, stats);
        }
    }

    /// Add what has arrived over each laser, by its number: packets and bytes.
    pub(crate) fn add_arrived(&self, arrived: &mut [(u64, Bytes)]) {
        let places = self.fleet.arriving_at(&self.satellites);
        for (place, line) in places.zip(&self.lines) {
            arrived[self.fleet.arriving(place)] = line.arrived;
        }
    }

    /// Number of packets in the air on the way to satellites of this partition.
    pub(crate) fn in_air(&self) -> u64 {
        self.in_air.iter().map(InAir::len).sum()
    }
}

/// Event that is the next arrival at the far end of a laser: its index in the times of the events of the partition.
#[inline]
const fn arrival_event(end: FarEnd) -> usize {
    // Each satellite before this one has an event for each line, and the others.
    end.satellite as usize * (LINES + 1) + LINES + end.line as usize
}

/// Length of a window: the shortest time that a packet takes from node to node.
pub(crate) fn lookahead<R>(fleet: &Fleet, view: &View<R>) -> Duration {
    fleet.lookahead.min(view.least_delay())
}
