//! Several links of one direction, and routes over them: the network between two ends.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use skyhop_units::{Duration, Instant};

use crate::{Arrival, CarriesTcp, Drop, Hop, Link, LinkConfig, LinkError, LinkStats, Packet};
use crate::{Routes, Step, TcpFacts};

/// Links with routes over them, driven as one [`Link`] is: `enqueue`, `poll`, `next_wakeup`.
///
/// A packet enters its next link at the time of its arrival from the last one, even if it is polled late.
/// `now` must not decrease from call to call.
#[derive(Debug)]
pub struct Fabric<P> {
    links: Vec<Link<RoutedPayload<P>>>,
    /// Routes of packets, by flow.
    routes: Routes,
    /// Packets behind the last link of their route, by time of delivery.
    pending: BinaryHeap<PendingDelivery<P>>,
    /// Number of packets that have ever passed the last link of their route.
    passed_packets: u64,
    /// Index of the link whose arrivals are recorded in `transits`.
    watched: Option<usize>,
    /// Arrivals at the end of the watched link since the last [`Fabric::take_transits`]: time, and how long the
    /// packet was on that link.
    transits: Vec<(Instant, Duration)>,
}

/// Payload of a packet in the fabric, with its route and its progress on the route.
#[derive(Debug)]
struct RoutedPayload<P> {
    hop: Hop,
    entered: Instant,
    payload: P,
}

impl<P: CarriesTcp> CarriesTcp for RoutedPayload<P> {
    fn tcp(&self) -> Option<TcpFacts> {
        self.payload.tcp()
    }
}

/// A packet that has passed the last link of its route and waits for its delivery. The packet with the earliest
/// delivery compares as the greatest, because `BinaryHeap` pops the greatest.
#[derive(Debug)]
struct PendingDelivery<P> {
    at: Instant,
    /// Sequence number: packets of equal time are delivered in the order in which they passed their last link.
    number: u64,
    entered: Instant,
    packet: Packet<P>,
}

impl<P: CarriesTcp> Fabric<P> {
    /// Create links with no packets in them, and the routes of each flow over them; arrivals at the end of the link `watched`
    /// are recorded.
    ///
    /// # Errors
    /// A link cannot be built.
    pub fn new(
        links: impl IntoIterator<Item = LinkConfig>,
        routes: Routes,
        watched: Option<usize>,
    ) -> Result<Self, LinkError> {
        let link = |config| Link::new(config).map(Link::reading_tcp);
        Ok(Self {
            links: links.into_iter().map(link).collect::<Result<_, _>>()?,
            routes,
            pending: BinaryHeap::new(),
            passed_packets: 0,
            watched,
            transits: Vec::new(),
        })
    }
}

impl<P> Fabric<P> {
    /// Hand a packet to the first link of the route that its flow takes now.
    pub fn enqueue(&mut self, now: Instant, packet: Packet<P>) {
        self.advance(now);
        let hop = self.routes.start(packet.flow as usize, now);
        self.pass_on(now, packet.map(|payload| RoutedPayload { hop, entered: now, payload }));
    }

    /// Return the next packet that has reached the end of its route by `now`, in the order of time. Call this
    /// method until it returns `None`.
    pub fn poll(&mut self, now: Instant) -> Option<Arrival<P>> {
        self.advance(now);
        self.pending.peek().filter(|first| first.at <= now)?;
        let PendingDelivery { at, entered, packet, .. } = self.pending.pop()?;
        Some(Arrival { at, sent: entered, packet })
    }

    /// Earliest time at which a packet may arrive at the end of a link or of its route, if no more packets are
    /// enqueued; `None` if none will.
    pub fn next_wakeup(&self) -> Option<Instant> {
        let pending = self.pending.peek().map(|first| first.at);
        self.next_link().map(|(at, _)| at).into_iter().chain(pending).min()
    }

