//! One direction of a path, put together: queue, transmitter, impairments, delay line.

use skyhop_model::{Counts, LossReason};
use std::iter::Peekable;
use std::vec::IntoIter;

use skyhop_units::{Bytes, Instant};

use crate::delay_line::DelayLine;
use crate::impairment::Impairment;
use crate::qdisc::{AnyQdisc, Limit, Qdisc, Queued};
use crate::stats::{LinkStats, Verdicts};
use crate::transmitter::Transmitter;
use crate::{Arrival, Dismantled, Drop, LinkConfig, LinkError, Packet};

/// One direction of a link. See the [crate's documentation](crate) for what it does to a packet.
///
/// `now` never decreases from call to call.
#[derive(Debug)]
pub struct Link<P> {
    now: Instant,
    /// Nothing happens inside before.
    due: Instant,
    limit: Limit,
    qdisc: AnyQdisc<P>,
    transmitter: Transmitter,
    service: Service,
    /// The packet that is being transmitted, where it will be lost.
    doomed: Option<Box<(LossReason, Packet<P>)>>,
    impairment: Impairment,
    line: DelayLine<P>,
    dismantled: Peekable<IntoIter<Dismantled>>,
    verdicts: Verdicts<P>,
    enqueued_packets: u64,
    delivered_packets: u64,
    delivered_bytes: Bytes,
    transmitted_bytes: Bytes,
}

/// What the transmitter is doing.
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

impl<P> Link<P> {
    /// A link with nothing in it, at [`Instant::START`].
    ///
    /// # Errors
    /// The schedule breaks a rule, or the queue's limit is zero or is not in packets or bytes.
    pub fn new(config: LinkConfig) -> Result<Self, LinkError> {
        let LinkConfig { schedule, qdisc, queue, seed } = config;
        schedule.validate()?;
        let limit = Limit::resolved(queue)?;
        let mut link = Self {
            now: Instant::START,
            due: Instant::NEVER,
            limit,
            qdisc: AnyQdisc::new(&qdisc, limit),
            transmitter: Transmitter::new(&schedule),
            service: Service::Idle,
            doomed: None,
            impairment: Impairment::new(&schedule, seed),
            line: DelayLine::new(schedule.delay),
            dismantled: schedule.dismantled.into_iter().peekable(),
            verdicts: Verdicts::new(),
            enqueued_packets: 0,
            delivered_packets: 0,
            delivered_bytes: Bytes::ZERO,
            transmitted_bytes: Bytes::ZERO,
        };
        link.plan_ahead();
        Ok(link)
    }

    /// Hands a packet to the link. Its wire size is not zero.
    // Inlined down to the queue, so that a packet is written where it waits.
    #[inline(always)]
    pub fn enqueue(&mut self, now: Instant, packet: Packet<P>) {
        debug_assert!(packet.wire_size > Bytes::ZERO, "a packet has at least a header");
        self.advance(now);
        self.enqueued_packets += 1;
        let queued = Queued { since: now, packet };
        if matches!(self.service, Service::Idle) && self.transmitter.is_open(now) {
            if let Some(queued) = self.qdisc.pass(queued, &mut self.verdicts) {
                self.transmit(now, queued, false);
            }
            self.plan_ahead();
        } else {
            self.qdisc.enqueue(queued, &mut self.verdicts);
            if matches!(self.service, Service::Idle) {
                self.serve_next(now, false);
                self.plan_ahead();
            }
        }
        debug_assert!(self.limit.allows(self.qdisc.backlog()), "the queue exceeds its limit");
        debug_assert!(self.is_conserved(), "a packet is lost or doubled: {:?}", self.stats());
    }

