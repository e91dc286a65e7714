//! What an acknowledgement does, step by step.

use skyhop_cc::AckSample;
use skyhop_cc::bindings::*;

use crate::rack::DUP_THRESH;
use crate::rate_sample::Sampler;
use crate::scoreboard::{EVER_RETRANS, RETRANS, SACKED};
use crate::segment::Ack;
use crate::transmit::Rexmit;
use crate::{CongestionControl, Sender};

/// What has been learnt from the ACK that is being worked on.
#[derive(Debug)]
pub(crate) struct AckWork {
    pub(crate) prior_una: u64,
    prior_sacked_end: u64,
    prior_sacked_out: u32,
    pub(crate) tsecr: u32,
    pub(crate) sampler: Sampler,
    /// The cumulative acknowledgement advanced.
    pub(crate) advanced: bool,
    /// It brings more than an advance: SACKs, or another window.
    slow_path: bool,
    /// It acknowledged data cumulatively, and some of that had been retransmitted.
    data_acked: bool,
    pub(crate) retransmission_acked: bool,
    /// Something was newly SACKed.
    pub(crate) data_sacked: bool,
    /// It brings a D-SACK.
    pub(crate) dsack: bool,
    /// The D-SACK reports the loss probe.
    pub(crate) dsack_of_probe: bool,
    /// So many segments it reports as having come twice.
    pub(crate) duplicates: u32,
    /// It came with data.
    with_data: bool,
    /// It says nothing new at all.
    pub(crate) duplicate_ack: bool,
    /// Something sent only once, before the episode began, arrived.
    pub(crate) original_acked: bool,
    /// RACK found a retransmission lost.
    pub(crate) lost_retransmission: bool,
    /// The transmission timer has to be set again.
    pub(crate) set_timer: bool,
    window_moved: bool,
    /// The receiver echoes a mark.
    pub(crate) ece: bool,
    /// Send times of the first and last newly SACKed segments that were sent once.
    pub(crate) sacked_sent_us: Option<(u64, u64)>,
    /// The lowest segment that was delivered late, or `nxt`.
    pub(crate) lowest_late: u64,
    pub(crate) newly_delivered: u32,
}

impl AckWork {
    /// Neither progress nor news: both the original and the probe's copy arrived.
    pub(crate) fn is_pure_duplicate(&self) -> bool {
        !(self.advanced || self.window_moved || self.data_sacked || self.with_data)
    }

    /// What has been learnt so far, as the kernel has it in `flag`. It has no reneging.
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

/// What the cumulative acknowledgement covered.
#[derive(Debug, Default)]
struct Covered {
    packets: u32,
    retransmitted: bool,
    /// Send times of the first and last that were sent once and not SACKed.
    sent_us: Option<(u64, u64)>,
    last_was_short: bool,
}

impl<C: CongestionControl> Sender<C> {
    /// Works through an ACK of the established connection.
    pub(crate) fn process_ack(&mut self, ack: &Ack, with_data: bool) {
        if ack.cumulative > self.board.nxt {
            return;
        }
        self.persist.on_answer();
        let mut work = self.begin_work(ack, with_data);
        let prior_lost = self.tp.lost;
        let prior_out = self.board.packets_out();
        self.rexmit = Rexmit::None;
        if ack.cumulative < self.board.una {
            self.process_old_ack(ack, &mut work);
            return;
        }
        self.tag_sacked(ack, &mut work);
        self.count_duplicates(&mut work);
        if prior_out == 0 {
            self.process_ack_of_nothing(&mut work);
            return;
        }
        let covered = self.clean_acknowledged(ack.cumulative, &mut work);
        let rtt_us = self.take_rtt(&covered, &mut work);
        self.tell_pkts_acked(&covered, rtt_us, &work);
        if work.sampler.sample.prior_delivered != 0 {
            self.rack.update_reo_wnd(work.sampler.sample.prior_delivered, self.tp.delivered);
        }
        self.tell_in_ack_event(&work);
        self.process_tlp_ack(&work);
        if self.is_dubious(&work) {
            work.duplicate_ack =
                !(work.advanced || work.window_moved || work.dsack || work.with_data);
            self.react(&mut work);
        }
        if work.set_timer && !self.schedule_loss_probe(true) {
            self.rearm_rto();
        }
        let lost = self.tp.lost.wrapping_sub(prior_lost);
        work.sampler.finish(&mut self.tp, work.newly_delivered, lost);
        let may_raise = self.may_raise_cwnd(&work);
        self.control_congestion(may_raise, &work);
        if self.rexmit == Rexmit::Lost {
            self.retransmit_lost();
        }
        self.assert_consistent();
    }

