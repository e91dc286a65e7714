//! One end of a connection with data both ways: a sender and a receiver that share packets.

use skyhop_units::{Bytes, Duration, Instant};

use skyhop_model::KeepAlive;

use crate::config::EndpointConfig;
use crate::keep_alive::{Due, KeepAliveTimer};
use crate::packet::{Outlet, Packet};
use crate::segment::{Ack, Segment, SegmentKind};
use crate::{CongestionControl, Receiver, Sender};

/// Linux's TCP_TIMEOUT_INIT; a retransmitted SYN that comes as late is answered first.
const SYN_ACK_WAIT: Duration = Duration::from_millis(1001);
/// Linux's TCP_RTO_MAX.
const SYN_ACK_WAIT_MOST: Duration = Duration::from_secs(120);
/// sysctl tcp_synack_retries.
const SYN_ACK_RETRIES: u32 = 5;

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
    /// Nobody answered the handshake.
    Unanswered,
    /// Nobody acknowledged data, or answered window probes.
    TimedOut,
    /// Nobody answered the probes of an idle connection.
    KeepAlive,
}

/// One end of a connection, opened by itself or by the other end.
///
/// Every call carries the time, which never runs backwards. After each, [`Self::transmit`] gives what leaves now.
#[derive(Debug)]
pub struct Endpoint<C: CongestionControl> {
    sender: Sender<C>,
    receiver: Receiver,
    /// What has to leave before anything else.
    ready: Vec<Packet>,
    syn_ack: SynAckTimer,
    keepalive: Option<KeepAlive>,
    /// Runs while the connection is established.
    keepalive_timer: Option<KeepAliveTimer>,
    failure: Option<Failure>,
    /// The sender has been asked since it last heard of anything, and has nothing to send or to wait for.
    idle: bool,
}

/// When the SYN-ACK leaves again. An end that only receives leaves that to the SYN.
#[derive(Debug, Default)]
struct SynAckTimer {
    at: Option<Instant>,
    sent: u32,
}

impl<C: CongestionControl> Endpoint<C> {
    /// The end that opens the connection, with its first [`Self::transmit`].
    pub fn client(config: EndpointConfig, cc: C) -> Self {
        Self::new(config, Sender::new(config.sender, cc), true)
    }

    /// The end that waits for the other to open it.
    pub fn server(config: EndpointConfig, cc: C) -> Self {
        Self::new(config, Sender::listening(config.sender, cc), false)
    }

    fn new(config: EndpointConfig, sender: Sender<C>, opens: bool) -> Self {
        Self {
            sender,
            receiver: Receiver::of_end(config.receiver, opens),
            ready: Vec::new(),
            syn_ack: SynAckTimer::default(),
            keepalive: config.keepalive,
            keepalive_timer: None,
            failure: None,
            idle: false,
        }
    }

    /// The application hands over `bytes` more, also before the connection is open.
    pub fn write(&mut self, now: Instant, bytes: Bytes) {
        self.idle = false;
        self.sender.write(now, bytes);
    }

    /// The application always has more to send, until [`Self::pause`] or [`Self::finish`].
    pub fn write_without_end(&mut self) {
        self.idle = false;
        self.sender.write_without_end();
    }

    /// An application that always has more to send stops: what has been written is all so far.
    pub fn pause(&mut self) {
        self.sender.pause();
    }

    /// The application has no more to send (a half-close): what has been written is all, or, of an endless stream, what
    /// there was room for in the send buffer. Data still arrives.
    pub fn finish(&mut self) {
        self.idle = false;
        self.sender.finish();
    }

    /// The application wants short segments to wait, or no longer (TCP_CORK).
    pub fn set_cork(&mut self, cork: bool) {
        self.idle = false;
        self.sender.set_cork(cork);
    }

    /// The application takes `bytes` of what is in order. Only where it does not read at once.
    pub fn read(&mut self, now: Instant, bytes: Bytes) {
        let due = self.receiver.read(now, bytes);
        self.acknowledge(now, due);
    }

    /// The connection is over: a reset leaves next, and nothing after it.
    pub fn abort(&mut self) {
        if self.failure.is_none() {
            self.fail(Failure::Aborted);
            self.ready.push(Packet::Reset);
        }
    }

