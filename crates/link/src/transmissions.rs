//! Transmissions of a first-in, first-out queue that drops the arriving packet when it is full. The schedule is known,
//! so when a packet enters the queue, it is known when its transmission begins and ends.

use std::collections::VecDeque;

use skyhop_units::{Bytes, Instant};

use crate::fluid::Fluid;
use crate::qdisc::{Backlog, Limit};
use crate::transmitter::Transmitter;
use crate::{Headway, LinkConfig, Via};

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
    /// Time at which the transmitter becomes free: the end of the last transmission, or of the background before it.
    free: Instant,
    /// Background load. Boxed, as few links have one.
    fluid: Option<Box<Fluid>>,
}

#[derive(Debug, Clone, Copy)]
struct Transmission {
    begins: Instant,
    ends: Instant,
    wire_size: Bytes,
}

impl Transmissions {
    /// Create the queue of a link with a valid configuration.
    pub(crate) fn new(config: &LinkConfig) -> Self {
        let LinkConfig { schedule, queue: limit, seed, .. } = config;
        let fluid = schedule.background.as_ref();
        let fluid = fluid.map(|load| Box::new(Fluid::new(load, schedule.rate[0].value, *seed)));
        let (begins, ends) = (Instant::START, Instant::START);
        Self {
            limit: *limit,
            fluid,
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
        via: Via,
        transmitter: &mut Transmitter,
    ) -> Option<Instant> {
        let mut with_it = self.backlog;
        if self.fluid.is_some() {
            with_it = self.let_fluid_in(now, wire_size, via);
        }
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
            self.backlog.add(wire_size);
            self.waiting.push_back(transmission);
        } else {
            self.begin(transmission);
        }
        Some(ends)
    }

    /// Let the background that has come until now enter, and return the backlog with it.
    #[inline(never)]
    fn let_fluid_in(&mut self, now: Instant, wire_size: Bytes, via: Via) -> Backlog {
        let Some(fluid) = &mut self.fluid else { return self.backlog };
        let (sent_until, packet) = (self.begun.ends, (now, wire_size, via));
        self.free = fluid.free_after(packet, [sent_until, self.free], (self.limit, self.backlog));
        fluid.with_packets(self.backlog, now, [sent_until, self.free])
    }

    /// Whether the link has a background load.
    #[inline]
    pub(crate) fn has_fluid(&self) -> bool {
        self.fluid.is_some()
    }

    /// Headway of the packet that has entered last, whose transmission ends at a time.
    pub(crate) fn headway(&self, ends: Instant) -> Headway {
        self.fluid.as_ref().map_or(Headway::UNKNOWN, |fluid| fluid.headway(ends))
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

    /// Wire bytes of the background that found the queue full, and of that which waits at `now`, here or at the near ends
    /// of its lines.
    pub(crate) fn missing_background(&self, now: Instant) -> Bytes {
        self.fluid.as_ref().map_or(Bytes::ZERO, |fluid| {
            let all = fluid.with_packets(self.backlog, now, [self.begun.ends, self.free]);
            fluid.lost() + fluid.at_near_ends(now) + (all.bytes - self.backlog.bytes)
        })
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
