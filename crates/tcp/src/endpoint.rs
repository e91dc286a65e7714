//! One end of a connection with data both ways: a sender and a receiver that share packets.

use std::collections::VecDeque;

use skyhop_units::{Bytes, Instant};

use crate::config::EndpointConfig;
use crate::packet::Packet;
use crate::segment::{Ack, Segment, SegmentKind};
use crate::{CongestionControl, Receiver, Sender};

/// How a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// Waits for the other end.
    Opening,
    /// Data flows, or may.
    Established,
    /// Both streams have ended: this end's is acknowledged to its end, the other's has arrived.
    Closed,
    /// It broke.
    Failed(Failure),
}

/// What broke a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// This end's application did.
    Aborted,
    /// The other end did.
    Reset,
}

/// One end of a connection, opened by itself or by the other end.
///
/// Every call carries the time, which never runs backwards. After each, [`Self::poll_transmit`] gives what leaves now.
#[derive(Debug)]
pub struct Endpoint<C: CongestionControl> {
    sender: Sender<C>,
    receiver: Receiver,
    /// What has to leave before anything else.
    ready: VecDeque<Packet>,
    failure: Option<Failure>,
}

impl<C: CongestionControl> Endpoint<C> {
    /// The end that opens the connection, with its first [`Self::poll_transmit`].
    pub fn client(config: EndpointConfig, cc: C) -> Self {
        Self::new(Sender::new(config.sender, cc), Receiver::new(config.receiver))
    }

    /// The end that waits for the other to open it.
    pub fn server(config: EndpointConfig, cc: C) -> Self {
        Self::new(Sender::listening(config.sender, cc), Receiver::new(config.receiver))
    }

    fn new(sender: Sender<C>, receiver: Receiver) -> Self {
        Self { sender, receiver, ready: VecDeque::new(), failure: None }
    }

    /// The application hands over `bytes` more, also before the connection is open.
    pub fn write(&mut self, now: Instant, bytes: Bytes) {
        self.sender.write(now, bytes);
    }

    /// The application always has more to send, until [`Self::finish`].
    pub fn write_without_end(&mut self) {
        self.sender.write_without_end();
    }

    /// The application has no more to send (a half-close): what has been written is all, or, of an endless stream, what
    /// has been sent. Data still arrives.
    pub fn finish(&mut self) {
        self.sender.finish();
    }

    /// The application takes `bytes` of what is in order. Only where it does not read at once.
    pub fn read(&mut self, now: Instant, bytes: Bytes) {
        let due = self.receiver.read(bytes);
        self.acknowledge(now, due);
    }

    /// The connection is over: a reset leaves next, and nothing after it.
    pub fn abort(&mut self, _now: Instant) {
        if self.failure.is_none() {
            self.fail(Failure::Aborted);
            self.ready.push_back(Packet::Reset);
        }
    }

    /// A packet arrived.
    pub fn on_packet(&mut self, now: Instant, packet: &Packet) {
        if self.failure.is_some() {
            return;
        }
        let due = match packet {
            Packet::Segment(segment) => self.on_segment(now, segment, None),
            Packet::Both(both) => self.on_segment(now, &both.0, Some(&both.1)),
            Packet::Ack(ack) => {
                self.on_ack(now, ack);
                None
            }
            Packet::Reset => {
                if self.state() != ConnectionState::Closed && self.sender.has_peer() {
                    self.fail(Failure::Reset);
                }
                None
            }
        };
        self.acknowledge(now, due);
    }

    /// When [`Self::on_timer`] wants to be called; `None` while there is nothing to wait for but packets.
    pub fn next_timer(&self) -> Option<Instant> {
        if self.failure.is_some() {
            return None;
        }
        [self.sender.next_timer(), self.receiver.next_timer()].into_iter().flatten().min()
    }