    /// Counters of each link up to the last call.
    pub fn stats(&self) -> impl Iterator<Item = LinkStats> + '_ {
        self.links.iter().map(Link::stats)
    }

    /// Number of packets that are behind the last link of their route and have not been polled.
    pub fn pending_packets(&self) -> u64 {
        self.pending.len() as u64
    }

    /// Return the packets lost since the last call, with the index of the link that lost each.
    pub fn take_drops(&mut self) -> Vec<(usize, Drop<P>)> {
        let mut drops = Vec::new();
        for (place, link) in self.links.iter_mut().enumerate() {
            drops.extend(link.take_drops().into_iter().map(|Drop { at, reason, packet }| {
                (place, Drop { at, reason, packet: packet.map(|routed| routed.payload) })
            }));
        }
        drops
    }

    /// Return the flows of the packets marked since the last call, one entry per packet.
    pub fn take_marks(&mut self) -> Vec<u32> {
        self.links.iter_mut().flat_map(Link::take_marks).collect()
    }

    /// Return the arrivals at the end of the watched link since the last call: time of each, and how long the
    /// packet was on that link.
    pub fn take_transits(&mut self) -> Vec<(Instant, Duration)> {
        std::mem::take(&mut self.transits)
    }

    /// Move packets from link to link until `now`, in the order of time.
    fn advance(&mut self, now: Instant) {
        while let Some((at, place)) = self.next_link().filter(|(at, _)| *at <= now) {
            while let Some(arrival) = self.links[place].poll(at) {
                if self.watched == Some(place) {
                    self.transits.push((arrival.at, arrival.at.saturating_since(arrival.sent)));
                }
                self.pass_on(arrival.at, arrival.packet);
            }
        }
        // Let every link process its events until `now`, also those without an arrival, such as losses.
        for link in &mut self.links {
            let arrived = link.poll(now);
            debug_assert!(arrived.is_none(), "all that has arrived was passed on");
        }
    }

    /// Time of the next event in any link, and the index of that link.
    fn next_link(&self) -> Option<(Instant, usize)> {
        let wakeups = self.links.iter().enumerate();
        wakeups.filter_map(|(place, link)| Some((link.next_wakeup()?, place))).min()
    }

    /// Hand a packet to the next link of its route, or let it wait for its delivery behind the last one.
    fn pass_on(&mut self, at: Instant, mut packet: Packet<RoutedPayload<P>>) {
        match self.routes.next(&mut packet.payload.hop) {
            Step::Link(next) => self.links[next].enqueue(at, packet),
            Step::End(delay) => {
                self.passed_packets += 1;
                self.pending.push(PendingDelivery {
                    at: at + delay.unwrap_or_default(),
                    number: self.passed_packets,
                    entered: packet.payload.entered,
                    packet: packet.map(|routed| routed.payload),
                });
            }
        }
    }
}

impl<P> PendingDelivery<P> {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.number)
    }
}

impl<P> Ord for PendingDelivery<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<P> PartialOrd for PendingDelivery<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for PendingDelivery<P> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<P> Eq for PendingDelivery<P> {}

#[cfg(test)]
mod tests {
    use skyhop_units::{Bytes, Rate, Ratio};

    use super::*;
    use skyhop_model::Ecn;

    use crate::{Limit, LinkRoute, LinkSchedule, QueueDiscipline};

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn link(delay: Duration, mbit: u64, packets: u64) -> LinkConfig {
        let rate = Rate::from_bits_per_second(mbit * 1_000_000);
        LinkConfig {
            schedule: LinkSchedule::fixed(delay, rate, Ratio::ZERO),
            qdisc: QueueDiscipline::default(),
            queue: Limit::Packets(packets),
            seed: 1,
        }
    }

    /// Packet of 1500 bytes, which takes a millisecond at 12 Mbit/s.
    fn packet(payload: u32, flow: u32) -> Packet<u32> {
        Packet::new(Bytes::new(1500), payload).with_flow(flow, Ecn::NotEct)
    }