    /// `tcp_ack` behind `old_ack`: only its SACKs may tell something. What they report does not count as delivered.
    fn process_old_ack(&mut self, ack: &Ack, work: &mut AckWork) {
        if ack.sack.is_empty() {
            return;
        }
        let delivered = (self.tp.delivered, self.tp.delivered_ce);
        self.tag_sacked(ack, work);
        (self.tp.delivered, self.tp.delivered_ce) = delivered;
        self.react(work);
        if self.rexmit == Rexmit::Lost {
            self.retransmit_lost();
        }
    }

    /// `tcp_ack` behind `no_queue`: nothing was out.
    fn process_ack_of_nothing(&mut self, work: &mut AckWork) {
        self.publish();
        self.tell_in_ack_event(work);
        if work.dsack {
            self.react(work);
        }
        self.on_persist_answer();
        self.process_tlp_ack(work);
    }

    fn begin_work(&mut self, ack: &Ack, with_data: bool) -> AckWork {
        let window_end = self.window_end.max(ack.acknowledged + ack.window);
        let window_moved = window_end > self.window_end && ack.cumulative == self.board.una;
        self.window_end = window_end;
        let advanced = ack.cumulative > self.board.una;
        // What the kernel's header prediction lets pass.
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
        AckWork {
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

    /// Takes what the cumulative acknowledgement covers off the scoreboard.
    fn clean_acknowledged(&mut self, cumulative: u64, work: &mut AckWork) -> Covered {
        let mut covered = Covered::default();
        let mut lowest = self.board.nxt;
        while self.board.una < cumulative {
            let seq = self.board.una;
            let entry = self.board.pop();
            covered.packets += 1;
            if entry.is(RETRANS | EVER_RETRANS) {
                covered.retransmitted = true;
            } else if !entry.is(SACKED) {
                let first = covered.sent_us.map_or(entry.sent_us, |(first, _)| first);
                covered.sent_us = Some((first, entry.sent_us));
                lowest = lowest.min(seq);
                work.original_acked |= seq < self.high_seq;
            }
            if !entry.is(SACKED) {
                if !self.is_reno() {
                    self.count_delivered(work);
                    self.rack_on_delivered(seq, &entry, work.tsecr);
                }
                work.sampler.on_delivered(&mut self.tp, &self.lengths, seq, &entry);
            }
        }
        if covered.packets > 0 {
            (work.data_acked, work.retransmission_acked) = (true, covered.retransmitted);
            work.set_timer = true;
            covered.last_was_short = self.lengths.of(cumulative - 1) < self.config.host.mss;
            self.lengths.forget_below(cumulative);
            if self.is_reno() {
                self.remove_reno_sacks(covered.packets, work);
                // What was sent once cannot be told from what was sent twice.
                work.original_acked &= !covered.retransmitted;
            } else {
                self.check_reordering(lowest, work.prior_sacked_end);
            }
        }
        covered
    }

    pub(crate) fn count_delivered(&mut self, work: &mut AckWork) {
        self.count_delivered_many(1, work);
    }

    /// A retransmission in vain has been delivered, too.
    fn count_duplicates(&mut self, work: &mut AckWork) {
        if work.duplicates > 0 {
            self.count_delivered_many(work.duplicates, work);
        }
    }

    /// `tcp_count_delivered`
    #[inline]
    pub(crate) fn count_delivered_many(&mut self, segments: u32, work: &mut AckWork) {
        work.newly_delivered += segments;
        self.tp.delivered = self.tp.delivered.wrapping_add(segments);
        let marked = if work.ece { segments } else { 0 };
        self.tp.delivered_ce = self.tp.delivered_ce.wrapping_add(marked);
    }

    /// RTT samples: from segments that were sent once (Karn, RFC 6298 3), else from the echoed
    /// timestamp (RFC 7323 4). Returns that of the newest segment.
    fn take_rtt(&mut self, covered: &Covered, work: &mut AckWork) -> Option<u64> {
        let since = |sent_us: u64| self.now_us - sent_us;
        let once = covered.sent_us.filter(|_| !covered.retransmitted);
        let mut first = once.map(|(first, _)| since(first));
        let mut last = once.map(|(_, last)| since(last));
        let maybe_delayed = once.is_some() && self.ack_was_maybe_delayed(covered, work);
        let sacked = work.sacked_sent_us.map(|(first, _)| since(first));
        if let Some((_, newest)) = work.sacked_sent_us {
            last = Some(since(newest));
        }
        first = first.or(sacked);
        if first.is_none() && work.advanced && work.tsecr != 0 {
            first = self.echoed_rtt_us(work.tsecr);
            last = first;
        }
        work.sampler.sample.rtt_us = last.map_or(-1, |rtt_us| rtt_us as i64);
        work.sampler.sample.is_ack_delayed = maybe_delayed;
        if let Some(rtt_us) = first {
            let newest_us = last.unwrap_or(rtt_us);
            self.rtt.sample_min(self.now_us, newest_us, maybe_delayed);
            self.tp.rtt_min.s[0].v = self.rtt.min_rtt_us() as u32;
            self.rtt.sample(rtt_us, self.board.una, self.board.nxt);
            self.update_rto();
        }
        // A SACK that measures from after the head's last transmission does not push the timeout
        // further away.
        if covered.packets == 0 && self.board.packets_out() > 0 {
            let head_age = self.now_us - self.board.entry(self.board.una).sent_us;
            work.set_timer |= sacked.is_some_and(|rtt_us| rtt_us > head_age);
        }
        last
    }

    /// A lone segment at the end of a flight may have waited for the delayed-ACK timer.
    fn ack_was_maybe_delayed(&self, covered: &Covered, work: &AckWork) -> bool {
        covered.packets == 1
            && covered.last_was_short
            && work.prior_sacked_out == 0
            && work.newly_delivered == 1
            && !work.data_sacked
            && !work.dsack
    }

    fn tell_pkts_acked(&mut self, covered: &Covered, rtt_us: Option<u64>, work: &AckWork) {
        let in_flight = self.tp.delivered.wrapping_sub(work.sampler.sample.prior_delivered);
        let sample = AckSample {
            pkts_acked: covered.packets,
            rtt_us: rtt_us.map_or(-1, |rtt_us| rtt_us as i32),
            in_flight,
        };
        self.publish();
        self.cc.pkts_acked(&mut self.tp, &sample);
    }

    /// `tcp_in_ack_event`, where Linux has it from 6.15 on: behind the clean-up of what was acknowledged.
    fn tell_in_ack_event(&mut self, work: &AckWork) {
        let window = if work.advanced || work.window_moved { CA_ACK_WIN_UPDATE } else { 0 };
        let slow_path = if work.slow_path { CA_ACK_SLOWPATH } else { 0 };
        let echo = if work.ece { CA_ACK_ECE } else { 0 };
        self.cc.in_ack_event(&mut self.tp, window | slow_path | echo);
    }

    /// Anything but a plain advance in the Open state needs a closer look.
    fn is_dubious(&self, work: &AckWork) -> bool {
        !(work.advanced || work.window_moved || work.with_data)
            || work.data_sacked
            || work.dsack
            || work.ece
            || self.tp.ca_state() != skyhop_model::CongestionState::Open
    }

    /// With reordering about, SACKs count as progress too.
    fn may_raise_cwnd(&self, work: &AckWork) -> bool {
        work.advanced || (self.tp.reordering > DUP_THRESH && work.data_sacked)
    }

    /// One newly SACKed segment.
    pub(crate) fn tag_one(&mut self, seq: u64, work: &mut AckWork) {
        let entry = *self.board.entry(seq);
        self.rack_on_delivered(seq, &entry, 0);
        if !entry.is(RETRANS | EVER_RETRANS) {
            if seq < self.board.sacked_end() {
                work.lowest_late = work.lowest_late.min(seq);
            }
            work.original_acked |= seq < self.high_seq;
            let first = work.sacked_sent_us.map_or(entry.sent_us, |(first, _)| first);
            work.sacked_sent_us = Some((first, entry.sent_us));
        }
        work.data_sacked = true;
        self.count_delivered(work);
        work.sampler.on_delivered(&mut self.tp, &self.lengths, seq, &entry);
        self.board.mark_sacked(seq);
    }
}
