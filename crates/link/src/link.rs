//! One direction of a path: queue, transmitter, losses, delay line.

use std::iter::Peekable;
use std::vec::IntoIter;

use skyhop_model::Counts;
use skyhop_units::{Bytes, Instant};

use crate::by_step::{ByStep, QdiscFactory};
use crate::link_tail::LinkTail;
use crate::on_arrival::OnArrival;
use crate::qdisc::{Limit, QueueDiscipline, Queued};
use crate::stats::{LinkStats, Verdicts};
use crate::{Arrival, CarriesTcp, Dismantled, Drop, LinkConfig, LinkError, Packet, Via};

/// One direction of a link. See the [crate's documentation](crate) for how it treats a packet.
///
/// `now` must not decrease from call to call.
#[derive(Debug)]
pub struct Link<P> {
    now: Instant,
    /// Earliest time at which internal state changes; `advance` does nothing before.
    due: Instant,
    limit: Limit,
    queue: QueueModel<P>,
    tail: LinkTail<P>,
    dismantled: Peekable<IntoIter<Dismantled>>,
    verdicts: Verdicts<P>,
    enqueued_packets: u64,
    delivered_packets: u64,
    delivered_bytes: Bytes,
}

/// The queue, in one of two models: whether and when a packet arrives at the far end is decided when the packet
/// enters the queue, or when its transmission begins.
#[derive(Debug)]
enum QueueModel<P> {
    OnArrival(OnArrival<P>),
    /// Boxed, because it has room for the state of the largest discipline.
    ByStep(Box<ByStep<P>>),
}

impl<P> Link<P> {
    /// Create a link with no packets in it, at [`Instant::START`].
    ///
    /// # Errors
    /// The schedule breaks a rule, or the queue's limit is zero.
    pub fn new(config: LinkConfig) -> Result<Self, LinkError> {
        let limit = config.queue;
        if matches!(limit, Limit::Packets(0) | Limit::Bytes(Bytes::ZERO)) {
            return Err(LinkError::NoQueue);
        }
        config.qdisc.check()?;
        config.schedule.dama.map_or(Ok(()), |dama| dama.check())?;
        let queue = match &config.qdisc {
            // Computed arrivals cannot be undone, so a fifo whose queue may be dismantled is run step by step.
            // What demand assignment grants depends on later packets.
            QueueDiscipline::Fifo(fifo)
                if fifo.decides_on_arrival()
                    && config.schedule.dama.is_none()
                    && config.schedule.dismantled.iter().all(|hop| !hop.queue) =>
            {
                config.schedule.validate()?;
                QueueModel::OnArrival(OnArrival::new(&config))
            }
            qdisc => {
                let factory =
                    QdiscFactory { qdisc: qdisc.clone(), limit, seed: config.seed, read_tcp: None };
                QueueModel::ByStep(Box::new(ByStep::new(factory, config.schedule.dama)))
            }
        };
        Self::with_queue(config, limit, queue)
    }

    fn with_queue(
        config: LinkConfig,
        limit: Limit,
        queue: QueueModel<P>,
    ) -> Result<Self, LinkError> {
        let LinkConfig { mut schedule, seed, .. } = config;
        schedule.validate()?;
        if let (QueueModel::ByStep(_), Some(background)) = (&queue, &schedule.background) {
            schedule.rate = background.rest_of(schedule.rate[0].value);
        }
        let mut link = Self {
            now: Instant::START,
            due: Instant::NEVER,
            limit,
            queue,
            tail: LinkTail::new(&schedule, seed),
            dismantled: schedule.dismantled.into_iter().peekable(),
            verdicts: Verdicts::new(),
            enqueued_packets: 0,
            delivered_packets: 0,
            delivered_bytes: Bytes::ZERO,
        };
        link.plan_ahead();
        Ok(link)
    }

