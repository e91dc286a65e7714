//! The sending end of a connection.

use skyhop_cc::{Outputs, TcpSock};
use skyhop_units::{Bytes, Duration, Instant};

use crate::config::SenderConfig;
use crate::cwnd_validation::Usage;
use crate::ecn::SenderEcn;
use crate::handshake::Phase;
use crate::jiffies::Jiffies;
use crate::leaving::Leaving;
use crate::lengths::Lengths;
use crate::persist::Persist;
use crate::prr::Prr;
use crate::rack::Rack;
use crate::rto::TimerKind;
use crate::rtt::{RTO_INITIAL_US, RttEstimator};
use crate::rules::Rules;
use crate::sack::SackBlocks;
use crate::scoreboard::Scoreboard;
use crate::segment::{self, Ack, Segment};
use crate::stream::Stream;
use crate::tlp::Tlp;
use crate::transmit::{Flight, Forced, Rexmit};
use crate::undo::Undo;
use crate::{CongestionControl, Failure};

/// A TCP sender with Linux's behaviour under the congestion control `C`.
///
/// The connection opens with the first [`Self::poll_transmit`]. Every call carries the time, which
/// never runs backwards.
#[derive(Debug)]
pub struct Sender<C: CongestionControl> {
    pub(crate) config: SenderConfig,
    pub(crate) cc: C,
    /// What it says of itself, which every ACK asks for: whether it has `cong_control`, and `sndbuf_expand`.
    pub(crate) has_cong_control: bool,
    pub(crate) sizes_sndbuf: bool,
    /// What the congestion control sees. Window, threshold, pacing and delivery counts live here,
    /// the rest is copied in before each hook.
    pub(crate) tp: TcpSock,
    pub(crate) phase: Phase,
    pub(crate) stream: Stream,
    pub(crate) board: Scoreboard,
    pub(crate) lengths: Lengths,
    /// The blocks of the previous ACK.
    pub(crate) known_sack: SackBlocks,
    /// The receiver has no room from this byte of the stream on.
    pub(crate) window_end: u64,
    /// The window that the receiver last gave.
    pub(crate) peer_window: u64,

    pub(crate) persist: Persist,
    /// Why it gave up, where it did.
    pub(crate) failure: Option<Failure>,

    pub(crate) rtt: RttEstimator,
    pub(crate) rack: Rack,
    pub(crate) tlp: Tlp,
    pub(crate) prr: Prr,
    pub(crate) undo: Undo,
    pub(crate) usage: Usage,
    pub(crate) ecn: SenderEcn,
    /// `nxt` when the current episode began (RFC 6582's recover).
    pub(crate) high_seq: u64,
    /// Whether the timeout may still prove spurious.
    pub(crate) frto: bool,
    /// What of the MSS new segments have no room for.
    pub(crate) option_bytes: u64,
    /// The segment after the last short one (`snd_sml`).
    pub(crate) short_end: u64,
    /// D-SACKed segments since the start.
    pub(crate) duplicates: u64,

    pub(crate) timer: Option<(TimerKind, Instant)>,
    pub(crate) rto_us: u64,
    pub(crate) jiffies: Jiffies,
    pub(crate) rules: Rules,
    /// The other end's timestamp that is echoed (RFC 7323 4.3).
    pub(crate) ts_recent: u32,
    pub(crate) now: Instant,
    pub(crate) now_us: u64,

    pub(crate) rexmit: Rexmit,
    pub(crate) retransmitting: bool,
    pub(crate) forced: Option<Forced>,
    pub(crate) flight: Flight,
    pub(crate) last_sent_us: u64,
    /// An application that waits for room writes again when this byte of the stream has been acknowledged.
    pub(crate) writes_again_at: u64,
    /// An application that writes without end has begun to since something left.
    pub(crate) resumes: bool,

    pub(crate) data_sent: u64,
    pub(crate) timeouts: u64,
    pub(crate) probes: u64,
    pub(crate) recoveries: u64,
    pub(crate) undos: u64,
}

