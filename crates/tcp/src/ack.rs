//! Processing of an acknowledgement, step by step (`tcp_ack`).

use skyhop_cc::AckSample;
use skyhop_cc::bindings::*;

use crate::rack::DUP_THRESH;
use crate::rate_sample::Sampler;
use crate::scoreboard::{EVER_RETRANS, RETRANS, SACKED};
use crate::segment::Ack;
use crate::transmit::Rexmit;
use crate::{CongestionControl, Sender};

/// State of the ACK that is being processed: the kernel's `flag`, `tcp_sacktag_state` and rate sample.
#[derive(Debug)]
pub(crate) struct AckContext {
    pub(crate) prior_una: u64,
    prior_sacked_end: u64,
    prior_sacked_out: u32,
    pub(crate) tsecr: u32,
    pub(crate) sampler: Sampler,
    /// Whether the cumulative acknowledgement advanced.
    pub(crate) advanced: bool,
    /// Whether the ACK carries more than an advance (SACK blocks, a new window, ECE), so that header prediction
    /// would not take it.
    slow_path: bool,
    /// Whether the ACK acknowledged data cumulatively. The next field: whether some of that data had been
    /// retransmitted.
    data_acked: bool,
    pub(crate) retransmission_acked: bool,
    /// Whether a segment was newly SACKed.
    pub(crate) data_sacked: bool,
    /// Whether the ACK carries a D-SACK.
    pub(crate) dsack: bool,
    /// Whether the D-SACK reports the tail loss probe.
    pub(crate) dsack_of_probe: bool,
    /// Number of segments that the D-SACK reports as duplicates.
    pub(crate) duplicates: u32,
    /// Whether the ACK arrived on a segment with data.
    with_data: bool,
    /// Whether the ACK is a duplicate: no advance, window update, D-SACK or data.
    pub(crate) duplicate_ack: bool,
    /// Whether the ACK covers a segment that was sent only once, before the recovery episode began.
    pub(crate) original_acked: bool,
    /// Whether RACK detected the loss of a retransmission.
    pub(crate) lost_retransmission: bool,
    /// Whether the transmission timer has to be rearmed.
    pub(crate) set_timer: bool,
    window_moved: bool,
    /// Whether the receiver echoes an ECN mark.
    pub(crate) ece: bool,
    /// Transmission times of the first and last newly SACKed segments that were sent once, in microseconds.
    pub(crate) sacked_sent_us: Option<(u64, u64)>,
    /// Lowest segment that arrived after a segment with a higher number; `nxt` if there is none.
    pub(crate) lowest_late: u64,
    pub(crate) newly_delivered: u32,
}

impl AckContext {
    /// Whether the ACK is a duplicate without new information. After a tail loss probe it shows that the
    /// original segment and the probe both arrived.
    pub(crate) fn is_pure_duplicate(&self) -> bool {
        !(self.advanced || self.window_moved || self.data_sacked || self.with_data)
    }

    /// Return the state so far as bits of the kernel's `flag` (`FLAG_`). `FLAG_SACK_RENEGING` is never set.
    pub(crate) fn flags(&self) -> u32 {
        let of = |is_so: bool, flag: u32| if is_so { flag } else { 0 };
        of(self.advanced, FLAG_SND_UNA_ADVANCED)
            | of(self.advanced || self.window_moved, FLAG_WIN_UPDATE)
            | of(self.with_data && (self.slow_path || !self.advanced), FLAG_DATA)
            | of(self.slow_path, FLAG_SLOWPATH | FLAG_UPDATE_TS_RECENT)
            | of(self.data_acked, FLAG_DATA_ACKED)
            | of(self.retransmission_acked, FLAG_RETRANS_DATA_ACKED)
            | of(self.data_sacked, FLAG_DATA_SACKED)
            | of(self.original_acked, FLAG_ORIG_SACK_ACKED)
            | of(self.lost_retransmission, FLAG_LOST_RETRANS)
            | of(self.dsack, FLAG_DSACKING_ACK)
            | of(self.dsack_of_probe, FLAG_DSACK_TLP)
            | of(self.ece, FLAG_ECE)
            | of(self.set_timer, FLAG_SET_XMIT_TIMER)
            | of(self.sampler.sample.is_ack_delayed, FLAG_ACK_MAYBE_DELAYED)
    }
}

