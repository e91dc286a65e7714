//! One flow: a TCP connection, or a probe and its echo.

use skyhop_app::Kind as _;
use skyhop_cc::{Controller, Registry, Setup};
use skyhop_engine::Unsupported;
use skyhop_link::Packet;
use skyhop_model::{Ecn, End};
use skyhop_scenario::{FlowPlan, Traffic, cc_parameters};
use skyhop_tcp::{Ack, Receiver, ReceiverConfig, Segment, Sender, SenderConfig};
use skyhop_units::{Bytes, Instant};

use crate::probe::ProbeFlow;

/// What travels over the links.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Message {
    Segment(Segment),
    Ack(Ack),
    Probe(u64),
    Echo(u64),
}

/// A packet of a flow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlight {
    pub(crate) flow: u32,
    /// The flow's route that it takes, and how many links of it lie behind.
    pub(crate) route: u16,
    pub(crate) hop: u16,
    pub(crate) message: Message,
}

impl Message {
    /// The ECN bits that it sets out with.
    pub(crate) fn ecn(&self) -> Ecn {
        match self {
            Self::Segment(segment) => segment.ecn,
            Self::Ack(_) | Self::Probe(_) | Self::Echo(_) => Ecn::NotEct,
        }
    }

    /// The same message, as the links have left its ECN bits.
    pub(crate) fn with_ecn(mut self, ecn: Ecn) -> Self {
        if let Self::Segment(segment) = &mut self {
            segment.ecn = ecn;
        }
        self
    }

    /// Whether it goes from the sender of data to the receiver.
    pub(crate) fn is_data(&self) -> bool {
        matches!(self, Self::Segment(_) | Self::Probe(_))
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
    Tcp(Box<Connection>),
    Probe(ProbeFlow),
}

/// A TCP connection, both ends.
pub(crate) struct Connection {
    pub(crate) sender: Sender<Controller>,
    pub(crate) receiver: Receiver,
    pub(crate) bytes: Option<Bytes>,
    pub(crate) started: bool,
    /// When it stopped sending, and was forgotten.
    pub(crate) stopped: Option<Instant>,
}

impl Flow {
    pub(crate) fn new(plan: &FlowPlan, seed: u64) -> Result<Self, Unsupported> {
        let kind = match &plan.traffic {
            Traffic::Tcp { cc, app, options, parameters } => {
                let own = cc_parameters(cc, parameters);
                let config = SenderConfig { ecn: options.ecn, ..SenderConfig::default() };
                Kind::Tcp(Box::new(Connection::new(plan.id, cc, &own, config, app.bytes(), seed)?))
            }
            Traffic::Probe { interval, size } => {
                Kind::Probe(ProbeFlow::new(plan.id, *interval, *size))
            }
        };
        let mut flow = Self { plan: plan.clone(), kind, route: 0, next_route_at: Instant::NEVER };
        flow.take_route(0);
        Ok(flow)
    }

    /// The direction in which `message` goes: 0 for from -> to.
    pub(crate) fn direction(&self, message: &Message) -> usize {
        usize::from((self.plan.from == End::From) != message.is_data())
    }

    /// A packet that sets out now, of so many bytes on the wire.
    pub(crate) fn packet(
        &mut self,
        index: usize,
        message: Message,
        wire_size: Bytes,
        now: Instant,
    ) -> Packet<InFlight> {
        while now >= self.next_route_at {
            self.take_route(self.route + 1);
        }
        let flow = index as u32;
        let payload = InFlight { flow, route: self.route, hop: 0, message };
        Packet { wire_size, flow, ecn: message.ecn(), payload }
    }

    /// The component of the link that `packet` crosses next; `None` where all lie behind.
    pub(crate) fn next_link(&self, packet: &InFlight) -> Option<usize> {
        let links = &self.plan.routes[usize::from(packet.route)].links;
        let direction = self.direction(&packet.message);
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

impl Connection {
    fn new(
        id: u32,
        cc: &str,
        parameters: &[(String, String)],
        config: SenderConfig,
        bytes: Option<Bytes>,
        seed: u64,
    ) -> Result<Self, Unsupported> {
        let parameters: Vec<(&str, &str)> =
            parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let setup = Setup { params: &parameters, seed, ..Setup::default() };
        let controller = Registry::global()
            .start(cc, &setup, &skyhop_tcp::CALLER)
            .map_err(|e| Unsupported::new(format!("flow.{id}.cc"), e.to_string()))?;
        Ok(Self {
            sender: Sender::new(config, controller),
            receiver: Receiver::new(ReceiverConfig::default()),
            bytes,
            started: false,
            stopped: None,
        })
    }

    pub(crate) fn start(&mut self, now: Instant) {
        self.started = true;
        match self.bytes {
            Some(bytes) => {
                self.sender.write(now, bytes);
                self.sender.finish();
            }
            None => self.sender.write_without_end(),
        }
    }
}
