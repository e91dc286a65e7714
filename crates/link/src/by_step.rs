//! A queue discipline and its transmitter, event by event: whether and when a packet arrives is decided when
//! its transmission begins.

use skyhop_model::LossReason;
use skyhop_units::{Bytes, Instant};

use crate::dama::{Dama, DamaConfig};
use crate::link_tail::{LinkTail, ScheduledLoss};
use crate::qdisc::{AnyQdisc, Backlog, Limit, Qdisc, QueueDiscipline, Queued, ReadTcp};
use crate::stats::Verdicts;

/// A queue discipline and the state of the transmitter behind it.
#[derive(Debug)]
pub(crate) struct ByStep<P> {
    factory: QdiscFactory<P>,
    qdisc: AnyQdisc<P>,
    service: ServiceState,
    /// Demand assignment of the transmitter's capacity. Boxed, as few links have it.
    dama: Option<Box<Dama>>,
    /// The packet being transmitted, if it will be lost at the end of its transmission.
    scheduled_loss: Option<Box<ScheduledLoss<P>>>,
    transmitted_bytes: Bytes,
}

/// Parameters from which the empty queue is created, also the new one of [`ByStep::empty`].
#[derive(Debug)]
pub(crate) struct QdiscFactory<P> {
    pub(crate) qdisc: QueueDiscipline,
    pub(crate) limit: Limit,
    pub(crate) seed: u64,
    /// Reader of TCP headers for disciplines that inspect them, if payloads have any.
    pub(crate) read_tcp: Option<ReadTcp<P>>,
}

impl<P> QdiscFactory<P> {
    fn make(&self) -> AnyQdisc<P> {
        let mut qdisc = AnyQdisc::new(&self.qdisc, self.limit, self.seed);
        if let Some(read_tcp) = self.read_tcp {
            qdisc.read_tcp_with(read_tcp);
        }
        qdisc
    }
}

#[derive(Debug, Clone, Copy)]
enum ServiceState {
    /// No packet waits or is being transmitted.
    Idle,
    /// Packets wait for the rate to become positive at `opens`.
    Closed { opens: Instant, earliest_arrival: Instant },
    /// Packets wait because the discipline or demand assignment holds them back until `until`; with a discipline, a
    /// packet that arrives now may go at once.
    Held { until: Instant, earliest_arrival: Instant },
    /// A packet is being transmitted. As the schedule is known, it is decided whether the packet arrives: the
    /// packet is already in the delay line, or it is the `scheduled_loss`.
    Busy { ends: Instant, wire_size: Bytes },
}

impl<P> ByStep<P> {
    pub(crate) fn new(factory: QdiscFactory<P>, dama: Option<DamaConfig>) -> Self {
        Self {
            qdisc: factory.make(),
            factory,
            service: ServiceState::Idle,
            dama: dama.map(|config| Box::new(Dama::new(config))),
            scheduled_loss: None,
            transmitted_bytes: Bytes::ZERO,
        }
    }

    /// Let the queue read TCP headers; call it while the queue is empty.
    pub(crate) fn read_tcp_with(&mut self, read_tcp: ReadTcp<P>) {
        self.factory.read_tcp = Some(read_tcp);
        self.qdisc = self.factory.make();
    }

    /// Drop all waiting packets at `now`, after [`Self::run_until`] for `now`, and start with a new queue:
    /// Linux's qdisc is reset when its device is taken down.
    #[cold]
    pub(crate) fn empty(&mut self, now: Instant, verdicts: &mut Verdicts<P>) {
        let mut old = std::mem::replace(&mut self.qdisc, self.factory.make());
        let mut lost = Verdicts::new();
        let mut at = now;
        while old.backlog().packets > 0 && at != Instant::NEVER {
            match old.dequeue(at, &mut lost) {
                Some(queued) => verdicts.lose(now, LossReason::Dismantled, queued.packet),
                // The discipline holds its packets back.
                None => at = old.ready(),
            }
        }
        for drop in lost.take_lost() {
            verdicts.lose(now, LossReason::Dismantled, drop.packet);
        }
        debug_assert!(old.backlog().packets == 0, "something is left in a queue that is gone");
        if !matches!(self.service, ServiceState::Busy { .. }) {
            self.service = ServiceState::Idle;
        }
    }

    /// Enqueue a packet that arrives now; [`Self::run_until`] has been called for now.
    #[inline]
    pub(crate) fn enqueue(
        &mut self,
        queued: Queued<P>,
        tail: &mut LinkTail<P>,
        verdicts: &mut Verdicts<P>,
    ) {
        let now = queued.since;
        if let Some(dama) = &mut self.dama {
            dama.arrive(now, queued.packet.wire_size, self.qdisc.backlog().bytes);
        }
        self.qdisc.enqueue(queued, verdicts);
        if matches!(self.service, ServiceState::Idle | ServiceState::Held { .. }) {
            self.serve_next(now, false, tail, verdicts);
        }
    }