    /// Let the queue read TCP headers, which `cake`'s ack_filter needs. Call it before the first packet.
    #[must_use]
    pub fn reading_tcp(mut self) -> Self
    where
        P: CarriesTcp,
    {
        debug_assert_eq!(self.enqueued_packets, 0, "what is in the queue would be lost");
        if let QueueModel::ByStep(queue) = &mut self.queue {
            queue.read_tcp_with(P::tcp);
        }
        self
    }

    /// Hand a packet to the link. Its wire size must not be zero.
    // Inlined down to the queue, so that a packet is written only once, to its place in the queue.
    #[inline(always)]
    pub fn enqueue(&mut self, now: Instant, packet: Packet<P>) {
        self.enqueue_via(now, packet, Via::NOWHERE);
    }

    /// Hand a packet to the link as [`Self::enqueue`] does, on a given way: it matters for a background load.
    #[inline(always)]
    pub fn enqueue_via(&mut self, now: Instant, packet: Packet<P>, via: Via) {
        debug_assert!(packet.wire_size > Bytes::ZERO, "a packet has at least a header");
        self.advance(now);
        self.enqueued_packets += 1;
        let queued = Queued { since: now, packet };
        match &mut self.queue {
            QueueModel::OnArrival(queue) => {
                queue.enqueue(queued, via, &mut self.tail, &mut self.verdicts);
            }
            QueueModel::ByStep(queue) => {
                queue.enqueue(queued, &mut self.tail, &mut self.verdicts);
            }
        }
        self.plan_ahead();
        debug_assert!(self.is_within_limit(), "the queue exceeds its limit");
        debug_assert!(self.is_conserved(), "a packet is lost or doubled: {:?}", self.stats());
    }

