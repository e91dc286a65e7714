//! A queue discipline at work: what becomes of a packet is decided when its turn comes.

use skyhop_model::LossReason;
use skyhop_units::{Bytes, Instant};

use crate::onward::{Doomed, Onward};
use crate::qdisc::{AnyQdisc, Backlog, Limit, Qdisc, QueueDiscipline, Queued, ReadTcp};
use crate::stats::Verdicts;

/// A queue and what the transmitter behind it is doing.
#[derive(Debug)]
pub(crate) struct ByStep<P> {
    fresh: FreshQdisc<P>,
    qdisc: AnyQdisc<P>,
    service: Service,
    /// The packet that is being transmitted, where it will be lost.
    doomed: Option<Box<Doomed<P>>>,
    transmitted_bytes: Bytes,
}

/// What an empty queue is made from.
#[derive(Debug)]
pub(crate) struct FreshQdisc<P> {
    pub(crate) qdisc: QueueDiscipline,
    pub(crate) limit: Limit,
    pub(crate) seed: u64,
    /// How it learns what packets' TCP headers say, where it may.
    pub(crate) read_tcp: Option<ReadTcp<P>>,
}

impl<P> FreshQdisc<P> {
    fn make(&self) -> AnyQdisc<P> {
        let mut qdisc = AnyQdisc::new(&self.qdisc, self.limit, self.seed);
        if let Some(read_tcp) = self.read_tcp {
            qdisc.read_tcp_with(read_tcp);
        }
        qdisc
    }
}

#[derive(Debug, Clone, Copy)]
enum Service {
    /// Nothing waits.
    Idle,
    /// Packets wait for the rate to become positive.
    Closed { opens: Instant, earliest_arrival: Instant },
    /// Packets wait because the discipline holds them back; what comes now may go at once.
    Held { until: Instant, earliest_arrival: Instant },
    /// A packet is being transmitted. The schedule being known, so is what becomes of it: it is in the delay line
    /// already, or doomed.
    Busy { ends: Instant, wire_size: Bytes },
}

impl<P> ByStep<P> {
    pub(crate) fn new(fresh: FreshQdisc<P>) -> Self {
        let (service, transmitted_bytes) = (Service::Idle, Bytes::ZERO);
        Self { qdisc: fresh.make(), fresh, service, doomed: None, transmitted_bytes }
    }

    /// Lets the queue look into TCP headers; it is empty yet.
    pub(crate) fn read_tcp_with(&mut self, read_tcp: ReadTcp<P>) {
        self.fresh.read_tcp = Some(read_tcp);
        self.qdisc = self.fresh.make();
    }

    /// Loses all that waits at `now`, until which everything has happened. The queue is as new then, as Linux's behind a
    /// device that is taken down.
    #[cold]
    pub(crate) fn empty(&mut self, now: Instant, verdicts: &mut Verdicts<P>) {
        let mut old = std::mem::replace(&mut self.qdisc, self.fresh.make());
        let mut lost = Verdicts::new();
        let mut at = now;
        while old.backlog().packets > 0 && at != Instant::NEVER {
            match old.dequeue(at, &mut lost) {
                Some(queued) => verdicts.lose(now, LossReason::Dismantled, queued.packet),
                // Some hold packets back.
                None => at = old.ready(),
            }
        }
        for drop in lost.take_lost() {
            verdicts.lose(now, LossReason::Dismantled, drop.packet);
        }
        debug_assert!(old.backlog().packets == 0, "something is left in a queue that is gone");
        if !matches!(self.service, Service::Busy { .. }) {
            self.service = Service::Idle;
        }
    }

    /// Takes in a packet that comes now; everything until now has happened.
    #[inline]
    pub(crate) fn take(
        &mut self,
        queued: Queued<P>,
        onward: &mut Onward<P>,
        verdicts: &mut Verdicts<P>,
    ) {
        let now = queued.since;
        self.qdisc.enqueue(queued, verdicts);
        if matches!(self.service, Service::Idle | Service::Held { .. }) {
            self.serve_next(now, false, onward, verdicts);
        }
    }

