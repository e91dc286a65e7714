//! Property: whatever both applications and the network do, every byte arrives once, in order, both ways.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use proptest::prelude::*;
use skyhop_tcp::{
    Ack, ConnectionState, Endpoint, EndpointConfig, Packet, ReceiverConfig, Segment, SegmentKind,
    SenderConfig,
};
use skyhop_units::{Bytes, Duration, Instant};

use crate::pair::{Client, Pair, Server, Side};
use crate::path::ms;
use crate::receiving::of_window;
use crate::reno::Reno;
use crate::trouble::Trouble;

/// Behaviour of one end's application.
#[derive(Debug, Clone)]
struct Application {
    nodelay: bool,
    cork: bool,
    /// Writes as (delay in milliseconds, bytes); the application finishes after the last.
    writes: Vec<(u64, u64)>,
    /// Size of the buffer, bytes per read and milliseconds between reads; `None` to read everything at once.
    reads: Option<(u64, u64, u64)>,
}

impl Application {
    fn strategy() -> impl Strategy<Value = Self> {
        let write = (0_u64..300, prop_oneof![1_u64..100, 1_u64..3000, 1_u64..60_000]);
        let read = (1500_u64..60_000, 1_u64..20_000, 1_u64..100);
        (any::<bool>(), any::<bool>(), prop::collection::vec(write, 0..12), prop::option::of(read))
            .prop_map(|(nodelay, cork, writes, reads)| Self { nodelay, cork, writes, reads })
    }

    fn config(&self) -> EndpointConfig {
        let mut receiver = ReceiverConfig::default();
        if let Some((window, _, _)) = self.reads {
            receiver = ReceiverConfig { reads_at_once: false, ..of_window(window) };
        }
        let sender =
            SenderConfig { nodelay: self.nodelay, cork: self.cork, ..SenderConfig::default() };
        EndpointConfig { sender, receiver, keepalive: None }
    }

    fn total(&self) -> Bytes {
        Bytes::new(self.writes.iter().map(|(_, bytes)| *bytes).sum())
    }
}

/// Checks of one direction of the connection.
#[derive(Debug, Default)]
struct Direction {
    /// Offset, length and FIN flag of every segment, by sequence number.
    segments: BTreeMap<u64, (u64, u16, bool)>,
    /// Largest byte offset that an ACK of the other end has ever allowed.
    allowed: u64,
}

impl Direction {
    fn on_segment(&mut self, segment: &Segment) {
        if segment.kind != SegmentKind::Data {
            return;
        }
        let shape = (segment.offset, segment.len, segment.fin);
        if segment.retransmission {
            assert_eq!(self.segments.get(&segment.seq), Some(&shape), "{segment:?}");
            return;
        }
        let end = segment.offset + u64::from(segment.len);
        assert!(end <= self.allowed, "{segment:?} beyond {}", self.allowed);
        let last = self.segments.last_key_value();
        let (seq, offset) = last.map_or((0, 0), |(seq, last)| {
            assert!(!last.2, "nothing follows a FIN");
            (seq + 1, last.0 + u64::from(last.1))
        });
        assert_eq!((segment.seq, segment.offset), (seq, offset));
        assert!(segment.len > 0 || segment.fin);
        self.segments.insert(segment.seq, shape);
    }

    fn on_ack(&mut self, ack: &Ack) {
        let end = ack.acknowledged + ack.window;
        assert!(end >= self.allowed, "a window that shrinks: {ack:?}, {}", self.allowed);
        self.allowed = end;
    }
}

/// Most packets, timers and turns of applications in one connection: reading byte by byte takes at most
/// 720,000, and other cases hardly exceed 100,000.
const MOST_TURNS: u32 = 1_000_000;

