//! Transmissions of a first-in, first-out queue that drops the arriving packet when it is full. The schedule is known,
//! so when a packet enters the queue, it is known when its transmission begins and ends.

use std::collections::VecDeque;

use skyhop_units::{Bytes, Instant};

use crate::qdisc::{Backlog, Limit};
use crate::transmitter::Transmitter;

/// Transmissions that have begun, and those of the packets that wait.
#[derive(Debug)]
pub(crate) struct Transmissions {
    limit: Limit,
    backlog: Backlog,
    /// Transmissions of the packets that wait, in order.
    waiting: VecDeque<Transmission>,
    /// Last transmission that has begun.
    begun: Transmission,
    /// Wire bytes of all transmissions that have begun.
    begun_bytes: Bytes,
    /// End of the last transmission, that is when the transmitter becomes free.
    free: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Transmission {
    begins: Instant,
    ends: Instant,
    wire_size: Bytes,
}

impl Transmissions {
    pub(crate) fn new(limit: Limit) -> Self {
        let (begins, ends) = (Instant::START, Instant::START);
        Self {
            limit,
            backlog: Backlog::default(),
            waiting: VecDeque::new(),
            begun: Transmission { begins, ends, wire_size: Bytes::ZERO },
            begun_bytes: Bytes::ZERO,
            free: Instant::START,
        }
    }

    /// Plan the transmission of a packet that enters the queue now, and return its end; `None` if the queue is full.
    /// [`Self::run_until`] has been called for now.
    #[inline(always)]
    pub(crate) fn enter(
        &mut self,
        now: Instant,
        wire_size: Bytes,
        transmitter: &mut Transmitter,
    ) -> Option<Instant> {
        let mut with_it = self.backlog;
        with_it.add(wire_size);
        if !self.limit.allows(with_it) {
            return None;
        }
        let earliest = now.max(self.free);
        let begins = transmitter.earliest_start(earliest);
        let back_to_back = begins == self.free && now < begins;
        let ends = transmitter.transmit(begins, wire_size, back_to_back);
        let transmission = Transmission { begins, ends, wire_size };
        self.free = ends;
        if begins > now {
            self.backlog = with_it;
            self.waiting.push_back(transmission);
        } else {
            self.begin(transmission);
        }
        Some(ends)
    }

    /// Move the transmissions that begin up to and including `until` out of the queue.
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

    #[inline]
    fn begin(&mut self, transmission: Transmission) {
        self.begun = transmission;
        self.begun_bytes += transmission.wire_size;
    }

    /// Packets that wait now, after [`Self::run_until`] for now.
    #[inline]
    pub(crate) fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Wire bytes whose transmission has ended by `now`, after [`Self::run_until`] for `now`.
    pub(crate) fn ended_bytes(&self, now: Instant) -> Bytes {
        let Transmission { ends, wire_size, .. } = self.begun;
        let has_ended = ends <= now && ends != Instant::NEVER;
        self.begun_bytes - if has_ended { Bytes::ZERO } else { wire_size }
    }
}
