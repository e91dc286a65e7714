//! Timing of acknowledgements (RFC 5681 4.2, RFC 9293 3.8.6.3), with Linux's quick ACKs and adaptive delay.

use skyhop_units::{Duration, Instant};

use crate::jiffies::Jiffies;

/// Largest number of segments acknowledged one by one at the start of a connection and after duplicates
/// (TCP_MAX_QUICKACKS).
const QUICK_ACKS: u32 = 16;
/// Smallest number of quick ACKs.
const LEAST_QUICK_ACKS: u32 = 2;
/// Shortest delay of an ACK (TCP_ATO_MIN, TCP_DELACK_MIN).
const MIN_DELAY_US: u64 = 40_000;
/// Longest delay of an ACK (TCP_DELACK_MAX); RFC 9293 3.8.6.3 would allow 500 ms.
const MAX_DELAY_US: u64 = 200_000;
/// Longest delay of an ACK while no segment has shown that the sender's write ended, and no RTT is known.
const MAX_UNPUSHED_US: u64 = 500_000;
/// Timeout before the first RTT sample (TCP_TIMEOUT_INIT).
const INITIAL_RTO_US: u64 = 1_000_000;
/// Estimate of the sender's MSS before a segment has arrived (TCP_MSS_DEFAULT).
const DEFAULT_MSS: u32 = 536;
/// Shortest segment that may lower the estimate of the MSS: TCP_MSS_DEFAULT with a plain header.
const LEAST_MEASURED: u32 = DEFAULT_MSS + 20 - 32;

/// Delayed-ACK state machine. Times are in ticks of the kernel's clock.
#[derive(Debug)]
pub(crate) struct DelayedAck {
    /// Number of segments that still get an immediate ACK each (`icsk_ack.quick_acks`).
    quick_acks: u32,
    /// Whether the next ACK leaves at once (ICSK_ACK_NOW).
    now: bool,
    /// Expected time between segments (Linux's ATO); 0 before the first.
    ato: u32,
    last_arrival: u32,
    min_delay: u32,
    max_delay: u32,
    max_unpushed: u32,
    /// Next expected segment according to the last ACK sent. The next field is the number of bytes in order at
    /// that time.
    pub(crate) acked: u64,
    acked_bytes: u64,
    /// Tick at which the delayed ACK is due, and the time at which its timer fires.
    timeout: u32,
    deadline: Option<Instant>,
    /// Whether an ACK is owed (ICSK_ACK_SCHED).
    scheduled: bool,
    /// Whether a short or pushed segment has ended a write of the sender since the last ACK (ICSK_ACK_PUSHED).
    /// The next field: whether that happened more than once (ICSK_ACK_PUSHED2).
    pushed: bool,
    pushed_again: bool,
    /// Whether a full-size segment with PSH counts as the end of a write.
    full_may_push: bool,
    /// Whether the connection is interactive, so that this end's data will carry the ACK (`pingpong`).
    ping_pong: bool,
    /// Smoothed RTT, 0 while it is unknown, and retransmission timeout of this end's own data.
    rtt: u32,
    rto: u32,
    /// Estimate of the sender's MSS (`rcv_mss`), its limit, and the length of the last short segment, which may
    /// lower it.
    rcv_mss: u32,
    advertised_mss: u32,
    last_len: u32,
}

impl DelayedAck {
    pub(crate) fn new(mss: u32, jiffies: &Jiffies, full_may_push: bool) -> Self {
        let ticks = |us: u64| jiffies.ticks_in_us(us) as u32;
        Self {
            quick_acks: 0,
            now: false,
            ato: 0,
            last_arrival: 0,
            min_delay: ticks(MIN_DELAY_US),
            // `tcp_delack_max`: less than the other end's shortest timeout.
            max_delay: ticks(MAX_DELAY_US) - 1,
            max_unpushed: ticks(MAX_UNPUSHED_US),
            acked: 0,
            acked_bytes: 0,
            timeout: 0,
            deadline: None,
            scheduled: false,
            pushed: false,
            pushed_again: false,
            full_may_push,
            ping_pong: false,
            rtt: 0,
            rto: ticks(INITIAL_RTO_US),
            rcv_mss: DEFAULT_MSS.min(mss),
            advertised_mss: mss,
            last_len: 0,
        }
    }