    /// A packet arrived.
    #[inline]
    pub fn on_packet(&mut self, now: Instant, packet: &Packet) {
        if self.failure.is_some() {
            return;
        }
        let due = match packet {
            Packet::Segment(segment) => self.on_segment(now, segment, None),
            Packet::Both(segment, ack) => self.on_segment(now, segment, Some(&ack.whole())),
            Packet::Ack(ack) => {
                self.on_ack(now, &ack.whole());
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
        self.note_life(now, packet);
    }

    /// When [`Self::on_timer`] wants to be called; `None` while there is nothing to wait for but packets.
    #[inline]
    pub fn next_timer(&self) -> Option<Instant> {
        if self.failure.is_some() {
            return None;
        }
        if self.idle && self.keepalive_timer.is_none() {
            return self.receiver.next_timer();
        }
        let mut next = self.sender.next_timer();
        for other in [self.receiver.next_timer(), self.syn_ack_at(), self.keepalive_at()] {
            next = match (next, other) {
                (Some(next), Some(other)) => Some(next.min(other)),
                (next, other) => next.or(other),
            };
        }
        next
    }

    /// Time has passed; does nothing before [`Self::next_timer`].
    pub fn on_timer(&mut self, now: Instant) {
        if self.failure.is_some() {
            return;
        }
        if self.sender.next_timer().is_some_and(|at| at <= now) {
            self.idle = false;
            self.sender.on_timer(now);
        }
        if self.receiver.next_timer().is_some_and(|at| at <= now) {
            let due = self.receiver.on_timer(now);
            self.ready.extend(due.map(Packet::ack));
        }
        if self.syn_ack_at().is_some_and(|at| at <= now) {
            self.on_syn_ack_timer(now);
        }
        if self.keepalive_at().is_some_and(|at| at <= now) {
            self.on_keepalive_timer(now);
        }
        if let Some(failure) = self.sender.failure() {
            self.fail(failure);
        }
    }

    /// Whether [`Self::transmit`] may have something to send.
    #[inline]
    pub fn may_send(&self) -> bool {
        !self.ready.is_empty() || !(self.idle || self.failure.is_some())
    }

    /// Sends every packet that leaves now, in order. To be called after every other call.
    #[inline(always)]
    pub fn transmit(&mut self, now: Instant, outlet: &mut impl Outlet) {
        loop {
            for packet in &self.ready {
                outlet.send(*packet);
            }
            self.ready.clear();
            if self.idle || self.failure.is_some() {
                return;
            }
            if self.receiver.has_received() {
                self.sender.set_option_bytes(self.receiver.sack_option_bytes());
            }
            let Some(segment) = self.next_segment(now) else {
                return;
            };
            if self.leaves_alone(segment.kind) {
                outlet.send(Packet::Segment(segment));
            } else {
                self.send_with_ack(now, segment);
            }
        }
    }

    /// Whether a segment has no acknowledgement to carry.
    #[inline]
    fn leaves_alone(&self, kind: SegmentKind) -> bool {
        match kind {
            SegmentKind::Data => !self.receiver.has_received(),
            SegmentKind::Probe => true,
            SegmentKind::Syn | SegmentKind::HandshakeAck => false,
        }
    }

    #[cold]
    fn send_with_ack(&mut self, now: Instant, segment: Segment) {
        let ack = match segment.kind {
            SegmentKind::Syn => self.receiver.window_of_syn(now),
            _ => self.receiver.carried_ack(now),
        };
        self.send_both(now, segment, ack);
    }

    /// How the connection stands.
    #[inline]
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
    #[inline]
    pub fn received(&self) -> Bytes {
        self.receiver.stats().bytes_in_order
    }

    /// What of it the application has not read.
    #[inline]
    pub fn unread(&self) -> Bytes {
        self.receiver.unread()
    }

    /// Whether the other end's stream has arrived to its end.
    #[inline]
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
    #[inline]
    fn on_segment(&mut self, now: Instant, segment: &Segment, ack: Option<&Ack>) -> Option<Ack> {
        match segment.kind {
            SegmentKind::Syn => return self.on_syn(now, segment, ack),
            _ => self.sender.accept(now, ack),
        }
        if let Some(ack) = ack {
            self.idle = false;
            self.sender.on_ack_with(now, ack, segment.len > 0 || segment.fin);
        }
        if segment.kind == SegmentKind::Data {
            self.sender.note_timestamp(segment.tsval);
            self.sender.on_data(now, segment.ecn);
        }
        if ack.is_some() || !self.receiver.has_received() {
            self.tell_rtt();
        }
        self.receiver.on_segment(now, segment)
    }

    /// The receiving half asks how far away the other end is.
    fn tell_rtt(&mut self) {
        if let Some((srtt, rto)) = self.sender.srtt_and_rto() {
            self.receiver.set_rtt(srtt, rto);
        }
    }

    fn on_syn(&mut self, now: Instant, syn: &Segment, ack: Option<&Ack>) -> Option<Ack> {
        self.idle = false;
        let answer = self.receiver.on_segment(now, syn);
        self.sender.note_timestamp(syn.tsval);
        let speaks_ecn = self.receiver.speaks_ecn();
        self.sender.on_syn(now, ack.map_or(0, |ack| ack.window), speaks_ecn);
        self.start_syn_ack_timer(now);
        answer
    }

    #[inline]
    fn on_ack(&mut self, now: Instant, ack: &Ack) {
        self.idle = false;
        self.sender.on_ack(now, ack);
        if ack.syn {
            self.receiver.set_ecn(self.sender.speaks_ecn());
        }
    }

    /// `tcp_data_snd_check`, then `tcp_ack_snd_check`: data that may leave now takes the acknowledgement along.
    #[inline]
    fn acknowledge(&mut self, now: Instant, due: Option<Ack>) {
        let Some(ack) = due else {
            return;
        };
        match self.next_segment(now) {
            Some(segment) => self.send_both(now, segment, ack),
            None => self.ready.push(Packet::ack(ack)),
        }
    }

    /// The next segment of this end's own data to leave now.
    #[inline(always)]
    fn next_segment(&mut self, now: Instant) -> Option<Segment> {
        if self.idle {
            return None;
        }
        let segment = self.sender.poll_transmit(now);
        self.idle = segment.is_none() && self.sender.is_idle();
        segment
    }

    /// An acknowledgement leaves with data, or before it where the two do not fit one packet: Linux would split a
    /// segment that it sends again.
    fn send_both(&mut self, now: Instant, segment: Segment, ack: Ack) {
        if segment.len > 0 {
            self.receiver.on_data_sent(now);
        }
        if u64::from(segment.len) + ack.sack.option_bytes() > self.sender.mss() {
            self.ready.extend([Packet::ack(ack), Packet::Segment(segment)]);
        } else {
            self.ready.push(Packet::both(segment, ack));
        }
    }

    fn syn_ack_at(&self) -> Option<Instant> {
        self.syn_ack.at.filter(|_| !self.sender.is_established() && self.sender.has_unsent())
    }

    /// `reqsk_timer_handler`: the handshake's last segment did not arrive, and this end has something to say.
    fn on_syn_ack_timer(&mut self, now: Instant) {
        if self.sender.gives_up() && self.syn_ack.sent > SYN_ACK_RETRIES {
            self.fail(Failure::Unanswered);
            return;
        }
        self.ready.push(Packet::ack(self.receiver.syn_ack(now)));
        self.sender.on_syn_ack_again(now);
        self.start_syn_ack_timer(now);
    }

    /// It waits twice as long each time.
    fn start_syn_ack_timer(&mut self, now: Instant) {
        let wait = SYN_ACK_WAIT * (1 << self.syn_ack.sent.min(7));
        self.syn_ack.at = Some(now + wait.min(SYN_ACK_WAIT_MOST));
        self.syn_ack.sent += 1;
    }

    fn keepalive_at(&self) -> Option<Instant> {
        self.keepalive_timer.as_ref().map(KeepAliveTimer::at)
    }

    fn on_keepalive_timer(&mut self, now: Instant) {
        let busy = self.sender.is_busy();
        let due = self.keepalive_timer.as_mut().map(|timer| timer.on_timer(now, busy));
        match due {
            Some(Due::Probe) => {
                self.idle = false;
                self.sender.send_probe();
            }
            Some(Due::Failure) => {
                self.fail(Failure::KeepAlive);
                self.ready.push(Packet::Reset);
            }
            Some(Due::Nothing) | None => {}
        }
    }

    /// What a packet tells besides what it brings: that the other end is alive.
    fn note_life(&mut self, now: Instant, packet: &Packet) {
        if let Some(config) = self.keepalive {
            let established = self.state() == ConnectionState::Established;
            let is_probe =
                matches!(packet, Packet::Segment(segment) if segment.kind == SegmentKind::Probe);
            match &mut self.keepalive_timer {
                timer if !established => *timer = None,
                Some(timer) if !is_probe => timer.on_heard(now),
                Some(_) => {}
                timer => *timer = Some(KeepAliveTimer::new(config, now)),
            }
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
        self.ready.clear();
        self.keepalive_timer = None;
    }
}