/// Segments that the cumulative acknowledgement newly covers.
#[derive(Debug, Default)]
struct NewlyAcked {
    packets: u32,
    retransmitted: bool,
    /// Transmission times of the first and the last segment that were sent only once and not SACKed, in
    /// microseconds.
    sent_us: Option<(u64, u64)>,
    last_was_short: bool,
}

impl<C: CongestionControl> Sender<C> {
    /// Process an ACK of the established connection (`tcp_ack`).
    pub(crate) fn process_ack(&mut self, ack: &Ack, with_data: bool) {
        if ack.cumulative > self.board.nxt {
            return;
        }
        self.persist.on_answer();
        let mut ctx = self.begin_ack(ack, with_data);
        let prior_lost = self.tp.lost;
        let prior_out = self.board.packets_out();
        self.rexmit = Rexmit::None;
        if ack.cumulative < self.board.una {
            self.process_old_ack(ack, &mut ctx);
            return;
        }
        self.tag_sacked(ack, &mut ctx);
        self.count_duplicates(&mut ctx);
        if prior_out == 0 {
            self.process_ack_while_idle(&mut ctx);
            return;
        }
        let acked_now = self.clean_rtx_queue(ack.cumulative, &mut ctx);
        let rtt_us = self.sample_rtt(&acked_now, &mut ctx);
        self.call_pkts_acked(&acked_now, rtt_us, &ctx);
        if ctx.sampler.sample.prior_delivered != 0 {
            self.rack.update_reo_wnd(ctx.sampler.sample.prior_delivered, self.tp.delivered);
        }
        self.call_in_ack_event(&ctx);
        self.process_tlp_ack(&ctx);
        if self.is_dubious(&ctx) {
            ctx.duplicate_ack = !(ctx.advanced || ctx.window_moved || ctx.dsack || ctx.with_data);
            self.fastretrans_alert(&mut ctx);
        }
        if ctx.set_timer && !self.schedule_loss_probe(true) {
            self.rearm_rto();
        }
        let lost = self.tp.lost.wrapping_sub(prior_lost);
        ctx.sampler.finish(&mut self.tp, ctx.newly_delivered, lost);
        let may_raise = self.may_raise_cwnd(&ctx);
        self.control_congestion(may_raise, &ctx);
        if self.rexmit == Rexmit::Lost {
            self.retransmit_lost();
        }
        self.assert_consistent();
    }

    /// Process an ACK below `una` (`tcp_ack` after `old_ack`): only its SACK blocks count, and the segments
    /// they report do not count as delivered.
    fn process_old_ack(&mut self, ack: &Ack, ctx: &mut AckContext) {
        if ack.sack.is_empty() {
            return;
        }
        let delivered = (self.tp.delivered, self.tp.delivered_ce);
        self.tag_sacked(ack, ctx);
        (self.tp.delivered, self.tp.delivered_ce) = delivered;
        self.fastretrans_alert(ctx);
        if self.rexmit == Rexmit::Lost {
            self.retransmit_lost();
        }
    }

    /// Process an ACK that arrives while nothing is outstanding (`tcp_ack` after `no_queue`).
    fn process_ack_while_idle(&mut self, ctx: &mut AckContext) {
        self.fill_socket();
        self.call_in_ack_event(ctx);
        if ctx.dsack {
            self.fastretrans_alert(ctx);
        }
        self.on_persist_answer();
        self.process_tlp_ack(ctx);
    }

    fn begin_ack(&mut self, ack: &Ack, with_data: bool) -> AckContext {
        let receive_window_end = self.receive_window_end.max(ack.acknowledged + ack.window);
        let window_moved =
            receive_window_end > self.receive_window_end && ack.cumulative == self.board.una;
        self.receive_window_end = receive_window_end;
        let advanced = ack.cumulative > self.board.una;
        // The kernel's header prediction (fast path) processes all other ACKs.
        let slow_path = !ack.sack.is_empty() || ack.window != self.peer_window || ack.ece;
        if advanced || window_moved {
            self.peer_window = ack.window;
        }
        if advanced {
            self.tp.inet_conn.icsk_retransmits = 0;
        }
        let mut sampler = Sampler::new(self.board.in_flight());
        self.tp.rtt_min.s[0].v = self.rtt.min_rtt_us() as u32;
        sampler.sample.rtt_us = -1;
        AckContext {
            prior_una: self.board.una,
            prior_sacked_end: self.board.sacked_end(),
            prior_sacked_out: self.board.sacked_out,
            tsecr: ack.tsecr,
            sampler,
            advanced,
            slow_path,
            data_acked: false,
            retransmission_acked: false,
            data_sacked: false,
            dsack: false,
            dsack_of_probe: false,
            duplicates: 0,
            with_data,
            duplicate_ack: false,
            original_acked: false,
            lost_retransmission: false,
            set_timer: false,
            window_moved,
            ece: ack.cumulative >= self.board.una && self.ecn.rcv_ecn_echo(ack),
            sacked_sent_us: None,
            lowest_late: self.board.nxt,
            newly_delivered: 0,
        }
    }

