//! Ends of the flows at the sites of a network.

use skyhop_app::Side;
use skyhop_link::{Headway, Hop, Packet};
use skyhop_model::Ecn;
use skyhop_net::{Calendar, Hosts, Routed, Uplinks};
use skyhop_record::{EventRow, NO_LINK};
use skyhop_tcp::PacketSink;
use skyhop_units::Instant;

use crate::access::Access;
use crate::constellation::announcements::Announcements;
use crate::departure::Departs;
use crate::flow::{Flow, InFlight, Kind, Message, traffic};
use crate::network::next_visit;
use crate::sampler::on_the_wire;
use crate::signal::phase_rows;

/// Payload of a packet in a network.
#[derive(Debug, Clone)]
pub(crate) struct Parcel {
    to: u32,
    headway: Headway,
    // Boxed, because a packet is moved several times at each hop.
    content: Box<Content>,
}

/// Content of a packet, and the time at which it left its site.
#[derive(Debug, Clone)]
struct Content {
    sent: Instant,
    packet: InFlight,
}

impl Routed for Parcel {
    #[inline]
    fn destination(&self) -> u32 {
        self.to
    }

    fn headway(&self) -> Headway {
        self.headway
    }

    fn set_headway(&mut self, headway: Headway) {
        self.headway = headway;
    }
}

impl Parcel {
    pub(crate) fn content(&self) -> &InFlight {
        &self.content.packet
    }
}

/// Boxes of packets that have arrived, for the next ones to leave.
type SpareBoxes = Vec<Box<Content>>;

/// All flows, and the times at which their ends have to be visited.
///
/// Components of the calendar are each flow's client and server, then each flow's own delay in both directions, then the
/// sources of announcements.
pub(crate) struct Ends {
    /// Flows in an order that does not depend on the scenario's.
    pub(crate) flows: Vec<Flow>,
    /// Sites of each flow's client and server.
    pub(crate) pairs: Vec<[u32; 2]>,
    accesses: Vec<Access>,
    calendar: Calendar,
    spare: SpareBoxes,
    pub(super) announcements: Announcements,
    /// Rows of events.parquet for announcements with their handovers, and for reactions of congestion controls.
    pub(crate) events: Vec<EventRow>,
}

impl Ends {
    pub(super) fn new(flows: Vec<Flow>, announcements: Announcements) -> Self {
        let mut calendar = Calendar::new(0, 4 * flows.len() + announcements.len());
        for (index, Flow { plan, kind }) in flows.iter().enumerate() {
            calendar.set(end_of(index, Side::Client), Some(plan.start));
            // A TCP server exists only once there is a connection.
            if matches!(kind, Kind::Udp(_)) {
                calendar.set(end_of(index, Side::Server), Some(plan.start));
            }
        }
        for source in 0..announcements.len() {
            calendar.set(4 * flows.len() + source, announcements.next(source));
        }
        Self {
            pairs: flows.iter().map(|flow| flow.plan.sites.unwrap_or_default()).collect(),
            accesses: (0..2 * flows.len()).map(|_| Access::default()).collect(),
            calendar,
            spare: SpareBoxes::new(),
            announcements,
            events: Vec::new(),
            flows,
        }
    }

    fn access_component(&self, access: usize) -> usize {
        2 * self.flows.len() + access
    }

    /// Process a packet at the end that it goes to.
    fn deliver(&mut self, content: Box<Content>, now: Instant, network: &mut impl Uplinks<Parcel>) {
        let InFlight { flow, connection, to, message, .. } = &content.packet;
        let (index, connection, to) = (*flow as usize, *connection, *to);
        match (&mut self.flows[index].kind, message) {
            (Kind::Tcp(tcp), Message::Tcp(packet)) if tcp.stopped.is_none() => {
                tcp.on_packet(to, connection, now, packet);
                self.spare.push(content);
                self.transmit(index, to, now, network);
            }
            (Kind::Udp(datagrams), Message::Udp(datagram)) => {
                let sends = datagrams.on_datagram(to, now, *datagram);
                self.spare.push(content);
                if sends {
                    self.send(index, to, now, network);
                }
            }
            _ => self.spare.push(content),
        }
    }

    fn visit_end(
        &mut self,
        index: usize,
        side: Side,
        now: Instant,
        network: &mut impl Uplinks<Parcel>,
    ) {
        let Flow { plan, kind, .. } = &mut self.flows[index];
        let Kind::Tcp(tcp) = kind else { return self.send(index, side, now, network) };
        let due = next_visit(plan, tcp, side);
        if due > now {
            return self.calendar.set(end_of(index, side), Some(due));
        }
        if side == Side::Client && now >= plan.stop {
            tcp.stopped = Some(plan.stop);
            self.calendar.set(end_of(index, Side::Client), None);
            return self.calendar.set(end_of(index, Side::Server), None);
        }
        tcp.on_timer(side, now);
        self.transmit(index, side, now, network);
    }

