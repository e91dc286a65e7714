//! Packets of a partition, in one place of memory, and queues of them.
//!
//! A packet stays where it is while it goes from queue to queue, and a new one takes the place that was left last. So
//! the memory in use is as large as the number of packets, and near the processor.

use skyhop_link::Packet;
use skyhop_units::Instant;

/// Place of a packet in the pool.
pub(crate) type Place = u32;

const NONE: Place = Place::MAX;

/// Packets with the time of the next event of each.
#[derive(Debug)]
pub(crate) struct Pool<P> {
    slots: Vec<Slot<P>>,
    /// First free place; the others follow.
    free: Place,
}

#[derive(Debug)]
struct Slot<P> {
    at: Instant,
    next: Place,
    /// `None` in free places.
    packet: Option<Packet<P>>,
}

/// Queue of packets in the order of their times.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    first: Place,
    last: Place,
    /// Time of the first packet; [`Instant::NEVER`] if the queue is empty.
    next: Instant,
}

impl Queue {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE, next: Instant::NEVER };

    /// Time of the first packet; [`Instant::NEVER`] if the queue is empty.
    #[inline]
    pub(crate) const fn next(&self) -> Instant {
        self.next
    }
}

impl<P> Pool<P> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: NONE }
    }

    /// Add a packet to the pool.
    #[inline]
    pub(crate) fn insert(&mut self, packet: Packet<P>) -> Place {
        let place = self.free;
        match self.slots.get_mut(place as usize) {
            Some(slot) => {
                self.free = slot.next;
                slot.packet = Some(packet);
                place
            }
            None => {
                self.slots.push(Slot { at: Instant::NEVER, next: NONE, packet: Some(packet) });
                (self.slots.len() - 1) as Place
            }
        }
    }

    /// Packet at a place.
    #[inline]
    pub(crate) fn get(&self, place: Place) -> &Packet<P> {
        match &self.slots[place as usize].packet {
            Some(packet) => packet,
            None => unreachable!("places are taken from queues, which have packets"),
        }
    }

    /// Take a packet out of the pool.
    #[inline]
    pub(crate) fn remove(&mut self, place: Place) -> Packet<P> {
        let slot = &mut self.slots[place as usize];
        slot.next = self.free;
        self.free = place;
        match slot.packet.take() {
            Some(packet) => packet,
            None => unreachable!("places are taken from queues, which have packets"),
        }
    }

    /// Append a packet to a queue, at a time not before that of the last one.
    #[inline]
    pub(crate) fn append(&mut self, queue: &mut Queue, place: Place, at: Instant) {
        let slot = &mut self.slots[place as usize];
        (slot.at, slot.next) = (at, NONE);
        if queue.first == NONE {
            (queue.first, queue.next) = (place, at);
        } else {
            self.slots[queue.last as usize].next = place;
        }
        queue.last = place;
    }

    /// Take the first packet of a queue if its time is up to and including `now`.
    #[inline]
    pub(crate) fn take_first(&self, queue: &mut Queue, now: Instant) -> Option<Place> {
        if queue.next > now || queue.first == NONE {
            return None;
        }
        let place = queue.first;
        queue.first = self.slots[place as usize].next;
        let next = self.slots.get(queue.first as usize);
        queue.next = next.map_or(Instant::NEVER, |next| next.at);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;
    use skyhop_units::Bytes;

    use super::*;

    proptest! {
        #[test]
        fn queues_do_as_lists_and_places_are_used_again(
            steps in prop::collection::vec((0_usize..3, 0_usize..3, 0_u64..5), 1..200),
        ) {
            let (mut pool, mut queues) = (Pool::new(), [Queue::EMPTY; 3]);
            let mut lists: [VecDeque<(u64, u64)>; 3] = Default::default();
            let mut most = 0;
            for (number, (from, to, later)) in (0..).zip(steps) {
                // A new packet, or the first one of another queue.
                let now = Instant::from_nanos(number);
                let moved = pool.take_first(&mut queues[from], now);
                let expected = lists[from].pop_front_if(|(at, _)| *at <= number);
                prop_assert_eq!(moved.map(|place| pool.get(place).payload), expected.map(|one| one.1));
                let last = lists[to].back().map_or(0, |(at, _)| *at);
                let at = last.max(number) + later;
                let (place, payload) = match (moved, expected) {
                    (Some(place), Some((_, payload))) if later > 0 => (place, payload),
                    (Some(place), _) => {
                        pool.remove(place);
                        continue;
                    }
                    _ => (pool.insert(Packet::new(Bytes::new(64), number)), number),
                };
                pool.append(&mut queues[to], place, Instant::from_nanos(at));
                lists[to].push_back((at, payload));
                most = most.max(lists.iter().map(VecDeque::len).sum());
                for (queue, list) in queues.iter().zip(&lists) {
                    let next = list.front().map_or(Instant::NEVER, |(at, _)| Instant::from_nanos(*at));
                    prop_assert_eq!(queue.next(), next);
                }
            }
            prop_assert!(pool.slots.len() <= most + 1);
        }
    }
}
