//! Links, flows, and the order in which things happen to them.

use skyhop_app::Side;
use skyhop_engine::Unsupported;
use skyhop_experiment::Experiment;
use skyhop_link::{Link, LinkConfig, Packet};
use skyhop_model::Direction;
use skyhop_record::EventRow;
use skyhop_units::{Duration, Instant};

use crate::access::Access;
use crate::calendar::Calendar;
use crate::departure::Departure;
use crate::flow::{Flow, InFlight, Kind, Message, ProbePacket, next_link};
use crate::order::seeded_in_order;
use crate::sampler::loss_row;
use crate::signal::{Signal, phase_rows};

/// All links, both directions of each, and the flows over them.
///
/// Components are numbered: the directions of the links first, then each flow's sender and
/// receiver, then each flow's own delay in both directions, then who announces handovers.
pub(crate) struct Network {
    /// Forward and back of link 0, then of link 1, link 2 …
    pub(crate) links: Vec<Link<InFlight>>,
    /// In an order that does not depend on the scenario's.
    pub(crate) flows: Vec<Flow>,
    accesses: Vec<Access>,
    calendar: Calendar,
    pub(crate) signal: Signal,
    /// The path's link, which announcements are about, and its direction to the end `from`.
    path_link: u16,
    path_back: usize,
    /// A row for each lost packet, for what is announced on the way, and for what congestion controls did
    /// about announcements.
    pub(crate) events: Vec<EventRow>,
    /// The ids of the flows whose packets were marked, one entry per packet.
    pub(crate) marked: Vec<u32>,
}

impl Network {
    pub(crate) fn new(experiment: &Experiment) -> Result<Self, Unsupported> {
        let built = |config: &LinkConfig| {
            Link::new(config.clone()).map_err(|error| Unsupported::new("link", error.to_string()))
        };
        let mut links = Vec::with_capacity(2 * experiment.links.len());
        for link in &experiment.links {
            links.extend([built(&link.forward)?, built(&link.back)?]);
        }
        let flows = seeded_in_order(experiment.seed, &experiment.flows)
            .into_iter()
            .map(|(plan, seed)| Flow::new(plan, seed, experiment.seed))
            .collect::<Result<Vec<_>, _>>()?;
        let accesses = flows.iter().flat_map(|flow| Access::both(flow.plan.extra_rtt)).collect();
        let mut network = Self {
            calendar: Calendar::new(links.len() + 4 * flows.len() + 1),
            links,
            flows,
            accesses,
            signal: Signal::new(experiment),
            path_link: experiment.path_link(),
            path_back: 2 * usize::from(experiment.path_link()) + Direction::Back.index(),
            events: Vec::new(),
            marked: Vec::new(),
        };
        for index in 0..network.flows.len() {
            let start = network.flows[index].plan.start;
            network.calendar.set(network.end_of(index, Side::Client), Some(start));
        }
        network.calendar.set(network.signal_component(), network.signal.next());
        Ok(network)
    }

    fn end_of(&self, flow: usize, side: Side) -> usize {
        self.links.len() + 2 * flow + side as usize
    }

    fn access_component(&self, access: usize) -> usize {
        self.links.len() + 2 * self.flows.len() + access
    }

    fn signal_component(&self) -> usize {
        self.links.len() + 4 * self.flows.len()
    }

    /// Lets everything happen that happens until `until`, and brings the links' counters there.
    pub(crate) fn run_until(&mut self, until: Instant) {
        let (links, ends) = (self.links.len(), 2 * self.flows.len());
        while let Some((component, now)) = self.calendar.next().filter(|(_, at)| *at <= until) {
            match component.checked_sub(links) {
                None => self.visit_link(component, now),
                Some(end) if end == 2 * ends => self.visit_signal(now),
                Some(end) if end >= ends => self.visit_access(end - ends, now),
                Some(end) if end % 2 == 0 => self.visit_end(end / 2, Side::Client, now),
                Some(end) => self.visit_end(end / 2, Side::Server, now),
            }
        }
        for link in 0..links {
            self.visit_link(link, until);
        }
    }

    fn visit_link(&mut self, link: usize, now: Instant) {
        while let Some(mut arrival) = self.links[link].poll(now) {
            if link == self.path_back {
                self.signal.arrived(arrival.at, arrival.at.saturating_since(arrival.sent));
            }
            let packet = &mut arrival.packet;
            packet.payload.hop += 1;
            if self.is_there(&packet.payload) {
                packet.payload.message.set_ecn(packet.ecn);
                self.deliver(&packet.payload, now);
            } else {
                self.carry(arrival.packet, now);
            }
        }
        if self.links[link].has_verdicts() {
            self.note_verdicts(link);
        }
        self.calendar.set(link, self.links[link].next_wakeup());
    }

