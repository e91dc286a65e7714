//! A queue discipline at work: what becomes of a packet is decided when its turn comes.

use skyhop_units::{Bytes, Instant};

use crate::onward::{Doomed, Onward};
use crate::qdisc::{AnyQdisc, Backlog, Qdisc, Queued};
use crate::stats::Verdicts;

/// A queue and what the transmitter behind it is doing.
#[derive(Debug)]
pub(crate) struct ByStep<P> {
    qdisc: AnyQdisc<P>,
    service: Service,
    /// The packet that is being transmitted, where it will be lost.
    doomed: Option<Box<Doomed<P>>>,
    transmitted_bytes: Bytes,
}

#[derive(Debug, Clone, Copy)]
enum Service {
    /// Nothing waits.
    Idle,
    /// Packets wait for the rate to become positive.
    Closed { opens: Instant, earliest_arrival: Instant },
    /// A packet is being transmitted. The schedule being known, so is what becomes of it: it is in the delay line
    /// already, or doomed.
    Busy { ends: Instant, wire_size: Bytes },
}

impl<P> ByStep<P> {
    pub(crate) fn new(qdisc: AnyQdisc<P>) -> Self {
        Self { qdisc, service: Service::Idle, doomed: None, transmitted_bytes: Bytes::ZERO }
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
        if matches!(self.service, Service::Idle) {
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
            Service::Busy { ends, .. } => ends,
        }
    }

    /// [`Link::next_wakeup`](crate::Link::next_wakeup), [`Instant::NEVER`] where there is none.
    #[inline]
    pub(crate) fn wakeup(&self, onward: &Onward<P>) -> Instant {
        let in_flight = onward.line.next_arrival();
        match self.service {
            Service::Idle => in_flight,
            Service::Closed { earliest_arrival, .. } => in_flight.min(earliest_arrival),
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

    #[inline]
    fn begin_transmission(
        &mut self,
        at: Instant,
        back_to_back: bool,
        onward: &mut Onward<P>,
        verdicts: &mut Verdicts<P>,
    ) {
        let Some(queued) = self.qdisc.dequeue(at, verdicts) else {
            self.service = Service::Idle;
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
