//! First in, first out, worked out ahead: when a packet comes, everything that becomes of it is known. It goes into
//! the delay line at once, with the time at which it arrives, and what stands here is only how long it waits.

use std::collections::VecDeque;

use skyhop_model::LossReason;
use skyhop_units::{Bytes, Instant};

use crate::onward::{Doomed, Onward};
use crate::qdisc::{Backlog, Limit, Queued};
use crate::stats::Verdicts;

/// The queue of [`Fifo`](crate::qdisc::fifo::Fifo) and its transmissions. A link with that discipline has this in its
/// place: a packet is moved once less, and nothing happens between its coming and its arrival.
#[derive(Debug)]
pub(crate) struct OnArrival<P> {
    limit: Limit,
    backlog: Backlog,
    /// The transmissions of what waits.
    waiting: VecDeque<Transmission>,
    /// The last that has begun.
    begun: Transmission,
    /// Bytes of all that have.
    begun_bytes: Bytes,
    /// When the last of all ends.
    free: Instant,
    /// What waits or is being transmitted, and will be lost.
    doomed: VecDeque<Box<Doomed<P>>>,
}

#[derive(Debug, Clone, Copy)]
struct Transmission {
    begins: Instant,
    ends: Instant,
    wire_size: Bytes,
}

impl<P> OnArrival<P> {
    pub(crate) fn new(limit: Limit) -> Self {
        let (begins, ends) = (Instant::START, Instant::START);
        Self {
            limit,
            backlog: Backlog::default(),
            waiting: VecDeque::new(),
            begun: Transmission { begins, ends, wire_size: Bytes::ZERO },
            begun_bytes: Bytes::ZERO,
            free: Instant::START,
            doomed: VecDeque::new(),
        }
    }

    /// Takes in a packet that comes now; everything until now has happened.
    #[inline(always)]
    pub(crate) fn take(
        &mut self,
        queued: Queued<P>,
        onward: &mut Onward<P>,
        verdicts: &mut Verdicts<P>,
    ) {
        let (now, wire_size) = (queued.since, queued.packet.wire_size);
        let mut with_it = self.backlog;
        with_it.add(wire_size);
        if !self.limit.allows(with_it) {
            verdicts.lose(now, LossReason::Queue, queued.packet);
            return;
        }
        let earliest = now.max(self.free);
        let begins = onward.opens(earliest);
        let back_to_back = begins == self.free && now < begins;
        let ends = onward.transmit(begins, wire_size, back_to_back);
        let transmission = Transmission { begins, ends, wire_size };
        self.free = ends;
        if begins > now {
            self.backlog = with_it;
            self.waiting.push_back(transmission);
        } else {
            self.begin(transmission);
        }
        if let Some(doomed) = onward.send(ends, queued) {
            self.doomed.push_back(doomed);
        }
    }

    /// Ends and begins transmissions up to and including `until`.
    #[inline]
    pub(crate) fn run_until(&mut self, until: Instant) {
        while let Some(next) = self.waiting.front() {
            if next.begins > until || next.begins == Instant::NEVER {
                break;
            }
            let next = *next;
            self.waiting.pop_front();
            self.backlog.remove(next.wire_size);
            self.begin(next);
        }
    }

    /// Records what is lost until then.
    #[inline]
    pub(crate) fn lose_until(&mut self, until: Instant, verdicts: &mut Verdicts<P>) {
        while self.next_loss() <= until && self.next_loss() != Instant::NEVER {
            if let Some(doomed) = self.doomed.pop_front() {
                let Doomed { at, reason, packet } = *doomed;
                verdicts.lose(at, reason, packet);
            }
        }
    }

    /// When [`Self::lose_until`] has something to record.
    #[inline]
    pub(crate) fn next_loss(&self) -> Instant {
        self.doomed.front().map_or(Instant::NEVER, |first| first.at)
    }

    #[inline]
    fn begin(&mut self, transmission: Transmission) {
        self.begun = transmission;
        self.begun_bytes += transmission.wire_size;
    }

    /// What waits; everything until now has happened.
    #[inline]
    pub(crate) fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Packets that are being transmitted or are in the delay line.
    pub(crate) fn underway_packets(&self, in_line: u64) -> u64 {
        in_line + self.doomed.len() as u64 - self.backlog.packets
    }

    /// Bytes whose transmission has ended by `now`, until which everything has happened.
    pub(crate) fn transmitted_bytes(&self, now: Instant) -> Bytes {
        let Transmission { ends, wire_size, .. } = self.begun;
        let has_ended = ends <= now && ends != Instant::NEVER;
        self.begun_bytes - if has_ended { Bytes::ZERO } else { wire_size }
    }
}