    /// Return the next packet that has arrived by `now`, by time of arrival and, at equal times, in the order
    /// in which they left the queue. Call this method until it returns `None`.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<Arrival<P>> {
        self.advance(now);
        self.pop_arrived(now)
    }

    /// Return the next packet whose arrival is certain, even if it lies in the future; call this method until it
    /// returns `None`, after each `enqueue` and at [`Self::next_change`]. It replaces `poll` where the far end keeps
    /// the packets until they arrive; the counters count a packet as delivered when it is returned.
    ///
    /// Packets are returned in the order of their arrivals, on links without new routes.
    #[inline]
    pub fn poll_ahead(&mut self, now: Instant) -> Option<Arrival<P>> {
        self.advance(now);
        // A packet that is in flight when a hop is dismantled may be on that hop.
        let certain = self.dismantled.peek().map_or(Instant::NEVER, |hop| hop.at);
        self.pop_arrived(certain)
    }

    #[inline]
    fn pop_arrived(&mut self, by: Instant) -> Option<Arrival<P>> {
        let arrival = self.tail.line.pop_arrived(by)?;
        self.delivered_packets += 1;
        self.delivered_bytes += arrival.packet.wire_size;
        debug_assert!(self.is_conserved(), "a packet is lost or doubled: {:?}", self.stats());
        Some(arrival)
    }

    /// Earliest time at which `poll_ahead` may return a packet, or a loss may be recorded, if no more packets are
    /// enqueued; `None` if there is no such time.
    #[inline]
    pub fn next_change(&self) -> Option<Instant> {
        (self.due != Instant::NEVER).then_some(self.due)
    }

    /// Earliest time at which `poll` may return a packet if no more packets are enqueued; `None` if no packet
    /// inside the link will ever arrive.
    ///
    /// The time is never too late. It can be too early, and then `poll` returns nothing, in two cases:
    ///
    /// - A packet turns out to be lost.
    /// - The discipline decides about a packet when its transmission begins, and the queue was interrupted while
    ///   packets waited (by rate zero or by a discipline that holds packets back), or a new route may let
    ///   packets overtake. The time is then too early by about the duration of a transmission, at most once for
    ///   each interruption and each new route.
    #[inline]
    pub fn next_wakeup(&self) -> Option<Instant> {
        let wakeup = match &self.queue {
            QueueModel::OnArrival(queue) => queue.next_loss().min(self.tail.line.next_arrival()),
            QueueModel::ByStep(queue) => queue.wakeup(&self.tail),
        };
        (wakeup != Instant::NEVER).then_some(wakeup)
    }

    /// Counters up to the last `enqueue` or `poll`.
    #[inline]
    pub fn stats(&self) -> LinkStats {
        let in_line = self.tail.line.packets();
        let background_missing_bytes = match &self.queue {
            QueueModel::OnArrival(queue) => queue.missing_background(self.now),
            QueueModel::ByStep(_) => Bytes::ZERO,
        };
        let (backlog, underway_packets, transmitted_bytes) = match &self.queue {
            QueueModel::OnArrival(queue) => (
                queue.backlog(),
                queue.underway_packets(in_line),
                queue.transmitted_bytes(self.now),
            ),
            QueueModel::ByStep(queue) => {
                (queue.backlog(), queue.underway_packets(in_line), queue.transmitted_bytes())
            }
        };
        LinkStats {
            enqueued_packets: self.enqueued_packets,
            delivered_packets: self.delivered_packets,
            delivered_bytes: self.delivered_bytes,
            transmitted_bytes,
            background_bytes: Bytes::ZERO,
            background_missing_bytes,
            drops: self.verdicts.drops(),
            marks: self.verdicts.marks(),
            backlog_packets: backlog.packets,
            backlog_bytes: backlog.bytes,
            underway_packets,
        }
    }

    /// Whether [`Self::take_drops`] or [`Self::take_marks`] would return anything.
    #[inline]
    pub fn has_drops_or_marks(&self) -> bool {
        self.verdicts.has_new()
    }

    /// Return the packets lost since the last call, in the order of their time. The link keeps them until this
    /// call, so call it regularly.
    #[inline]
    pub fn take_drops(&mut self) -> Vec<Drop<P>> {
        self.verdicts.take_lost()
    }

    /// Return the flows of the packets marked since the last call, one entry per packet. Call it regularly too.
    #[inline]
    pub fn take_marks(&mut self) -> Vec<u32> {
        self.verdicts.take_marked()
    }

    /// Process all events up to and including `now`, in order.
    #[inline]
    fn advance(&mut self, now: Instant) {
        debug_assert!(now >= self.now, "time went back from {} to {now}", self.now);
        self.now = now;
        if let QueueModel::OnArrival(queue) = &mut self.queue {
            queue.run_until(now);
        }
        if now >= self.due {
            self.catch_up(now);
        }
    }

    fn catch_up(&mut self, now: Instant) {
        while let Some(hop) = self.dismantled.next_if(|hop| hop.at <= now) {
            self.serve_until(hop.at);
            if let (true, QueueModel::ByStep(queue)) = (hop.queue, &mut self.queue) {
                queue.empty(hop.at, &mut self.verdicts);
            }
            self.tail.line.dismantle(&hop, &mut self.verdicts);
        }
        self.serve_until(now);
        self.plan_ahead();
    }

    /// Set `due` to the time of the next event.
    #[inline]
    fn plan_ahead(&mut self) {
        let served = match &self.queue {
            QueueModel::OnArrival(queue) => queue.next_loss(),
            QueueModel::ByStep(queue) => queue.next(),
        };
        self.due = self.dismantled.peek().map_or(served, |hop| hop.at.min(served));
    }

    #[inline]
    fn serve_until(&mut self, until: Instant) {
        match &mut self.queue {
            QueueModel::OnArrival(queue) => queue.lose_until(until, &mut self.verdicts),
            QueueModel::ByStep(queue) => {
                queue.run_until(until, &mut self.tail, &mut self.verdicts);
            }
        }
    }

    fn is_within_limit(&self) -> bool {
        self.limit.allows(match &self.queue {
            QueueModel::OnArrival(queue) => queue.backlog(),
            QueueModel::ByStep(queue) => queue.backlog(),
        })
    }

    fn is_conserved(&self) -> bool {
        let stats = self.stats();
        let inside = stats.backlog_packets + stats.underway_packets;
        stats.enqueued_packets == stats.delivered_packets + stats.drops.total() + inside
    }
}
