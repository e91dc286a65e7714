//! Capture of packets at both ends of each link, and of those that links lose. Its functions are cold: most runs are not
//! captured, and must not pay for it.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};

use skyhop_app::Side;
use skyhop_experiment::Traffic;
use skyhop_link::Drop;
use skyhop_model::{Ecn, End, mss};
use skyhop_units::Instant;
use skyhop_wire::{Addresses, CapturedPacket, Connection, LinkEnd, TcpFields, Way, headers};

use crate::flow::{Flow, InFlight, Message, Packet};

/// Captured flows, and the packets captured since they were last taken.
pub(crate) struct Tap {
    /// Flows by their index; `None` for those that are not captured.
    flows: Vec<Option<TappedFlow>>,
    packets: Vec<CapturedPacket>,
}

struct TappedFlow {
    id: u32,
    /// End of the path at which the client is.
    client: End,
    /// Largest segment without options in bytes, and whether SACK is permitted.
    of_tcp: (u16, bool),
    connections: HashMap<u32, TappedConnection>,
}

struct TappedConnection {
    numbers: Connection,
    /// Packets on the way to the server, and to the client, in the order in which they were sent.
    underway: [VecDeque<Underway>; 2],
}

/// Packet with the fields that its header got when it was sent.
struct Underway {
    packet: skyhop_tcp::Packet,
    fields: TcpFields,
    payload: u16,
}

/// Hosts at both ends of the path: addresses for benchmarks (RFC 2544).
const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 19, 0, 1)];
/// Port of the server of flow 0; those of other flows follow.
const SERVER_PORT: u16 = 5201;
/// Port of a client's first connection, the first of the dynamic ports (RFC 6335 6).
const CLIENT_PORT: u16 = 49_152;

impl Tap {
    /// Create the tap of the flows that are chosen by their ids.
    pub(crate) fn new(flows: &[Flow], is_chosen: &dyn Fn(u32) -> bool) -> Self {
        let tapped = |flow: &Flow| {
            let of_tcp = match &flow.plan.traffic {
                Traffic::Tcp { options, .. } => (mss(false) as u16, options.sack),
                Traffic::Udp { .. } => (0, false),
            };
            is_chosen(flow.plan.id).then(|| TappedFlow {
                id: flow.plan.id,
                client: flow.plan.from,
                of_tcp,
                connections: HashMap::new(),
            })
        };
        Self { flows: flows.iter().map(tapped).collect(), packets: Vec::new() }
    }

    /// Packets captured since the last call, in the order of time.
    pub(crate) fn take(&mut self) -> Vec<CapturedPacket> {
        let mut packets = std::mem::take(&mut self.packets);
        packets.sort_by_key(|packet| packet.at);
        packets
    }

    /// Note that a TCP packet leaves its sender.
    #[cold]
    pub(crate) fn begun(&mut self, packet: &Packet) {
        let in_flight = packet.payload.get();
        let Message::Tcp(packet) = in_flight.message else { return };
        if let Some(flow) = &mut self.flows[in_flight.flow as usize] {
            let connection = flow.connection(in_flight.connection);
            let (fields, payload) = connection.numbers.send(way(in_flight.to), &packet);
            let underway = &mut connection.underway[in_flight.to as usize];
            underway.push_back(Underway { packet, fields, payload });
        }
    }

    /// Note that a packet has arrived at its destination, or is lost.
    #[cold]
    pub(crate) fn ended(&mut self, packet: &InFlight) {
        let Message::Tcp(tcp) = &packet.message else { return };
        if let Some(flow) = &mut self.flows[packet.flow as usize] {
            let underway = &mut flow.connection(packet.connection).underway[packet.to as usize];
            if let Some(place) = place_of(underway, tcp) {
                underway.remove(place);
            }
        }
    }

    /// Capture a packet that enters a direction of a link.
    #[cold]
    pub(crate) fn sent(&mut self, link: usize, packet: &Packet, at: Instant) {
        let [near, _] = ends(link);
        self.capture((link, near, true), packet, at, None);
    }