    /// What a link has lost or marked.
    #[cold]
    fn note_verdicts(&mut self, link: usize) {
        for drop in self.links[link].take_drops() {
            let flow = &mut self.flows[drop.packet.payload.flow as usize];
            self.events.push(loss_row(&drop, link, flow.plan.id));
            flow.lost(&drop.packet.payload.message);
        }
        let marked = self.links[link].take_marks().into_iter();
        self.marked.extend(marked.map(|flow| self.flows[flow as usize].plan.id));
    }

    /// Whether a packet has nothing more to cross.
    #[inline]
    fn is_there(&self, packet: &InFlight) -> bool {
        let flow = &self.flows[packet.flow as usize];
        usize::from(packet.hop) == flow.plan.routes[usize::from(packet.route)].links.len()
            && flow.plan.extra_rtt == Duration::ZERO
    }

    /// Hands a packet to the next link of its way; behind the last one, to the flow's own delay.
    fn carry(&mut self, packet: Packet<InFlight>, now: Instant) {
        let index = packet.payload.flow as usize;
        if let Some(link) = next_link(&self.flows[index].plan, &packet.payload) {
            self.links[link].enqueue(now, packet);
            self.calendar.set(link, self.links[link].next_wakeup());
            return;
        }
        let mut arriving = packet.payload;
        arriving.message.set_ecn(packet.ecn);
        let access = 2 * index + usize::from(arriving.to == Side::Client);
        self.accesses[access].enter(now, arriving);
        self.calendar.set(self.access_component(access), self.accesses[access].next());
    }

    fn visit_access(&mut self, access: usize, now: Instant) {
        while let Some(packet) = self.accesses[access].pop(now) {
            self.deliver(&packet, now);
        }
        self.calendar.set(self.access_component(access), self.accesses[access].next());
    }

    fn deliver(&mut self, packet: &InFlight, now: Instant) {
        let index = packet.flow as usize;
        let flow = &mut self.flows[index];
        match (&mut flow.kind, &packet.message) {
            (Kind::Tcp(conversation), Message::Tcp(tcp_packet)) => {
                if conversation.stopped.is_none() {
                    conversation.on_packet(packet.to, packet.connection, now, tcp_packet);
                    self.transmit(index, packet.to, now);
                }
            }
            (Kind::Probe(_), Message::Probe(packet)) => {
                self.send(index, Side::Client, Message::Echo(*packet), now);
            }
            (Kind::Probe(probe), Message::Echo(packet)) => probe.echoed(packet.seq, now),
            _ => debug_assert!(false, "a flow gets its own kind of packets"),
        }
    }

    /// The congestion controls of the TCP flows that cross the path hear what is announced now.
    fn visit_signal(&mut self, now: Instant) {
        while let Some((handover, row)) = self.signal.pop(now) {
            self.events.extend(row);
            for flow in self.flows.iter_mut().filter(|flow| flow.plan.crosses(self.path_link)) {
                if let Kind::Tcp(conversation) = &mut flow.kind {
                    conversation.announce(handover);
                }
            }
        }
        self.calendar.set(self.signal_component(), self.signal.next());
    }

    fn visit_end(&mut self, index: usize, side: Side, now: Instant) {
        let [client, server] = [Side::Client, Side::Server].map(|side| self.end_of(index, side));
        let flow = &mut self.flows[index];
        let stop = flow.plan.stop;
        match &mut flow.kind {
            Kind::Tcp(conversation) => {
                if side == Side::Client && now >= stop {
                    conversation.stopped = Some(stop);
                    self.calendar.set(client, None);
                    self.calendar.set(server, None);
                    return;
                }
                conversation.on_timer(side, now);
                self.transmit(index, side, now);
            }
            Kind::Probe(probe) => {
                let packet = ProbePacket { seq: probe.send(now), size: probe.size };
                let next = Some(now + probe.interval).filter(|next| *next < stop);
                self.send(index, Side::Server, Message::Probe(packet), now);
                self.calendar.set(client, next);
            }
        }
    }

    /// Sends whatever an end of a TCP flow may send now.
    fn transmit(&mut self, index: usize, side: Side, now: Instant) {
        let end = self.end_of(index, side);
        let Flow { plan, kind: Kind::Tcp(conversation), way } = &mut self.flows[index] else {
            return;
        };
        if side == conversation.sends() {
            let phases = conversation.take_phases();
            if !phases.is_empty() {
                self.events.extend(phase_rows(phases, plan.id));
            }
        }
        let mut departure = Departure::new((plan, way, &mut self.links), index, side.other(), now);
        conversation.transmit(side, now, &mut departure);
        let first_link = departure.first_link;
        let timer = conversation.next_timer(side);
        let timer = if side == Side::Client { timer.min(plan.stop) } else { timer };
        self.calendar.set(end, Some(timer));
        if let Some(link) = first_link {
            self.calendar.set(link, self.links[link].next_wakeup());
        }
    }

    fn send(&mut self, index: usize, to: Side, message: Message, now: Instant) {
        let Flow { plan, way, .. } = &mut self.flows[index];
        let packet = way.packet(plan, index, to, (0, message), now);
        self.carry(packet, now);
    }
}