    /// Send all packets that an end of a TCP flow may send now.
    fn transmit(
        &mut self,
        index: usize,
        side: Side,
        now: Instant,
        network: &mut impl Uplinks<Parcel>,
    ) {
        let Flow { plan, kind: Kind::Tcp(tcp) } = &mut self.flows[index] else { return };
        if tcp.has_phases(side) {
            let rows = phase_rows(tcp.take_phases(), plan.id);
            self.events.extend(rows.map(|row| EventRow { link: NO_LINK, ..row }));
        }
        if tcp.may_send(side) {
            let ends = (index as u32, self.pairs[index], side.other());
            let tos = plan.dscp.tos();
            let mut departure = SiteDeparture::new(network, &mut self.spare, ends, (tos, now));
            tcp.transmit(side, now, &mut departure);
        }
        self.calendar.bring_forward(end_of(index, side), next_visit(plan, tcp, side));
    }

    /// Send all datagrams that an end of a flow sends now.
    fn send(&mut self, index: usize, side: Side, now: Instant, network: &mut impl Uplinks<Parcel>) {
        while let Flow { plan, kind: Kind::Udp(datagrams) } = &mut self.flows[index] {
            let Some(datagram) = datagrams.poll(side, now) else {
                return self.calendar.set(end_of(index, side), Some(datagrams.next_timer(side)));
            };
            let ends = (index as u32, self.pairs[index], side.other());
            let tos = plan.dscp.tos();
            let mut departure = SiteDeparture::new(network, &mut self.spare, ends, (tos, now));
            departure.depart(Message::Udp(datagram));
        }
    }
}

/// Component of an end of a flow.
fn end_of(flow: usize, side: Side) -> usize {
    2 * flow + side as usize
}

impl Hosts<Parcel> for Ends {
    #[inline]
    fn next(&self) -> Option<Instant> {
        self.calendar.next().map(|(_, at)| at)
    }

    fn visit(&mut self, now: Instant, network: &mut impl Uplinks<Parcel>) {
        let Some((component, _)) = self.calendar.next() else { return };
        let flows = self.flows.len();
        match component.checked_sub(2 * flows) {
            None if component % 2 == 0 => self.visit_end(component / 2, Side::Client, now, network),
            None => self.visit_end(component / 2, Side::Server, now, network),
            Some(access) if access < 2 * flows => {
                while let Some(packet) = self.accesses[access].pop(now) {
                    self.deliver(Box::new(Content { sent: now, packet }), now, network);
                }
                self.calendar.set(component, self.accesses[access].next());
            }
            Some(other) => {
                let source = other - 2 * flows;
                self.announcements.visit(source, now, &mut self.flows, &mut self.events);
                self.calendar.set(component, self.announcements.next(source));
            }
        }
    }

    fn arrive(&mut self, packet: Packet<Parcel>, now: Instant, network: &mut impl Uplinks<Parcel>) {
        let ecn = packet.ecn();
        let mut content = packet.payload.content;
        let Content { sent, packet } = &mut *content;
        if ecn == Ecn::Ce {
            packet.message.set_ecn(ecn);
        }
        let index = packet.flow as usize;
        self.announcements.arrived(packet.flow, packet.to, now, now.saturating_since(*sent));
        match self.flows[index].plan.delay_to(packet.to) {
            None => self.deliver(content, now, network),
            Some(delay) => {
                let access = traffic(index, packet.to);
                self.accesses[access].enter(now + delay, *packet);
                self.spare.push(content);
                let next = self.accesses[access].next();
                self.calendar.set(self.access_component(access), next);
            }
        }
    }
}

/// Departure of packets of one end of a flow from its site.
struct SiteDeparture<'n, N> {
    network: &'n mut N,
    spare: &'n mut SpareBoxes,
    flow: u32,
    pair: [u32; 2],
    to: Side,
    /// TOS byte of the IP header without ECN bits.
    tos: u8,
    connection: u32,
    now: Instant,
}

impl<'n, N: Uplinks<Parcel>> SiteDeparture<'n, N> {
    /// Create the departure of packets of a flow between a pair of sites to its end `to`.
    fn new(
        network: &'n mut N,
        spare: &'n mut SpareBoxes,
        (flow, pair, to): (u32, [u32; 2], Side),
        (tos, now): (u8, Instant),
    ) -> Self {
        Self { network, spare, flow, pair, to, tos, connection: 0, now }
    }

    #[inline]
    fn depart(&mut self, message: Message) {
        let &mut Self { flow, pair, to, tos, connection, now, .. } = self;
        let packet = InFlight { flow, connection, hop: Hop::default(), to, tos, message };
        let content = Content { sent: now, packet };
        let (size, ecn) = (on_the_wire(message.ip_size()), message.ecn());
        let content = match self.spare.pop() {
            Some(mut spare) => {
                *spare = content;
                spare
            }
            None => Box::new(content),
        };
        let parcel = Parcel { to: pair[to as usize], headway: Headway::UNKNOWN, content };
        let packet = Packet::new(size, parcel)
            .with_flow(flow, ecn)
            .with_tos(tos)
            .with_connection(connection as u16);
        self.network.send(pair[to.other() as usize], now, packet);
    }
}

impl<N: Uplinks<Parcel>> PacketSink for SiteDeparture<'_, N> {
    fn send(&mut self, packet: skyhop_tcp::Packet) {
        self.depart(Message::Tcp(packet));
    }
}

impl<N: Uplinks<Parcel>> Departs for SiteDeparture<'_, N> {
    fn set_connection(&mut self, number: u32) {
        self.connection = number;
    }
}
