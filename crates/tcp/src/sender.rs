//! Sending half of a connection: its state, and the calls that drive it.

use std::ops::Range;

use skyhop_cc::{OutputCounts, TcpSock};
use skyhop_units::{Bytes, Duration, Instant};

use crate::config::SenderConfig;
use crate::cwnd_validation::CwndUsage;
use crate::ecn::SenderEcn;
use crate::handshake::Phase;
use crate::jiffies::Jiffies;
use crate::next_segment::NextSegment;
use crate::persist::Persist;
use crate::prr::Prr;
use crate::rack::Rack;
use crate::rto::TimerKind;
use crate::rtt::{RTO_INITIAL_US, RttEstimator};
use crate::rules::Rules;
use crate::sack::SackBlocks;
use crate::scoreboard::Scoreboard;
use crate::segment::{self, Ack, Segment};
use crate::segment_lengths::SegmentLengths;
use crate::stream::Stream;
use crate::tlp::Tlp;
use crate::transmit::{Flight, Forced, Rexmit};
use crate::undo::Undo;
use crate::{CongestionControl, Failure};

/// TCP sender with Linux's behaviour under the congestion control `C`.
///
/// The first [`Self::poll_transmit`] opens the connection. Every call carries the current time, which never
/// runs backwards.
#[derive(Debug)]
pub struct Sender<C: CongestionControl> {
    pub(crate) config: SenderConfig,
    pub(crate) cc: C,
    /// Capabilities of `cc`, cached because every ACK needs them: whether it implements `cong_control` and
    /// `sndbuf_expand`.
    pub(crate) has_cong_control: bool,
    pub(crate) has_sndbuf_expand: bool,
    /// Socket that the congestion control sees. Window, threshold, pacing and delivery counts live here;
    /// `fill_socket` copies the other fields into it before each hook.
    pub(crate) tp: TcpSock,
    pub(crate) phase: Phase,
    pub(crate) stream: Stream,
    pub(crate) board: Scoreboard,
    pub(crate) lengths: SegmentLengths,
    /// SACK blocks of the previous ACK (`recv_sack_cache`).
    pub(crate) recv_sack_cache: SackBlocks,
    /// Right edge of the receiver's window, as a byte offset in the stream.
    pub(crate) receive_window_end: u64,
    /// Window that the receiver advertised last, in bytes (`snd_wnd`).
    pub(crate) peer_window: u64,

    pub(crate) persist: Persist,
    /// Reason why the sender gave up; `None` while it has not.
    pub(crate) failure: Option<Failure>,

    pub(crate) rtt: RttEstimator,
    pub(crate) rack: Rack,
    pub(crate) tlp: Tlp,
    pub(crate) prr: Prr,
    pub(crate) undo: Undo,
    pub(crate) usage: CwndUsage,
    pub(crate) ecn: SenderEcn,
    /// Value of `nxt`, the next sequence number to send, when the current recovery episode began (`recover` of
    /// RFC 6582).
    pub(crate) high_seq: u64,
    /// Whether F-RTO (RFC 5682) may still find the last timeout spurious.
    pub(crate) frto: bool,
    /// Bytes of each segment taken by TCP options (reduces the effective MSS).
    pub(crate) option_bytes: u64,
    /// Sequence number after the last segment that was shorter than the MSS (`snd_sml`).
    pub(crate) short_end: u64,
    /// Number of segments reported by D-SACK since the start of the connection.
    pub(crate) dsack_duplicates: u64,

    pub(crate) timer: Option<(TimerKind, Instant)>,
    pub(crate) rto_us: u64,
    pub(crate) jiffies: Jiffies,
    pub(crate) rules: Rules,
    /// Last timestamp received from the other end; outgoing segments echo it (RFC 7323 4.3).
    pub(crate) ts_recent: u32,
    pub(crate) now: Instant,
    pub(crate) now_us: u64,

    pub(crate) rexmit: Rexmit,
    pub(crate) retransmitting: bool,
    pub(crate) forced: Option<Forced>,
    pub(crate) flight: Flight,
    pub(crate) last_sent_us: u64,
    /// Byte offset in the stream whose acknowledgement makes the socket writable again for a blocked
    /// application.
    pub(crate) writable_at: u64,
    /// Whether the stream became endless after the last transmission. If so, the next new segment first reduces
    /// a congestion window that was idle ([`Self::restart_after_idle`]).
    pub(crate) endless_write_began: bool,

