//! One direction of a path, put together: queue, transmitter, impairments, delay line.

use std::iter::Peekable;
use std::vec::IntoIter;

use skyhop_model::Counts;
use skyhop_units::{Bytes, Instant};

use crate::by_step::{ByStep, FreshQdisc};
use crate::on_arrival::OnArrival;
use crate::onward::Onward;
use crate::qdisc::{Limit, QueueDiscipline, Queued};
use crate::stats::{LinkStats, Verdicts};
use crate::{Arrival, CarriesTcp, Dismantled, Drop, LinkConfig, LinkError, Packet};

/// One direction of a link. See the [crate's documentation](crate) for what it does to a packet.
///
/// `now` never decreases from call to call.
#[derive(Debug)]
pub struct Link<P> {
    now: Instant,
    /// Nothing has to be seen to before.
    due: Instant,
    limit: Limit,
    service: Service<P>,
    onward: Onward<P>,
    dismantled: Peekable<IntoIter<Dismantled>>,
    verdicts: Verdicts<P>,
    enqueued_packets: u64,
    delivered_packets: u64,
    delivered_bytes: Bytes,
}

/// The queue, by when it can be known what becomes of a packet.
#[derive(Debug)]
enum Service<P> {
    OnArrival(OnArrival<P>),
    /// Boxed, as it holds whatever a discipline needs.
    ByStep(Box<ByStep<P>>),
}

impl<P> Link<P> {
    /// A link with nothing in it, at [`Instant::START`].
    ///
    /// # Errors
    /// The schedule breaks a rule, or the queue's limit is zero or is not in packets or bytes.
    pub fn new(config: LinkConfig) -> Result<Self, LinkError> {
        let limit = Limit::resolved(config.queue)?;
        config.qdisc.check()?;
        let service = match &config.qdisc {
            // What is worked out ahead cannot be undone.
            QueueDiscipline::Fifo(_) if config.schedule.dismantled.iter().all(|hop| !hop.queue) => {
                Service::OnArrival(OnArrival::new(limit))
            }
            qdisc => {
                let fresh =
                    FreshQdisc { qdisc: qdisc.clone(), limit, seed: config.seed, read_tcp: None };
                Service::ByStep(Box::new(ByStep::new(fresh)))
            }
        };
        Self::with_service(config, limit, service)
    }

    fn with_service(
        config: LinkConfig,
        limit: Limit,
        service: Service<P>,
    ) -> Result<Self, LinkError> {
        let LinkConfig { schedule, seed, .. } = config;
        schedule.validate()?;
        let mut link = Self {
            now: Instant::START,
            due: Instant::NEVER,
            limit,
            service,
            onward: Onward::new(&schedule, seed),
            dismantled: schedule.dismantled.into_iter().peekable(),
            verdicts: Verdicts::new(),
            enqueued_packets: 0,
            delivered_packets: 0,
            delivered_bytes: Bytes::ZERO,
        };
        link.plan_ahead();
        Ok(link)
    }

    /// The same link, whose queue may look into TCP headers, as some do (`cake`'s ack_filter). Nothing is in it yet.
    #[must_use]
    pub fn reading_tcp(mut self) -> Self
    where
        P: CarriesTcp,
    {
        debug_assert_eq!(self.enqueued_packets, 0, "what is in the queue would be lost");
        if let Service::ByStep(service) = &mut self.service {
            service.read_tcp_with(P::tcp);
        }
        self
    }

    /// Hands a packet to the link. Its wire size is not zero.
    // Inlined down to the queue, so that a packet is written where it waits.
    #[inline(always)]
    pub fn enqueue(&mut self, now: Instant, packet: Packet<P>) {
        debug_assert!(packet.wire_size > Bytes::ZERO, "a packet has at least a header");
        self.advance(now);
        self.enqueued_packets += 1;
        let queued = Queued { since: now, packet };
        match &mut self.service {
            Service::OnArrival(service) => {
                service.take(queued, &mut self.onward, &mut self.verdicts);
            }
            Service::ByStep(service) => {
                service.take(queued, &mut self.onward, &mut self.verdicts);
            }
        }
        self.plan_ahead();
        debug_assert!(self.is_within_limit(), "the queue exceeds its limit");
        debug_assert!(self.is_conserved(), "a packet is lost or doubled: {:?}", self.stats());
    }

