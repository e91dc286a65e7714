//! Packets in the order of the times at which something happens to them.
//!
//! The packets themselves lie one after the other in memory: what the next event of a queue needs is where the last one
//! ended, so that the processor has it at hand.

use std::collections::VecDeque;

use skyhop_link::Packet;
use skyhop_units::Instant;

/// First-in, first-out queue of packets with the time of the next event of each.
#[derive(Debug)]
pub(crate) struct Queue<P>(VecDeque<(Instant, Packet<P>)>);

impl<P> Queue<P> {
    pub(crate) const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Time of the first packet; [`Instant::NEVER`] if the queue is empty.
    #[inline]
    pub(crate) fn next(&self) -> Instant {
        self.0.front().map_or(Instant::NEVER, |(at, _)| *at)
    }

    /// Append a packet, at a time not before that of the last one.
    #[inline]
    pub(crate) fn push(&mut self, at: Instant, packet: Packet<P>) {
        self.0.push_back((at, packet));
    }

    /// Take the first packet if its time is up to and including `now`.
    #[inline]
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Packet<P>> {
        let has_come = self.0.front().is_some_and(|(at, _)| *at <= now);
        if has_come { self.0.pop_front().map(|(_, packet)| packet) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use skyhop_units::Bytes;

    use super::*;

    #[test]
    fn packets_leave_in_order_once_their_times_have_come() {
        let mut queue = Queue::new();
        assert_eq!(queue.next(), Instant::NEVER);
        for (payload, at) in [(1, 5), (2, 5), (3, 9)] {
            queue.push(Instant::from_nanos(at), Packet::new(Bytes::new(64), payload));
        }
        let mut left = Vec::new();
        for now in [4, 5, 8, 9, 10] {
            let now = Instant::from_nanos(now);
            while let Some(packet) = queue.pop(now) {
                left.push((now.as_nanos(), packet.payload));
            }
        }
        assert_eq!(left, [(5, 1), (5, 2), (9, 3)]);
        assert_eq!(queue.next(), Instant::NEVER);
    }
}
