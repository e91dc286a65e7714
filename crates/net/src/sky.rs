//! Some of the satellites, with their devices and the packets on the way to them.
//!
//! Every packet takes some time from one node to the next. In a window of time that is shorter than all these delays, no
//! packet that enters a link arrives, so that each satellite processes its events of the window without a look at the
//! others.

use std::ops::Range;
use std::sync::Arc;

use skyhop_link::{LinkError, LinkStats};
use skyhop_model::LossReason;
use skyhop_units::{Bytes, Duration, Instant};

use crate::arrivals::InAir;
use crate::device::{Egress, Losses};
use crate::downlinks::Downlinks;
use crate::fleet::Fleet;
use crate::layout::Layout;
use crate::pool::{Place, Pool, Queue};
use crate::transfer::{Outboxes, Routed, Transfer, Way};
use crate::view::{Crossing, DOWN, NO_ROUTE, Routes, View};

/// Event of a satellite: the first of its lasers with events of their own.
const LASERS: usize = 0;
/// Event of a satellite: the end of a transmission to the ground.
const DOWNLINK: usize = 1;
/// Event of a satellite: the next arrival over its first incoming laser; those over the others follow, and then the next
/// arrival through the air.
const LINES: usize = 2;

/// Packets that arrive over a laser, in order, and what has arrived so far.
struct Line {
    packets: Queue,
    /// Satellite at which the laser arrives: its index in the partition.
    satellite: u32,
    /// Index of the next arrival in the times of events.
    event: u32,
    arrived: (u64, Bytes),
}

