//! One end of a connection with data both ways: a sender and a receiver that share packets.

use skyhop_units::{Bytes, Duration, Instant};

use skyhop_model::KeepAlive;

use crate::config::EndpointConfig;
use crate::keep_alive::{KeepAliveAction, KeepAliveTimer};
use crate::packet::{Packet, PacketSink};
use crate::segment::{Ack, Segment, SegmentKind};
use crate::{CongestionControl, Receiver, Sender};

/// First interval of SYN-ACK retransmissions: TCP_TIMEOUT_INIT and 1 ms more, so that a SYN that the other end
/// retransmits after TCP_TIMEOUT_INIT is answered first.
const SYN_ACK_WAIT: Duration = Duration::from_millis(1001);
/// Longest interval of SYN-ACK retransmissions (TCP_RTO_MAX).
const SYN_ACK_WAIT_MOST: Duration = Duration::from_secs(120);
/// Number of SYN-ACK retransmissions before the end gives up (sysctl tcp_synack_retries).
const SYN_ACK_RETRIES: u32 = 5;

/// State of a connection, coarser than RFC 9293's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// The handshake is not complete.
    Opening,
    /// The handshake is complete; data may flow.
    Established,
    /// Both streams have ended: the other end has acknowledged this end's FIN, and the other end's whole stream
    /// has arrived.
    Closed,
    /// The connection was aborted, reset or timed out.
    Failed(Failure),
}

/// Reason why a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The application of this end aborted the connection.
    Aborted,
    /// The other end sent a reset.
    Reset,
    /// The other end did not answer the handshake.
    Unanswered,
    /// The other end did not acknowledge data, or did not answer window probes.
    TimedOut,
    /// The other end did not answer the keepalive probes.
    KeepAlive,
}

/// One end of a connection, opened by itself or by the other end.
///
/// Every call carries the current time, which never runs backwards. After each call, [`Self::transmit`] sends
/// the packets that are due.
#[derive(Debug)]
pub struct Endpoint<C: CongestionControl> {
    sender: Sender<C>,
    receiver: Receiver,
    /// Packets to send before new data (ACKs, RST).
    outgoing: Vec<Packet>,
    syn_ack: SynAckTimer,
    keepalive: Option<KeepAlive>,
    /// Keepalive timer, which runs while the connection is established.
    keepalive_timer: Option<KeepAliveTimer>,
    failure: Option<Failure>,
    /// Whether the sender was polled after the last event and has nothing to send or to wait for; saves polling
    /// it again.
    sender_idle: bool,
}

/// Retransmission timer of the SYN-ACK. It runs only at an end that has data to send; an end that only receives
/// relies on the client's retransmitted SYN.
#[derive(Debug, Default)]
struct SynAckTimer {
    at: Option<Instant>,
    sent: u32,
}

impl<C: CongestionControl> Endpoint<C> {
    /// Return the active end, which opens the connection with its first [`Self::transmit`].
    pub fn client(config: EndpointConfig, cc: C) -> Self {
        Self::new(config, Sender::new(config.sender, cc), true)
    }

    /// Return the passive end, which waits for the other to open the connection.
    pub fn server(config: EndpointConfig, cc: C) -> Self {
        Self::new(config, Sender::listening(config.sender, cc), false)
    }

    fn new(config: EndpointConfig, sender: Sender<C>, opens: bool) -> Self {
        Self {
            sender,
            receiver: Receiver::for_end(config.receiver, opens),
            outgoing: Vec::new(),
            syn_ack: SynAckTimer::default(),
            keepalive: config.keepalive,
            keepalive_timer: None,
            failure: None,
            sender_idle: false,
        }
    }

    /// Append `bytes` from the application to the stream; allowed before the connection is open.
    pub fn write(&mut self, now: Instant, bytes: Bytes) {
        self.sender_idle = false;
        self.sender.write(now, bytes);
    }

    /// Make the stream endless: the application always has more to send, until [`Self::pause`] or
    /// [`Self::finish`].
    pub fn write_without_end(&mut self) {
        self.sender_idle = false;
        self.sender.write_without_end();
    }

    /// Stop an endless stream after the last byte that is in the send buffer. The application may write again
    /// later.
    pub fn pause(&mut self) {
        self.sender.pause();
    }

    /// Close this end's stream (a half-close). An endless stream ends after the last byte that is in the send
    /// buffer. Data from the other end may still arrive.
    pub fn finish(&mut self) {
        self.sender_idle = false;
        self.sender.finish();
    }

    /// Set or clear TCP_CORK, which holds back short segments.
    pub fn set_cork(&mut self, cork: bool) {
        self.sender_idle = false;
        self.sender.set_cork(cork);
    }

