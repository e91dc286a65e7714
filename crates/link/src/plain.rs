//! A plain link: first in, first out with drop-tail, and neither losses nor breaks. The fate of a packet follows from
//! its size and the time at which it enters, so that the packet itself need not go through the link.

use skyhop_model::{DuringOutage, LossReason};
use skyhop_units::{Bytes, Instant, Ratio};

use crate::qdisc::QueueDiscipline;
use crate::timeline::Timeline;
use crate::transmissions::Transmissions;
use crate::transmitter::Transmitter;
use crate::{DelayPiece, Headway, LinkConfig, LinkStats, Loss, Via};

/// One direction of a link whose fate for every packet is known when the packet enters it.
///
/// A network has thousands of links and few packets on each: this type is small, and computes exactly what
/// [`Link`](crate::Link) does with the same configuration. `now` must not decrease from call to call.
#[derive(Debug)]
pub struct PlainLink {
    transmissions: Transmissions,
    transmitter: Transmitter,
    delay: Timeline<DelayPiece>,
    /// Latest arrival so far; later packets do not arrive earlier.
    last_arrival: Instant,
    enqueued_packets: u64,
    dropped_packets: u64,
}

impl PlainLink {
    /// Create a link without packets at [`Instant::START`]; `None` if the configuration, which has to be valid, has
    /// another discipline, demand assignment, losses, breaks, or several routes.
    pub fn new(config: &LinkConfig) -> Option<Self> {
        let QueueDiscipline::Fifo(fifo) = &config.qdisc else { return None };
        let schedule = &config.schedule;
        let is_plain = fifo.decides_on_arrival()
            && schedule.dama.is_none()
            && schedule.dismantled.is_empty()
            && (schedule.outages.is_empty() || schedule.during_outage == DuringOutage::Hold)
            && schedule.loss.iter().all(|piece| piece.value == Loss::Independent(Ratio::ZERO))
            && !schedule.delay.iter().any(|piece| piece.new_route);
        is_plain.then(|| Self {
            transmissions: Transmissions::new(config),
            transmitter: Transmitter::new(schedule),
            delay: Timeline::new(schedule.delay.clone()),
            last_arrival: Instant::START,
            enqueued_packets: 0,
            dropped_packets: 0,
        })
    }

    /// Whether the link has a background load, for which it matters on which way packets come.
    #[inline]
    pub fn has_background(&self) -> bool {
        self.transmissions.has_fluid()
    }

    /// Let a packet of the size enter, and return the time of its arrival at the far end; `None` if the queue is full
    /// and the packet is lost.
    #[inline]
    pub fn enter(&mut self, now: Instant, wire_size: Bytes) -> Option<Instant> {
        let ends = self.transmit(now, wire_size, Via::NOWHERE)?;
        Some(self.arrival(ends))
    }

    /// Let a packet enter as [`Self::enter`] does, on a given way, and return its headway at the far end as well.
    #[inline]
    pub fn enter_via(
        &mut self,
        now: Instant,
        wire_size: Bytes,
        via: Via,
    ) -> Option<(Instant, Headway)> {
        let ends = self.transmit(now, wire_size, via)?;
        Some((self.arrival(ends), self.transmissions.headway(ends)))
    }

    /// End of the transmission of a packet that enters now.
    #[inline]
    fn transmit(&mut self, now: Instant, wire_size: Bytes, via: Via) -> Option<Instant> {
        self.transmissions.run_until(now);
        self.enqueued_packets += 1;
        let ends = self.transmissions.enter(now, wire_size, via, &mut self.transmitter);
        self.dropped_packets += u64::from(ends.is_none());
        ends
    }

    /// Arrival of a packet whose transmission ends at a time.
    #[inline]
    fn arrival(&mut self, ends: Instant) -> Instant {
        self.delay.seek(ends);
        let delay = self.delay.current().delay_at(ends, self.delay.until());
        self.last_arrival = self.last_arrival.max(ends + delay);
        self.last_arrival
    }

    /// Counters at `now`, of which `delivered` packets and bytes have arrived at the far end.
    pub fn stats(&mut self, now: Instant, delivered: (u64, Bytes)) -> LinkStats {
        self.transmissions.run_until(now);
        let (delivered_packets, delivered_bytes) = delivered;
        let backlog = self.transmissions.backlog();
        let mut stats = LinkStats {
            enqueued_packets: self.enqueued_packets,
            delivered_packets,
            delivered_bytes,
            transmitted_bytes: self.transmissions.ended_bytes(now),
            background_missing_bytes: self.transmissions.missing_background(now),
            backlog_packets: backlog.packets,
            backlog_bytes: backlog.bytes,
            underway_packets: self.enqueued_packets
                - self.dropped_packets
                - delivered_packets
                - backlog.packets,
            ..LinkStats::default()
        };
        stats.drops[LossReason::Queue] = self.dropped_packets;
        stats
    }
}