    /// Set the RTT and timeout of this end: no ACK waits longer than the RTT.
    pub(crate) fn set_rtt(&mut self, jiffies: &Jiffies, rtt: Duration, rto: Duration) {
        let ticks = |time: Duration| jiffies.ticks_in_us(time.as_micros()) as u32;
        (self.rtt, self.rto) = (ticks(rtt).max(self.min_delay), ticks(rto));
    }

    /// Estimate of the sender's MSS, in bytes.
    pub(crate) fn rcv_mss(&self) -> u64 {
        self.rcv_mss.into()
    }

    /// Update the expected time between segments when one arrives in order at tick `now`
    /// (`tcp_event_data_recv`). `window` is the window advertised last, in bytes.
    pub(crate) fn on_arrival(&mut self, now: u32, window: u64) {
        let gap = now.wrapping_sub(std::mem::replace(&mut self.last_arrival, now));
        if self.ato == 0 {
            self.incr_quick_acks(window);
            self.ato = self.min_delay;
        } else if gap <= self.min_delay / 2 {
            self.ato = self.ato / 2 + self.min_delay / 2;
        } else if gap < self.ato {
            self.ato = (self.ato / 2 + gap).min(self.rto).min(self.max_delay + 1);
        } else if gap > self.rto {
            // After a pause longer than the RTO the sender may have reset its congestion window.
            self.incr_quick_acks(window);
        }
    }

    /// Update the estimate of the sender's MSS; return whether the segment is longer than any before
    /// (`tcp_measure_rcv_mss`). Two segments of the same length in a row may lower the estimate.
    pub(crate) fn measure_mss(&mut self, len: u32, push: bool) -> bool {
        let last_len = std::mem::take(&mut self.last_len);
        if len >= self.rcv_mss {
            let is_longer = len > self.rcv_mss;
            self.rcv_mss = len.min(self.advertised_mss);
            self.pushed |= push && self.full_may_push;
            return is_longer;
        }
        if len >= LEAST_MEASURED {
            self.last_len = len;
            if len == last_len {
                self.rcv_mss = len;
                return false;
            }
        }
        self.pushed_again |= self.pushed;
        self.pushed = true;
        false
    }

    /// Acknowledge the next segment at once, so that the sender learns of the larger window
    /// (`tcp_grow_window`).
    #[inline]
    pub(crate) fn on_grown_window(&mut self) {
        self.quick_acks |= 1;
    }

    /// Acknowledge the next segments one by one: as many as make up half of `window` bytes
    /// (`tcp_incr_quickack`).
    fn incr_quick_acks(&mut self, window: u64) {
        let half = (window / (2 * self.rcv_mss())).min(QUICK_ACKS.into()) as u32;
        self.quick_acks = self.quick_acks.max(if half == 0 { LEAST_QUICK_ACKS } else { half });
    }

    /// Enter quick-ACK mode after a duplicate (`tcp_enter_quickack_mode`).
    pub(crate) fn enter_quick_mode(&mut self, window: u64) {
        self.incr_quick_acks(window);
        self.ping_pong = false;
    }

    /// Acknowledge the next `segments` one by one, and reset the delay of later ACKs to its minimum.
    pub(crate) fn enter_quick_mode_for(&mut self, segments: u32) {
        self.quick_acks = self.quick_acks.max(segments);
        self.ping_pong = false;
        self.ato = self.min_delay;
    }

    /// Stop quick ACKs, because the receive buffer fills.
    pub(crate) fn end_quick_acks(&mut self) {
        self.quick_acks = 0;
    }

