//! A flow's own delay, behind the last link of its way.

use std::collections::VecDeque;

use skyhop_units::{Duration, Instant};

use crate::flow::InFlight;

/// One direction of it: a constant delay without a queue.
pub(crate) struct Access {
    delay: Duration,
    in_transit: VecDeque<(Instant, InFlight)>,
}

impl Access {
    /// Towards the receiver and back, half of `rtt` each.
    pub(crate) fn both(rtt: Duration) -> [Self; 2] {
        let there = rtt / 2;
        [there, rtt - there].map(|delay| Self { delay, in_transit: VecDeque::new() })
    }

    pub(crate) fn enter(&mut self, now: Instant, packet: InFlight) {
        self.in_transit.push_back((now + self.delay, packet));
    }

    /// When the first packet in it arrives.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.in_transit.front().map(|(at, _)| *at)
    }

    /// The next packet that has arrived by `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<InFlight> {
        let arrived = self.next().is_some_and(|at| at <= now);
        if arrived { self.in_transit.pop_front().map(|(_, packet)| packet) } else { None }
    }
}