    pub(crate) data_sent: u64,
    pub(crate) timeouts: u64,
    pub(crate) probes: u64,
    pub(crate) recoveries: u64,
    pub(crate) undos: u64,
}

impl<C: CongestionControl> Sender<C> {
    /// Return a sender for the passive end: it may send once the other end has answered the SYN-ACK.
    pub(crate) fn listening(config: SenderConfig, cc: C) -> Self {
        let mut sender = Self::new(config, cc);
        sender.phase = Phase::Listening;
        sender
    }

    /// Return a sender for the active end, with nothing to send yet.
    pub fn new(config: SenderConfig, cc: C) -> Self {
        let mut tp = TcpSock { mss_cache: config.host.mss, ..TcpSock::default() };
        tp.snd_cwnd = config.initial_cwnd;
        let jiffies = Jiffies::new(config.host.jiffy, config.host.timer_wheel);
        tp.inet_conn.icsk_rto = jiffies.ticks_in_us(RTO_INITIAL_US) as u32;
        tp.sk_mut().sk_max_pacing_rate = config.max_pacing_rate;
        tp.sk_mut().sk_sndbuf = config.wmem.initial.as_u64().min(i32::MAX as u64) as i32;
        Self {
            config,
            has_cong_control: cc.has_cong_control(),
            has_sndbuf_expand: true,
            ecn: SenderEcn::new(config.ecn, cc.needs_ecn()),
            cc,
            tp,
            phase: Phase::SynDue { attempt: 1 },
            stream: Stream::new(),
            board: Scoreboard::new(),
            lengths: SegmentLengths::new(config.host.mss),
            recv_sack_cache: SackBlocks::EMPTY,
            receive_window_end: 0,
            peer_window: 0,
            persist: Persist::default(),
            failure: None,
            rtt: RttEstimator::new(),
            rack: Rack::new(),
            tlp: Tlp::default(),
            prr: Prr::default(),
            undo: Undo::default(),
            usage: CwndUsage::default(),
            high_seq: 0,
            frto: false,
            option_bytes: 0,
            short_end: 0,
            dsack_duplicates: 0,
            timer: None,
            rto_us: RTO_INITIAL_US,
            jiffies,
            rules: Rules::of(config.host.profile),
            ts_recent: 0,
            now: Instant::START,
            now_us: 0,
            rexmit: Rexmit::None,
            retransmitting: false,
            forced: None,
            flight: Flight::default(),
            last_sent_us: 0,
            writable_at: 0,
            endless_write_began: false,
            data_sent: 0,
            timeouts: 0,
            probes: 0,
            recoveries: 0,
            undos: 0,
        }
    }

    /// Append `bytes` from the application to the stream. Nagle's algorithm (RFC 9293 3.7.4) may hold back the
    /// last bytes while they are fewer than a full-size segment.
    pub fn write(&mut self, now: Instant, bytes: Bytes) {
        self.set_clock(now);
        if self.phase == Phase::Established {
            self.check_app_limited();
            self.restart_after_idle();
        }
        let waits = self.stream.is_blocked();
        self.stream.write(bytes.as_u64());
        if !waits && self.is_established() {
            self.fill_sndbuf();
        }
    }

    /// Make the stream endless: the application always has more to send, until [`Self::pause`] or
    /// [`Self::finish`].
    pub fn write_without_end(&mut self) {
        self.stream.write_without_end();
        if self.is_established() {
            self.fill_sndbuf();
        }
        self.endless_write_began = true;
    }

    /// Stop an endless stream after the last byte that is in the send buffer. The application may write again
    /// later.
    pub fn pause(&mut self) {
        self.stream.pause();
    }

    /// Close the stream: the application has no more to send. An endless stream ends after the last byte that
    /// is in the send buffer. Call [`Self::poll_transmit`] afterwards: a segment that Nagle's algorithm held
    /// back may leave now, with the FIN.
    pub fn finish(&mut self) {
        self.stream.finish();
    }

    /// Set or clear TCP_CORK, which holds back segments shorter than the MSS. Call [`Self::poll_transmit`]
    /// afterwards: a segment that the cork held back may leave now.
    pub fn set_cork(&mut self, cork: bool) {
        self.config.cork = cork;
    }