    /// Record that an ACK is owed (`inet_csk_schedule_ack`).
    pub(crate) fn schedule(&mut self) {
        self.scheduled = true;
    }

    /// Record that data was sent at tick `now`: a reply soon after the last arrival makes the connection
    /// interactive (`tcp_event_data_sent`).
    pub(crate) fn on_data_sent(&mut self, now: u32) {
        self.ping_pong |= now.wrapping_sub(self.last_arrival) < self.ato;
    }

    /// Make the next ACK immediate (ICSK_ACK_NOW).
    pub(crate) fn require_now(&mut self) {
        self.now = true;
    }

    /// Whether more than one full-size segment is not acknowledged yet; `bytes` is the number of bytes that
    /// have arrived in order.
    pub(crate) fn has_two_segments(&self, bytes: u64) -> bool {
        bytes - self.acked_bytes > self.rcv_mss()
    }

    /// Whether the next segment gets an immediate ACK (`tcp_in_quickack_mode`, or ICSK_ACK_NOW).
    pub(crate) fn is_quick(&self) -> bool {
        (self.quick_acks > 0 && !self.ping_pong) || self.now
    }

    /// Whether an ACK is due after the application has read (`tcp_cleanup_rbuf`). `bytes` is the number of
    /// bytes that have arrived in order; `all` is true if no data waits in the buffer any more.
    pub(crate) fn is_due_after_read(&self, bytes: u64, all: bool) -> bool {
        let small = self.pushed_again || (self.pushed && !self.ping_pong);
        self.scheduled && (self.has_two_segments(bytes) || (all && small))
    }

    /// Delay an ACK (`tcp_send_delayed_ack`). A running timer is never moved to a later time. Return `true` if
    /// it is about to fire: the caller then sends the ACK now.
    pub(crate) fn delay(&mut self, now: Instant, jiffies: &Jiffies) -> bool {
        let wait = self.wait();
        let mut timeout = jiffies.now().wrapping_add(wait);
        if self.deadline.is_some() {
            let left = self.timeout.wrapping_sub(jiffies.now()) as i32;
            if left <= (wait / 4) as i32 {
                return true;
            }
            if left <= wait as i32 {
                timeout = self.timeout;
            }
        }
        if self.deadline.is_none() || timeout != self.timeout {
            let ticks = timeout.wrapping_sub(jiffies.now());
            self.deadline = Some(jiffies.fires_at(now, ticks.into()));
            self.timeout = timeout;
        }
        false
    }

    fn wait(&self) -> u32 {
        let mut wait = self.ato;
        if wait > self.min_delay {
            let ended = self.ping_pong || self.pushed;
            let most = if ended { self.max_delay + 1 } else { self.max_unpushed };
            wait = wait.min(if self.rtt > 0 { most.min(self.rtt) } else { most });
        }
        wait.min(self.max_delay)
    }

    /// Count an ACK sent against the quick ACKs left (`tcp_dec_quickack_mode`).
    fn count_quick_ack(&mut self) {
        if self.quick_acks > 0 {
            self.quick_acks -= u32::from(self.scheduled);
            if self.quick_acks == 0 {
                self.ato = self.min_delay;
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Adapt the delay after the timer fired: the next segment did not arrive as soon as expected.
    pub(crate) fn on_expiry(&mut self) {
        if self.ping_pong {
            // This end sent no data to carry the ACK.
            self.ping_pong = false;
            self.ato = self.min_delay;
        } else {
            self.ato = (self.ato * 2).min(self.rto);
        }
    }

    /// Record that an ACK was sent for all segments below `next`, that is, for the first `bytes` bytes of the
    /// stream (`tcp_event_ack_sent`).
    pub(crate) fn on_sent(&mut self, next: u64, bytes: u64) {
        self.count_quick_ack();
        (self.scheduled, self.now, self.pushed, self.pushed_again) = (false, false, false, false);
        (self.acked, self.acked_bytes) = (next, bytes);
        self.deadline = None;
    }
}
