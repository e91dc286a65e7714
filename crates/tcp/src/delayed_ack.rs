//! When the receiver answers (RFC 5681 4.2, RFC 9293 3.8.6.3, with Linux's quick ACKs and its
//! adaptive delay).

use skyhop_units::{Duration, Instant};

use crate::jiffies::Jiffies;

/// At the start and after trouble Linux acknowledges this many segments one by one.
const QUICK_ACKS: u32 = 16;
/// And never fewer than this.
const LEAST_QUICK_ACKS: u32 = 2;
/// Linux's TCP_ATO_MIN and TCP_DELACK_MIN.
const MIN_DELAY_US: u64 = 40_000;
/// Linux's TCP_DELACK_MAX; RFC 9293 3.8.6.3 would allow 500 ms.
const MAX_DELAY_US: u64 = 200_000;
/// Where the sender is not known to have ended what it wrote, and there is no RTT to go by.
const MAX_UNPUSHED_US: u64 = 500_000;
/// Before anything is known of the path (TCP_TIMEOUT_INIT).
const INITIAL_RTO_US: u64 = 1_000_000;
/// What a segment is taken to hold before one has arrived (TCP_MSS_DEFAULT).
const DEFAULT_MSS: u32 = 536;
/// Shorter segments say nothing about the sender's MSS: with its header one has TCP_MSS_DEFAULT and a plain header.
const LEAST_MEASURED: u32 = DEFAULT_MSS + 20 - 32;

/// The delayed-ACK machine. Its times are in ticks of the kernel's clock.
#[derive(Debug)]
pub(crate) struct DelayedAck {
    /// Segments that still get an ACK of their own.
    quick: u32,
    /// The next ACK leaves at once (Linux's ICSK_ACK_NOW).
    now: bool,
    /// The expected time between segments (Linux's ATO); 0 before the first.
    ato: u32,
    last_arrival: u32,
    min_delay: u32,
    max_delay: u32,
    max_unpushed: u32,
    /// `next` in the last ACK sent, and the bytes in order then.
    pub(crate) acked: u64,
    acked_bytes: u64,
    /// When the ACK that waits is due, and when the timer fires.
    timeout: u32,
    deadline: Option<Instant>,
    /// An ACK has to leave some time (ICSK_ACK_SCHED).
    scheduled: bool,
    /// What was written at once ends, with a short segment or a pushed one: since the last ACK once, or more often
    /// (ICSK_ACK_PUSHED and ICSK_ACK_PUSHED2).
    pushed: bool,
    pushed_again: bool,
    /// A full segment that is pushed counts as such an end.
    full_may_push: bool,
    /// This end answers what it gets: its data will carry the ACK (`pingpong`).
    ping_pong: bool,
    /// The round trip, 0 while it is not known, and the timeout of this end's own data.
    rtt: u32,
    rto: u32,
    /// The estimate of the sender's MSS (`rcv_mss`), its limit, and the last short segment that may change it.
    rcv_mss: u32,
    advertised_mss: u32,
    last_len: u32,
}

