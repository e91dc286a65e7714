//! One flow: a TCP connection, or a probe and its echo.

use std::collections::BTreeMap;

use serde_json::Value;
use skyhop_cc::{Instance, Module};
use skyhop_scenario::{End, FlowPlan, Traffic};
use skyhop_tcp::{Ack, Receiver, ReceiverConfig, Segment, Sender, SenderConfig};
use skyhop_units::{Bytes, Duration, Instant};

use crate::SimError;

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
    pub(crate) message: Message,
}

/// A flow and its state.
pub(crate) struct Flow {
    pub(crate) plan: FlowPlan,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    Tcp(Box<Connection>),
    Probe(ProbeFlow),
}

/// A TCP connection, both ends.
pub(crate) struct Connection {
    pub(crate) cc: String,
    pub(crate) sender: Sender<Instance>,
    pub(crate) receiver: Receiver,
    pub(crate) bytes: Option<Bytes>,
    pub(crate) started: bool,
    /// When it stopped sending, and was forgotten.
    pub(crate) stopped: Option<Instant>,
}

/// A probe: when each packet was sent and when its echo came back.
pub(crate) struct ProbeFlow {
    pub(crate) interval: Duration,
    pub(crate) size: Bytes,
    pub(crate) sent: Vec<(Instant, Option<Instant>)>,
    pub(crate) next: Instant,
    /// The longest round trip so far: what is out for less may still come.
    pub(crate) longest_rtt: Duration,
}

impl Flow {
    pub(crate) fn new(plan: &FlowPlan, seed: u64) -> Result<Self, SimError> {
        let kind = match &plan.traffic {
            Traffic::Tcp { cc, bytes, parameters } => {
                let own = cc_parameters(cc, parameters);
                Kind::Tcp(Box::new(Connection::new(plan.id, cc, &own, *bytes, seed)?))
            }
            Traffic::Probe { interval, size } => Kind::Probe(ProbeFlow {
                interval: *interval,
                size: *size,
                sent: Vec::new(),
                next: plan.start,
                longest_rtt: Duration::ZERO,
            }),
        };
        Ok(Self { plan: plan.clone(), kind })
    }

    /// The direction in which its data goes: 0 for from -> to.
    pub(crate) fn data_direction(&self) -> usize {
        match self.plan.from {
            End::From => 0,
            End::To => 1,
        }
    }
}

/// The parameters in the table named after the congestion control, as text.
fn cc_parameters(cc: &str, tables: &BTreeMap<String, Value>) -> Vec<(String, String)> {
    let own = tables.get(cc.strip_prefix("skyhop:").unwrap_or(cc)).and_then(Value::as_object);
    own.into_iter()
        .flatten()
        .map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (name.clone(), text)
        })
        .collect()
}

impl Connection {
    fn new(
        id: u32,
        cc: &str,
        parameters: &[(String, String)],
        bytes: Option<Bytes>,
        seed: u64,
    ) -> Result<Self, SimError> {
        let parameters: Vec<(&str, &str)> =
            parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let name = cc.strip_prefix("skyhop:").unwrap_or(cc);
        let wrong =
            |e: skyhop_cc::CcError| SimError::CongestionControl { flow: id, reason: e.to_string() };
        let module = Module::find(name).map_err(wrong)?;
        let instance = Instance::new(module, &parameters).map_err(wrong)?.with_seed(seed);
        Ok(Self {
            cc: cc.to_owned(),
            sender: Sender::new(SenderConfig::default(), instance),
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
