//! Links and flows, and the event loop that visits them in the order of time.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use skyhop_app::Side;
use skyhop_engine::Unsupported;
use skyhop_experiment::{Experiment, FlowPlan};
use skyhop_link::{Arrival, Link, LinkConfig, Routes, Step};
use skyhop_model::{Direction, Ecn};
use skyhop_record::EventRow;
use skyhop_units::Instant;

use crate::access::Access;
use crate::departure::{Departure, TappedDeparture};
use crate::flow::{Flow, InFlight, Kind, Message, Packet, component, routes, traffic};
use crate::order::seeded_in_order;
use crate::session::ExternalPolicy;
use crate::signal::{Signal, phase_rows};
use crate::tap::Tap;
use crate::tcp_flow::TcpFlow;
use skyhop_net::Calendar;

/// Largest number of visits between two checks for interruption. So many visits take a fraction of a second.
const MAX_VISITS: u32 = 1_000_000;

/// All links, both directions of each, and the flows over them.
///
/// Components of the calendar are numbered: first the directions of the links, then each flow's client and
/// server, then each flow's own delay in both directions, then the source of announcements.
pub(crate) struct Network {
    /// Forward and back direction of link 0, then of link 1, link 2 …
    pub(crate) links: Vec<Link<Cell<InFlight>>>,
    /// Flows in an order that does not depend on the scenario's.
    pub(crate) flows: Vec<Flow>,
    /// Routes by the index that [`traffic`] returns, over the components of the links.
    routes: Routes,
    /// Constant delays behind the routes, by the same index.
    accesses: Vec<Access>,
    calendar: Calendar,
    pub(crate) signal: Signal,
    /// Index of the path's link, which announcements are about. `path_back` is the component of that link in
    /// the direction to the end `from`.
    path_link: u16,
    path_back: usize,
    /// Rows of events.parquet for lost packets, for announcements that the run itself makes, and for reactions
    /// of congestion controls to announcements.
    pub(crate) events: Vec<EventRow>,
    /// Ids of the flows whose packets were marked, one entry per packet.
    pub(crate) marked: Vec<u32>,
    /// Capture of packets; `None` if nothing is captured.
    pub(crate) tap: Option<Box<Tap>>,
    external: Option<Arc<dyn ExternalPolicy>>,
    /// Component and time at which the run paused for an external decision; the next [`Self::run_until`]
    /// continues there.
    paused: Option<(usize, Instant)>,
}

