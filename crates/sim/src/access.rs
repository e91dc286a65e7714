//! Packets in the constant delay behind the last link of a route.

use std::collections::VecDeque;

use skyhop_units::Instant;

use crate::flow::InFlight;

/// One direction of a flow's own delay, without a queue.
#[derive(Default)]
pub(crate) struct Access {
    in_transit: VecDeque<(Instant, InFlight)>,
}

impl Access {
    /// Add a packet that arrives at `at`, which is not before the arrivals of the packets in transit.
    pub(crate) fn enter(&mut self, at: Instant, packet: InFlight) {
        self.in_transit.push_back((at, packet));
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