    /// Reason why the sender gave up; `None` while it has not. A sender that gave up sends nothing more.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Whether the stream is closed and the other end has acknowledged all of it, FIN included.
    pub fn is_complete(&self) -> bool {
        self.stream.is_complete(self.board.una)
    }

    /// Number of stream bytes acknowledged cumulatively.
    pub fn acknowledged(&self) -> Bytes {
        Bytes::new(self.lengths.begin())
    }

    /// Number of bytes that the application has written and that were never sent; close to `u64::MAX` for an
    /// endless stream.
    pub fn unsent_bytes(&self) -> Bytes {
        Bytes::new(self.stream.wanted() - self.lengths.end())
    }

    /// Sequence numbers of the segments that were sent and are not acknowledged.
    #[inline]
    pub fn outstanding(&self) -> Range<u64> {
        self.board.una..self.board.nxt
    }

    /// Process an acknowledgement that arrived without data.
    pub fn on_ack(&mut self, now: Instant, ack: &Ack) {
        self.on_ack_with(now, ack, false);
    }

    /// Process an acknowledgement. `with_data` is true if the segment that carried the acknowledgement also
    /// occupied sequence space (data or FIN).
    pub(crate) fn on_ack_with(&mut self, now: Instant, ack: &Ack, with_data: bool) {
        self.set_clock(now);
        self.note_timestamp(ack.tsval);
        match (self.phase, ack.syn) {
            (Phase::SynSent { attempt, sent_us }, true) => self.on_syn_ack(ack, attempt, sent_us),
            (Phase::Established, false) => self.process_ack(ack, with_data),
            // A repeated SYN-ACK: the handshake's last segment was lost.
            (Phase::Established, true) if self.data_sent == 0 => self.phase = Phase::AckDue,
            // A repeated SYN-ACK, or an ACK that belongs to no connection.
            _ => {}
        }
    }

    /// Time of the next [`Self::on_timer`] call; `None` while the sender waits for ACKs only.
    pub fn next_timer(&self) -> Option<Instant> {
        let timer = self.timer.map(|(_, at)| at);
        let paced = self.pacing_release().filter(|_| self.waits_for_pacing());
        match (timer, paced) {
            (Some(timer), Some(paced)) => Some(timer.min(paced)),
            (timer, paced) => timer.or(paced),
        }
    }

    /// Handle timers and pacing that are due; does nothing before [`Self::next_timer`].
    pub fn on_timer(&mut self, now: Instant) {
        self.set_clock(now);
        if self.is_paced() && self.board.lost_out > self.board.retrans_out {
            self.retransmit_lost();
        }
        let Some((kind, _)) = self.timer.filter(|(_, at)| *at <= now) else {
            return;
        };
        match (self.phase, kind) {
            (Phase::SynSent { attempt, .. }, _) => self.on_syn_timer(attempt),
            (_, TimerKind::Retransmission) => self.on_retransmission_timer(),
            (_, TimerKind::Reordering) => self.on_reordering_timer(),
            (_, TimerKind::LossProbe) => self.on_probe_timer(),
            (_, TimerKind::Persist) => self.on_persist_timer(),
        }
        self.assert_consistent();
    }