    /// Capture a packet that leaves a direction of a link at its far end.
    #[cold]
    pub(crate) fn arrived(&mut self, link: usize, packet: &Packet, at: Instant) {
        let [_, far] = ends(link);
        let was_marked = packet.payload.get().message.ecn() == Ecn::Ce;
        let is_marked = packet.ecn() == Ecn::Ce && !was_marked;
        let comment = is_marked.then(|| "marked: congestion experienced".to_owned());
        self.capture((link, far, false), packet, at, comment);
    }

    /// Capture a packet that a direction of a link has lost.
    #[cold]
    pub(crate) fn lost(&mut self, link: usize, drop: &Drop<Cell<InFlight>>) {
        let comment = Some(format!("lost: {}", drop.reason));
        self.capture((link, LinkEnd::Lost, true), &drop.packet, drop.at, comment);
        self.ended(&drop.packet.payload.get());
    }

    fn capture(
        &mut self,
        (link, end, outbound): (usize, LinkEnd, bool),
        packet: &Packet,
        at: Instant,
        comment: Option<String>,
    ) {
        let in_flight = packet.payload.get();
        let Some(flow) = &mut self.flows[in_flight.flow as usize] else { return };
        let interface = end.interface((link / 2) as u32);
        let ip_bytes = in_flight.message.ip_size().as_u64() as u32;
        let headers = flow.headers(&in_flight, packet.ecn());
        self.packets.push(CapturedPacket { at, interface, outbound, ip_bytes, headers, comment });
    }
}

impl TappedFlow {
    fn connection(&mut self, number: u32) -> &mut TappedConnection {
        let (mss, sack) = self.of_tcp;
        self.connections.entry(number).or_insert_with(|| TappedConnection {
            numbers: Connection::new(mss, sack),
            underway: [VecDeque::new(), VecDeque::new()],
        })
    }

    /// Headers of a packet with these ECN bits.
    fn headers(&mut self, packet: &InFlight, ecn: Ecn) -> Vec<u8> {
        let addresses = self.addresses(packet, ecn);
        match &packet.message {
            Message::Tcp(tcp) => {
                let underway = &self.connection(packet.connection).underway[packet.to as usize];
                let place = place_of(underway, tcp).expect("the packet is on its way");
                headers::tcp(&addresses, &underway[place].fields, underway[place].payload)
            }
            Message::Udp(datagram) => headers::udp(&addresses, datagram.size.as_u64() as u16),
        }
    }

    fn addresses(&self, packet: &InFlight, ecn: Ecn) -> Addresses {
        let [client, server] = match self.client {
            End::From => [HOSTS[0], HOSTS[1]],
            End::To => [HOSTS[1], HOSTS[0]],
        };
        let port = |first: u16, number: u32| {
            let ports = u32::from(u16::MAX - first) + 1;
            first + (number % ports) as u16
        };
        let client = SocketAddrV4::new(client, port(CLIENT_PORT, packet.connection));
        let server = SocketAddrV4::new(server, port(SERVER_PORT, self.id));
        let [source, destination] = match packet.to {
            Side::Server => [client, server],
            Side::Client => [server, client],
        };
        Addresses { source, destination, tos: packet.tos | ecn.bits() }
    }
}

/// Place of a packet among those on the way: the first one, unless packets overtake each other.
fn place_of(underway: &VecDeque<Underway>, packet: &skyhop_tcp::Packet) -> Option<usize> {
    let mut sent = *packet;
    underway.iter().position(|one| {
        // A queue may have marked the packet.
        sent.set_ecn(one.packet.ecn());
        one.packet == sent
    })
}

/// Way of a packet to this end.
const fn way(to: Side) -> Way {
    match to {
        Side::Server => Way::FromClient,
        Side::Client => Way::ToClient,
    }
}

/// Near and far end of a direction of a link: forward directions have even numbers.
const fn ends(link: usize) -> [LinkEnd; 2] {
    if link.is_multiple_of(2) { [LinkEnd::From, LinkEnd::To] } else { [LinkEnd::To, LinkEnd::From] }
}