    /// Remove the cumulatively acknowledged segments from the scoreboard (`tcp_clean_rtx_queue`).
    fn clean_rtx_queue(&mut self, cumulative: u64, ctx: &mut AckContext) -> NewlyAcked {
        let mut acked_now = NewlyAcked::default();
        let mut lowest = self.board.nxt;
        while self.board.una < cumulative {
            let seq = self.board.una;
            let entry = self.board.pop();
            acked_now.packets += 1;
            if entry.is(RETRANS | EVER_RETRANS) {
                acked_now.retransmitted = true;
            } else if !entry.is(SACKED) {
                let first = acked_now.sent_us.map_or(entry.sent_us, |(first, _)| first);
                acked_now.sent_us = Some((first, entry.sent_us));
                lowest = lowest.min(seq);
                ctx.original_acked |= seq < self.high_seq;
            }
            if !entry.is(SACKED) {
                if !self.is_reno() {
                    self.count_delivered(ctx);
                    self.rack_on_delivered(seq, &entry, ctx.tsecr);
                }
                ctx.sampler.on_delivered(&mut self.tp, &self.lengths, seq, &entry);
            }
        }
        if acked_now.packets > 0 {
            (ctx.data_acked, ctx.retransmission_acked) = (true, acked_now.retransmitted);
            ctx.set_timer = true;
            acked_now.last_was_short = self.lengths.len_of(cumulative - 1) < self.config.host.mss;
            self.lengths.forget_below(cumulative);
            if self.is_reno() {
                self.remove_reno_sacks(acked_now.packets, ctx);
                // Without SACK, a segment sent once cannot be told from a retransmitted one.
                ctx.original_acked &= !acked_now.retransmitted;
            } else {
                self.check_reordering(lowest, ctx.prior_sacked_end);
            }
        }
        acked_now
    }

    pub(crate) fn count_delivered(&mut self, ctx: &mut AckContext) {
        self.count_delivered_many(1, ctx);
    }

    /// Count as delivered the duplicates that a D-SACK reports.
    fn count_duplicates(&mut self, ctx: &mut AckContext) {
        if ctx.duplicates > 0 {
            self.count_delivered_many(ctx.duplicates, ctx);
        }
    }

    /// Count segments as delivered, and as marked if the ACK echoes a mark (`tcp_count_delivered`).
    #[inline]
    pub(crate) fn count_delivered_many(&mut self, segments: u32, ctx: &mut AckContext) {
        ctx.newly_delivered += segments;
        self.tp.delivered = self.tp.delivered.wrapping_add(segments);
        let marked = if ctx.ece { segments } else { 0 };
        self.tp.delivered_ce = self.tp.delivered_ce.wrapping_add(marked);
    }