    /// The next packet that has arrived by `now`, by time of arrival and, at equal times, in the
    /// order in which they left the queue. Call it until it returns `None`.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<Arrival<P>> {
        self.advance(now);
        let arrival = self.line.pop_arrived(now)?;
        self.delivered_packets += 1;
        self.delivered_bytes += arrival.packet.wire_size;
        debug_assert!(self.is_conserved(), "a packet is lost or doubled: {:?}", self.stats());
        Some(arrival)
    }

    /// The earliest moment at which `poll` may return something if nothing more is enqueued;
    /// `None` when nothing inside will ever arrive.
    ///
    /// It is never late. It is early, and then `poll` returns nothing, where a packet turns out
    /// lost; and, by about the time of a transmission, at most once for each time that the service
    /// was interrupted with packets waiting and for each new route that may let them overtake.
    #[inline]
    pub fn next_wakeup(&self) -> Option<Instant> {
        let in_flight = self.line.next_arrival();
        let wakeup = match self.service {
            Service::Idle => in_flight,
            Service::Closed { earliest_arrival, .. } => in_flight.min(earliest_arrival),
            Service::Busy { ends, .. } if self.doomed.is_some() => in_flight.min(ends),
            Service::Busy { .. } => self.wakeup_behind(in_flight),
        };
        (wakeup != Instant::NEVER).then_some(wakeup)
    }

    /// What has happened up to the last `enqueue` or `poll`.
    #[inline]
    pub fn stats(&self) -> LinkStats {
        let backlog = self.qdisc.backlog();
        let doomed = u64::from(self.doomed.is_some());
        LinkStats {
            enqueued_packets: self.enqueued_packets,
            delivered_packets: self.delivered_packets,
            delivered_bytes: self.delivered_bytes,
            transmitted_bytes: self.transmitted_bytes,
            drops: self.verdicts.drops(),
            marks: self.verdicts.marks(),
            backlog_packets: backlog.packets,
            backlog_bytes: backlog.bytes,
            underway_packets: doomed + self.line.packets(),
        }
    }

    /// Whether there is anything that [`Self::take_drops`] or [`Self::take_marks`] would give.
    #[inline]
    pub fn has_verdicts(&self) -> bool {
        self.verdicts.are_new()
    }

    /// The packets lost since the last call, in the order of their time. They are kept until they
    /// are taken, so call it regularly.
    #[inline]
    pub fn take_drops(&mut self) -> Vec<Drop<P>> {
        self.verdicts.take_lost()
    }

    /// The flows of the packets marked since the last call, one entry per packet. Call it regularly
    /// too.
    #[inline]
    pub fn take_marks(&mut self) -> Vec<u32> {
        self.verdicts.take_marked()
    }

    /// Lets everything happen that happens up to and including `now`, in order.
    #[inline]
    fn advance(&mut self, now: Instant) {
        debug_assert!(now >= self.now, "time went back from {} to {now}", self.now);
        self.now = now;
        if now >= self.due {
            self.catch_up(now);
        }
    }

    fn catch_up(&mut self, now: Instant) {
        while let Some(hop) = self.dismantled.next_if(|hop| hop.at <= now) {
            self.serve_until(hop.at);
            self.line.dismantle(&hop, &mut self.verdicts);
        }
        self.serve_until(now);
        self.plan_ahead();
    }

    /// Works out when something happens next.
    #[inline]
    fn plan_ahead(&mut self) {
        let served = match self.service {
            Service::Idle => Instant::NEVER,
            Service::Closed { opens, .. } => opens,
            Service::Busy { ends, .. } => ends,
        };
        self.due = self.dismantled.peek().map_or(served, |hop| hop.at.min(served));
    }

    /// Ends and begins transmissions up to and including `until`.
    #[inline(always)]
    fn serve_until(&mut self, until: Instant) {
        loop {
            match self.service {
                Service::Busy { ends, wire_size } if ends <= until && ends != Instant::NEVER => {
                    self.end_transmission(ends, wire_size);
                }
                Service::Closed { opens, .. } if opens <= until && opens != Instant::NEVER => {
                    self.begin_transmission(opens, false);
                }
                _ => return,
            }
        }
    }

    #[inline]
    fn end_transmission(&mut self, ends: Instant, wire_size: Bytes) {
        self.service = Service::Idle;
        self.transmitted_bytes += wire_size;
        if let Some(doomed) = self.doomed.take() {
            let (reason, packet) = *doomed;
            self.verdicts.lose(ends, reason, packet);
        }
        self.serve_next(ends, true);
    }

    /// Serves what waits from `at` on, or as soon as the rate allows.
    #[inline]
    fn serve_next(&mut self, at: Instant, back_to_back: bool) {
        if self.qdisc.backlog().packets == 0 {
            return;
        }
        let opens = self.transmitter.opens(at);
        if opens == at {
            self.begin_transmission(at, back_to_back);
        } else {
            let earliest_arrival = self.line.earliest_arrival_from(opens);
            self.service = Service::Closed { opens, earliest_arrival };
        }
    }

    #[inline(always)]
    fn begin_transmission(&mut self, at: Instant, back_to_back: bool) {
        match self.qdisc.dequeue(at, &mut self.verdicts) {
            Some(queued) => self.transmit(at, queued, back_to_back),
            None => self.service = Service::Idle,
        }
    }

    #[inline(always)]
    fn transmit(&mut self, at: Instant, queued: Queued<P>, back_to_back: bool) {
        let wire_size = queued.packet.wire_size;
        let ends = self.transmitter.transmit(at, wire_size, back_to_back);
        self.service = Service::Busy { ends, wire_size };
        match self.impairment.takes(ends) {
            Some(reason) => self.doomed = Some(Box::new((reason, queued.packet))),
            None => self.line.enter(ends, queued),
        }
    }

    /// The wakeup, given the first arrival of a packet that has left the queue. What still waits
    /// comes later, unless a new route lets it overtake.
    #[inline]
    fn wakeup_behind(&self, first: Instant) -> Instant {
        if self.qdisc.backlog().packets == 0 {
            return first;
        }
        self.line.earliest_on_later_routes(first).map_or(first, |earliest| earliest.min(first))
    }

    fn is_conserved(&self) -> bool {
        let stats = self.stats();
        let inside = stats.backlog_packets + stats.underway_packets;
        stats.enqueued_packets == stats.delivered_packets + stats.drops.total() + inside
    }
}
