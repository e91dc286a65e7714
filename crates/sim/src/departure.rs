//! Transfer of packets from an end of a connection into the first link of their route.

use skyhop_app::Side;
use skyhop_link::{Hop, Link, Routes, Step};
use skyhop_tcp::{Packet, PacketSink};
use skyhop_units::Instant;

use std::cell::Cell;

use crate::flow::{self, InFlight, Message, traffic};
use crate::tap::Tap;

/// Packet sink of one end of a flow, which is told the number of the connection that sends.
pub(crate) trait Departs: PacketSink {
    /// Note the number of the connection whose packets follow.
    fn set_connection(&mut self, number: u32);
}

/// Packet sink of one end, which enqueues packets in the first link of the route.
pub(crate) struct Departure<'n> {
    routes: &'n Routes,
    links: &'n mut [Link<Cell<InFlight>>],
    flow: usize,
    to: Side,
    /// TOS byte of the IP header without ECN bits.
    tos: u8,
    now: Instant,
    /// Number of the connection that sends.
    connection: u32,
    /// Link that packets have entered and their place behind it, if any were sent.
    pub(crate) first: Option<(usize, Hop)>,
}

impl<'n> Departure<'n> {
    /// Create the sink for packets of the flow with this index to its end `to`.
    pub(crate) fn new(
        (routes, links): (&'n Routes, &'n mut [Link<Cell<InFlight>>]),
        flow: usize,
        (to, tos): (Side, u8),
        now: Instant,
    ) -> Self {
        Self { routes, links, flow, to, tos, now, connection: 0, first: None }
    }

    /// First link of the route that packets take now, and the place behind it.
    #[inline]
    fn first_link(&self) -> (usize, Hop) {
        let mut hop = self.routes.start(traffic(self.flow, self.to), self.now);
        match self.routes.next(&mut hop) {
            Step::Link(link) => (link, hop),
            Step::End(_) => unreachable!("a route has links"),
        }
    }
}

impl Departs for Departure<'_> {
    #[inline(always)]
    fn set_connection(&mut self, number: u32) {
        self.connection = number;
    }
}

impl Departure<'_> {
    /// First link of the route, and the link's packet around this one.
    #[inline(always)]
    fn addressed(&mut self, packet: Packet) -> (usize, flow::Packet) {
        let (link, hop) = match self.first {
            Some(first) => first,
            None => *self.first.insert(self.first_link()),
        };
        let Self { connection, to, tos, .. } = *self;
        let (flow, message) = (self.flow as u32, Message::Tcp(packet));
        (link, InFlight { flow, connection, hop, to, tos, message }.packet())
    }
}

impl PacketSink for Departure<'_> {
    #[inline(always)]
    fn send(&mut self, packet: Packet) {
        let (link, packet) = self.addressed(packet);
        self.links[link].enqueue(self.now, packet);
    }
}

/// Departure whose packets are captured.
pub(crate) struct TappedDeparture<'d, 'n>(pub(crate) &'d mut Departure<'n>, pub(crate) &'d mut Tap);

impl Departs for TappedDeparture<'_, '_> {
    fn set_connection(&mut self, number: u32) {
        self.0.set_connection(number);
    }
}

impl PacketSink for TappedDeparture<'_, '_> {
    fn send(&mut self, packet: Packet) {
        let Self(departure, tap) = self;
        let (link, packet) = departure.addressed(packet);
        tap.begun(&packet);
        tap.sent(link, &packet, departure.now);
        departure.links[link].enqueue(departure.now, packet);
    }
}
