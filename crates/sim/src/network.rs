//! Links, flows, and the order in which things happen to them.

use skyhop_link::{Link, Packet};
use skyhop_record::EventRow;
use skyhop_scenario::Experiment;
use skyhop_units::{Bytes, Instant};

use crate::SimError;
use crate::calendar::Calendar;
use crate::flow::{Flow, InFlight, Kind, Message};
use crate::sampler::{loss_row, on_the_wire};

/// IPv4 and UDP headers.
const UDP_HEADERS: Bytes = Bytes::new(28);

/// Both directions of the path, and the flows over it.
///
/// Components are numbered: the two directions first, then each flow's sender and receiver.
pub(crate) struct Network {
    pub(crate) links: [Link<InFlight>; 2],
    pub(crate) flows: Vec<Flow>,
    calendar: Calendar,
    /// A row for each lost packet.
    pub(crate) losses: Vec<EventRow>,
}

const LINKS: usize = 2;

fn sender_of(flow: usize) -> usize {
    LINKS + 2 * flow
}

fn receiver_of(flow: usize) -> usize {
    LINKS + 2 * flow + 1
}

impl Network {
    pub(crate) fn new(experiment: &Experiment) -> Result<Self, SimError> {
        let flow = |plan: &skyhop_scenario::FlowPlan| {
            Flow::new(plan, experiment.seed.wrapping_mul(0x9e37_79b9).wrapping_add(plan.id.into()))
        };
        let flows = experiment.flows.iter().map(flow).collect::<Result<Vec<_>, _>>()?;
        let mut calendar = Calendar::new(LINKS + 2 * flows.len());
        for (index, flow) in flows.iter().enumerate() {
            calendar.set(sender_of(index), Some(flow.plan.start));
        }
        let links = [Link::new(experiment.forward.clone())?, Link::new(experiment.back.clone())?];
        Ok(Self { links, flows, calendar, losses: Vec::new() })
    }

    /// Lets everything happen that happens until `until`, and brings the links' counters there.
    pub(crate) fn run_until(&mut self, until: Instant) {
        while let Some((component, now)) = self.calendar.next().filter(|(_, at)| *at <= until) {
            match component.checked_sub(LINKS) {
                None => self.visit_link(component, now),
                Some(end) if end % 2 == 0 => self.visit_sender(end / 2, now),
                Some(end) => self.visit_receiver(end / 2, now),
            }
        }
        for direction in 0..LINKS {
            self.visit_link(direction, until);
        }
    }

    fn visit_link(&mut self, direction: usize, now: Instant) {
        while let Some(arrival) = self.links[direction].poll(now) {
            self.deliver(arrival.packet.payload, now);
        }
        for drop in self.links[direction].take_drops() {
            let flow = &self.flows[drop.packet.payload.flow as usize];
            self.losses.push(loss_row(&drop, direction, flow.plan.id));
        }
        self.calendar.set(direction, self.links[direction].next_wakeup());
    }

    fn deliver(&mut self, packet: InFlight, now: Instant) {
        let index = packet.flow as usize;
        let flow = &mut self.flows[index];
        match (&mut flow.kind, packet.message) {
            (Kind::Tcp(connection), Message::Segment(segment)) => {
                if connection.stopped.is_some() {
                    return;
                }
                let ack = connection.receiver.on_segment(now, &segment);
                let timer = connection.receiver.next_timer();
                if let Some(ack) = ack {
                    self.send(index, Message::Ack(ack), now);
                }
                self.calendar.set(receiver_of(index), timer);
            }
            (Kind::Tcp(connection), Message::Ack(ack)) => {
                if connection.stopped.is_some() {
                    return;
                }
                connection.sender.on_ack(now, &ack);
                self.transmit(index, now);
            }
            (Kind::Probe(_), Message::Probe(seq)) => self.send(index, Message::Echo(seq), now),
            (Kind::Probe(probe), Message::Echo(seq)) => {
                let packet = &mut probe.sent[seq as usize];
                packet.1.get_or_insert(now);
                probe.longest_rtt = probe.longest_rtt.max(now.saturating_since(packet.0));
            }
            _ => debug_assert!(false, "a flow gets its own kind of packets"),
        }
    }

    fn visit_sender(&mut self, index: usize, now: Instant) {
        let flow = &mut self.flows[index];
        let stop = flow.plan.stop;
        match &mut flow.kind {
            Kind::Tcp(connection) => {
                if now >= stop {
                    connection.stopped = Some(stop);
                    self.calendar.set(sender_of(index), None);
                    self.calendar.set(receiver_of(index), None);
                    return;
                }
                if connection.started {
                    connection.sender.on_timer(now);
                } else {
                    connection.start(now);
                }
                self.transmit(index, now);
            }
            Kind::Probe(probe) => {
                let seq = probe.sent.len() as u64;
                probe.sent.push((now, None));
                probe.next = now + probe.interval;
                let next = Some(probe.next).filter(|next| *next < stop);
                self.send(index, Message::Probe(seq), now);
                self.calendar.set(sender_of(index), next);
            }
        }
    }

    fn visit_receiver(&mut self, index: usize, now: Instant) {
        let Kind::Tcp(connection) = &mut self.flows[index].kind else { return };
        let ack = connection.receiver.on_timer(now);
        let timer = connection.receiver.next_timer();
        if let Some(ack) = ack {
            self.send(index, Message::Ack(ack), now);
        }
        self.calendar.set(receiver_of(index), timer);
    }

    /// Sends whatever a connection may send now.
    fn transmit(&mut self, index: usize, now: Instant) {
        let flow = &mut self.flows[index];
        let direction = flow.data_direction();
        let stop = flow.plan.stop;
        let Kind::Tcp(connection) = &mut flow.kind else { return };
        let mut sent = false;
        while let Some(segment) = connection.sender.poll_transmit(now) {
            let wire_size = on_the_wire(segment.ip_size());
            let payload = InFlight { flow: index as u32, message: Message::Segment(segment) };
            self.links[direction].enqueue(now, Packet { wire_size, payload });
            sent = true;
        }
        let timer = connection.sender.next_timer().map_or(stop, |timer| timer.min(stop));
        self.calendar.set(sender_of(index), Some(timer));
        if sent {
            self.calendar.set(direction, self.links[direction].next_wakeup());
        }
    }

    fn send(&mut self, index: usize, message: Message, now: Instant) {
        let flow = &self.flows[index];
        let there = flow.data_direction();
        let (direction, ip_size) = match (&message, &flow.kind) {
            (Message::Segment(segment), _) => (there, segment.ip_size()),
            (Message::Ack(ack), _) => (1 - there, ack.ip_size()),
            (Message::Probe(_), Kind::Probe(probe)) => (there, probe.size + UDP_HEADERS),
            (Message::Echo(_), Kind::Probe(probe)) => (1 - there, probe.size + UDP_HEADERS),
            _ => return,
        };
        let payload = InFlight { flow: index as u32, message };
        let wire_size = on_the_wire(ip_size);
        self.links[direction].enqueue(now, Packet { wire_size, payload });
        self.calendar.set(direction, self.links[direction].next_wakeup());
    }
}