    impl CarriesTcp for u32 {
        fn tcp(&self) -> Option<TcpFacts> {
            None
        }
    }

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1_000)
    }

    /// Routes of flows that each take the same links all the time, with a delay behind them.
    fn routes<const N: usize>(flows: [(&[usize], u64); N]) -> Routes {
        Routes::new(flows.map(|(links, delay)| {
            let route = LinkRoute { links: links.to_vec(), delay: Some(ms(delay)) };
            [(Instant::START, route)]
        }))
    }

    fn out(fabric: &mut Fabric<u32>, now: Instant) -> Vec<(u32, Instant)> {
        std::iter::from_fn(|| fabric.poll(now)).map(|a| (a.packet.payload, a.at)).collect()
    }

    #[test]
    fn one_link_is_what_the_link_alone_is() {
        let config = link(ms(20), 12, 3);
        let mut fabric = Fabric::new([config.clone()], routes([(&[0], 0)]), None).unwrap();
        let mut alone = Link::new(config).unwrap();
        for number in 0..6 {
            fabric.enqueue(at(100 * u64::from(number)), packet(number, 0));
            alone.enqueue(at(100 * u64::from(number)), packet(number, 0));
        }
        while let Some(now) = alone.next_wakeup() {
            assert_eq!(fabric.next_wakeup(), Some(now));
            let expected: Vec<_> =
                std::iter::from_fn(|| alone.poll(now)).map(|a| (a.packet.payload, a.at)).collect();
            assert_eq!(out(&mut fabric, now), expected);
        }
        assert_eq!(fabric.next_wakeup(), None);
        assert_eq!(fabric.stats().collect::<Vec<_>>(), [alone.stats()]);
        let lost: Vec<u32> =
            fabric.take_drops().into_iter().map(|(_, drop)| drop.packet.payload).collect();
        assert_eq!(lost, [4, 5]);
    }

    #[test]
    fn a_chain_adds_up_however_late_it_is_polled() {
        let links = [link(ms(5), 12, 9), link(ms(7), 12, 9)];
        let mut fabric = Fabric::new(links, routes([(&[0, 1], 3), (&[1], 0)]), Some(0)).unwrap();
        fabric.enqueue(at(0), packet(1, 0));
        fabric.enqueue(at(0), packet(2, 0));
        fabric.enqueue(at(500), packet(3, 1));
        // 1 ms on each link, then 5 + 7 + 3 ms; the third packet crosses one link: 1 ms and 7 ms.
        let expected = [(3, at(8_500)), (1, at(17_000)), (2, at(18_000))];
        assert_eq!(out(&mut fabric, at(1_000_000)), expected);
        assert_eq!(fabric.take_transits(), [(at(6_000), ms(6)), (at(7_000), ms(7))]);
    }

    #[test]
    fn flows_that_meet_on_a_link_share_it() {
        // Two links of 12 Mbit/s into one of 12 Mbit/s with room for one waiting packet.
        let links = [link(ms(1), 12, 9), link(ms(1), 12, 9), link(ms(1), 12, 1)];
        let mut fabric = Fabric::new(links, routes([(&[0, 2], 0), (&[1, 2], 0)]), None).unwrap();
        for number in 0..8 {
            fabric.enqueue(at(0), packet(number, number % 2));
        }
        let arrived = out(&mut fabric, at(1_000_000)).len();
        let stats: Vec<LinkStats> = fabric.stats().collect();
        assert_eq!(stats[2].enqueued_packets, 8);
        let lost = fabric.take_drops();
        assert!(lost.iter().all(|(place, _)| *place == 2), "only where they meet");
        assert_eq!((arrived + lost.len(), lost.len() > 1), (8, true));
    }

    #[test]
    fn packets_keep_their_route_when_it_changes() {
        let over = |link| LinkRoute { links: vec![link], delay: None };
        let changing = Routes::new([vec![(at(0), over(0)), (at(500), over(1))]]);
        let mut fabric =
            Fabric::new([link(ms(9), 12, 9), link(ms(1), 12, 9)], changing, None).unwrap();
        fabric.enqueue(at(499), packet(1, 0));
        // Packets of a flow without routes of its own take those of the last one.
        fabric.enqueue(at(500), packet(2, crate::NO_FLOW));
        assert_eq!(out(&mut fabric, at(1_000_000)), [(2, at(2_500)), (1, at(10_499))]);
    }
}
