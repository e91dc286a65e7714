//! Two endpoints with a delay line in each direction, where a test decides the fate of every packet.

use std::collections::BTreeMap;

use skyhop_tcp::{Ack, ConnectionState, Endpoint, EndpointConfig, Packet, Segment, SegmentKind};
use skyhop_units::{Duration, Instant};

use crate::path::{Fate, ms};
use crate::reno::Reno;

/// End of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

pub use Side::{Client, Server};

/// Packet with its time of transmission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub at: Instant,
    pub from: Side,
    pub packet: Packet,
}

type Judge = Box<dyn FnMut(Instant, Side, &Packet) -> Fate>;

/// Both ends of one connection.
pub struct Pair {
    pub client: Endpoint<Reno>,
    pub server: Endpoint<Reno>,
    pub now: Instant,
    pub one_way: Duration,
    pub judge: Judge,
    /// Every packet sent so far.
    pub sent: Vec<Sent>,
    in_transit: BTreeMap<(Instant, u64), (Side, Packet)>,
    order: u64,
}

impl Pair {
    pub fn new(client: EndpointConfig, server: EndpointConfig, one_way: Duration) -> Self {
        Self {
            client: Endpoint::client(client, Reno::default()),
            server: Endpoint::server(server, Reno::default()),
            now: Instant::START,
            one_way,
            judge: Box::new(|_, _, _| Fate::Arrives),
            sent: Vec::new(),
            in_transit: BTreeMap::new(),
            order: 0,
        }
    }

    /// Return a pair whose handshake is complete, at the time at which the server knows; the packets sent for
    /// it are forgotten.
    pub fn open(config: EndpointConfig, one_way: Duration) -> Self {
        let mut pair = Self::new(config, config, one_way);
        while pair.server.state() == ConnectionState::Opening {
            assert!(pair.step(Instant::START + ms(10_000)), "no handshake");
        }
        pair.sent.clear();
        pair
    }

    pub fn end(&mut self, side: Side) -> &mut Endpoint<Reno> {
        match side {
            Client => &mut self.client,
            Server => &mut self.server,
        }
    }

    /// Process one event not later than `until`; return `false` if there is none.
    pub fn step(&mut self, until: Instant) -> bool {
        self.transmit();
        let arrival = self.in_transit.keys().next().map(|(at, _)| *at);
        let timers = [self.client.next_timer(), self.server.next_timer()];
        let next = [arrival, timers[0], timers[1]].into_iter().flatten().min();
        let Some(at) = next.filter(|at| *at <= until) else {
            return false;
        };
        assert!(at >= self.now, "an event in the past");
        self.now = at;
        if arrival == Some(at) {
            let (_, (to, packet)) = self.in_transit.pop_first().expect("an event");
            self.end(to).on_packet(at, &packet);
        } else if timers[0] == Some(at) {
            self.client.on_timer(at);
        } else {
            self.server.on_timer(at);
        }
        self.transmit();
        true
    }

    /// Run the connection for `duration`.
    pub fn run_for(&mut self, duration: Duration) {
        let until = self.now + duration;
        while self.step(until) {}
        self.now = until;
    }

    fn transmit(&mut self) {
        for side in [Client, Server] {
            let now = self.now;
            let mut packets = Vec::new();
            self.end(side).transmit(now, &mut packets);
            for packet in packets {
                let fate = (self.judge)(now, side, &packet);
                self.sent.push(Sent { at: now, from: side, packet });
                self.deliver(side, packet, fate);
            }
        }
    }

    fn deliver(&mut self, from: Side, packet: Packet, fate: Fate) {
        let to = if from == Client { Server } else { Client };
        let at = self.now + self.one_way;
        let (at, copies) = match fate {
            Fate::Arrives | Fate::Marked => (at, 1),
            Fate::Late(extra) => (at + extra, 1),
            Fate::Twice => (at, 2),
            Fate::Lost => return,
        };
        for _ in 0..copies {
            self.in_transit.insert((at, self.order), (to, packet));
            self.order += 1;
        }
    }

    /// Time and description of each packet sent by `from`.
    pub fn sent_by(&self, from: Side) -> Vec<(Duration, String)> {
        self.since(Instant::START, from)
    }

    /// Time since `start` and description of each packet sent by `from` from then on.
    pub fn since(&self, start: Instant, from: Side) -> Vec<(Duration, String)> {
        let of_side = self.sent.iter().filter(|sent| sent.from == from && sent.at >= start);
        of_side.map(|sent| (sent.at - start, describe(&sent.packet))).collect()
    }
}

/// Describe a packet in short: its bytes, FIN, and acknowledgement.
pub fn describe(packet: &Packet) -> String {
    let data = |segment: &Segment| match segment.kind {
        SegmentKind::Data if segment.fin => format!("{} fin", segment.len),
        SegmentKind::Data => segment.len.to_string(),
        SegmentKind::Syn => "syn".into(),
        SegmentKind::HandshakeAck => "handshake".into(),
        SegmentKind::Probe => "probe".into(),
    };
    let acked = |ack: &Ack| format!("ack {}", ack.acknowledged);
    match packet {
        Packet::Segment(segment) => data(segment),
        Packet::Ack(ack) => acked(&ack.unpack()),
        Packet::DataWithAck(segment, ack) => format!("{}, {}", data(segment), acked(&ack.unpack())),
        Packet::Reset => "reset".into(),
    }
}