impl<C: CongestionControl> Sender<C> {
    /// A sender of the end that is opened: it may send once the other end has answered the SYN-ACK.
    pub(crate) fn listening(config: SenderConfig, cc: C) -> Self {
        let mut sender = Self::new(config, cc);
        sender.phase = Phase::Listening;
        sender
    }

    /// A sender with nothing to send yet.
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
            sizes_sndbuf: true,
            ecn: SenderEcn::new(config.ecn, cc.needs_ecn()),
            cc,
            tp,
            phase: Phase::SynDue { attempt: 1 },
            stream: Stream::new(),
            board: Scoreboard::new(),
            lengths: Lengths::new(config.host.mss),
            known_sack: SackBlocks::EMPTY,
            window_end: 0,
            peer_window: 0,
            persist: Persist::default(),
            failure: None,
            rtt: RttEstimator::new(),
            rack: Rack::new(),
            tlp: Tlp::default(),
            prr: Prr::default(),
            undo: Undo::default(),
            usage: Usage::default(),
            high_seq: 0,
            frto: false,
            option_bytes: 0,
            short_end: 0,
            duplicates: 0,
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
            writes_again_at: 0,
            resumes: false,
            data_sent: 0,
            timeouts: 0,
            probes: 0,
            recoveries: 0,
            undos: 0,
        }
    }

    /// The application hands over `bytes` more. What does not fill a segment may have to wait
    /// (Nagle's algorithm, RFC 9293 3.7.4).
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

    /// The application always has more to send, until [`Self::finish`].
    pub fn write_without_end(&mut self) {
        self.stream.write_without_end();
        if self.is_established() {
            self.fill_sndbuf();
        }
        self.resumes = true;
    }

    /// An application that always has more to send stops: what has been written is all so far.
    pub fn pause(&mut self) {
        self.stream.pause();
    }

    /// The application has no more to send: what has been written is all, as far as
    /// there was room for it in the send buffer where it was without end. Poll afterwards: what waits may leave now, with the FIN.
    pub fn finish(&mut self) {
        self.stream.finish();
    }

    /// The application wants short segments to wait, or no longer (TCP_CORK). Poll afterwards: what waits may leave now.
    pub fn set_cork(&mut self, cork: bool) {
        self.config.cork = cork;
    }

    /// Why it gave up, where it did. It sends nothing any more.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// Whether a finished stream has been acknowledged to its end.
    pub fn is_complete(&self) -> bool {
        self.stream.is_complete(self.board.una)
    }

    /// How much of the stream has been acknowledged.
    pub fn acknowledged(&self) -> Bytes {
        Bytes::new(self.lengths.begin())
    }

    /// What has been written and never left; without end, all there can be.
    pub fn unsent_bytes(&self) -> Bytes {
        Bytes::new(self.stream.wanted() - self.lengths.end())
    }

    /// An acknowledgement arrived.
    pub fn on_ack(&mut self, now: Instant, ack: &Ack) {
        self.on_ack_with(now, ack, false);
    }

    /// An acknowledgement arrived, `with_data` where the segment that brought it took a place in its stream.
    pub(crate) fn on_ack_with(&mut self, now: Instant, ack: &Ack, with_data: bool) {
        self.set_clock(now);
        self.note_timestamp(ack.tsval);
        match (self.phase, ack.syn) {
            (Phase::SynSent { attempt, sent_us }, true) => self.on_syn_ack(ack, attempt, sent_us),
            (Phase::Established, false) => self.process_ack(ack, with_data),
            // The other end heard nothing of it: the handshake's last segment was lost.
            (Phase::Established, true) if self.data_sent == 0 => self.phase = Phase::AckDue,
            // A repeated SYN-ACK, or an ACK that belongs to no connection.
            _ => {}
        }
    }

    /// When [`Self::on_timer`] wants to be called; `None` while there is nothing to wait for but
    /// ACKs.
    pub fn next_timer(&self) -> Option<Instant> {
        let timer = self.timer.map(|(_, at)| at);
        let paced = self.pacing_release().filter(|_| self.waits_for_pacing());
        match (timer, paced) {
            (Some(timer), Some(paced)) => Some(timer.min(paced)),
            (timer, paced) => timer.or(paced),
        }
    }

    /// Time has passed; does nothing before [`Self::next_timer`].
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

    /// The next segment to leave now. To be called until it gives `None`, after every other call.
    #[inline(always)]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Segment> {
        let leaving = self.poll_leaving(now)?;
        Some(self.segment(leaving))
    }

    /// What leaves now.
    fn poll_leaving(&mut self, now: Instant) -> Option<Leaving> {
        self.set_clock(now);
        if self.failure.is_some() {
            return None;
        }
        if self.phase != Phase::Established {
            return self.next_handshake_segment();
        }
        let leaving = self.next_segment();
        if leaving.is_some() { leaving } else { self.end_or_go_on() }
    }

    /// Nothing more leaves now, unless the application has waited for room to write more.
    fn end_or_go_on(&mut self) -> Option<Leaving> {
        self.end_flight();
        if !self.check_space() {
            return None;
        }
        let leaving = self.next_segment();
        if leaving.is_none() {
            self.end_flight();
        }
        leaving
    }

    /// What whoever decides for the congestion control has said so far.
    pub fn outputs(&self) -> Outputs {
        self.cc.outputs()
    }

    /// The congestion control, for announcements and for reading its state.
    pub fn congestion_control(&mut self) -> &mut C {
        &mut self.cc
    }

    /// The socket as the congestion control sees it.
    pub fn socket(&mut self) -> &TcpSock {
        self.publish();
        &self.tp
    }

    /// Whether the other end is known to want a connection.
    pub(crate) fn has_peer(&self) -> bool {
        self.phase != Phase::Listening
    }

    /// The payload of a full segment, in bytes.
    pub(crate) fn mss(&self) -> u64 {
        self.config.host.mss.into()
    }

    /// So many bytes of every packet now go to what acknowledges the other direction (`tcp_current_mss`).
    pub(crate) fn set_option_bytes(&mut self, bytes: u64) {
        self.option_bytes = bytes;
    }

    /// Whether it gives up some time.
    pub(crate) fn gives_up(&self) -> bool {
        self.config.gives_up
    }

    /// Whether data is outstanding or waits.
    pub(crate) fn is_busy(&self) -> bool {
        self.board.packets_out() > 0 || self.has_unsent()
    }

    /// Whether it is established and neither has nor waits for anything.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Established
            && self.forced.is_none()
            && self.timer.is_none()
            && !self.is_busy()
    }

    /// A segment that asks for an answer leaves next.
    pub(crate) fn send_probe(&mut self) {
        self.forced = Some(Forced::Probe);
    }

    /// The smoothed RTT and the timeout.
    pub(crate) fn srtt_and_rto(&self) -> Option<(Duration, Duration)> {
        let of = Duration::from_micros;
        self.rtt.has_sample().then(|| (of(self.rtt.srtt_us()), of(self.rto_us)))
    }

    pub(crate) fn speaks_ecn(&self) -> bool {
        self.ecn.is_spoken()
    }

    /// Whether the handshake is over, and the congestion control at work.
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

    /// The kernel's coarse clock.
    pub(crate) fn jiffies(&self) -> u32 {
        self.jiffies.now()
    }

    /// What the timestamp option said, or would have, of a segment sent then.
    pub(crate) fn timestamp_at(&self, us: u64) -> u32 {
        segment::timestamp_at(Instant::from_nanos(us * 1000))
    }

    /// The other end's timestamp came (`tcp_replace_ts_recent`).
    #[inline]
    pub(crate) fn note_timestamp(&mut self, tsval: u32) {
        if tsval.wrapping_sub(self.ts_recent) as i32 >= 0 {
            self.ts_recent = tsval;
        }
    }

    /// The RTT that an echoed timestamp tells, at least one tick.
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
