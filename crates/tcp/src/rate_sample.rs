//! Delivery-rate samples of ACKs (draft-cheng-iccrg-delivery-rate-estimation).

use crate::scoreboard::{APP_LIMITED, EVER_RETRANS, Entry, RETRANS};
use crate::segment_lengths::SegmentLengths;
use crate::{RateSample, TcpSock};

/// Record in a segment's entry the connection's delivery state when it is sent (draft 3.2 SendPacket).
#[inline]
pub(crate) fn stamp(tp: &mut TcpSock, entry: &mut Entry, now_us: u64, packets_out: u32) {
    if packets_out == 0 {
        tp.first_tx_mstamp = now_us;
        tp.delivered_mstamp = now_us;
    }
    entry.sent_us = now_us;
    entry.first_tx_us = tp.first_tx_mstamp;
    entry.delivered_us = tp.delivered_mstamp;
    entry.delivered = tp.delivered;
    entry.delivered_ce = tp.delivered_ce as u16;
    entry.flags &= !APP_LIMITED;
    if tp.app_limited != 0 {
        entry.flags |= APP_LIMITED;
    }
}

/// Mark everything in flight as application-limited (draft 3.4 OnAppLimited).
pub(crate) fn mark_app_limited(tp: &mut TcpSock, in_flight: u32) {
    tp.app_limited = tp.delivered.wrapping_add(in_flight).max(1);
}

/// Rate sample of one ACK, under construction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sampler {
    pub(crate) sample: RateSample,
    /// Sequence number after the segment that the sample describes, the one sent last of those delivered; 0
    /// while there is none.
    newest_end: u64,
}

impl Sampler {
    pub(crate) fn new(prior_in_flight: u32) -> Self {
        let sample = RateSample {
            delivered: -1,
            interval_us: -1,
            rtt_us: -1,
            prior_in_flight,
            ..RateSample::default()
        };
        Self { sample, newest_end: 0 }
    }

    /// Update the sample for a delivered segment (draft 3.3 UpdateRateSample): of all segments that an ACK
    /// delivers, the one sent last counts.
    #[inline]
    pub(crate) fn on_delivered(
        &mut self,
        tp: &mut TcpSock,
        lengths: &SegmentLengths,
        seq: u64,
        entry: &Entry,
    ) {
        let end = seq + 1;
        if self.newest_end != 0
            && !sent_after(entry.sent_us, end, tp.first_tx_mstamp, self.newest_end)
        {
            return;
        }
        self.newest_end = end;
        self.sample.prior_delivered = entry.delivered;
        self.sample.prior_delivered_ce = entry.delivered_ce.into();
        self.sample.prior_mstamp = entry.delivered_us;
        self.sample.is_app_limited = entry.is(APP_LIMITED);
        self.sample.is_retrans = entry.is(RETRANS | EVER_RETRANS);
        self.sample.last_end_seq = lengths.start_of(end) as u32;
        self.sample.interval_us = (entry.sent_us - entry.first_tx_us) as i64;
        tp.first_tx_mstamp = entry.sent_us;
    }

    /// Complete the sample at the end of an ACK (draft 3.3 GenerateRateSample).
    pub(crate) fn finish(&mut self, tp: &mut TcpSock, newly_delivered: u32, newly_lost: u32) {
        // The counter wraps as in the kernel. Its initial value of all ones counts as passed at once.
        if tp.app_limited != 0 && (tp.app_limited.wrapping_sub(tp.delivered) as i32) < 0 {
            tp.app_limited = 0;
        }
        if newly_delivered > 0 {
            tp.delivered_mstamp = tp.tcp_mstamp;
        }
        let sample = &mut self.sample;
        sample.acked_sacked = newly_delivered;
        sample.losses = newly_lost as i32;
        if self.newest_end == 0 {
            return;
        }
        sample.delivered = tp.delivered.wrapping_sub(sample.prior_delivered) as i32;
        let marked = (tp.delivered_ce as u16).wrapping_sub(sample.prior_delivered_ce as u16);
        sample.delivered_ce = marked.into();
        let send_us = sample.interval_us;
        let ack_us = (tp.tcp_mstamp - sample.prior_mstamp) as i64;
        sample.snd_interval_us = send_us as u32;
        sample.rcv_interval_us = ack_us as u32;
        // Take the slower of the two phases, so that ACK compression cannot feign a high rate.
        sample.interval_us = send_us.max(ack_us);
        // The interval is shorter than the minimum RTT: the ACK of a retransmitted segment was caused by the
        // original.
        if sample.interval_us < i64::from(tp.min_rtt_us()) {
            sample.interval_us = -1;
            return;
        }
        Self::remember(sample, tp);
    }

    /// Keep the sample for TCP_INFO; an application-limited one only if it is higher.
    fn remember(sample: &RateSample, tp: &mut TcpSock) {
        let new = sample.delivered as u64 * u64::from(tp.rate_interval_us);
        let old = u64::from(tp.rate_delivered) * sample.interval_us as u64;
        if !sample.is_app_limited || new >= old {
            tp.rate_delivered = sample.delivered as u32;
            tp.rate_interval_us = sample.interval_us as u32;
        }
    }
}

/// Whether a segment was sent after another (RACK_sent_after of RFC 8985 5.2); the higher sequence number
/// decides between segments of the same microsecond.
pub(crate) const fn sent_after(sent_us: u64, end: u64, other_sent_us: u64, other_end: u64) -> bool {
    sent_us > other_sent_us || (sent_us == other_sent_us && end > other_end)
}
