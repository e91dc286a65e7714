//! One flow: an application over TCP, or a probe and its echo.

use skyhop_app::{FlowFacts, Side};
use skyhop_engine::Unsupported;
use skyhop_experiment::{FlowPlan, Traffic, cc_parameters, seed_for};
use skyhop_model::{Ecn, End, UDP_HEADERS};
use skyhop_tcp::Packet;
use skyhop_units::{Bytes, Instant};

use crate::controllers::Controllers;
use crate::conversation::Conversation;
use crate::probe::ProbeFlow;
use crate::sampler::on_the_wire;

/// What travels over the links.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Message {
    Tcp(Packet),
    Probe(ProbePacket),
    Echo(ProbePacket),
}

/// A probe's packet, there or back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProbePacket {
    pub(crate) seq: u64,
    pub(crate) size: Bytes,
}

/// A packet of a flow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    pub(crate) flow: u32,
    /// The number of the flow's connection, of TCP's packets.
    pub(crate) connection: u32,
    /// The flow's route that it takes, and how many links of it lie behind.
    pub(crate) route: u16,
    pub(crate) hop: u16,
    /// Which end it goes to.
    pub(crate) to: Side,
    pub(crate) message: Message,
}

impl Message {
    /// The ECN bits of its packet.
    fn ecn(&self) -> Ecn {
        match self {
            Self::Tcp(packet) => packet.ecn(),
            Self::Probe(_) | Self::Echo(_) => Ecn::NotEct,
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
            Self::Probe(packet) | Self::Echo(packet) => packet.size + UDP_HEADERS,
        }
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
    route: u16,
    next_route_at: Instant,
}

pub(crate) enum Kind {
    Tcp(Box<Conversation>),
    Probe(ProbeFlow),
}

impl Flow {
    /// One whose congestion controls draw from `seed`, in a run with `run_seed`.
    pub(crate) fn new(plan: &FlowPlan, seed: u64, run_seed: u64) -> Result<Self, Unsupported> {
        let kind = match &plan.traffic {
            Traffic::Tcp { cc, app, options, parameters } => {
                let controllers =
                    Controllers::new(plan.id, cc, cc_parameters(cc, parameters), seed)?;
                let app_seed = seed_for(run_seed, &format!("app {}", plan.id));
                let facts = FlowFacts { seed: app_seed, start: plan.start, stop: plan.stop };
                Kind::Tcp(Box::new(Conversation::new(app, *options, controllers, facts)))
            }
            Traffic::Probe { interval, size } => {
                Kind::Probe(ProbeFlow::new(plan.id, *interval, *size))
            }
        };
        Ok(Self { plan: plan.clone(), kind, way: Way::new(plan) })
    }

    /// One of its packets was lost. TCP finds out by itself.
    pub(crate) fn lost(&mut self, message: &Message) {
        if let (Kind::Probe(probe), Message::Probe(packet) | Message::Echo(packet)) =
            (&mut self.kind, message)
        {
            probe.lost(packet.seq);
        }
    }
}

impl Way {
    fn new(plan: &FlowPlan) -> Self {
        let mut way = Self { route: 0, next_route_at: Instant::NEVER };
        way.take_route(plan, 0);
        way
    }

    /// A packet of the flow `index` that sets out now, to the end `to`.
    #[inline(always)]
    pub(crate) fn packet(
        &mut self,
        plan: &FlowPlan,
        index: usize,
        to: Side,
        (connection, message): (u32, Message),
        now: Instant,
    ) -> skyhop_link::Packet<InFlight> {
        while now >= self.next_route_at {
            self.take_route(plan, self.route + 1);
        }
        let wire_size = on_the_wire(message.ip_size());
        let (flow, ecn) = (index as u32, message.ecn());
        let payload = InFlight { flow, connection, route: self.route, hop: 0, to, message };
        skyhop_link::Packet { wire_size, flow, ecn, payload }
    }

    fn take_route(&mut self, plan: &FlowPlan, route: u16) {
        self.route = route;
        let next = plan.routes.get(usize::from(route) + 1);
        self.next_route_at = next.map_or(Instant::NEVER, |next| next.from);
    }
}

/// The direction in which a flow's packets to `side` go: 0 for from -> to.
fn direction(plan: &FlowPlan, side: Side) -> usize {
    usize::from((plan.from == End::From) != (side == Side::Server))
}

/// The component of the link that `packet` crosses next; `None` where all lie behind.
#[inline]
pub(crate) fn next_link(plan: &FlowPlan, packet: &InFlight) -> Option<usize> {
    let links = &plan.routes[usize::from(packet.route)].links;
    let direction = direction(plan, packet.to);
    let hop = usize::from(packet.hop);
    let link = match direction {
        0 => links.get(hop)?,
        _ => links.get(links.len().checked_sub(hop + 1)?)?,
    };
    Some(2 * usize::from(*link) + direction)
}