fn survives(client: &Application, server: &Application, trouble: [Trouble; 2]) {
    let mut pair = Pair::new(client.config(), server.config(), ms(20));
    let directions = Rc::new(RefCell::new([Direction::default(), Direction::default()]));
    let seen = Rc::clone(&directions);
    let mut trouble = trouble;
    pair.judge = Box::new(move |_, from, packet| {
        let mut directions = seen.borrow_mut();
        let (own, other) = if from == Client { (0, 1) } else { (1, 0) };
        let (segment, ack) = match packet {
            Packet::Segment(segment) => (Some(segment), None),
            Packet::Ack(ack) => (None, Some(ack.unpack())),
            Packet::DataWithAck(segment, ack) => (Some(segment), Some(ack.unpack())),
            Packet::Reset => (None, None),
        };
        segment.into_iter().for_each(|segment| directions[own].on_segment(segment));
        ack.into_iter().for_each(|ack| directions[other].on_ack(&ack));
        trouble[own].fate()
    });
    let mut applications =
        [RunningApplication::new(Client, client), RunningApplication::new(Server, server)];
    let mut turns = 0;
    while !applications.iter().all(|application| application.is_done(&mut pair)) {
        turns += 1;
        assert!(turns < MOST_TURNS, "stalled at {}: {}", pair.now, states(&pair));
        let next = applications.iter().map(|application| application.at).min().unwrap();
        let now = pair.now;
        if next == Instant::NEVER || pair.step(next) {
            assert!(next != Instant::NEVER || pair.step(now + Duration::from_secs(1000)), "stuck");
            continue;
        }
        pair.now = next;
        applications.iter_mut().for_each(|application| application.act(&mut pair));
    }
    for (application, side, other) in [(client, Client, Server), (server, Server, Client)] {
        assert_eq!(pair.end(other).received(), application.total());
        assert_eq!(pair.end(side).acknowledged(), application.total());
        assert_eq!(pair.end(side).unsent(), Bytes::ZERO);
        let info = pair.end(side).sender().info();
        assert_eq!(info.inflight, 0);
        let own = usize::from(side == Server);
        let segments = directions.borrow()[own].segments.len() as u64;
        assert_eq!(info.sent - info.retransmits, segments);
    }
}

/// Describe the progress of both ends.
fn states(pair: &Pair) -> String {
    let of = |end: &Endpoint<Reno>| {
        let (state, unread, unsent) = (end.state(), end.unread(), end.unsent());
        format!("{state:?}, {unread} unread, {unsent} unsent, timer {:?}", end.next_timer())
    };
    format!("client {}; server {}", of(&pair.client), of(&pair.server))
}

/// Application that runs at one end.
struct RunningApplication<'a> {
    side: Side,
    application: &'a Application,
    written: usize,
    finished: bool,
    /// Time of its next action.
    at: Instant,
}

impl<'a> RunningApplication<'a> {
    fn new(side: Side, application: &'a Application) -> Self {
        let after = application.writes.first().map_or(0, |(after, _)| *after);
        let at = Instant::START + ms(after);
        Self { side, application, written: 0, finished: false, at }
    }

    fn act(&mut self, pair: &mut Pair) {
        if self.at > pair.now {
            return;
        }
        let now = pair.now;
        let end = pair.end(self.side);
        let mut waits = vec![];
        if let Some((_, bytes)) = self.application.writes.get(self.written) {
            end.write(now, Bytes::new(*bytes));
            self.written += 1;
            waits.extend(self.application.writes.get(self.written).map(|(after, _)| ms(*after)));
        }
        if self.written == self.application.writes.len() && !self.finished {
            self.finished = true;
            end.finish();
        }
        if let Some((_, bytes, every)) = self.application.reads {
            end.read(now, Bytes::new(bytes));
            waits.push(ms(every));
        }
        self.at = waits.into_iter().min().map_or(Instant::NEVER, |wait| now + wait);
    }

    fn is_done(&self, pair: &mut Pair) -> bool {
        let end = pair.end(self.side);
        end.state() == ConnectionState::Closed && end.unread() == Bytes::ZERO
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: skyhop_needs::cases(300), ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_both_ways(
        client in Application::strategy(),
        server in Application::strategy(),
        forward in Trouble::strategy(),
        back in Trouble::strategy(),
    ) {
        survives(&client, &server, [forward, back]);
    }
}

#[test]
fn bulk_both_ways_at_once() {
    let application =
        Application { nodelay: false, cork: false, writes: vec![(0, 3_000_000)], reads: None };
    let none = Trouble::of_loss(0, 1);
    survives(&application, &application, [none, none]);
}

#[test]
fn a_segment_deemed_lost_while_it_waits_is_not_looked_at_for_ever() {
    let client =
        Application { nodelay: false, cork: false, writes: vec![(0, 48_428)], reads: None };
    let server = Application {
        nodelay: false,
        cork: false,
        writes: vec![(2, 30_292), (18, 81)],
        reads: Some((25_473, 2_439, 29)),
    };
    let forward =
        Trouble { loss: 36_971, late: 50_106, twice: 48_241, seed: 11_831_460_768_518_338_824 };
    let back =
        Trouble { loss: 202_017, late: 106_005, twice: 55_465, seed: 11_024_132_010_305_805_994 };
    survives(&client, &server, [forward, back]);
}
