//! A flow: an application over TCP or over datagrams, and its packets.

use std::cell::Cell;
use std::sync::Arc;

use skyhop_app::{Datagram, FlowFacts, Side};
use skyhop_engine::Unsupported;
use skyhop_experiment::{FlowPlan, Traffic, cc_parameters, seed_for};
use skyhop_link::{CarriesTcp, Hop, LinkRoute, Routes, TcpFacts};
use skyhop_model::{Direction, Ecn, UDP_HEADERS};
use skyhop_units::{Bytes, Instant};

use crate::controllers::Controllers;
use crate::datagrams::Datagrams;
use crate::sampler::on_the_wire;
use crate::session::ExternalPolicy;
use crate::tcp_flow::TcpFlow;

/// Content of a packet: a TCP segment or a datagram.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Message {
    Tcp(skyhop_tcp::Packet),
    Udp(Datagram),
}

/// Packet type of the links. Because of the `Cell`, `Option` cannot store its tag in unused values of the payload, so
/// that a packet is moved in one piece.
pub(crate) type Packet = skyhop_link::Packet<Cell<InFlight>>;

/// Payload of a packet on the links: its flow, route and content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    pub(crate) flow: u32,
    /// Number of the flow's connection, for TCP packets.
    pub(crate) connection: u32,
    /// Place of the packet on its route.
    pub(crate) hop: Hop,
    /// End that the packet goes to.
    pub(crate) to: Side,
    /// TOS byte of the IP header without ECN bits.
    pub(crate) tos: u8,
    pub(crate) message: Message,
}

impl InFlight {
    /// Create the link's packet around this payload.
    #[inline(always)]
    pub(crate) fn packet(self) -> Packet {
        let wire_size = on_the_wire(self.message.ip_size());
        let (flow, ecn) = (self.flow, self.message.ecn());
        // Connections whose numbers differ by 65,536 do not exist at the same time.
        let connection = self.connection as u16;
        Packet::new(wire_size, Cell::new(self))
            .with_flow(flow, ecn)
            .with_tos(self.tos)
            .with_connection(connection)
    }
}

impl Message {
    /// ECN bits that the sender gave the packet.
    pub(crate) fn ecn(&self) -> Ecn {
        match self {
            Self::Tcp(packet) => packet.ecn(),
            Self::Udp(_) => Ecn::NotEct,
        }
    }

    /// Set the ECN bits to those of the packet after the links, which may have marked it.
    #[inline]
    pub(crate) fn set_ecn(&mut self, ecn: Ecn) {
        if let Self::Tcp(packet) = self {
            packet.set_ecn(ecn);
        }
    }

    /// Size of the IP packet in bytes.
    pub(crate) fn ip_size(&self) -> Bytes {
        match self {
            Self::Tcp(packet) => packet.ip_size(),
            Self::Udp(datagram) => datagram.size + UDP_HEADERS,
        }
    }
}

/// Flag ECE in a TCP header (RFC 3168 6.1).
const ECE: u8 = 0x40;

impl CarriesTcp for InFlight {
    fn tcp(&self) -> Option<TcpFacts> {
        let InFlight { flow, connection, to, message, .. } = self;
        let Message::Tcp(packet) = message else { return None };
        let (ack, is_pure) = packet.acknowledgement().filter(|(ack, _)| !ack.syn)?;
        let mut sacks = [None; 4];
        // Numbers count segments; truncated to 32 bits they wrap around as in a header.
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

/// A flow and its state in the simulator.
pub(crate) struct Flow {
    pub(crate) plan: FlowPlan,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    Tcp(Box<TcpFlow>),
    Udp(Datagrams),
}

impl Flow {
    /// Create the flow; its congestion controls draw from `seed`, in a run with seed `run_seed`.
    pub(crate) fn new(
        plan: &FlowPlan,
        (seed, run_seed): (u64, u64),
        external: Option<&Arc<dyn ExternalPolicy>>,
    ) -> Result<Self, Unsupported> {
        let app_seed = seed_for(run_seed, &format!("app {}", plan.id));
        let facts = FlowFacts { seed: app_seed, start: plan.start, stop: plan.stop };
        let kind = match &plan.traffic {
            Traffic::Tcp { cc, app, options, parameters } => {
                let parameters = cc_parameters(cc, parameters);
                let clock = (options.profile, options.hz);
                let external = external.map(Arc::clone);
                let controllers = Controllers::new(plan.id, cc, parameters, clock, seed, external)?;
                Kind::Tcp(Box::new(TcpFlow::new(app, *options, controllers, facts)))
            }
            Traffic::Udp { app } => Kind::Udp(Datagrams::new(app, &facts)),
        };
        Ok(Self { plan: plan.clone(), kind })
    }

    /// Tell the ends of a flow over datagrams that a packet was lost. TCP detects losses itself.
    pub(crate) fn lost(&mut self, packet: &InFlight) {
        if let (Kind::Udp(datagrams), Message::Udp(lost)) = (&mut self.kind, &packet.message) {
            datagrams.on_loss(packet.to.other(), *lost);
        }
    }
}

/// Index in [`routes`] of the packets of a flow to one of its ends: first to the server, then to the client.
#[inline]
pub(crate) fn traffic(flow: usize, to: Side) -> usize {
    2 * flow + to.other() as usize
}

/// Component of one direction of a link.
pub(crate) fn component(link: u16, direction: Direction) -> usize {
    2 * usize::from(link) + direction.index()
}

/// Routes of all flows over the components of the links.
pub(crate) fn routes(flows: &[Flow]) -> Routes {
    let of = |plan: &FlowPlan, to| -> Vec<(Instant, LinkRoute)> {
        let direction = plan.direction_to(to);
        plan.routes_to(to, |link| component(link, direction)).collect()
    };
    let both = |flow: &Flow| [Side::Server, Side::Client].map(|to| of(&flow.plan, to));
    Routes::new(flows.iter().flat_map(both))
}