/// Laser device of a satellite.
struct LaserDevice<P> {
    egress: Egress<P>,
    /// Partition of the far end, and index of the line there.
    to: u32,
    line: u32,
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
    lines: Vec<Line>,
    /// Index of each satellite's first line.
    first_lines: Vec<u32>,
    pool: Pool<P>,
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
            let first = first_events[first_events.len() - 1];
            let arriving = fleet.arriving_at(&(satellite..satellite + 1)).len() as u32;
            first_lines.push(lines.len() as u32);
            lines.extend((0..arriving).map(|line| Line {
                packets: Queue::EMPTY,
                satellite: satellite - satellites.start,
                event: first + LINES as u32 + line,
                arrived: (0, Bytes::ZERO),
            }));
            first_events.push(first + LINES as u32 + arriving + 1);
        }
        let device = |laser: usize| {
            let to = fleet.home(layout.lasers[laser].to);
            let first = fleet.arriving_at(&fleet.satellites(to)).start;
            let egress = Egress::new(&layout.lasers[laser].config)?;
            let line = fleet.arriving_places[laser] - first as u32;
            Ok::<_, LinkError>(LaserDevice { egress, to: to as u32, line })
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
            pool: Pool::new(),
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
        while let Some(place) = self.pool.take_first(&mut self.lines[line].packets, now) {
            let arrived = &mut self.lines[line].arrived;
            arrived.0 += 1;
            arrived.1 += self.pool.get(place).wire_size;
            self.crossings += 1;
            self.forward(index, place, now, view);
        }
        let line = &self.lines[line];
        self.events[line.event as usize] = line.packets.next();
    }

    fn visit_air(&mut self, index: usize, now: Instant, view: &View<impl Routes>) {
        while let Some(packet) = self.in_air[index].pop(now) {
            self.crossings += 1;
            let place = self.pool.insert(packet);
            self.forward(index, place, now, view);
        }
        let next = self.in_air[index].next().unwrap_or(Instant::NEVER);
        self.set_event(index, self.air_event(index), next);
    }

    /// Hand a packet to the device of a satellite that the route leads through.
    #[inline]
    fn forward(&mut self, index: usize, place: Place, now: Instant, view: &View<impl Routes>) {
        let satellite = self.satellites.start + index as u32;
        let packet = self.pool.get(place);
        match view.routes.port(satellite, packet.payload.destination(), packet.flow) {
            NO_ROUTE => self.lose(index, place, now, LossReason::Outage),
            DOWN => {
                let to = (now, packet.payload.destination());
                let downlinks = &mut self.downlinks[index];
                match downlinks.enqueue(&self.layout, to, place, &mut self.pool) {
                    Some(device) => self.overflow(device, place, now),
                    None => {
                        let next = downlinks.next();
                        self.set_event(index, DOWNLINK, next);
                    }
                }
            }
            port => self.enter_laser(index, usize::from(port), place, now),
        }
    }

    /// Hand a packet to a laser of a satellite.
    #[inline]
    fn enter_laser(&mut self, index: usize, port: usize, place: Place, now: Instant) {
        let number = self.first_lasers[index] as usize + port;
        let laser = &mut self.lasers[number];
        match &mut laser.egress {
            Egress::Plain(plain) => match plain.enter(now, self.pool.get(place).wire_size) {
                Some(at) => {
                    let to = (laser.to, laser.line);
                    self.carry(at, to, place);
                }
                None => self.overflow(self.first_laser() + number, place, now),
            },
            Egress::General(link) => {
                link.enqueue(now, self.pool.remove(place));
                self.visit_laser(number, now);
                self.plan_lasers(index);
            }
        }
    }

    #[cold]
    fn overflow(&mut self, device: usize, place: Place, now: Instant) {
        let packet = self.pool.remove(place);
        self.losses.overflow(device, packet, now);
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
        while let LaserDevice { egress: Egress::General(link), to, line } = &mut self.lasers[laser]
        {
            let Some(arrival) = link.poll_ahead(now) else {
                let first = self.fleet.first_lasers[self.satellites.start as usize] as usize;
                return self.losses.take_from(first + laser, link);
            };
            let to = (*to, *line);
            let place = self.pool.insert(arrival.packet);
            self.carry(arrival.at, to, place);
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

    /// Put a packet on the way to the far end of a laser: a partition, and the line there.
    #[inline]
    fn carry(&mut self, at: Instant, (to, line): (u32, u32), place: Place) {
        if to as usize == self.number {
            self.arrive_later(at, line, place);
        } else {
            let packet = self.pool.remove(place);
            self.outboxes.push(to as usize, Transfer { at, over: Way::Laser(line), packet });
        }
    }

    #[inline]
    fn arrive_later(&mut self, at: Instant, line: u32, place: Place) {
        let line = &mut self.lines[line as usize];
        if line.packets.next() == Instant::NEVER {
            self.events[line.event as usize] = at;
            let next = &mut self.next[line.satellite as usize];
            *next = (*next).min(at);
        }
        self.pool.append(&mut line.packets, place, at);
    }

    /// Take over a packet on the way to a satellite of this partition.
    pub(crate) fn accept(&mut self, transfer: Transfer<P>) {
        let Transfer { at, over, packet } = transfer;
        match over {
            Way::Laser(line) => {
                let place = self.pool.insert(packet);
                self.arrive_later(at, line, place);
            }
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
        while let Some(place) = self.downlinks[index].pop(now, &mut self.pool) {
            self.leave(index, place, now, view);
        }
        self.downlinks[index].take_losses(&mut self.losses);
        let next = self.downlinks[index].next();
        self.set_event(index, DOWNLINK, next);
    }

    fn leave(&mut self, index: usize, place: Place, now: Instant, view: &View<impl Routes>) {
        let satellite = self.satellites.start + index as u32;
        let site = self.pool.get(place).payload.destination();
        match view.crossing(site, satellite, now) {
            Crossing::Arrives(at) => {
                let packet = self.pool.remove(place);
                let over = Way::Air { from: satellite, to: site };
                self.outboxes.push(self.fleet.partitions, Transfer { at, over, packet });
            }
            Crossing::Sets => self.lose(index, place, view.until, LossReason::Dismantled),
            Crossing::NotInView => self.turn(index, place, now, view),
        }
    }

    /// Forward a packet that has waited at a satellite while its destination went out of view: it takes the satellite's
    /// new route, if there is one.
    #[cold]
    fn turn(&mut self, index: usize, place: Place, now: Instant, view: &View<impl Routes>) {
        let satellite = self.satellites.start + index as u32;
        let packet = self.pool.get(place);
        match view.routes.port(satellite, packet.payload.destination(), packet.flow) {
            NO_ROUTE | DOWN => self.lose(index, place, now, LossReason::Outage),
            _ => self.forward(index, place, now, view),
        }
    }

    #[cold]
    fn lose(&mut self, index: usize, place: Place, at: Instant, reason: LossReason) {
        let packet = self.pool.remove(place);
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

/// Length of a window: the shortest time that a packet takes from node to node.
pub(crate) fn lookahead<R>(fleet: &Fleet, view: &View<R>) -> Duration {
    fleet.lookahead.min(view.least_delay())
}
