//! Constant delay of a flow, behind the last link of its route.

use std::collections::VecDeque;

use skyhop_units::{Duration, Instant};

use crate::flow::InFlight;

/// One direction of a flow's own delay, without a queue.
pub(crate) struct Access {
    delay: Duration,
    in_transit: VecDeque<(Instant, InFlight)>,
}

impl Access {
    /// Create both directions with half of `rtt` each: first the direction to the server, whose delay is
    /// rounded down to a whole nanosecond, then the direction to the client.
    pub(crate) fn both(rtt: Duration) -> [Self; 2] {
        let there = rtt / 2;
        [there, rtt - there].map(|delay| Self { delay, in_transit: VecDeque::new() })
    }

    pub(crate) fn enter(&mut self, now: Instant, packet: InFlight) {
        self.in_transit.push_back((now + self.delay, packet));
    }

    /// Arrival time of the next packet; `None` while no packet is in transit.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.in_transit.front().map(|(at, _)| *at)
    }

    /// Return the next packet that has arrived by `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<InFlight> {
        let arrived = self.next().is_some_and(|at| at <= now);
        if arrived { self.in_transit.pop_front().map(|(_, packet)| packet) } else { None }
    }
}