impl Network {
    pub(crate) fn new(
        experiment: &Experiment,
        external: Option<Arc<dyn ExternalPolicy>>,
    ) -> Result<Self, Unsupported> {
        let built = |config: &LinkConfig| {
            let link = Link::new(config.clone());
            link.map(Link::reading_tcp).map_err(|error| Unsupported::new("link", error.to_string()))
        };
        let mut links = Vec::with_capacity(2 * experiment.links.len());
        for link in &experiment.links {
            links.extend([built(&link.forward)?, built(&link.back)?]);
        }
        let flows = seeded_in_order(experiment.seed, &experiment.flows)
            .into_iter()
            .map(|(plan, seed)| Flow::new(plan, (seed, experiment.seed), external.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        let mut network = Self {
            calendar: Calendar::new(links.len(), 4 * flows.len() + 1),
            routes: routes(&flows),
            accesses: (0..2 * flows.len()).map(|_| Access::default()).collect(),
            links,
            flows,
            signal: Signal::new(experiment),
            path_link: experiment.path_link(),
            path_back: component(experiment.path_link(), Direction::Back),
            events: Vec::new(),
            marked: Vec::new(),
            tap: None,
            external,
            paused: None,
        };
        for index in 0..network.flows.len() {
            let Flow { plan, kind, .. } = &network.flows[index];
            let (start, is_udp) = (plan.start, matches!(kind, Kind::Udp(_)));
            network.calendar.set(network.end_of(index, Side::Client), Some(start));
            // A TCP server exists only once there is a connection.
            if is_udp {
                network.calendar.set(network.end_of(index, Side::Server), Some(start));
            }
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

    /// Whether the run waits for an external decision.
    #[inline]
    fn is_waiting(&self) -> bool {
        self.external.as_ref().is_some_and(|external| external.is_pending())
    }

    /// Next component to visit, and the time, if that is not after `until`.
    #[inline]
    fn upcoming(&mut self, until: Instant) -> Option<(usize, Instant)> {
        self.paused.take().or_else(|| self.calendar.next().filter(|(_, at)| *at <= until))
    }

    /// Process events up to `until` and update the links' counters to that time. `Continue` means that the call
    /// returned early, after many events or because a congestion control waits for an external decision. The caller
    /// then processes results, checks for interruption or answers, and calls again.
    pub(crate) fn run_until(&mut self, until: Instant) -> ControlFlow<()> {
        let (links, ends) = (self.links.len(), 2 * self.flows.len());
        let mut visits = MAX_VISITS;
        while let Some((component, now)) = self.upcoming(until) {
            visits -= 1;
            if visits == 0 {
                return ControlFlow::Continue(());
            }
            match component.checked_sub(links) {
                None => self.visit_link(component, now),
                Some(end) if end == 2 * ends => self.visit_signal(now),
                Some(end) if end >= ends => self.visit_access(end - ends, now),
                Some(end) if end % 2 == 0 => self.visit_end(end / 2, Side::Client, now),
                Some(end) => self.visit_end(end / 2, Side::Server, now),
            }
            if self.is_waiting() {
                return ControlFlow::Continue(());
            }
        }
        for link in 0..links {
            self.visit_link(link, until);
        }
        ControlFlow::Break(())
    }

    fn visit_link(&mut self, link: usize, now: Instant) {
        let next = loop {
            if let Some(arrival) = self.links[link].poll(now) {
                self.arrive(link, arrival, now);
            }
            if self.is_waiting() {
                return self.paused = Some((link, now));
            }
            let next = self.links[link].next_wakeup();
            if next.is_none_or(|next| next > now) {
                break next;
            }
        };
        if self.links[link].has_drops_or_marks() {
            self.record_drops_and_marks(link);
        }
        self.calendar.set(link, next);
    }

    /// Note the arrival if the announcements are about the link, and carry the packet on.
    #[inline]
    fn arrive(&mut self, link: usize, arrival: Arrival<Cell<InFlight>>, now: Instant) {
        if link == self.path_back {
            self.signal.arrived(arrival.at, arrival.at.saturating_since(arrival.sent));
        }
        if let Some(tap) = &mut self.tap {
            tap.arrived(link, &arrival.packet, arrival.at);
        }
        self.carry(arrival.packet, now);
    }

    /// Record the packets that a link has lost or marked.
    #[cold]
    fn record_drops_and_marks(&mut self, link: usize) {
        for drop in self.links[link].take_drops() {
            if let Some(tap) = &mut self.tap {
                tap.lost(link, &drop);
            }
            let flow = &mut self.flows[drop.packet.flow as usize];
            let place = ((link / 2) as u16, Direction::ALL[link % 2]);
            let id = Some(flow.plan.id);
            self.events.push(EventRow::lost(drop.at, drop.reason, place, id));
            flow.lost(&drop.packet.payload.get());
        }
        let marked = self.links[link].take_marks().into_iter();
        self.marked.extend(marked.map(|flow| self.flows[flow as usize].plan.id));
    }

    /// Hand a packet to the next link of its route; behind the last one, to its destination or to the delay before it.
    // Inlined, so that a packet that arrives at its destination is not moved.
    #[inline(always)]
    fn carry(&mut self, mut packet: Packet, now: Instant) {
        let ecn = packet.ecn();
        let in_flight = packet.payload.get_mut();
        let delay = match self.routes.next(&mut in_flight.hop) {
            Step::Link(link) => return self.enter(link, packet, now),
            Step::End(delay) => delay,
        };
        if ecn == Ecn::Ce {
            in_flight.message.set_ecn(ecn);
        }
        match delay {
            None => self.deliver(in_flight, now),
            Some(delay) => {
                let access = traffic(in_flight.flow as usize, in_flight.to);
                self.accesses[access].enter(now + delay, *in_flight);
                self.calendar.set(self.access_component(access), self.accesses[access].next());
            }
        }
    }

    fn enter(&mut self, link: usize, packet: Packet, now: Instant) {
        if let Some(tap) = &mut self.tap {
            tap.sent(link, &packet, now);
        }
        self.links[link].enqueue(now, packet);
        self.calendar.set(link, self.links[link].next_wakeup());
    }

    fn visit_access(&mut self, access: usize, now: Instant) {
        while let Some(packet) = self.accesses[access].pop(now) {
            self.deliver(&packet, now);
            if self.is_waiting() {
                return self.paused = Some((self.access_component(access), now));
            }
        }
        self.calendar.set(self.access_component(access), self.accesses[access].next());
    }

    fn deliver(&mut self, packet: &InFlight, now: Instant) {
        if let Some(tap) = &mut self.tap {
            tap.ended(packet);
        }
        let index = packet.flow as usize;
        let flow = &mut self.flows[index];
        match (&mut flow.kind, &packet.message) {
            (Kind::Tcp(tcp), Message::Tcp(tcp_packet)) => {
                if tcp.stopped.is_none() {
                    tcp.on_packet(packet.to, packet.connection, now, tcp_packet);
                    self.transmit(index, packet.to, now);
                }
            }
            (Kind::Udp(datagrams), Message::Udp(datagram)) => {
                if datagrams.on_datagram(packet.to, now, *datagram) {
                    self.send(index, packet.to, now);
                }
            }
            _ => debug_assert!(false, "a flow gets its own kind of packets"),
        }
    }

    /// Pass the announcements that are due now to the congestion controls of the TCP flows that cross the path.
    fn visit_signal(&mut self, now: Instant) {
        while let Some((handover, row)) = self.signal.pop(now) {
            self.events.extend(row);
            for flow in self.flows.iter_mut().filter(|flow| flow.plan.crosses(self.path_link)) {
                if let Kind::Tcp(tcp) = &mut flow.kind {
                    tcp.announce(handover);
                }
            }
        }
        self.calendar.set(self.signal_component(), self.signal.next());
    }

    fn visit_end(&mut self, index: usize, side: Side, now: Instant) {
        let [client, server] = [Side::Client, Side::Server].map(|side| self.end_of(index, side));
        let Flow { plan, kind, .. } = &mut self.flows[index];
        match kind {
            Kind::Tcp(tcp) => {
                let due = next_visit(plan, tcp, side);
                if due > now {
                    self.calendar.set(self.end_of(index, side), Some(due));
                    return;
                }
                if side == Side::Client && now >= plan.stop {
                    tcp.stopped = Some(plan.stop);
                    self.calendar.set(client, None);
                    self.calendar.set(server, None);
                    return;
                }
                tcp.on_timer(side, now);
                self.transmit(index, side, now);
            }
            Kind::Udp(_) => self.send(index, side, now),
        }
    }

    /// Send all packets that an end of a TCP flow may send now.
    fn transmit(&mut self, index: usize, side: Side, now: Instant) {
        let end = self.end_of(index, side);
        let Flow { plan, kind: Kind::Tcp(tcp) } = &mut self.flows[index] else { return };
        if tcp.has_phases(side) {
            self.events.extend(phase_rows(tcp.take_phases(), plan.id));
        }
        if tcp.may_send(side) {
            let towards = (side.other(), plan.dscp.tos());
            let mut departure =
                Departure::new((&self.routes, &mut self.links), index, towards, now);
            match &mut self.tap {
                None => tcp.transmit(side, now, &mut departure),
                Some(tap) => {
                    tcp.transmit(side, now, &mut TappedDeparture(&mut departure, tap));
                }
            }
            if let Some((link, _)) = departure.first {
                self.calendar.set(link, self.links[link].next_wakeup());
            }
        }
        self.calendar.bring_forward(end, next_visit(plan, tcp, side));
    }

    /// Send all datagrams that an end of a flow sends now.
    fn send(&mut self, index: usize, side: Side, now: Instant) {
        let end = self.end_of(index, side);
        while let Flow { plan, kind: Kind::Udp(datagrams) } = &mut self.flows[index] {
            let Some(datagram) = datagrams.poll(side, now) else {
                self.calendar.set(end, Some(datagrams.next_timer(side)));
                return;
            };
            let (flow, to, message) = (index as u32, side.other(), Message::Udp(datagram));
            let (tos, hop) = (plan.dscp.tos(), self.routes.start(traffic(index, to), now));
            let packet = InFlight { flow, connection: 0, hop, to, tos, message };
            self.carry(packet.packet(), now);
        }
    }
}

/// Time at which an end of a TCP flow has to be visited next.
#[inline]
pub(crate) fn next_visit(plan: &FlowPlan, tcp: &TcpFlow, side: Side) -> Instant {
    let timer = tcp.next_timer(side);
    if side == Side::Client { timer.min(plan.stop) } else { timer }
}
