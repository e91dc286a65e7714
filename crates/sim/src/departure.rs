//! Transfer of packets from an end of a connection into the first link of their route.

use skyhop_app::Side;
use skyhop_experiment::FlowPlan;
use skyhop_link::Link;
use skyhop_tcp::{Packet, PacketSink};
use skyhop_units::Instant;

use std::cell::Cell;

use crate::flow::{InFlight, Message, RouteCursor};

/// Packet sink of one end, which enqueues packets in the first link of the route.
pub(crate) struct Departure<'n> {
    plan: &'n FlowPlan,
    cursor: &'n mut RouteCursor,
    links: &'n mut [Link<Cell<InFlight>>],
    flow: usize,
    to: Side,
    now: Instant,
    /// Number of the connection that sends.
    pub(crate) connection: u32,
    /// Component of the link that packets have entered, if any were sent.
    pub(crate) first_link: Option<usize>,
}

impl<'n> Departure<'n> {
    /// Create the sink for packets of the flow with this index to its end `to`.
    pub(crate) fn new(
        (plan, cursor, links): (&'n FlowPlan, &'n mut RouteCursor, &'n mut [Link<Cell<InFlight>>]),
        flow: usize,
        to: Side,
        now: Instant,
    ) -> Self {
        Self { plan, cursor, links, flow, to, now, connection: 0, first_link: None }
    }
}

impl PacketSink for Departure<'_> {
    #[inline(always)]
    fn send(&mut self, packet: Packet) {
        let start = self.cursor.start(self.plan, self.now);
        let (route, hops_left, link) = (start.route, start.hops_left, start.first_link(self.to));
        let (flow, connection, to) = (self.flow as u32, self.connection, self.to);
        let (tos, message) = (self.plan.dscp.tos(), Message::Tcp(packet));
        let packet = InFlight { flow, connection, route, hops_left, to, tos, message }.packet();
        self.links[link].enqueue(self.now, packet);
        self.first_link = Some(link);
    }
}
