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
#[derive(Debug, Clone)]
pub(crate) enum Message {
    Tcp(Packet),
    Probe(u64),
    Echo(u64),
}

/// A packet of a flow.
#[derive(Debug, Clone)]
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
}

impl InFlight {
    /// The same at the end of its way, with the ECN bits that the links have left it.
    pub(crate) fn arrived_with(mut self, ecn: Ecn) -> Self {
        if let Message::Tcp(packet) = &mut self.message {
            packet.set_ecn(ecn);
        }
        self
    }
}

/// A flow and its state.
pub(crate) struct Flow {
    pub(crate) plan: FlowPlan,
    pub(crate) kind: Kind,
    /// The route that it takes now, and when it takes the next one.
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
        let mut flow = Self { plan: plan.clone(), kind, route: 0, next_route_at: Instant::NEVER };
        flow.take_route(0);
        Ok(flow)
    }

    /// The direction in which packets to `side` go: 0 for from -> to.
    fn direction(&self, side: Side) -> usize {
        usize::from((self.plan.from == End::From) != (side == Side::Server))
    }

    /// A packet that sets out now, to `side`.
    pub(crate) fn packet(
        &mut self,
        index: usize,
        to: Side,
        (connection, message): (u32, Message),
        now: Instant,
    ) -> skyhop_link::Packet<InFlight> {
        while now >= self.next_route_at {
            self.take_route(self.route + 1);
        }
        let (wire_size, flow, ecn) =
            (on_the_wire(self.ip_size(&message)), index as u32, message.ecn());
        let payload = InFlight { flow, connection, route: self.route, hop: 0, to, message };
        skyhop_link::Packet { wire_size, flow, ecn, payload }
    }

    /// The size of a message's IP packet.
    fn ip_size(&self, message: &Message) -> Bytes {
        match (message, &self.kind) {
            (Message::Tcp(packet), _) => packet.ip_size(),
            (_, Kind::Probe(probe)) => probe.size + UDP_HEADERS,
            (_, Kind::Tcp(_)) => UDP_HEADERS,
        }
    }

    /// The component of the link that `packet` crosses next; `None` where all lie behind.
    pub(crate) fn next_link(&self, packet: &InFlight) -> Option<usize> {
        let links = &self.plan.routes[usize::from(packet.route)].links;
        let direction = self.direction(packet.to);
        let hop = usize::from(packet.hop);
        let link = match direction {
            0 => links.get(hop)?,
            _ => links.get(links.len().checked_sub(hop + 1)?)?,
        };
        Some(2 * usize::from(*link) + direction)
    }

    /// One of its packets was lost. TCP finds out by itself.
    pub(crate) fn lost(&mut self, message: &Message) {
        if let (Kind::Probe(probe), Message::Probe(seq) | Message::Echo(seq)) =
            (&mut self.kind, message)
        {
            probe.lost(*seq);
        }
    }

    fn take_route(&mut self, route: u16) {
        self.route = route;
        let next = self.plan.routes.get(usize::from(route) + 1);
        self.next_route_at = next.map_or(Instant::NEVER, |next| next.from);
    }
}
