//! One flow: an application over TCP or over datagrams.

use std::cell::Cell;
use std::sync::Arc;

use skyhop_app::{Datagram, FlowFacts, Side};
use skyhop_engine::Unsupported;
use skyhop_experiment::{FlowPlan, Traffic, cc_parameters, seed_for};
use skyhop_link::{CarriesTcp, TcpFacts};
use skyhop_model::{Ecn, End, UDP_HEADERS};
use skyhop_units::{Bytes, Duration, Instant};

use crate::controllers::Controllers;
use crate::conversation::Conversation;
use crate::datagrams::Datagrams;
use crate::sampler::on_the_wire;
use crate::session::Outside;

/// What travels over the links.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Message {
    Tcp(skyhop_tcp::Packet),
    Udp(Datagram),
}

/// What the links carry. In a cell, `Option` keeps its tag out of it, so that it is moved in one piece.
pub(crate) type Packet = skyhop_link::Packet<Cell<InFlight>>;

/// A packet of a flow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    pub(crate) flow: u32,
    /// The number of the flow's connection, of TCP's packets.
    pub(crate) connection: u32,
    /// The flow's route that it takes …
    pub(crate) route: u16,
    /// … and how much of it lies ahead, of its links and the flow's own delay.
    pub(crate) ahead: u16,
    /// Which end it goes to.
    pub(crate) to: Side,
    /// Its IP header's, without ECN bits.
    pub(crate) tos: u8,
    pub(crate) message: Message,
}

impl InFlight {
    /// Its packet.
    #[inline(always)]
    pub(crate) fn packet(self) -> Packet {
        let wire_size = on_the_wire(self.message.ip_size());
        let (flow, ecn) = (self.flow, self.message.ecn());
        // Two that are 65,536 apart are not there at the same time.
        let connection = self.connection as u16;
        Packet::new(wire_size, Cell::new(self)).of(flow, ecn).with_tos(self.tos).over(connection)
    }
}

impl Message {
    /// The ECN bits of its packet.
    fn ecn(&self) -> Ecn {
        match self {
            Self::Tcp(packet) => packet.ecn(),
            Self::Udp(_) => Ecn::NotEct,
        }
    }

    /// Gives it the ECN bits that the links have left its packet.
    #[inline]
    pub(crate) fn set_ecn(&mut self, ecn: Ecn) {
        if let Self::Tcp(packet) = self {
            packet.set_ecn(ecn);
        }
    }

    /// The size of its IP packet.
    fn ip_size(&self) -> Bytes {
        match self {
            Self::Tcp(packet) => packet.ip_size(),
            Self::Udp(datagram) => datagram.size + UDP_HEADERS,
        }
    }
}

/// ECE's bit among the flags of a TCP header (RFC 3168 6.1).
const ECE: u8 = 0x40;

impl CarriesTcp for InFlight {
    fn tcp(&self) -> Option<TcpFacts> {
        let InFlight { flow, connection, to, message, .. } = self;
        let Message::Tcp(packet) = message else { return None };
        let (ack, is_pure) = packet.acknowledgement().filter(|(ack, _)| !ack.syn)?;
        let mut sacks = [None; 4];
        // Numbers count segments; that they begin again at some time is as in a header.
        let blocks = ack.sack.as_slice().iter().map(|block| [block.start as u32, block.end as u32]);
        sacks.iter_mut().zip(blocks).for_each(|(place, block)| *place = Some(block));
        Some(TcpFacts {
            connection: u64::from(*flow) << 33 | u64::from(*connection) << 1 | *to as u64,
            acknowledged: ack.cumulative as u32,
            is_pure,
            ecn_flags: if ack.ece { ECE } else { 0 },
            timestamps: (ack.tsval != 0).then_some([ack.tsval, ack.tsecr]),
            sacks,
        })
    }
}

/// A flow and its state.
pub(crate) struct Flow {
    pub(crate) plan: FlowPlan,
    pub(crate) kind: Kind,
    pub(crate) way: Way,
}

/// The route that a flow takes now, and when it takes the next one.
pub(crate) struct Way {
    start: Start,
    next_route_at: Instant,
}

