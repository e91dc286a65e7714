//! When the receiver answers (RFC 5681 4.2, RFC 9293 3.8.6.3, with Linux's quick ACKs and its
//! adaptive delay).

use skyhop_units::{Duration, Instant};

/// At the start and after trouble Linux acknowledges this many segments one by one.
const QUICK_ACKS: u32 = 16;
/// And never fewer than this.
const LEAST_QUICK_ACKS: u32 = 2;
/// Linux's TCP_ATO_MIN and TCP_DELACK_MIN.
const MIN_DELAY: Duration = Duration::from_millis(40);
/// Linux's TCP_DELACK_MAX; RFC 9293 3.8.6.3 would allow 500 ms.
const MAX_DELAY: Duration = Duration::from_millis(200);
/// What a segment is taken to hold before one has arrived (TCP_MSS_DEFAULT).
const DEFAULT_MSS: u32 = 536;
/// Shorter segments say nothing about the sender's MSS: with its header one has TCP_MSS_DEFAULT and a plain header.
const LEAST_MEASURED: u32 = DEFAULT_MSS + 20 - 32;

/// The delayed-ACK machine.
#[derive(Debug)]
pub(crate) struct DelayedAck {
    /// Segments that still get an ACK of their own.
    quick: u32,
    /// The next ACK leaves at once (Linux's ICSK_ACK_NOW).
    now: bool,
    /// The expected time between segments (Linux's ATO).
    ato: Duration,
    last_arrival: Option<Instant>,
    /// `next` in the last ACK sent, and the bytes in order then.
    pub(crate) acked: u64,
    acked_bytes: u64,
    deadline: Option<Instant>,
    /// An ACK has to leave some time (ICSK_ACK_SCHED).
    scheduled: bool,
    /// Short segments since the last ACK, which end what was written at once: one, or more (ICSK_ACK_PUSHED and
    /// ICSK_ACK_PUSHED2).
    pushed: bool,
    pushed_again: bool,
    /// This end answers what it gets: its data will carry the ACK (`pingpong`).
    ping_pong: bool,
    /// No ACK waits longer.
    most: Duration,
    /// The timeout of this end's own data.
    rto: Duration,
    /// The estimate of the sender's MSS (`rcv_mss`), its limit, and the last short segment that may change it.
    rcv_mss: u32,
    advertised_mss: u32,
    last_len: u32,
}

impl DelayedAck {
    pub(crate) fn new(mss: u32) -> Self {
        Self {
            quick: 0,
            now: false,
            ato: Duration::ZERO,
            last_arrival: None,
            acked: 0,
            acked_bytes: 0,
            deadline: None,
            scheduled: false,
            pushed: false,
            pushed_again: false,
            ping_pong: false,
            most: MAX_DELAY,
            rto: MAX_DELAY,
            rcv_mss: DEFAULT_MSS.min(mss),
            advertised_mss: mss,
            last_len: 0,
        }
    }

    /// This end's own data knows how far away the other end is: no ACK waits longer than that.
    pub(crate) fn set_rtt(&mut self, rtt: Duration, rto: Duration) {
        self.most = rtt.max(MIN_DELAY).min(MAX_DELAY);
        self.rto = rto;
    }

    /// The estimate of the sender's MSS.
    pub(crate) fn rcv_mss(&self) -> u64 {
        self.rcv_mss.into()
    }

    /// `tcp_event_data_recv`: a segment of `len` bytes arrived; learns how fast they come. `window` is the one that was
    /// told last.
    pub(crate) fn on_arrival(&mut self, now: Instant, len: u32, window: u64) {
        self.measure_mss(len);
        let Some(last) = self.last_arrival.replace(now) else {
            self.quicken(window);
            self.ato = MIN_DELAY;
            return;
        };
        let gap = now - last;
        if gap <= MIN_DELAY / 2 {
            self.ato = self.ato / 2 + MIN_DELAY / 2;
        } else if gap < self.ato {
            self.ato = (self.ato / 2 + gap).min(self.rto);
        } else if gap > self.rto {
            // So long a pause: the sender may have restarted its window.
            self.quicken(window);
        }
    }

    /// `tcp_measure_rcv_mss`. Two segments of the same length in a row may lower the estimate.
    fn measure_mss(&mut self, len: u32) {
        let last_len = std::mem::take(&mut self.last_len);
        if len >= self.rcv_mss {
            self.rcv_mss = len.min(self.advertised_mss);
            return;
        }
        if len >= LEAST_MEASURED {
            self.last_len = len;
            if len == last_len {
                self.rcv_mss = len;
                return;
            }
        }
        self.pushed_again |= self.pushed;
        self.pushed = true;
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
        self.ato = MIN_DELAY;
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
    pub(crate) fn on_data_sent(&mut self, now: Instant) {
        self.ping_pong |= self.last_arrival.is_some_and(|last| now - last < self.ato);
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

    /// An ACK may wait. A timer that runs already stays; `true` where it is all but up, so that the
    /// ACK had better leave now.
    pub(crate) fn delay(&mut self, now: Instant) -> bool {
        let wait = self.ato.max(MIN_DELAY).min(self.most);
        match self.deadline {
            Some(deadline) if deadline <= now + wait / 4 => true,
            Some(deadline) => {
                self.deadline = Some(deadline.min(now + wait));
                false
            }
            None => {
                self.deadline = Some(now + wait);
                false
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
            self.ato = MIN_DELAY;
        } else {
            self.ato = (self.ato * 2).min(self.rto);
        }
    }

    /// `tcp_event_ack_sent`: an ACK of everything below `next` left, which is `bytes` of the stream.
    pub(crate) fn on_sent(&mut self, next: u64, bytes: u64) {
        self.quick = self.quick.saturating_sub(self.scheduled.into());
        (self.scheduled, self.now, self.pushed, self.pushed_again) = (false, false, false, false);
        (self.acked, self.acked_bytes) = (next, bytes);
        self.deadline = None;
    }
}