    /// Ends and begins transmissions up to and including `until`.
    #[inline]
    pub(crate) fn run_until(
        &mut self,
        until: Instant,
        onward: &mut Onward<P>,
        verdicts: &mut Verdicts<P>,
    ) {
        loop {
            match self.service {
                Service::Busy { ends, wire_size } if ends <= until && ends != Instant::NEVER => {
                    self.end_transmission(ends, wire_size, onward, verdicts);
                }
                Service::Closed { opens, .. } if opens <= until && opens != Instant::NEVER => {
                    self.begin_transmission(opens, false, onward, verdicts);
                }
                Service::Held { until: ready, .. } if ready <= until && ready != Instant::NEVER => {
                    self.serve_next(ready, false, onward, verdicts);
                }
                _ => return,
            }
        }
    }

    /// When [`Self::run_until`] has something to do.
    #[inline]
    pub(crate) fn next(&self) -> Instant {
        match self.service {
            Service::Idle => Instant::NEVER,
            Service::Closed { opens, .. } => opens,
            Service::Held { until, .. } => until,
            Service::Busy { ends, .. } => ends,
        }
    }

    /// [`Link::next_wakeup`](crate::Link::next_wakeup), [`Instant::NEVER`] where there is none.
    #[inline]
    pub(crate) fn wakeup(&self, onward: &Onward<P>) -> Instant {
        let in_flight = onward.line.next_arrival();
        match self.service {
            Service::Idle => in_flight,
            Service::Closed { earliest_arrival, .. } | Service::Held { earliest_arrival, .. } => {
                in_flight.min(earliest_arrival)
            }
            Service::Busy { ends, .. } if self.doomed.is_some() => in_flight.min(ends),
            Service::Busy { .. } => self.wakeup_behind(in_flight, onward),
        }
    }

    /// The wakeup, given the first arrival of a packet that has left the queue. What still waits
    /// comes later, unless a new route lets it overtake.
    #[inline]
    fn wakeup_behind(&self, first: Instant, onward: &Onward<P>) -> Instant {
        if self.qdisc.backlog().packets == 0 {
            return first;
        }
        onward.line.earliest_on_later_routes(first).map_or(first, |earliest| earliest.min(first))
    }

    #[inline]
    fn end_transmission(
        &mut self,
        ends: Instant,
        wire_size: Bytes,
        onward: &mut Onward<P>,
        verdicts: &mut Verdicts<P>,
    ) {
        self.service = Service::Idle;
        self.transmitted_bytes += wire_size;
        if let Some(doomed) = self.doomed.take() {
            let Doomed { at, reason, packet } = *doomed;
            verdicts.lose(at, reason, packet);
        }
        self.serve_next(ends, true, onward, verdicts);
    }

    /// Serves what waits from `at` on, or as soon as the rate allows.
    #[inline]
    fn serve_next(
        &mut self,
        at: Instant,
        back_to_back: bool,
        onward: &mut Onward<P>,
        verdicts: &mut Verdicts<P>,
    ) {
        if self.qdisc.backlog().packets == 0 {
            self.rest(at);
            return;
        }
        let opens = onward.opens(at);
        if opens == at {
            self.begin_transmission(at, back_to_back, onward, verdicts);
        } else {
            let earliest_arrival = onward.line.earliest_arrival_from(opens);
            self.service = Service::Closed { opens, earliest_arrival };
        }
    }

    /// Nothing waits from `at` on.
    #[inline]
    fn rest(&mut self, at: Instant) {
        self.service = Service::Idle;
        self.qdisc.rest(at);
    }

    #[inline]
    fn begin_transmission(
        &mut self,
        at: Instant,
        back_to_back: bool,
        onward: &mut Onward<P>,
        verdicts: &mut Verdicts<P>,
    ) {
        let Some(queued) = self.qdisc.dequeue(at, verdicts) else {
            if self.qdisc.backlog().packets == 0 {
                self.rest(at);
            } else {
                let until = self.qdisc.ready();
                debug_assert!(until > at, "what is ready is served");
                let earliest_arrival = onward.line.earliest_arrival_from(until);
                self.service = Service::Held { until, earliest_arrival };
            }
            return;
        };
        let wire_size = queued.packet.wire_size;
        let ends = onward.transmit(at, wire_size, back_to_back);
        self.service = Service::Busy { ends, wire_size };
        self.doomed = onward.send(ends, queued);
    }

    #[inline]
    pub(crate) fn backlog(&self) -> Backlog {
        self.qdisc.backlog()
    }

    /// Packets that are being transmitted or are in the delay line.
    pub(crate) fn underway_packets(&self, in_line: u64) -> u64 {
        in_line + u64::from(self.doomed.is_some())
    }

    pub(crate) fn transmitted_bytes(&self) -> Bytes {
        self.transmitted_bytes
    }
}