/// How packets set out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    pub(crate) route: u16,
    /// How much lies ahead of them.
    pub(crate) ahead: u16,
    /// The components of the links that they cross first, by the [`Side`] that they go to.
    first_links: [usize; 2],
}

pub(crate) enum Kind {
    Tcp(Box<Conversation>),
    Udp(Datagrams),
}

impl Flow {
    /// One whose congestion controls draw from `seed`, in a run with `run_seed`.
    pub(crate) fn new(
        plan: &FlowPlan,
        (seed, run_seed): (u64, u64),
        outside: Option<&Arc<dyn Outside>>,
    ) -> Result<Self, Unsupported> {
        let app_seed = seed_for(run_seed, &format!("app {}", plan.id));
        let facts = FlowFacts { seed: app_seed, start: plan.start, stop: plan.stop };
        let kind = match &plan.traffic {
            Traffic::Tcp { cc, app, options, parameters } => {
                let parameters = cc_parameters(cc, parameters);
                let clock = (options.profile, options.hz);
                let outside = outside.map(Arc::clone);
                let controllers = Controllers::new(plan.id, cc, parameters, clock, seed, outside)?;
                Kind::Tcp(Box::new(Conversation::new(app, *options, controllers, facts)))
            }
            Traffic::Udp { app } => Kind::Udp(Datagrams::new(app, &facts)),
        };
        Ok(Self { plan: plan.clone(), kind, way: Way::new(plan) })
    }

    /// One of its packets was lost. TCP finds out by itself.
    pub(crate) fn lost(&mut self, packet: &InFlight) {
        if let (Kind::Udp(datagrams), Message::Udp(lost)) = (&mut self.kind, &packet.message) {
            datagrams.on_loss(packet.to.other(), *lost);
        }
    }
}

impl Way {
    fn new(plan: &FlowPlan) -> Self {
        let mut way = Self { start: Start::new(plan, 0), next_route_at: Instant::NEVER };
        way.take_route(plan, 0);
        way
    }

    /// How packets set out now.
    #[inline]
    pub(crate) fn start(&mut self, plan: &FlowPlan, now: Instant) -> &Start {
        while now >= self.next_route_at {
            self.take_route(plan, self.start.route + 1);
        }
        &self.start
    }

    fn take_route(&mut self, plan: &FlowPlan, route: u16) {
        self.start = Start::new(plan, route);
        let next = plan.routes.get(usize::from(route) + 1);
        self.next_route_at = next.map_or(Instant::NEVER, |next| next.from);
    }
}

impl Start {
    fn new(plan: &FlowPlan, route: u16) -> Self {
        let ahead = length(plan, route);
        let first = |to| next_link(plan, (route, ahead), to).expect("a route has links");
        Self { route, ahead, first_links: [Side::Client, Side::Server].map(first) }
    }

    /// The component of the link that a packet to `to` crosses first.
    #[inline]
    pub(crate) fn first_link(&self, to: Side) -> usize {
        self.first_links[to as usize]
    }
}

/// How much a packet crosses on a flow's route: its links, and the flow's own delay where it has one.
fn length(plan: &FlowPlan, route: u16) -> u16 {
    let links = plan.routes[usize::from(route)].links.len() as u16;
    links + u16::from(plan.extra_rtt > Duration::ZERO)
}

/// The direction in which a flow's packets to `side` go: 0 for from -> to.
fn direction(plan: &FlowPlan, side: Side) -> usize {
    usize::from((plan.from == End::From) != (side == Side::Server))
}

/// The component of the link that a packet to `to` crosses next on this route, with so much of it ahead; `None` where
/// that is no link.
#[inline]
pub(crate) fn next_link(plan: &FlowPlan, (route, ahead): (u16, u16), to: Side) -> Option<usize> {
    let links = &plan.routes[usize::from(route)].links;
    let behind = usize::from(length(plan, route) - ahead);
    let direction = direction(plan, to);
    let link = match direction {
        0 => links.get(behind)?,
        _ => links.get(links.len().checked_sub(behind + 1)?)?,
    };
    Some(2 * usize::from(*link) + direction)
}