    /// Time has passed; does nothing before [`Self::next_timer`].
    pub fn on_timer(&mut self, now: Instant) {
        if self.failure.is_some() {
            return;
        }
        if self.sender.next_timer().is_some_and(|at| at <= now) {
            self.sender.on_timer(now);
        }
        if self.receiver.next_timer().is_some_and(|at| at <= now) {
            let due = self.receiver.on_timer(now);
            self.ready.extend(due.map(Packet::Ack));
        }
    }

    /// The next packet to leave now. To be called until it gives `None`, after every other call.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        if let Some(packet) = self.ready.pop_front() {
            return Some(packet);
        }
        if self.failure.is_some() {
            return None;
        }
        let segment = self.sender.poll_transmit(now)?;
        let alone = segment.kind == SegmentKind::Data && !self.receiver.has_received();
        if alone {
            return Some(Packet::Segment(segment));
        }
        let ack = match segment.kind {
            SegmentKind::Syn => self.receiver.window_of_syn(),
            _ => self.receiver.carried_ack(now, segment.len),
        };
        Some(Packet::both(segment, ack))
    }

    /// How the connection stands.
    pub fn state(&self) -> ConnectionState {
        match self.failure {
            Some(failure) => ConnectionState::Failed(failure),
            None if !self.sender.is_established() => ConnectionState::Opening,
            None if self.sender.is_complete() && self.receiver.is_finished() => {
                ConnectionState::Closed
            }
            None => ConnectionState::Established,
        }
    }

    /// How much has arrived in order.
    pub fn received(&self) -> Bytes {
        self.receiver.stats().bytes_in_order
    }

    /// What of it the application has not read.
    pub fn unread(&self) -> Bytes {
        self.receiver.unread()
    }

    /// Whether the other end's stream has arrived to its end.
    pub fn peer_finished(&self) -> bool {
        self.receiver.is_finished()
    }

    /// How much of what was written has been acknowledged.
    pub fn acknowledged(&self) -> Bytes {
        self.sender.acknowledged()
    }

    /// How much of what was written never left.
    pub fn unsent(&self) -> Bytes {
        self.sender.unsent_bytes()
    }

    /// The sending half.
    pub fn sender(&self) -> &Sender<C> {
        &self.sender
    }

    /// The sending half, for its congestion control.
    pub fn sender_mut(&mut self) -> &mut Sender<C> {
        &mut self.sender
    }

    /// The receiving half.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// What acknowledges comes before what is new in the same packet.
    fn on_segment(&mut self, now: Instant, segment: &Segment, ack: Option<&Ack>) -> Option<Ack> {
        match segment.kind {
            SegmentKind::Syn => return self.on_syn(now, segment, ack),
            _ => self.sender.accept(now, ack),
        }
        if let Some(ack) = ack {
            self.sender.on_ack_with(now, ack, segment.len > 0 || segment.fin);
        }
        if segment.kind == SegmentKind::Data {
            self.sender.on_data(now, segment.ecn);
        }
        self.receiver.on_segment(now, segment)
    }

    fn on_syn(&mut self, now: Instant, syn: &Segment, ack: Option<&Ack>) -> Option<Ack> {
        let answer = self.receiver.on_segment(now, syn);
        let speaks_ecn = self.receiver.speaks_ecn();
        self.sender.on_syn(now, ack.map_or(0, |ack| ack.window), speaks_ecn);
        answer
    }

    fn on_ack(&mut self, now: Instant, ack: &Ack) {
        self.sender.on_ack(now, ack);
        if ack.syn {
            self.receiver.set_ecn(self.sender.speaks_ecn());
        }
    }

    /// `tcp_data_snd_check`, then `tcp_ack_snd_check`: data that may leave now takes the acknowledgement along.
    fn acknowledge(&mut self, now: Instant, due: Option<Ack>) {
        let Some(ack) = due else {
            return;
        };
        let packet = match self.sender.poll_transmit(now) {
            Some(segment) => {
                self.receiver.note_data_sent(now, segment.len);
                Packet::both(segment, ack)
            }
            None => Packet::Ack(ack),
        };
        self.ready.push_back(packet);
    }

    fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
        self.ready.clear();
    }
}