    /// The next packet that has arrived by `now`, by time of arrival and, at equal times, in the
    /// order in which they left the queue. Call it until it returns `None`.
    #[inline]
    pub fn poll(&mut self, now: Instant) -> Option<Arrival<P>> {
        self.advance(now);
        let arrival = self.onward.line.pop_arrived(now)?;
        self.delivered_packets += 1;
        self.delivered_bytes += arrival.packet.wire_size;
        debug_assert!(self.is_conserved(), "a packet is lost or doubled: {:?}", self.stats());
        Some(arrival)
    }

    /// The earliest moment at which `poll` may return something if nothing more is enqueued;
    /// `None` when nothing inside will ever arrive.
    ///
    /// It is never late. It is early, and then `poll` returns nothing, where a packet turns out
    /// lost; and, with a discipline that decides when a packet's turn comes, by about the time of a
    /// transmission, at most once for each time that the service was interrupted with packets
    /// waiting, by the rate or by a discipline that holds them back, and for each new route that may
    /// let them overtake.
    #[inline]
    pub fn next_wakeup(&self) -> Option<Instant> {
        let wakeup = match &self.service {
            Service::OnArrival(service) => service.next_loss().min(self.onward.line.next_arrival()),
            Service::ByStep(service) => service.wakeup(&self.onward),
        };
        (wakeup != Instant::NEVER).then_some(wakeup)
    }

    /// What has happened up to the last `enqueue` or `poll`.
    #[inline]
    pub fn stats(&self) -> LinkStats {
        let in_line = self.onward.line.packets();
        let (backlog, underway_packets, transmitted_bytes) = match &self.service {
            Service::OnArrival(service) => (
                service.backlog(),
                service.underway_packets(in_line),
                service.transmitted_bytes(self.now),
            ),
            Service::ByStep(service) => {
                (service.backlog(), service.underway_packets(in_line), service.transmitted_bytes())
            }
        };
        LinkStats {
            enqueued_packets: self.enqueued_packets,
            delivered_packets: self.delivered_packets,
            delivered_bytes: self.delivered_bytes,
            transmitted_bytes,
            drops: self.verdicts.drops(),
            marks: self.verdicts.marks(),
            backlog_packets: backlog.packets,
            backlog_bytes: backlog.bytes,
            underway_packets,
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
        if let Service::OnArrival(service) = &mut self.service {
            service.run_until(now);
        }
        if now >= self.due {
            self.catch_up(now);
        }
    }

    fn catch_up(&mut self, now: Instant) {
        while let Some(hop) = self.dismantled.next_if(|hop| hop.at <= now) {
            self.serve_until(hop.at);
            if let (true, Service::ByStep(service)) = (hop.queue, &mut self.service) {
                service.empty(hop.at, &mut self.verdicts);
            }
            self.onward.line.dismantle(&hop, &mut self.verdicts);
        }
        self.serve_until(now);
        self.plan_ahead();
    }

    /// Works out when something happens next.
    #[inline]
    fn plan_ahead(&mut self) {
        let served = match &self.service {
            Service::OnArrival(service) => service.next_loss(),
            Service::ByStep(service) => service.next(),
        };
        self.due = self.dismantled.peek().map_or(served, |hop| hop.at.min(served));
    }

    #[inline]
    fn serve_until(&mut self, until: Instant) {
        match &mut self.service {
            Service::OnArrival(service) => service.lose_until(until, &mut self.verdicts),
            Service::ByStep(service) => {
                service.run_until(until, &mut self.onward, &mut self.verdicts);
            }
        }
    }

    fn is_within_limit(&self) -> bool {
        self.limit.allows(match &self.service {
            Service::OnArrival(service) => service.backlog(),
            Service::ByStep(service) => service.backlog(),
        })
    }

    fn is_conserved(&self) -> bool {
        let stats = self.stats();
        let inside = stats.backlog_packets + stats.underway_packets;
        stats.enqueued_packets == stats.delivered_packets + stats.drops.total() + inside
    }
}