    /// Return the next segment to send now. After every other call, call this method until it returns `None`.
    #[inline(always)]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Segment> {
        let next = self.choose_next(now)?;
        Some(self.build_segment(next))
    }

    /// Choose the next segment to send now, without building it.
    fn choose_next(&mut self, now: Instant) -> Option<NextSegment> {
        self.set_clock(now);
        if self.failure.is_some() {
            return None;
        }
        if self.phase != Phase::Established {
            return self.next_handshake_segment();
        }
        let next = self.choose_next_segment();
        if next.is_some() { next } else { self.end_or_refill_flight() }
    }

    /// End the flight, that is, the segments sent since the driver began to poll. If the application waited for
    /// room in the send buffer and there is room now, let it write and start another flight.
    fn end_or_refill_flight(&mut self) -> Option<NextSegment> {
        self.end_flight();
        if !self.check_space() {
            return None;
        }
        let next = self.choose_next_segment();
        if next.is_none() {
            self.end_flight();
        }
        next
    }

    /// Counters of the decisions that an external policy made for the congestion control.
    pub fn outputs(&self) -> OutputCounts {
        self.cc.outputs()
    }

    /// Congestion control, for handover announcements and for reading its state.
    pub fn congestion_control(&mut self) -> &mut C {
        &mut self.cc
    }

    /// Socket as the congestion control sees it, after an update of all its fields.
    pub fn socket(&mut self) -> &TcpSock {
        self.fill_socket();
        &self.tp
    }

    /// Whether this end opens the connection or the other end's SYN has arrived.
    pub(crate) fn has_peer(&self) -> bool {
        self.phase != Phase::Listening
    }

    /// Payload in bytes of a full-size segment that carries no SACK option.
    pub(crate) fn mss(&self) -> u64 {
        self.config.host.mss.into()
    }

    /// Set the number of bytes that the SACK option takes in each data segment (`tcp_current_mss`); the option
    /// acknowledges data of the other direction.
    pub(crate) fn set_option_bytes(&mut self, bytes: u64) {
        self.option_bytes = bytes;
    }

    /// Whether the number of retries is limited.
    pub(crate) fn gives_up(&self) -> bool {
        self.config.gives_up
    }

    /// Whether data is outstanding or waits to be sent.
    pub(crate) fn is_busy(&self) -> bool {
        self.board.packets_out() > 0 || self.has_unsent()
    }

    /// Whether the connection is established, no data is outstanding or waits to be sent, and no timer is
    /// armed.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Established
            && self.forced.is_none()
            && self.timer.is_none()
            && !self.is_busy()
    }

    /// Send a probe next: a segment without data that the other end has to acknowledge.
    pub(crate) fn send_probe(&mut self) {
        self.forced = Some(Forced::Probe);
    }

    /// Smoothed RTT and retransmission timeout; `None` before the first sample.
    pub(crate) fn srtt_and_rto(&self) -> Option<(Duration, Duration)> {
        let of = Duration::from_micros;
        self.rtt.has_sample().then(|| (of(self.rtt.srtt_us()), of(self.rto_us)))
    }

    pub(crate) fn ecn_enabled(&self) -> bool {
        self.ecn.is_enabled()
    }

    /// Whether the handshake is complete and the congestion control initialised.
    pub(crate) fn is_established(&self) -> bool {
        matches!(self.phase, Phase::AckDue | Phase::Established)
    }

    #[inline]
    pub(crate) fn set_clock(&mut self, now: Instant) {
        debug_assert!(now >= self.now, "time is monotonic");
        if now == self.now {
            return;
        }
        self.now = now;
        self.now_us = now.as_nanos() / 1000;
        self.jiffies.advance(now);
        self.tp.tcp_clock_cache = now.as_nanos();
        self.tp.tcp_mstamp = self.now_us;
    }

    /// Current time on the kernel's coarse clock, in ticks (`tcp_jiffies32`).
    pub(crate) fn jiffies(&self) -> u32 {
        self.jiffies.now()
    }

    /// Value of the timestamps option for a segment sent at `us` microseconds, in milliseconds.
    pub(crate) fn timestamp_at(&self, us: u64) -> u32 {
        segment::timestamp_at(Instant::from_nanos(us * 1000))
    }

    /// Record the other end's timestamp, which outgoing segments then echo (`tcp_replace_ts_recent`).
    #[inline]
    pub(crate) fn note_timestamp(&mut self, tsval: u32) {
        if tsval.wrapping_sub(self.ts_recent) as i32 >= 0 {
            self.ts_recent = tsval;
        }
    }

    /// RTT in microseconds, measured from an echoed timestamp: at least 1 ms, a tick of the timestamp clock.
    pub(crate) fn echoed_rtt_us(&self, tsecr: u32) -> Option<u64> {
        let ticks = self.timestamp_at(self.now_us).wrapping_sub(tsecr);
        (tsecr != 0 && ticks < 1 << 30).then(|| u64::from(ticks.max(1)) * 1000)
    }

    fn waits_for_pacing(&self) -> bool {
        let sendable = self.has_new_data() || self.board.lost_out > self.board.retrans_out;
        self.phase == Phase::Established && sendable && self.board.in_flight() < self.tp.snd_cwnd
    }

    pub(crate) fn assert_consistent(&self) {
        let board = &self.board;
        debug_assert!(board.sacked_out + board.lost_out <= board.packets_out());
        debug_assert!(board.retrans_out <= board.packets_out());
        debug_assert!(self.tp.snd_cwnd >= 1, "the window holds a segment");
        debug_assert!(
            board.packets_out() == 0 || self.timer.is_some() || self.failure.is_some(),
            "outstanding data is guarded by a timer"
        );
    }
}