    /// Take the RTT samples of this ACK: from segments that were sent once (Karn, RFC 6298 3), else from the
    /// echoed timestamp (RFC 7323 4). Return the sample of the newest segment, in microseconds.
    fn sample_rtt(&mut self, acked_now: &NewlyAcked, ctx: &mut AckContext) -> Option<u64> {
        let since = |sent_us: u64| self.now_us - sent_us;
        let once = acked_now.sent_us.filter(|_| !acked_now.retransmitted);
        let mut first = once.map(|(first, _)| since(first));
        let mut last = once.map(|(_, last)| since(last));
        let maybe_delayed = once.is_some() && self.ack_was_maybe_delayed(acked_now, ctx);
        let sacked = ctx.sacked_sent_us.map(|(first, _)| since(first));
        if let Some((_, newest)) = ctx.sacked_sent_us {
            last = Some(since(newest));
        }
        first = first.or(sacked);
        if first.is_none() && ctx.advanced && ctx.tsecr != 0 {
            first = self.echoed_rtt_us(ctx.tsecr);
            last = first;
        }
        ctx.sampler.sample.rtt_us = last.map_or(-1, |rtt_us| rtt_us as i64);
        ctx.sampler.sample.is_ack_delayed = maybe_delayed;
        if let Some(rtt_us) = first {
            let newest_us = last.unwrap_or(rtt_us);
            self.rtt.sample_min(self.now_us, newest_us, maybe_delayed);
            self.tp.rtt_min.s[0].v = self.rtt.min_rtt_us() as u32;
            self.rtt.sample(rtt_us, self.board.una, self.board.nxt);
            self.update_rto();
        }
        // An RTT sample from a SACKed segment that was sent before the head's last transmission rearms the
        // timer.
        if acked_now.packets == 0 && self.board.packets_out() > 0 {
            let head_age = self.now_us - self.board.entry(self.board.una).sent_us;
            ctx.set_timer |= sacked.is_some_and(|rtt_us| rtt_us > head_age);
        }
        last
    }

    /// Whether the receiver may have delayed this ACK: it covers a lone short segment at the end of a flight.
    fn ack_was_maybe_delayed(&self, acked_now: &NewlyAcked, ctx: &AckContext) -> bool {
        acked_now.packets == 1
            && acked_now.last_was_short
            && ctx.prior_sacked_out == 0
            && ctx.newly_delivered == 1
            && !ctx.data_sacked
            && !ctx.dsack
    }

    fn call_pkts_acked(&mut self, acked_now: &NewlyAcked, rtt_us: Option<u64>, ctx: &AckContext) {
        let in_flight = self.tp.delivered.wrapping_sub(ctx.sampler.sample.prior_delivered);
        let sample = AckSample {
            pkts_acked: acked_now.packets,
            rtt_us: rtt_us.map_or(-1, |rtt_us| rtt_us as i32),
            in_flight,
        };
        self.fill_socket();
        self.cc.pkts_acked(&mut self.tp, &sample);
    }

    /// Call the `in_ack_event` hook, after the acknowledged segments are removed as in Linux from 6.15 on.
    fn call_in_ack_event(&mut self, ctx: &AckContext) {
        let window = if ctx.advanced || ctx.window_moved { CA_ACK_WIN_UPDATE } else { 0 };
        let slow_path = if ctx.slow_path { CA_ACK_SLOWPATH } else { 0 };
        let echo = if ctx.ece { CA_ACK_ECE } else { 0 };
        self.cc.in_ack_event(&mut self.tp, window | slow_path | echo);
    }

    /// Whether the ACK needs more than the processing of a plain advance in the Open state
    /// (`tcp_ack_is_dubious`).
    fn is_dubious(&self, ctx: &AckContext) -> bool {
        !(ctx.advanced || ctx.window_moved || ctx.with_data)
            || ctx.data_sacked
            || ctx.dsack
            || ctx.ece
            || self.tp.ca_state() != skyhop_model::CongestionState::Open
    }

    /// Whether the window may grow (`tcp_may_raise_cwnd`): if the ACK advances or, after reordering was
    /// detected, if it reports new SACKs.
    fn may_raise_cwnd(&self, ctx: &AckContext) -> bool {
        ctx.advanced || (self.tp.reordering > DUP_THRESH && ctx.data_sacked)
    }

    /// Process one newly SACKed segment (`tcp_sacktag_one`).
    pub(crate) fn tag_one(&mut self, seq: u64, ctx: &mut AckContext) {
        let entry = *self.board.entry(seq);
        self.rack_on_delivered(seq, &entry, 0);
        if !entry.is(RETRANS | EVER_RETRANS) {
            if seq < self.board.sacked_end() {
                ctx.lowest_late = ctx.lowest_late.min(seq);
            }
            ctx.original_acked |= seq < self.high_seq;
            let first = ctx.sacked_sent_us.map_or(entry.sent_us, |(first, _)| first);
            ctx.sacked_sent_us = Some((first, entry.sent_us));
        }
        ctx.data_sacked = true;
        self.count_delivered(ctx);
        ctx.sampler.on_delivered(&mut self.tp, &self.lengths, seq, &entry);
        self.board.mark_sacked(seq);
    }
}