    /// Process the ends and beginnings of transmissions up to and including `until`.
    #[inline]
    pub(crate) fn run_until(
        &mut self,
        until: Instant,
        tail: &mut LinkTail<P>,
        verdicts: &mut Verdicts<P>,
    ) {
        loop {
            match self.service {
                ServiceState::Busy { ends, wire_size }
                    if ends <= until && ends != Instant::NEVER =>
                {
                    self.end_transmission(ends, wire_size, tail, verdicts);
                }
                ServiceState::Closed { opens, .. } if opens <= until && opens != Instant::NEVER => {
                    self.begin_transmission(opens, false, tail, verdicts);
                }
                ServiceState::Held { until: ready, .. }
                    if ready <= until && ready != Instant::NEVER =>
                {
                    self.serve_next(ready, false, tail, verdicts);
                }
                _ => return,
            }
        }
    }

    /// Time of the next event of [`Self::run_until`]; [`Instant::NEVER`] while there is none.
    #[inline]
    pub(crate) fn next(&self) -> Instant {
        match self.service {
            ServiceState::Idle => Instant::NEVER,
            ServiceState::Closed { opens, .. } => opens,
            ServiceState::Held { until, .. } => until,
            ServiceState::Busy { ends, .. } => ends,
        }
    }

    /// Time for [`Link::next_wakeup`](crate::Link::next_wakeup); [`Instant::NEVER`] while there is none.
    #[inline]
    pub(crate) fn wakeup(&self, tail: &LinkTail<P>) -> Instant {
        let in_flight = tail.line.next_arrival();
        match self.service {
            ServiceState::Idle => in_flight,
            ServiceState::Closed { earliest_arrival, .. }
            | ServiceState::Held { earliest_arrival, .. } => in_flight.min(earliest_arrival),
            ServiceState::Busy { ends, .. } if self.scheduled_loss.is_some() => in_flight.min(ends),
            ServiceState::Busy { .. } => self.wakeup_behind(in_flight, tail),
        }
    }

    /// Wakeup time, given the first arrival of a packet that has left the queue. Packets that still wait arrive
    /// later, unless a new route lets them overtake.
    #[inline]
    fn wakeup_behind(&self, first: Instant, tail: &LinkTail<P>) -> Instant {
        if self.qdisc.backlog().packets == 0 {
            return first;
        }
        tail.line.earliest_on_later_routes(first).map_or(first, |earliest| earliest.min(first))
    }

    #[inline]
    fn end_transmission(
        &mut self,
        ends: Instant,
        wire_size: Bytes,
        tail: &mut LinkTail<P>,
        verdicts: &mut Verdicts<P>,
    ) {
        self.service = ServiceState::Idle;
        self.transmitted_bytes += wire_size;
        if let Some(loss) = self.scheduled_loss.take() {
            let ScheduledLoss { at, reason, packet } = *loss;
            verdicts.lose(at, reason, packet);
        }
        self.serve_next(ends, true, tail, verdicts);
    }

    /// Begin the next transmission at `at`, or as soon as the rate becomes positive.
    #[inline]
    fn serve_next(
        &mut self,
        at: Instant,
        back_to_back: bool,
        tail: &mut LinkTail<P>,
        verdicts: &mut Verdicts<P>,
    ) {
        if self.qdisc.backlog().packets == 0 {
            self.become_idle(at);
            return;
        }
        let opens = tail.earliest_start(at);
        if opens == at {
            self.begin_transmission(at, back_to_back, tail, verdicts);
        } else {
            let earliest_arrival = tail.line.earliest_arrival_from(opens);
            self.service = ServiceState::Closed { opens, earliest_arrival };
        }
    }

    /// Become idle: no packet waits from `at` on.
    #[inline]
    fn become_idle(&mut self, at: Instant) {
        self.service = ServiceState::Idle;
        self.qdisc.on_idle(at);
    }

    #[inline]
    fn begin_transmission(
        &mut self,
        at: Instant,
        back_to_back: bool,
        tail: &mut LinkTail<P>,
        verdicts: &mut Verdicts<P>,
    ) {
        if let Some(dama) = &mut self.dama {
            let opens = dama.opens(at, self.qdisc.backlog().bytes);
            if opens > at {
                self.hold(opens, tail);
                return;
            }
        }
        let Some(queued) = self.qdisc.dequeue(at, verdicts) else {
            if self.qdisc.backlog().packets == 0 {
                self.become_idle(at);
            } else {
                let until = self.qdisc.ready();
                debug_assert!(until > at, "what is ready is served");
                self.hold(until, tail);
            }
            return;
        };
        let wire_size = queued.packet.wire_size;
        if let Some(dama) = &mut self.dama {
            dama.leave(wire_size);
        }
        let ends = tail.transmit(at, wire_size, back_to_back);
        self.service = ServiceState::Busy { ends, wire_size };
        self.scheduled_loss = tail.send(ends, queued);
    }

    /// Let the waiting packets wait until `until`.
    #[inline]
    fn hold(&mut self, until: Instant, tail: &LinkTail<P>) {
        let earliest_arrival = tail.line.earliest_arrival_from(until);
        self.service = ServiceState::Held { until, earliest_arrival };
    }

    #[inline]
    pub(crate) fn backlog(&self) -> Backlog {
        self.qdisc.backlog()
    }

    /// Packets that are being transmitted or are in the delay line.
    pub(crate) fn underway_packets(&self, in_line: u64) -> u64 {
        in_line + u64::from(self.scheduled_loss.is_some())
    }

    pub(crate) fn transmitted_bytes(&self) -> Bytes {
        self.transmitted_bytes
    }
}
