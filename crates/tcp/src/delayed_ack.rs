//! When the receiver answers (RFC 5681 4.2, RFC 9293 3.8.6.3, with Linux's quick ACKs and its
//! adaptive delay).

use skyhop_units::{Duration, Instant};

/// At the start and after trouble Linux acknowledges this many segments one by one.
const QUICK_ACKS: u32 = 16;
/// Linux's TCP_ATO_MIN and TCP_DELACK_MIN.
const MIN_DELAY: Duration = Duration::from_millis(40);
/// Linux's TCP_DELACK_MAX; RFC 9293 3.8.6.3 would allow 500 ms.
const MAX_DELAY: Duration = Duration::from_millis(200);
/// RFC 9293 3.8.6.3: at least every second full segment.
const SEGMENTS_PER_ACK: u64 = 2;

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
    /// `next` in the last ACK sent.
    pub(crate) acked: u64,
    deadline: Option<Instant>,
}

impl DelayedAck {
    pub(crate) const fn new() -> Self {
        Self {
            quick: 0,
            now: false,
            ato: Duration::ZERO,
            last_arrival: None,
            acked: 0,
            deadline: None,
        }
    }

    /// A segment arrived: learns how fast they come.
    pub(crate) fn on_arrival(&mut self, now: Instant) {
        let Some(last) = self.last_arrival.replace(now) else {
            self.quicken();
            self.ato = MIN_DELAY;
            return;
        };
        let gap = now - last;
        if gap <= MIN_DELAY / 2 {
            self.ato = self.ato / 2 + MIN_DELAY / 2;
        } else if gap < self.ato {
            self.ato = (self.ato / 2 + gap).min(MAX_DELAY);
        } else if gap > MAX_DELAY {
            // So long a pause: the sender may have restarted its window.
            self.quicken();
        }
    }

    /// The next segments get an ACK each.
    pub(crate) fn quicken(&mut self) {
        self.quick = self.quick.max(QUICK_ACKS);
    }

    /// The next `segments` get an ACK each, and later ones may wait but shortly.
    pub(crate) fn quicken_for(&mut self, segments: u32) {
        self.quick = self.quick.max(segments);
        self.ato = MIN_DELAY;
    }

    /// The next ACK must not wait.
    pub(crate) fn require_now(&mut self) {
        self.now = true;
    }

    /// Whether what is in order up to `next` has to be acknowledged now.
    pub(crate) fn is_due(&self, next: u64) -> bool {
        self.is_quick() || next - self.acked >= SEGMENTS_PER_ACK
    }

    /// Whether the next segment gets an ACK of its own.
    pub(crate) fn is_quick(&self) -> bool {
        self.quick > 0 || self.now
    }

    /// An ACK may wait. A timer that runs already stays; `true` where it is all but up, so that the
    /// ACK had better leave now.
    pub(crate) fn delay(&mut self, now: Instant) -> bool {
        let wait = self.ato.max(MIN_DELAY).min(MAX_DELAY);
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
        self.ato = (self.ato * 2).min(MAX_DELAY);
    }

    /// An ACK of everything below `next` left.
    pub(crate) fn on_sent(&mut self, next: u64) {
        self.quick = self.quick.saturating_sub(1);
        self.now = false;
        self.acked = next;
        self.deadline = None;
    }
}
