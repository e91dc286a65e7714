//! Devices: queue and transmitter through which packets leave a node.

use skyhop_link::{Drop, Headway, Link, LinkConfig, LinkError, LinkStats, Packet, PlainLink, Via};
use skyhop_model::{Counts, LossReason};
use skyhop_units::{Bytes, Instant};

use crate::network::Lost;
use crate::queue::Queue;
use crate::transfer::Routed;

/// Link behind a device: one that needs no events of its own if its configuration allows that.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all links are plain ones, which are near when not boxed"
)]
pub(crate) enum Egress<P> {
    Plain(PlainLink),
    /// Link with losses, breaks or another discipline.
    General(Box<Link<P>>),
}

impl<P> Egress<P> {
    pub(crate) fn new(config: &LinkConfig) -> Result<Self, LinkError> {
        // `Link` checks the configuration.
        let link = Link::new(config.clone())?;
        let plain = PlainLink::new(config).map(Self::Plain);
        Ok(plain.unwrap_or_else(|| Self::General(Box::new(link))))
    }

    /// Counters at `now`, of which `delivered` packets and bytes have arrived at the far end.
    pub(crate) fn stats(&mut self, now: Instant, delivered: (u64, Bytes)) -> LinkStats {
        match self {
            Self::Plain(plain) => plain.stats(now, delivered),
            Self::General(link) => {
                let stats = link.stats();
                LinkStats {
                    delivered_packets: delivered.0,
                    delivered_bytes: delivered.1,
                    underway_packets: stats.enqueued_packets
                        - stats.drops.total()
                        - stats.backlog_packets
                        - delivered.0,
                    ..stats
                }
            }
        }
    }
}

/// Let a packet from a node enter a plain link; returns its arrival at the far end, or `None` if the queue is full.
#[inline]
pub(crate) fn enter<P: Routed>(
    plain: &mut PlainLink,
    now: Instant,
    from: u32,
    packet: &mut Packet<P>,
) -> Option<Instant> {
    if plain.has_background() {
        enter_shared(plain, now, from, packet)
    } else {
        plain.enter(now, packet.wire_size)
    }
}

/// Let a packet enter a plain link with a background.
#[inline(never)]
fn enter_shared<P: Routed>(
    plain: &mut PlainLink,
    now: Instant,
    from: u32,
    packet: &mut Packet<P>,
) -> Option<Instant> {
    let via = Via { from, headway: packet.payload.headway() };
    let (at, headway) = plain.enter_via(now, packet.wire_size, via)?;
    packet.payload.set_headway(headway);
    Some(at)
}

/// Let a packet from a node enter a link with events of its own.
#[inline]
pub(crate) fn enqueue<P: Routed>(
    link: &mut Link<P>,
    now: Instant,
    from: u32,
    mut packet: Packet<P>,
) {
    let via = Via { from, headway: packet.payload.headway() };
    packet.payload.set_headway(Headway::UNKNOWN);
    link.enqueue_via(now, packet, via);
}

/// Device of a node towards the ground or the sky, with its packets until their transmission ends.
pub(crate) struct AirDevice<P> {
    egress: Egress<P>,
    /// Packets of a plain link, at the ends of their transmissions.
    leaving: Queue<P>,
    left: (u64, Bytes),
}

impl<P> AirDevice<P> {
    pub(crate) fn new(config: &LinkConfig) -> Result<Self, LinkError> {
        Ok(Self { egress: Egress::new(config)?, leaving: Queue::new(), left: (0, Bytes::ZERO) })
    }

    /// Let a packet from a node enter the queue. The error is a packet that is lost because the queue of a plain link is
    /// full.
    #[inline]
    pub(crate) fn enqueue(
        &mut self,
        now: Instant,
        from: u32,
        mut packet: Packet<P>,
    ) -> Result<(), Packet<P>>
    where
        P: Routed,
    {
        match &mut self.egress {
            Egress::Plain(plain) => match enter(plain, now, from, &mut packet) {
                Some(ends) => self.leaving.push(ends, packet),
                None => return Err(packet),
            },
            Egress::General(link) => enqueue(link, now, from, packet),
        }
        Ok(())
    }

    /// Time of the next event; [`Instant::NEVER`] if there is none.
    #[inline]
    pub(crate) fn next(&self) -> Instant {
        match &self.egress {
            Egress::Plain(_) => self.leaving.next(),
            Egress::General(link) => link.next_wakeup().unwrap_or(Instant::NEVER),
        }
    }

    /// Return the next packet whose transmission has ended by `now`.
    #[inline]
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Packet<P>> {
        let packet = match &mut self.egress {
            Egress::Plain(_) => self.leaving.pop(now)?,
            Egress::General(link) => link.poll(now)?.packet,
        };
        self.left.0 += 1;
        self.left.1 += packet.wire_size;
        Some(packet)
    }

    pub(crate) fn stats(&mut self, now: Instant) -> LinkStats {
        self.egress.stats(now, self.left)
    }

    /// Record the losses of a link with events of its own.
    #[inline]
    pub(crate) fn take_losses(&mut self, device: usize, losses: &mut Losses<P>) {
        if let Egress::General(link) = &mut self.egress {
            losses.take_from(device, link);
        }
    }
}

/// Packets lost and marked since they were last taken.
pub(crate) struct Losses<P> {
    pub(crate) lost: Vec<Lost<P>>,
    /// Flow of each marked packet.
    pub(crate) marked: Vec<u32>,
}

impl<P> Losses<P> {
    pub(crate) const fn new() -> Self {
        Self { lost: Vec::new(), marked: Vec::new() }
    }

    /// Record that a packet finds the queue of a plain link full.
    #[cold]
    pub(crate) fn overflow(&mut self, device: usize, packet: Packet<P>, now: Instant) {
        self.lose(device, packet, (now, LossReason::Queue), true);
    }

    /// Record that a packet is lost outside of the link, for lack of a way or because a satellite has set.
    #[cold]
    pub(crate) fn outside(
        &mut self,
        device: usize,
        packet: Packet<P>,
        at: Instant,
        reason: LossReason,
    ) {
        self.lose(device, packet, (at, reason), false);
    }

    fn lose(
        &mut self,
        device: usize,
        packet: Packet<P>,
        (at, reason): (Instant, LossReason),
        in_link: bool,
    ) {
        let drop = Drop { at, reason, packet };
        self.lost.push(Lost { device: device as u32, drop, in_link });
    }

    /// Take over what a link has lost and marked.
    #[inline]
    pub(crate) fn take_from(&mut self, device: usize, link: &mut Link<P>) {
        if link.has_drops_or_marks() {
            let lost = |drop: Drop<P>| Lost { device: device as u32, drop, in_link: true };
            self.lost.extend(link.take_drops().into_iter().map(lost));
            self.marked.append(&mut link.take_marks());
        }
    }
}
