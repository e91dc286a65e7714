//! From an end of a connection onto the first link of its flow's route.

use skyhop_app::Side;
use skyhop_experiment::FlowPlan;
use skyhop_link::Link;
use skyhop_tcp::{Outlet, Packet};
use skyhop_units::Instant;

use std::cell::Cell;

use crate::flow::{InFlight, Message, Way};

/// Where an end's packets go now.
pub(crate) struct Departure<'n> {
    plan: &'n FlowPlan,
    way: &'n mut Way,
    links: &'n mut [Link<Cell<InFlight>>],
    flow: usize,
    to: Side,
    now: Instant,
    /// The number of the connection that sends.
    pub(crate) connection: u32,
    /// The component of the link that they have entered.
    pub(crate) first_link: Option<usize>,
}

impl<'n> Departure<'n> {
    /// Of the packets of the flow with this index to its end `to`.
    pub(crate) fn new(
        (plan, way, links): (&'n FlowPlan, &'n mut Way, &'n mut [Link<Cell<InFlight>>]),
        flow: usize,
        to: Side,
        now: Instant,
    ) -> Self {
        Self { plan, way, links, flow, to, now, connection: 0, first_link: None }
    }
}

impl Outlet for Departure<'_> {
    #[inline(always)]
    fn send(&mut self, packet: Packet) {
        let start = self.way.start(self.plan, self.now);
        let (route, ahead, link) = (start.route, start.ahead, start.first_link(self.to));
        let (flow, connection, to) = (self.flow as u32, self.connection, self.to);
        let (tos, message) = (self.plan.dscp.tos(), Message::Tcp(packet));
        let packet = InFlight { flow, connection, route, ahead, to, tos, message }.packet();
        self.links[link].enqueue(self.now, packet);
        self.first_link = Some(link);
    }
}