    /// Read `bytes` of the data that has arrived in order; only for an application that does not read at once
    /// (`ReceiverConfig::reads_at_once`).
    pub fn read(&mut self, now: Instant, bytes: Bytes) {
        let due = self.receiver.read(now, bytes);
        self.acknowledge(now, due);
    }

    /// Abort the connection: a reset is sent next, and nothing after it.
    pub fn abort(&mut self) {
        if self.failure.is_none() {
            self.fail(Failure::Aborted);
            self.outgoing.push(Packet::Reset);
        }
    }

    /// Process a packet from the other end.
    #[inline]
    pub fn on_packet(&mut self, now: Instant, packet: &Packet) {
        if self.failure.is_some() {
            return;
        }
        let due = match packet {
            Packet::Segment(segment) => self.on_segment(now, segment, None),
            Packet::DataWithAck(segment, ack) => self.on_segment(now, segment, Some(&ack.unpack())),
            Packet::Ack(ack) => {
                self.on_ack(now, &ack.unpack());
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
        self.update_keepalive(now, packet);
    }

    /// Time of the next [`Self::on_timer`] call; `None` while the end waits for packets only.
    #[inline]
    pub fn next_timer(&self) -> Option<Instant> {
        if self.failure.is_some() {
            return None;
        }
        if self.sender_idle && self.keepalive_timer.is_none() {
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

    /// Handle the timers that are due; does nothing before [`Self::next_timer`].
    pub fn on_timer(&mut self, now: Instant) {
        if self.failure.is_some() {
            return;
        }
        if self.sender.next_timer().is_some_and(|at| at <= now) {
            self.sender_idle = false;
            self.sender.on_timer(now);
        }
        if self.receiver.next_timer().is_some_and(|at| at <= now) {
            let due = self.receiver.on_timer(now);
            self.outgoing.extend(due.map(Packet::ack));
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
        !self.outgoing.is_empty() || !(self.sender_idle || self.failure.is_some())
    }

    /// Pass every packet that is due to `sink`, in order. Call this method after every other call.
    #[inline(always)]
    pub fn transmit(&mut self, now: Instant, sink: &mut impl PacketSink) {
        loop {
            for packet in &self.outgoing {
                sink.send(*packet);
            }
            self.outgoing.clear();
            if self.sender_idle || self.failure.is_some() {
                return;
            }
            if self.receiver.has_received() {
                self.sender.set_option_bytes(self.receiver.sack_option_bytes());
            }
            let Some(segment) = self.next_segment(now) else {
                return;
            };
            if self.carries_no_ack(segment.kind) {
                sink.send(Packet::Segment(segment));
            } else {
                self.send_with_ack(now, segment);
            }
        }
    }

    /// Whether a segment of this kind carries no acknowledgement.
    #[inline]
    fn carries_no_ack(&self, kind: SegmentKind) -> bool {
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
        self.queue_with_ack(now, segment, ack);
    }

    /// State of the connection, failures of either half included.
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

    /// Number of bytes that have arrived in order.
    #[inline]
    pub fn received(&self) -> Bytes {
        self.receiver.stats().bytes_in_order
    }

    /// Number of bytes in order that the application has not read.
    #[inline]
    pub fn unread(&self) -> Bytes {
        self.receiver.unread()
    }

    /// Whether the other end's whole stream has arrived in order.
    #[inline]
    pub fn peer_finished(&self) -> bool {
        self.receiver.is_finished()
    }

    /// Number of written bytes acknowledged by the other end.
    pub fn acknowledged(&self) -> Bytes {
        self.sender.acknowledged()
    }

    /// Number of written bytes that were never sent.
    pub fn unsent(&self) -> Bytes {
        self.sender.unsent_bytes()
    }

    /// Sending half of the end.
    pub fn sender(&self) -> &Sender<C> {
        &self.sender
    }

    /// Sending half of the end, mutable for its congestion control.
    pub fn sender_mut(&mut self) -> &mut Sender<C> {
        &mut self.sender
    }

    /// Receiving half of the end.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Process a segment, and before it the acknowledgement in the same packet.
    #[inline]
    fn on_segment(&mut self, now: Instant, segment: &Segment, ack: Option<&Ack>) -> Option<Ack> {
        match segment.kind {
            SegmentKind::Syn => return self.on_syn(now, segment, ack),
            _ => self.sender.accept(now, ack),
        }
        if let Some(ack) = ack {
            self.sender_idle = false;
            self.sender.on_ack_with(now, ack, segment.len > 0 || segment.fin);
        }
        if segment.kind == SegmentKind::Data {
            self.sender.note_timestamp(segment.tsval);
            self.sender.on_data(now, segment.ecn);
        }
        if ack.is_some() || !self.receiver.has_received() {
            self.pass_rtt_to_receiver();
        }
        self.receiver.on_segment(now, segment)
    }

    /// Pass the smoothed RTT and the timeout to the receiving half, whose delayed ACKs depend on them.
    fn pass_rtt_to_receiver(&mut self) {
        if let Some((srtt, rto)) = self.sender.srtt_and_rto() {
            self.receiver.set_rtt(srtt, rto);
        }
    }

    fn on_syn(&mut self, now: Instant, syn: &Segment, ack: Option<&Ack>) -> Option<Ack> {
        self.sender_idle = false;
        let answer = self.receiver.on_segment(now, syn);
        self.sender.note_timestamp(syn.tsval);
        let ecn_enabled = self.receiver.ecn_enabled();
        self.sender.on_syn(now, ack.map_or(0, |ack| ack.window), ecn_enabled);
        self.start_syn_ack_timer(now);
        answer
    }

    #[inline]
    fn on_ack(&mut self, now: Instant, ack: &Ack) {
        self.sender_idle = false;
        self.sender.on_ack(now, ack);
        if ack.syn {
            self.receiver.set_ecn_enabled(self.sender.ecn_enabled());
        }
    }

    /// Send the acknowledgement `due`, with data that may leave now if there is any (`tcp_data_snd_check`, then
    /// `tcp_ack_snd_check`).
    #[inline]
    fn acknowledge(&mut self, now: Instant, due: Option<Ack>) {
        let Some(ack) = due else {
            return;
        };
        match self.next_segment(now) {
            Some(segment) => self.queue_with_ack(now, segment, ack),
            None => self.outgoing.push(Packet::ack(ack)),
        }
    }

    /// Return the next segment of this end's data to send now.
    #[inline(always)]
    fn next_segment(&mut self, now: Instant) -> Option<Segment> {
        if self.sender_idle {
            return None;
        }
        let segment = self.sender.poll_transmit(now);
        self.sender_idle = segment.is_none() && self.sender.is_idle();
        segment
    }

    /// Queue an acknowledgement and a data segment as one packet, or as two packets, the acknowledgement first,
    /// if both do not fit one packet. (Linux would split a retransmitted segment instead.)
    fn queue_with_ack(&mut self, now: Instant, segment: Segment, ack: Ack) {
        if segment.len > 0 {
            self.receiver.on_data_sent(now);
        }
        if u64::from(segment.len) + ack.sack.option_bytes() > self.sender.mss() {
            self.outgoing.extend([Packet::ack(ack), Packet::Segment(segment)]);
        } else {
            self.outgoing.push(Packet::data_with_ack(segment, ack));
        }
    }

    fn syn_ack_at(&self) -> Option<Instant> {
        self.syn_ack.at.filter(|_| !self.sender.is_established() && self.sender.has_unsent())
    }

    /// Retransmit the SYN-ACK (`reqsk_timer_handler`): the handshake's last segment did not arrive, and this
    /// end has data to send.
    fn on_syn_ack_timer(&mut self, now: Instant) {
        if self.sender.gives_up() && self.syn_ack.sent > SYN_ACK_RETRIES {
            self.fail(Failure::Unanswered);
            return;
        }
        self.outgoing.push(Packet::ack(self.receiver.syn_ack(now)));
        self.sender.on_syn_ack_retransmitted(now);
        self.start_syn_ack_timer(now);
    }

    /// Arm the SYN-ACK timer, with an interval that doubles each time.
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
            Some(KeepAliveAction::Probe) => {
                self.sender_idle = false;
                self.sender.send_probe();
            }
            Some(KeepAliveAction::Failure) => {
                self.fail(Failure::KeepAlive);
                self.outgoing.push(Packet::Reset);
            }
            Some(KeepAliveAction::Nothing) | None => {}
        }
    }

    /// Restart the keepalive timer: the packet shows that the other end is alive.
    fn update_keepalive(&mut self, now: Instant, packet: &Packet) {
        if let Some(config) = self.keepalive {
            let established = self.state() == ConnectionState::Established;
            let is_probe =
                matches!(packet, Packet::Segment(segment) if segment.kind == SegmentKind::Probe);
            match &mut self.keepalive_timer {
                timer if !established => *timer = None,
                Some(timer) if !is_probe => timer.on_received(now),
                Some(_) => {}
                timer => *timer = Some(KeepAliveTimer::new(config, now)),
            }
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
        self.outgoing.clear();
        self.keepalive_timer = None;
    }
}