impl DelayedAck {
    pub(crate) fn new(mss: u32, jiffies: &Jiffies, full_may_push: bool) -> Self {
        let ticks = |us: u64| jiffies.ticks_in_us(us) as u32;
        Self {
            quick: 0,
            now: false,
            ato: 0,
            last_arrival: 0,
            min_delay: ticks(MIN_DELAY_US),
            // `tcp_delack_max`: less than the other end's least timeout.
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

    /// This end knows how far away the other end is: no ACK waits longer than that.
    pub(crate) fn set_rtt(&mut self, jiffies: &Jiffies, rtt: Duration, rto: Duration) {
        let ticks = |time: Duration| jiffies.ticks_in_us(time.as_micros()) as u32;
        (self.rtt, self.rto) = (ticks(rtt).max(self.min_delay), ticks(rto));
    }

    /// The estimate of the sender's MSS.
    pub(crate) fn rcv_mss(&self) -> u64 {
        self.rcv_mss.into()
    }

    /// `tcp_event_data_recv`: something arrived in order `now`; learns how fast segments come. `window` is the one that
    /// was told last.
    pub(crate) fn on_arrival(&mut self, now: u32, window: u64) {
        let gap = now.wrapping_sub(std::mem::replace(&mut self.last_arrival, now));
        if self.ato == 0 {
            self.quicken(window);
            self.ato = self.min_delay;
        } else if gap <= self.min_delay / 2 {
            self.ato = self.ato / 2 + self.min_delay / 2;
        } else if gap < self.ato {
            self.ato = (self.ato / 2 + gap).min(self.rto).min(self.max_delay + 1);
        } else if gap > self.rto {
            // So long a pause: the sender may have restarted its window.
            self.quicken(window);
        }
    }

    /// `tcp_measure_rcv_mss`: whether the segment is longer than any before. Two segments of the same length in a row may
    /// lower the estimate.
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

    /// `tcp_grow_window`: the window has grown by this segment, and the sender shall know.
    #[inline]
    pub(crate) fn on_grown_window(&mut self) {
        self.quick |= 1;
    }

    /// `tcp_incr_quickack`: the next segments get an ACK each, as many as half a window has.
    fn quicken(&mut self, window: u64) {
        let half = (window / (2 * self.rcv_mss())).min(QUICK_ACKS.into()) as u32;
        self.quick = self.quick.max(if half == 0 { LEAST_QUICK_ACKS } else { half });
    }

    /// `tcp_enter_quickack_mode` after something that arrived in vain.
    pub(crate) fn enter_quick_mode(&mut self, window: u64) {
        self.quicken(window);
        self.ping_pong = false;
    }

    /// The next `segments` get an ACK each, and later ones may wait but shortly.
    pub(crate) fn quicken_for(&mut self, segments: u32) {
        self.quick = self.quick.max(segments);
        self.ping_pong = false;
        self.ato = self.min_delay;
    }

    /// No more quick ACKs: the buffer fills.
    pub(crate) fn end_quick_acks(&mut self) {
        self.quick = 0;
    }

    /// `inet_csk_schedule_ack`: something came that has to be answered some time.
    pub(crate) fn schedule(&mut self) {
        self.scheduled = true;
    }

    /// `tcp_event_data_sent`: a reply soon after what arrived last makes an exchange of it.
    pub(crate) fn on_data_sent(&mut self, now: u32) {
        self.ping_pong |= now.wrapping_sub(self.last_arrival) < self.ato;
    }

    /// The next ACK must not wait.
    pub(crate) fn require_now(&mut self) {
        self.now = true;
    }

    /// Whether more than one full segment of the `bytes` in order has not been acknowledged.
    pub(crate) fn has_two_segments(&self, bytes: u64) -> bool {
        bytes - self.acked_bytes > self.rcv_mss()
    }

    /// `tcp_in_quickack_mode`, or ICSK_ACK_NOW: whether the next segment gets an ACK of its own.
    pub(crate) fn is_quick(&self) -> bool {
        (self.quick > 0 && !self.ping_pong) || self.now
    }

    /// `tcp_cleanup_rbuf`: whether the application's having read, up to the last byte if `all`, has to be answered.
    pub(crate) fn is_due_after_read(&self, bytes: u64, all: bool) -> bool {
        let small = self.pushed_again || (self.pushed && !self.ping_pong);
        self.scheduled && (self.has_two_segments(bytes) || (all && small))
    }

    /// `tcp_send_delayed_ack`: an ACK may wait. A timer that runs already stays; `true` where it is all but up, so that
    /// the ACK had better leave now.
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

    /// `tcp_dec_quickack_mode`
    fn count_quick_ack(&mut self) {
        if self.quick > 0 {
            self.quick -= u32::from(self.scheduled);
            if self.quick == 0 {
                self.ato = self.min_delay;
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The timer fired: the next segment was not as near as thought.
    pub(crate) fn on_expiry(&mut self) {
        if self.ping_pong {
            // No answer either.
            self.ping_pong = false;
            self.ato = self.min_delay;
        } else {
            self.ato = (self.ato * 2).min(self.rto);
        }
    }

    /// `tcp_event_ack_sent`: an ACK of everything below `next` left, which is `bytes` of the stream.
    pub(crate) fn on_sent(&mut self, next: u64, bytes: u64) {
        self.count_quick_ack();
        (self.scheduled, self.now, self.pushed, self.pushed_again) = (false, false, false, false);
        (self.acked, self.acked_bytes) = (next, bytes);
        self.deadline = None;
    }
}
